//! The connections: which can be hoped for, and what becomes of those who wait when one stalls or breaks.

use std::sync::{Arc, MutexGuard};

use redis::aio::MultiplexedConnection;
use tollgate_core::{BackendError, FailureKind};

use super::{Dispatch, NO_ANSWER};
use crate::call;
use crate::error::again;
use crate::handed::Handed;
use crate::job::Job;
use crate::link;
use crate::queue::Queue;
use crate::wire::Request;

#[derive(Debug)]
pub(super) struct State {
    pub(super) queue: Queue,
    pub(super) lanes: Vec<Lane>,
    /// Why the latest connection was lost or not made, for those who find none.
    pub(super) why: Option<BackendError>,
    /// Whether a node that was just heard of is being connected to for the first time, so that it is worth waiting for.
    pub(super) opening: bool,
}

/// One connection, which carries one call at a time: more would only make calls smaller.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) connection: Option<MultiplexedConnection>,
    pub(super) busy: bool,
    /// Its call has missed a deadline. It gets no other until it answers.
    stalled: bool,
    /// Its call is driven by the one who waits for it.
    pub(super) handed: Option<Arc<Handed>>,
}

impl Lane {
    /// Whether what waits may hope for it.
    pub(super) fn is_alive(&self) -> bool {
        self.connection.is_some() && !self.stalled
    }

    /// Its connection, if a call may leave over it now.
    pub(super) fn idle(&self) -> Option<MultiplexedConnection> {
        let connection = self.connection.as_ref()?;
        (!self.stalled && !self.busy).then(|| connection.clone())
    }
}

impl State {
    /// Whether it is worth waiting for an answer.
    pub(super) fn is_hopeful(&self) -> bool {
        self.opening || self.lanes.iter().any(Lane::is_alive)
    }

    /// The calls that those who wait for them drive.
    pub(super) fn take_handed(&mut self) -> Vec<Arc<Handed>> {
        let lanes = self.lanes.iter_mut();
        lanes.filter_map(|lane| lane.handed.take()).collect()
    }

    /// Why nobody can be asked.
    pub(super) fn error(&self) -> BackendError {
        // A stalled connection is still there, and says nothing.
        let stalled = self.lanes.iter().any(|lane| lane.stalled);
        match &self.why {
            Some(why) if !stalled => again(why),
            _ => BackendError::new(FailureKind::Unreachable, NO_ANSWER),
        }
    }
}

impl Dispatch {
    /// A lane has a new connection.
    pub(crate) fn connected(self: &Arc<Self>, lane: usize, connection: MultiplexedConnection) {
        let mut state = self.state();
        state.lanes[lane] = Lane {
            connection: Some(connection),
            ..Lane::default()
        };
        (state.why, state.opening) = (None, false);
        self.pump(&mut state);
    }

    /// A lane could not be connected.
    pub(crate) fn not_connected(&self, error: &BackendError) {
        let mut state = self.state();
        (state.why, state.opening) = (Some(again(error)), false);
        Self::give_up(state, error);
    }

    /// Whether nobody knows yet if it can be connected to.
    pub(crate) fn is_opening(&self) -> bool {
        self.state().opening
    }

    /// A lane's call has missed a deadline: a lost packet, or the server. The other lanes tell which, by a call of our own
    /// where no caller's is on its way. If none is left, nobody waits for another.
    pub(crate) fn stalled(self: &Arc<Self>, lane: usize) {
        let mut state = self.state();
        if state.lanes[lane].stalled {
            return;
        }
        state.lanes[lane].stalled = true;
        for lane in 0..state.lanes.len() {
            self.probe(&mut state, lane);
        }
        // Whoever waited for this one has an answer, and the others' are to tell.
        let handed = state.take_handed();
        Self::give_up(state, &BackendError::new(self.timed_out(), ""));
        handed.iter().for_each(|handed| handed.take_over());
    }

    /// Asks over an idle lane for the time: every server of ours answers that, whatever its keys are.
    fn probe(self: &Arc<Self>, state: &mut State, lane: usize) {
        let Some(connection) = state.lanes[lane].idle() else {
            return;
        };
        state.lanes[lane].busy = true;
        let (job, answer) = Job::awaited(Request::nothing(), self.deadline());
        let run = call::run(Arc::clone(self), lane, connection, vec![job]);
        self.spawn(async move {
            run.await;
            // Until here somebody waits: what nobody waits for is not sent.
            drop(answer);
        });
    }

    /// A lane's call is over, and the connection good for another.
    pub(crate) fn free(self: &Arc<Self>, lane: usize) {
        let mut state = self.state();
        let lane = &mut state.lanes[lane];
        (lane.busy, lane.stalled, lane.handed) = (false, false, None);
        self.pump(&mut state);
    }

    /// A lane's connection is not to be used again.
    pub(crate) fn broken(self: &Arc<Self>, lane: usize, error: &BackendError) {
        let mut state = self.state();
        state.lanes[lane] = Lane::default();
        state.why = Some(again(error));
        Self::give_up(state, error);
        link::spawn(self, lane);
    }

    /// Fails all that wait, if there is nothing that they could wait for.
    fn give_up(mut state: MutexGuard<'_, State>, error: &BackendError) {
        if state.is_hopeful() {
            return;
        }
        let (waiting, unattended): (Vec<_>, Vec<_>) =
            state.queue.drain().partition(Job::is_pending);
        for job in unattended {
            state.queue.push(job);
        }
        drop(state);
        for mut job in waiting {
            job.fail(error.kind(), NO_ANSWER);
        }
    }
}
