//! Who waits, and what leaves when.
//!
//! A request that finds a connection idle leaves at once. While all are busy requests gather, and leave together when one
//! is free again. Nothing waits for a timer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tollgate_core::{BackendError, FailureKind};

use crate::call;
use crate::cluster::Cluster;
use crate::error::again;
use crate::handed::{Handed, Waiting};
use crate::job::Job;
use crate::link::{self, Link};
use crate::queue::Queue;
use crate::stats::Counters;
use crate::wire::{MAX_KEYS, Request};

/// The most requests of one call. A decision costs the server two to six microseconds, so that a call holds it for a few
/// hundred; beyond 64 there is next to nothing left to save on each.
const MAX_REQUESTS: usize = 64;

/// What one call may weigh, see [`Request::weight`](crate::wire::Request::weight): two GCRA charges for each request.
const MAX_WEIGHT: usize = 128;

/// What those are told who find nobody to ask.
const NO_ANSWER: &str = "no connection to Redis answers";

/// How much may wait and for how long, and over how many connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) deadline: Duration,
    pub(crate) waiting: usize,
    pub(crate) connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            deadline: Duration::from_millis(100),
            waiting: 16_384,
            connections: 2,
        }
    }
}

/// The queue and the connections.
#[derive(Debug)]
pub(crate) struct Dispatch {
    pub(crate) link: Link,
    runtime: Handle,
    pub(crate) limits: Limits,
    /// Who knows the other nodes, if there are any.
    pub(crate) cluster: Weak<Cluster>,
    /// Shared with the other nodes, so that what one that has left has sent still counts.
    pub(crate) counters: Arc<Counters>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    queue: Queue,
    lanes: Vec<Lane>,
    /// Why the latest connection was lost or not made, for those who find none.
    why: Option<BackendError>,
    /// Whether a node that was just heard of is being connected to for the first time, so that it is worth waiting for.
    opening: bool,
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

    /// Its connection, if a call may leave over it now.
    fn idle(&self) -> Option<MultiplexedConnection> {
        let connection = self.connection.as_ref()?;
        (!self.stalled && !self.busy).then(|| connection.clone())
    }
}

impl State {
    /// Whether it is worth waiting for an answer.
    fn is_hopeful(&self) -> bool {
        self.opening || self.lanes.iter().any(Lane::is_alive)
    }

    /// The calls that those who wait for them drive.
    fn take_handed(&mut self) -> Vec<Arc<Handed>> {
        let lanes = self.lanes.iter_mut();
        lanes.filter_map(|lane| lane.handed.take()).collect()
    }

    /// Why nobody can be asked.
    fn error(&self) -> BackendError {
        // A stalled connection is still there, and says nothing.
        let stalled = self.lanes.iter().any(|lane| lane.stalled);
        match &self.why {
            Some(why) if !stalled => again(why),
            _ => BackendError::new(FailureKind::Unreachable, NO_ANSWER),
        }
    }
}

impl Dispatch {
    pub(crate) fn new(
        link: Link,
        runtime: Handle,
        limits: Limits,
        cluster: Weak<Cluster>,
        counters: Arc<Counters>,
    ) -> Self {
        let in_cluster = cluster.strong_count() > 0;
        let lanes = (0..limits.connections).map(|_| Lane::default());
        Self {
            link,
            runtime,
            limits,
            cluster,
            counters,
            state: Mutex::new(State {
                queue: Queue::default(),
                lanes: lanes.collect(),
                why: None,
                opening: in_cluster,
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

    /// Sends a request on its way. The calls on the way keep its deadline.
    pub(crate) fn ask(self: &Arc<Self>, request: Request, deadline: Instant) -> Waiting {
        let (job, answer) = Job::awaited(request, deadline);
        let handed = self.hand(job);
        Waiting { answer, handed }
    }

    /// Sends what nobody waits for, to whoever has its key by then.
    pub(crate) fn tell(self: &Arc<Self>, request: Request) {
        let job = Job::unattended(request, &self.counters);
        match self.cluster.upgrade() {
            Some(cluster) => cluster.push(job),
            None => self.push(job),
        }
    }

    /// Takes a job, whoever waits for it being elsewhere.
    pub(crate) fn push(self: &Arc<Self>, job: Job) {
        if let Some(handed) = self.hand(job) {
            handed.take_over();
        }
    }

    /// Takes a job: sends it now, lets it wait, or fails it at once. What nobody waits for, credits and debits, may wait
    /// for the server to come back. Gives back the call if the job leaves alone, for the one who waits to drive.
    #[must_use]
    pub(crate) fn hand(self: &Arc<Self>, mut job: Job) -> Option<Arc<Handed>> {
        let mut state = self.state();
        let is_awaited = job.is_pending();
        if is_awaited && !state.is_hopeful() {
            let error = state.error();
            drop(state);
            job.fail(error.kind(), error.detail());
        } else if state.queue.len() >= self.limits.waiting {
            drop(state);
            job.fail(FailureKind::Overloaded, "");
        } else {
            let leaves_alone = is_awaited && state.queue.is_empty();
            state.queue.push(job);
            if leaves_alone && let Some((lane, run)) = self.next_call(&mut state) {
                let handed = Handed::new(self.runtime.clone(), run);
                state.lanes[lane].handed = Some(Arc::clone(&handed));
                return Some(handed);
            }
            self.pump(&mut state);
            if !state.queue.is_empty() {
                let handed = state.take_handed();
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

    /// Any connection that answers, to ask something else over it.
    pub(crate) fn connection(&self) -> Option<MultiplexedConnection> {
        let state = self.state();
        let mut alive = state.lanes.iter().filter(|lane| lane.is_alive());
        alive.find_map(|lane| lane.connection.clone())
    }

    /// Takes out whatever waits: the node has left the cluster.
    pub(crate) fn drain(&self) -> Vec<Job> {
        self.state().queue.drain().collect()
    }

    pub(crate) fn timed_out(&self) -> FailureKind {
        FailureKind::TimedOut {
            deadline: self.limits.deadline,
        }
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
            let mut lanes = state.lanes.iter().enumerate();
            let (lane, connection) =
                lanes.find_map(|(number, lane)| Some((number, lane.idle()?)))?;
            let jobs = self.batch(&mut state.queue);
            if !jobs.is_empty() {
                state.lanes[lane].busy = true;
                return Some((lane, call::run(Arc::clone(self), lane, connection, jobs)));
            }
        }
        None
    }

    /// As much of what waits as one call may carry, without what nobody wants any more.
    fn batch(&self, queue: &mut Queue) -> Vec<Job> {
        let (mut keys, mut weight, mut count) = (0, 0, 0);
        let mut jobs = Vec::with_capacity(queue.len().min(MAX_REQUESTS));
        let fits = |job: &Job| {
            keys += job.request.names.len();
            weight += job.request.weight();
            count += 1;
            let within = keys <= MAX_KEYS && weight <= MAX_WEIGHT && count <= MAX_REQUESTS;
            count == 1 || (within && !job.route.alone)
        };
        queue.take_turn(fits, |job| jobs.push(job));
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
