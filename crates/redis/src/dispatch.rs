//! Who waits, and what leaves when.
//!
//! A request that finds a connection idle leaves at once. While all are busy requests gather, and leave together when one
//! is free again. Nothing waits for a timer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tollgate_core::{BackendError, FailureKind};

use crate::call;
use crate::handed::Handed;
use crate::job::Job;
use crate::link::{self, Link};
use crate::stats::Counters;
use crate::wire::MAX_KEYS;

/// The most requests of one call. A decision costs the server two to six microseconds, so that a call holds it for a few
/// hundred; beyond 64 there is next to nothing left to save on each.
const MAX_REQUESTS: usize = 64;

/// What one call may weigh, see [`Request::weight`](crate::wire::Request::weight): two GCRA charges for each request.
const MAX_WEIGHT: usize = 128;

/// How much may wait and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) deadline: Duration,
    pub(crate) waiting: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            deadline: Duration::from_millis(100),
            waiting: 16_384,
        }
    }
}

/// The queue and the connections.
#[derive(Debug)]
pub(crate) struct Dispatch {
    pub(crate) link: Link,
    runtime: Handle,
    pub(crate) limits: Limits,
    pub(crate) counters: Counters,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    queue: VecDeque<Job>,
    lanes: Vec<Lane>,
}

/// One connection, which carries one call at a time: more would only make calls smaller.
#[derive(Debug, Default)]
struct Lane {
    connection: Option<MultiplexedConnection>,
    busy: bool,
    /// Its call has missed a deadline. It gets no other until it answers.
    stalled: bool,
    /// Its call is driven by the one who waits for it.
    handed: Option<Arc<Handed>>,
}

impl Lane {
    /// Whether what waits may hope for it.
    fn is_alive(&self) -> bool {
        self.connection.is_some() && !self.stalled
    }
}

impl Dispatch {
    pub(crate) fn new(link: Link, runtime: Handle, limits: Limits, lanes: usize) -> Self {
        Self {
            link,
            runtime,
            limits,
            counters: Counters::default(),
            state: Mutex::new(State {
                queue: VecDeque::new(),
                lanes: (0..lanes).map(|_| Lane::default()).collect(),
            }),
        }
    }

    /// Runs in the background, wherever it was asked for. Nobody joins it.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let _detached = self.runtime.spawn(task);
    }

    pub(crate) fn lanes(&self) -> usize {
        self.state().lanes.len()
    }

    /// When a request that comes now must have its answer.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.limits.deadline
    }

    /// Takes a job: sends it now, lets it wait, or fails it at once. What nobody waits for, credits and debits, may wait
    /// for the server to come back. Gives back the call if the job leaves alone, for the one who waits to drive.
    #[must_use]
    pub(crate) fn push(self: &Arc<Self>, mut job: Job) -> Option<Arc<Handed>> {
        let mut state = self.state();
        let is_awaited = job.is_pending();
        if is_awaited && !state.lanes.iter().any(Lane::is_alive) {
            drop(state);
            job.fail(FailureKind::Unreachable, "no connection to Redis answers");
        } else if state.queue.len() >= self.limits.waiting {
            drop(state);
            job.fail(FailureKind::Overloaded, "");
        } else {
            let leaves_alone = is_awaited && state.queue.is_empty();
            state.queue.push_back(job);
            if leaves_alone && let Some((lane, run)) = self.next_call(&mut state) {
                let handed = Handed::new(self.runtime.clone(), run);
                state.lanes[lane].handed = Some(Arc::clone(&handed));
                return Some(handed);
            }
            self.pump(&mut state);
            if !state.queue.is_empty() {
                let lanes = state.lanes.iter_mut();
                let handed: Vec<_> = lanes.filter_map(|lane| lane.handed.take()).collect();
                drop(state);
                // Now somebody depends on them.
                handed.iter().for_each(|handed| handed.take_over());
            }
        }
        None
    }

    /// A lane has a new connection.
    pub(crate) fn connected(self: &Arc<Self>, lane: usize, connection: MultiplexedConnection) {
        let mut state = self.state();
        state.lanes[lane] = Lane {
            connection: Some(connection),
            ..Lane::default()
        };
        self.pump(&mut state);
    }

    /// A lane's call has missed a deadline. If that was the last hope, nobody waits for another.
    pub(crate) fn stalled(&self, lane: usize) {
        let mut state = self.state();
        state.lanes[lane].stalled = true;
        Self::give_up(state, &BackendError::new(self.timed_out(), ""));
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
        Self::give_up(state, error);
        link::spawn(self, lane);
    }

    pub(crate) fn timed_out(&self) -> FailureKind {
        FailureKind::TimedOut {
            deadline: self.limits.deadline,
        }
    }

    /// Fails all that wait, if there is nothing that they could wait for.
    fn give_up(mut state: MutexGuard<'_, State>, error: &BackendError) {
        if state.lanes.iter().any(Lane::is_alive) {
            return;
        }
        let (waiting, unattended): (VecDeque<_>, VecDeque<_>) =
            state.queue.drain(..).partition(Job::is_pending);
        state.queue = unattended;
        drop(state);
        for mut job in waiting {
            job.fail(error.kind(), "no connection to Redis answers");
        }
    }

    /// Sends what waits over what is free.
    fn pump(self: &Arc<Self>, state: &mut State) {
        while let Some((_lane, run)) = self.next_call(state) {
            self.spawn(run);
        }
    }

    /// A call of what waits, over a lane that is free and now is not.
    fn next_call(
        self: &Arc<Self>,
        state: &mut State,
    ) -> Option<(usize, impl Future<Output = ()> + Send + 'static)> {
        while !state.queue.is_empty() {
            let is_free = |lane: &Lane| lane.is_alive() && !lane.busy;
            let lane = state.lanes.iter().position(is_free)?;
            let connection = state.lanes[lane].connection.clone()?;
            let jobs = self.batch(&mut state.queue);
            if !jobs.is_empty() {
                state.lanes[lane].busy = true;
                return Some((lane, call::run(Arc::clone(self), lane, connection, jobs)));
            }
        }
        None
    }

    /// As much from the front of the queue as one call may carry, without what nobody wants any more.
    fn batch(&self, queue: &mut VecDeque<Job>) -> Vec<Job> {
        let (mut keys, mut weight, mut count) = (0, 0, 0);
        for job in queue.iter().take(MAX_REQUESTS) {
            keys += job.request.names.len();
            weight += job.request.weight();
            if count > 0 && (keys > MAX_KEYS || weight > MAX_WEIGHT) {
                break;
            }
            count += 1;
        }
        let mut jobs = queue.drain(..count).collect();
        self.drop_unwanted(&mut jobs);
        jobs
    }

    /// Fails the jobs that are too late, and forgets those that were withdrawn.
    pub(crate) fn drop_unwanted(&self, jobs: &mut Vec<Job>) {
        let now = Instant::now();
        jobs.retain_mut(|job| {
            let is_late = job.is_pending() && job.deadline <= now;
            if is_late {
                job.fail(self.timed_out(), "");
            }
            !is_late && !job.is_withdrawn()
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
