//! The connections: which can be hoped for, and what becomes of those who wait when one stalls or breaks.

use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::task::Poll;

use tollgate_core::{BackendError, FailureKind};

use super::{Dispatch, NO_ANSWER};
use crate::call;
use crate::error::again;
use crate::handed::Handed;
use crate::job::Job;
use crate::link::Connection;
use crate::queue::Queue;
use crate::reconnect;
use crate::sync::MutexGuard;
use crate::wire::Request;

#[derive(Debug)]
pub(super) struct State {
    pub(super) queue: Queue,
    pub(super) lanes: Vec<Lane>,
    /// Why the latest connection was lost or not made, for those who find none.
    pub(super) why: Option<BackendError>,
    /// Whether a node that was just heard of is being connected to for the first time, so that it is worth waiting for.
    pub(super) opening: bool,
    /// Whether the node is none of the cluster's any more, so that nobody would ever come to what waits here.
    pub(super) has_left: bool,
}

/// One connection, which carries one call at a time: more would only make calls smaller.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) connection: Option<Connection>,
    stage: Stage,
    /// Its call has missed a deadline. It gets no other until it answers.
    stalled: bool,
    /// Its call is driven by the one who waits for it.
    pub(super) handed: Option<Arc<Handed>>,
}

/// What a lane does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Idle,
    /// It leaves when those who are ready to ask have asked.
    Gathering,
    Calling,
}

impl Lane {
    /// Whether what waits may hope for it.
    pub(super) fn is_alive(&self) -> bool {
        self.connection.is_some() && !self.stalled
    }

    /// Its connection, if a call may leave over it now.
    pub(super) fn idle(&self) -> Option<Connection> {
        let connection = self.connection.as_ref()?;
        self.is_idle().then(|| connection.clone())
    }

    pub(super) fn is_gathering(&self) -> bool {
        self.stage == Stage::Gathering
    }

    /// Nothing is under way on it any more.
    fn rest(&mut self) {
        (self.stage, self.stalled, self.handed) = (Stage::Idle, false, None);
    }

    fn is_idle(&self) -> bool {
        self.is_alive() && self.stage == Stage::Idle
    }
}

impl State {
    /// Whether it is worth waiting for an answer.
    pub(super) fn is_hopeful(&self) -> bool {
        self.opening || self.lanes.iter().any(Lane::is_alive)
    }

    /// The lane that takes along the only one who asks, if nobody else does.
    pub(super) fn leads(&mut self) -> Option<usize> {
        let is_alone =
            self.queue.len() == 1 && self.lanes.iter().all(|lane| lane.stage == Stage::Idle);
        if is_alone { self.gather() } else { None }
    }

    /// A lane that is idle and now is not: it takes along what waits.
    pub(super) fn gather(&mut self) -> Option<usize> {
        let lane = self.lanes.iter().position(Lane::is_idle)?;
        self.lanes[lane].stage = Stage::Gathering;
        Some(lane)
    }

    /// Whether a lane is about to leave, so that what waits leaves with it.
    pub(super) fn is_gathering(&self) -> bool {
        self.lanes.iter().any(Lane::is_gathering)
    }

    /// The calls that those who wait for them drive, of these lanes.
    pub(super) fn take_handed(&mut self, of: impl Fn(&Lane) -> bool) -> Vec<Arc<Handed>> {
        let lanes = self.lanes.iter_mut().filter(|lane| of(lane));
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

/// Sends what waits over a lane, call by call, until nothing does. Each leaves after those who are ready to ask.
pub(super) async fn work(dispatch: Arc<Dispatch>, lane: usize) {
    let mut goes_on = true;
    while goes_on {
        after_others().await;
        goes_on = call(&dispatch, lane).await;
    }
}

/// The same, of which the first call leaves at once.
pub(super) async fn lead(dispatch: Arc<Dispatch>, lane: usize) {
    if call(&dispatch, lane).await {
        work(dispatch, lane).await;
    }
}

/// Whether there is another to send.
async fn call(dispatch: &Arc<Dispatch>, lane: usize) -> bool {
    let Some((connection, jobs)) = dispatch.depart(lane) else {
        return false;
    };
    call::run(dispatch, lane, connection, jobs).await && dispatch.goes_on(lane)
}

/// Lets those run first who are ready to: a task that wakes itself stands at the end of their line.
async fn after_others() {
    let mut has_waited = false;
    poll_fn(|cx| {
        if mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Dispatch {
    /// What a lane that has gathered takes along. It is idle again if that is nothing.
    fn depart(self: &Arc<Self>, lane: usize) -> Option<(Connection, Vec<Job>)> {
        let mut state = self.state();
        let mut jobs = Vec::new();
        while jobs.is_empty() && !state.queue.is_empty() {
            jobs = self.batch(&mut state.queue);
        }
        let connection = state.lanes[lane].connection.clone();
        let Some(connection) = connection.filter(|_| !jobs.is_empty()) else {
            state.lanes[lane].rest();
            return None;
        };
        state.lanes[lane].stage = Stage::Calling;
        self.pump(state);
        Some((connection, jobs))
    }

    /// A lane's call is over, and the connection good for another. Whether it has somebody to take along.
    fn goes_on(&self, lane: usize) -> bool {
        let mut state = self.state();
        state.lanes[lane].rest();
        if state.queue.is_empty() || state.is_gathering() {
            return false;
        }
        state.lanes[lane].stage = Stage::Gathering;
        true
    }

    /// A lane has a new connection.
    pub(crate) fn connected(self: &Arc<Self>, lane: usize, connection: Connection) {
        let mut state = self.state();
        state.lanes[lane] = Lane {
            connection: Some(connection),
            ..Lane::default()
        };
        (state.why, state.opening) = (None, false);
        self.pump(state);
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
        let handed = state.take_handed(|_any| true);
        Self::give_up(state, &BackendError::new(self.timed_out(), ""));
        handed.iter().for_each(|handed| handed.take_over());
    }

    /// Asks over an idle lane for the time: every server of ours answers that, whatever its keys are.
    fn probe(self: &Arc<Self>, state: &mut State, lane: usize) {
        let Some(connection) = state.lanes[lane].idle() else {
            return;
        };
        state.lanes[lane].stage = Stage::Calling;
        let (job, answer) = Job::awaited(Request::nothing(), self.deadline());
        let dispatch = Arc::clone(self);
        self.spawn(async move {
            if call::run(&dispatch, lane, connection, vec![job]).await {
                dispatch.free(lane);
            }
            // Until here somebody waits: what nobody waits for is not sent.
            drop(answer);
        });
    }

    /// A lane's call is over, and the connection good for another.
    pub(crate) fn free(self: &Arc<Self>, lane: usize) {
        let mut state = self.state();
        state.lanes[lane].rest();
        self.pump(state);
    }

    /// A lane's connection is not to be used again.
    pub(crate) fn broken(self: &Arc<Self>, lane: usize, error: &BackendError) {
        let mut state = self.state();
        state.lanes[lane] = Lane::default();
        state.why = Some(again(error));
        Self::give_up(state, error);
        reconnect::spawn(self, lane);
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
