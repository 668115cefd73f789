//! Who waits, and what leaves when.
//!
//! A request that finds nothing on its way leaves at once. The next one takes a connection of its own, and leaves as soon as
//! those have had their turn who are ready to run: what they ask leaves with it. While all connections are busy requests
//! gather, and leave together when one is free again. Nothing waits for a timer.

mod lane;

use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use tollgate_core::FailureKind;

use crate::cluster::Cluster;
use crate::handed::{Handed, Waiting};
use crate::job::Job;
use crate::link::{Connection, Link};
use crate::queue::Queue;
use crate::stats::Counters;
use crate::sync::{Handle, Instant, Mutex, MutexGuard};
use crate::wire::{MAX_KEYS, Request};

use lane::{Lane, State};

/// The most requests of one call. A decision costs the server two to six microseconds, so that a call holds it for a few
/// hundred; beyond 64 there is next to nothing left to save on each.
const MAX_REQUESTS: usize = 64;

/// What one call may weigh, see [`Request::weight`](crate::wire::Request::weight): two GCRA charges for each request.
const MAX_WEIGHT: usize = 128;

/// The most states of one call: a GCRA state that was given back to often is a kilobyte, which has to be read and answered.
const MAX_STATES: usize = 96;
const _: () = assert!(MAX_STATES <= MAX_KEYS, "keys are told by a byte");

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
                has_left: false,
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
    pub(crate) fn ask(
        self: &Arc<Self>,
        request: impl Into<Arc<Request>>,
        deadline: Instant,
    ) -> Waiting {
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
        if state.has_left {
            drop(state);
            return self.cluster.upgrade()?.hand(job);
        }
        let is_awaited = job.is_pending();
        if is_awaited && !state.is_hopeful() {
            let error = state.error();
            drop(state);
            job.fail(error.kind(), error.detail());
        } else if state.queue.len() >= self.limits.waiting {
            drop(state);
            job.fail(FailureKind::Overloaded, "");
        } else {
            state.queue.push(job);
            if is_awaited && let Some(lane) = state.leads() {
                let handed = Handed::new(self.runtime.clone(), lane::lead(Arc::clone(self), lane));
                state.lanes[lane].handed = Some(Arc::clone(&handed));
                return Some(handed);
            }
            self.pump(state);
        }
        None
    }

    /// Any connection that answers, to ask something else over it.
    pub(crate) fn connection(&self) -> Option<Connection> {
        let state = self.state();
        let mut alive = state.lanes.iter().filter(|lane| lane.is_alive());
        alive.find_map(|lane| lane.connection.clone())
    }

    /// Whether it is worth waiting for an answer.
    pub(crate) fn is_hopeful(&self) -> bool {
        self.state().is_hopeful()
    }

    /// The node has left the cluster. Gives what waits for it; who comes later, having looked it up before, is sent on.
    pub(crate) fn leave(&self) -> Vec<Job> {
        let mut state = self.state();
        state.has_left = true;
        state.queue.drain().collect()
    }

    pub(crate) fn timed_out(&self) -> FailureKind {
        FailureKind::TimedOut {
            deadline: self.limits.deadline,
        }
    }

    /// Has what waits sent: with the call that is about to leave, or over a lane that is free, or when one is. Nobody may
    /// depend on another one's polling what it waits for.
    fn pump(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        if state.queue.is_empty() {
            return;
        }
        let handed = if state.is_gathering() {
            state.take_handed(Lane::is_gathering)
        } else if let Some(lane) = state.gather() {
            self.spawn(lane::work(Arc::clone(self), lane));
            return;
        } else {
            state.take_handed(|_any| true)
        };
        drop(state);
        handed.iter().for_each(|handed| handed.take_over());
    }

    /// As much of what waits as one call may carry, without what nobody wants any more.
    fn batch(&self, queue: &mut Queue) -> Vec<Job> {
        let (mut keys, mut weight, mut count) = (0, 0, 0);
        let mut jobs = Vec::with_capacity(queue.len().min(MAX_REQUESTS));
        let fits = |job: &Job| {
            keys += job.request.names.len();
            weight += job.request.weight();
            count += 1;
            let within = keys <= MAX_STATES && weight <= MAX_WEIGHT && count <= MAX_REQUESTS;
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
