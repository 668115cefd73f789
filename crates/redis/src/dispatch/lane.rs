//! Calls over the lanes, and the waiting callers when a connection stalls or breaks.

use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tollgate_core::{BackendError, FailureKind};

use super::traffic::{Hope, Place, Traffic};
use super::{Dispatch, NO_ANSWER, batch, reconnect};
use crate::connection::Connection;
use crate::error::again;
use crate::job::Job;
use crate::link::Handshake;
use crate::server::Address;
use crate::sync::{Instant, MutexGuard, sleep_until};
use crate::wire::Request;

/// The error of calls for which the server has left no connection, and another cannot be made.
const CLOSED: &str = "the server closed the connection";

/// The error of calls between two masters.
const REPLACED: &str = "the Sentinels name another master, which is being connected to";

/// Sends waiting jobs over a lane, call by call, until none is left. Each call leaves after the tasks that are ready to ask.
pub(super) async fn work(dispatch: Arc<Dispatch>, lane: usize) {
    let mut goes_on = true;
    while goes_on {
        after_others().await;
        goes_on = call(&dispatch, lane).await;
    }
}

/// Sends waiting jobs over a lane; the first call leaves at once.
pub(super) async fn lead(dispatch: Arc<Dispatch>, lane: usize) {
    if call(&dispatch, lane).await {
        work(dispatch, lane).await;
    }
}

/// Says whether there is another call to send.
async fn call(dispatch: &Arc<Dispatch>, lane: usize) -> bool {
    let Some((connection, place, jobs)) = dispatch.depart(lane) else {
        return false;
    };
    batch::run(dispatch, place, connection, jobs).await && dispatch.goes_on(place)
}

/// Lets ready tasks run first: a task that wakes itself goes to the end of the run queue.
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
    /// The jobs that a lane takes along after gathering. Without any, it is idle again.
    fn depart(self: &Arc<Self>, lane: usize) -> Option<(Connection, Place, Vec<Job>)> {
        let mut state = self.state();
        let now = Instant::now();
        let (mut jobs, mut late) = (Vec::new(), Vec::new());
        let on_its_way = state.calls(lane);
        while on_its_way.is_some() && jobs.is_empty() && !state.queue.is_empty() {
            let turn = self.batch(&mut state, now);
            jobs = turn.jobs;
            late.extend(turn.late);
        }
        let departed = match on_its_way {
            Some((connection, place)) if !jobs.is_empty() => {
                self.pump(state);
                Some((connection, place, jobs))
            }
            _ => {
                state.stays(lane);
                // Jobs may have waited for this lane, whose connection has ended meanwhile.
                self.pump(state);
                None
            }
        };
        self.fail_as_late(late, now, None);
        departed
    }

    /// Ends a lane's call whose connection is good for another. Says whether the lane has jobs to take along.
    fn goes_on(self: &Arc<Self>, place: Place) -> bool {
        let mut state = self.state();
        let is_free = state.rest(place);
        if state.queue.is_empty() || state.is_gathering() {
            return false;
        }
        let goes_on = is_free && state.gathers_again(place);
        if !goes_on {
            self.pump(state);
        }
        goes_on
    }

    /// Takes a new connection.
    pub(crate) fn connected(self: &Arc<Self>, wire: usize, opened: Handshake) {
        let mut state = self.state();
        let ended = opened.ended.clone();
        let number = state.connected(wire, opened);
        self.pump(state);
        let keeping = reconnect::keep(Arc::downgrade(self), wire, number, ended);
        self.runtime.spawn_aside(keeping);
    }

    /// Makes another connection in place of one that has ended while nobody used it.
    pub(super) fn ended(self: &Arc<Self>, wire: usize, number: u64) {
        let mut state = self.state();
        let error = BackendError::new(FailureKind::Unreachable, CLOSED);
        let Some(short_lives) = state.ended(wire, number, &error) else {
            return;
        };
        // One attempt may meet a server that is closing connections still.
        self.hope(&mut state, 3 * self.limits.connections);
        let opens = state.opens(wire);
        self.pump(state);
        if opens {
            reconnect::spawn_after(self, wire, short_lives);
        }
    }

    /// Has something sent over a connection that nobody uses, so that nothing in between forgets it. Returns false once it is no longer
    /// in use.
    pub(super) fn keep_alive(self: &Arc<Self>, wire: usize, number: u64) -> bool {
        let mut state = self.state();
        let unused = state.unused(wire, number);
        if unused == Some(true) {
            self.probe(&mut state, wire);
        }
        unused.is_some()
    }

    /// Notes that a connection could not be made.
    pub(crate) fn not_connected(&self, error: &BackendError) {
        let mut state = self.state();
        state.not_connected(error);
        Self::give_up(state, error);
    }

    /// Lets jobs wait for another connection, for one deadline at most.
    fn hope(self: &Arc<Self>, state: &mut Traffic, attempts: usize) {
        let mut until = Instant::now() + self.limits.deadline;
        state.hope = Some(Hope { until, attempts });
        // One timer is enough, however often connections end.
        if mem::replace(&mut state.is_hope_timed, true) {
            return;
        }
        let dispatch = Arc::downgrade(self);
        self.runtime.spawn_aside(async move {
            loop {
                sleep_until(until).await;
                let Some(dispatch) = dispatch.upgrade() else {
                    return;
                };
                let mut state = dispatch.state();
                match &state.hope {
                    Some(hope) if hope.until > until => until = hope.until,
                    _ => {
                        state.is_hope_timed = false;
                        let error = state.error();
                        return Self::give_up(state, &error);
                    }
                }
            }
        });
    }

    /// Says whether the first attempt to connect is still under way.
    pub(crate) fn is_opening(&self) -> bool {
        self.state().is_opening()
    }

    /// Notes that a call was answered after this time. Says whether its connection is still in use: the answers of one that was
    /// given up because of another call are not believed.
    pub(crate) fn answered(&self, place: Place, round_trip: Duration) -> bool {
        let mut state = self.state();
        state.answered(place, round_trip)
    }

    /// The time for which a late call does not count as stalled: some requests meet their deadline by a hair.
    pub(crate) fn patience(&self) -> Duration {
        let round_trip = self.state().pace.round_trip();
        round_trip.map_or(Duration::ZERO, |round_trip| round_trip * 2)
    }

    /// Handles a call that should have been answered: a packet was lost, the way is forgotten, or the server stalls. The
    /// other connections tell which, by a call of our own on those without a caller's, and are not used before they have answered.
    pub(crate) fn stalled(self: &Arc<Self>, place: Place) {
        let mut state = self.state();
        if !state.stalled(place) {
            return;
        }
        for lane in 0..self.limits.connections {
            self.probe(&mut state, lane);
        }
        state.doubts_until = Some(Instant::now());
        let calls = state.take_inline_calls(|_any| true);
        // If it is the way to the server that is silent, another connection answers. This one may still be answered, too.
        let wire = state.wire_of(place);
        // Another connection that stalls meanwhile is no reason to wait for longer.
        if state.hope.is_none() {
            self.hope(&mut state, 1);
        }
        let opens = state.opens(wire);
        Self::give_up(state, &BackendError::new(self.timed_out(), ""));
        calls.iter().for_each(|call| call.take_over());
        if opens {
            reconnect::spawn(self, wire);
        }
    }

    /// Asks for the time over an idle lane: every server of ours answers that, whatever its keys are.
    fn probe(self: &Arc<Self>, state: &mut Traffic, lane: usize) {
        if !state.is_idle(lane) {
            return;
        }
        let Some((connection, place)) = state.calls(lane) else {
            return;
        };
        let (job, answer) = Job::awaited(Request::nothing(), self.deadline());
        let dispatch = Arc::clone(self);
        self.spawn(async move {
            if batch::run(&dispatch, place, connection, vec![job]).await {
                dispatch.free(place);
            }
            // Until here a caller waits: without one nothing is sent.
            drop(answer);
        });
    }

    /// Ends a lane's call whose connection is good for another.
    pub(crate) fn free(self: &Arc<Self>, place: Place) {
        let mut state = self.state();
        let _was_its = state.rest(place);
        self.pump(state);
    }

    /// Gives up the connection of a call.
    pub(crate) fn broken(self: &Arc<Self>, place: Place, error: &BackendError) {
        let mut state = self.state();
        let _was_its = state.rest(place);
        if !state.is_current(place) {
            // Another call has given it up before.
            return self.pump(state);
        }
        let wire = state.broken(place, error);
        let opens = state.opens(wire);
        Self::give_up(state, error);
        if opens {
            reconnect::spawn(self, wire);
        }
    }

    /// Sends the jobs of a call over another connection, because this one had ended before a byte of the call was written.
    pub(crate) fn resend(self: &Arc<Self>, place: Place, jobs: Vec<Job>) {
        let mut state = self.state();
        let _was_its = state.rest(place);
        let (wire, number) = (state.wire_of(place), place.number);
        drop(state);
        self.ended(wire, number);
        for job in jobs {
            self.push(job);
        }
    }

    /// Handles a change of the master. Connections to other servers are closed, and made again without a pause: a call that was
    /// on its way there may have run on a server that is no longer the master.
    pub(crate) fn is_replaced_by(self: &Arc<Self>, master: &Address) {
        let mut state = self.state();
        let mut given_up = state.give_up_all_but(master);
        let error = BackendError::new(FailureKind::Unreachable, REPLACED);
        if !given_up.is_empty() {
            state.why = Some(again(&error));
        }
        given_up.retain(|wire| state.opens(*wire));
        Self::give_up(state, &error);
        for wire in given_up {
            reconnect::spawn(self, wire);
        }
        self.hurry.notify_waiters();
    }

    /// Fails all waiting jobs if there is nothing that they could wait for.
    fn give_up(mut state: MutexGuard<'_, Traffic>, error: &BackendError) {
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
