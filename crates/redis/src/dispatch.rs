//! Dispatch: the requests that wait, and the calls that carry them.
//!
//! A request that finds no call under way leaves at once. The next request takes a connection of its own, and leaves once the
//! tasks that are ready to run have had their turn: their requests leave with it. While all connections are busy requests
//! gather, and leave together when one is free again. The distance of the server decides how many calls keep a connection busy.
//! Nothing waits for a timer, except that one rings when the deadline of waiting requests comes.

pub(crate) mod batch;
mod lane;
pub(crate) mod pace;
mod reconnect;
mod traffic;

use std::fmt;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tollgate_core::{BackendError, FailureKind};

use crate::connection::Connection;
use crate::error::again;
use crate::holder::Holder;
use crate::inline_call::{AnswerFuture, InlineCall};
use crate::job::{CreditSink, Job, gone};
use crate::known::KnownDenials;
use crate::link::Link;
use crate::queue::Batch;
use crate::redirect::Redirect;
use crate::stats::Counters;
use crate::sync::{Handle, Instant, Mutex, MutexGuard, sleep_until};
use crate::wire::{MAX_KEYS, Request};

use traffic::{Hope, Lane, Traffic};

/// The most requests of one call. A decision costs the server two to six microseconds, so 64 hold it for a few hundred; beyond
/// 64 almost nothing is left to save on each.
pub(crate) const MAX_REQUESTS: usize = 64;

/// The most that one call may weigh, see [`Request::weight`](crate::wire::Request::weight): two GCRA charges for each request.
const MAX_WEIGHT: usize = 128;

/// The most states of one call, bans aside. A GCRA state with many credits is a kilobyte, and takes the server up to 90,000
/// instructions to read, decide and answer. The call is built before the states are read, so any of them may be that long.
const MAX_STATES: usize = 64;
const _: () = assert!(
    MAX_STATES + MAX_WEIGHT <= MAX_KEYS,
    "keys are told by a byte, and each ban has a weight"
);

/// The error of requests for which no node can be asked.
const NO_ANSWER: &str = "no connection to Redis answers";

/// The error of requests whose answer would come too late. It is given before anything was sent.
const TOO_LATE: &str = "no call can leave and be answered before the deadline";

/// The bounds of the queue: how many may wait, for how long, and over how many connections.
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

/// The peers of a node: the rest of its cluster, as far as a dispatch knows it.
pub(crate) trait Peers: fmt::Debug + Send + Sync {
    /// Takes a job for the node that has its slot by now. If the job leaves alone, returns its call, to be driven inline.
    #[must_use]
    fn hand(&self, job: Job) -> Option<Arc<InlineCall>>;

    /// Takes a job whose call runs as a task.
    fn push(&self, job: Job) {
        if let Some(inline) = self.hand(job) {
            inline.take_over();
        }
    }

    /// Takes jobs that a node has not run.
    fn send_on(&self, jobs: Vec<Job>, redirect: &Redirect);

    /// A connection to a node could not be made: another node may have taken its place.
    fn connection_failed(&self);
}

/// The queue and the connections.
#[derive(Debug)]
pub(crate) struct Dispatch {
    pub(crate) link: Link,
    pub(crate) runtime: Handle,
    pub(crate) limits: Limits,
    /// The other nodes, in a cluster.
    peers: Option<Weak<dyn Peers>>,
    /// Shared with the other nodes, so that the calls of a node that has left still count.
    pub(crate) counters: Arc<Counters>,
    /// Shared with the other nodes, too.
    pub(crate) holder: Arc<Holder>,
    /// Likewise.
    pub(crate) known: Arc<KnownDenials>,
    state: Mutex<Traffic>,
    /// Tells pending reconnections not to wait for their next attempt.
    pub(crate) hurry: Arc<Notify>,
    /// Tells waiting callers when the runtime ends.
    _ends: oneshot::Sender<()>,
}

impl Dispatch {
    pub(crate) fn new(
        link: Link,
        runtime: Handle,
        limits: Limits,
        peers: Option<Weak<dyn Peers>>,
        counters: Arc<Counters>,
        holder: Arc<Holder>,
        known: Arc<KnownDenials>,
    ) -> Arc<Self> {
        // Whoever sets up a single server waits for its connection. Nodes of a cluster are learned of while requests come.
        let hope = peers.is_some().then(|| Hope {
            until: Instant::now() + link.deadline,
            attempts: 1,
        });
        Arc::new_cyclic(|myself: &Weak<Self>| {
            let of_runtime = Weak::clone(myself);
            let ends = runtime.on_end(move || {
                if let Some(dispatch) = of_runtime.upgrade() {
                    dispatch.end();
                }
            });
            Self {
                link,
                runtime,
                limits,
                peers,
                counters,
                holder,
                known,
                state: Mutex::new(Traffic::new(limits.connections, hope)),
                hurry: Arc::default(),
                _ends: ends,
            }
        })
    }

    /// Runs a task in the background of the backend's runtime. No task joins it.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let _detached = self.runtime.spawn(task);
    }

    /// Opens connections in the background, except those before `first`.
    pub(crate) fn open_from(self: &Arc<Self>, first: usize) {
        for wire in first..self.limits.connections {
            let opens = self.state().opens(wire);
            if opens {
                reconnect::spawn(self, wire);
            }
        }
    }

    fn peers(&self) -> Option<Arc<dyn Peers>> {
        self.peers.as_ref()?.upgrade()
    }

    /// The deadline of a request that comes now.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.limits.deadline
    }

    /// Sends a request. The calls that carry it keep its deadline.
    pub(crate) fn ask(
        self: &Arc<Self>,
        request: impl Into<Arc<Request>>,
        deadline: Instant,
    ) -> AnswerFuture {
        let (job, answer) = Job::awaited(request, deadline);
        let inline = self.hand(job);
        AnswerFuture { answer, inline }
    }

    /// Sends a job without a caller to the node that has its key by then.
    pub(crate) fn tell(self: &Arc<Self>, request: Request) {
        let request = self.known.owes(self.holder.owes(request));
        let job = Job::unattended(request, &self.counters);
        match self.peers() {
            Some(peers) => peers.push(job),
            None => self.push(job),
        }
    }

    /// Takes a job whose caller waits elsewhere.
    pub(crate) fn push(self: &Arc<Self>, job: Job) {
        if let Some(inline) = self.hand(job) {
            inline.take_over();
        }
    }

    /// Takes a job: sends it now, lets it wait, or fails it at once. Credits and debits, which have no caller, may wait for the
    /// server to come back. If the job leaves alone, returns its call, to be driven by the caller.
    #[must_use]
    pub(crate) fn hand(self: &Arc<Self>, mut job: Job) -> Option<Arc<InlineCall>> {
        let mut state = self.state();
        if state.has_left {
            drop(state);
            return self.peers()?.hand(job);
        }
        if state.has_ended {
            drop(state);
            job.refuse(gone());
            return None;
        }
        let is_awaited = job.is_pending();
        if is_awaited && !state.is_hopeful() {
            let error = state.error();
            drop(state);
            job.fail(error.kind(), error.detail());
        } else if state.is_full(is_awaited, self.limits.waiting) {
            drop(state);
            job.fail(FailureKind::Overloaded, "");
        } else if is_awaited && state.comes_too_late(&job, self.limits.deadline) {
            drop(state);
            job.fail(FailureKind::Overloaded, TOO_LATE);
        } else {
            // No caller may depend on another's polling.
            let is_own = is_awaited && !job.request.has_turn();
            state.queue.push(job);
            if is_own && let Some(lane) = state.leads() {
                let inline =
                    InlineCall::new(self.runtime.clone(), lane::lead(Arc::clone(self), lane));
                state.lanes[lane].inline = Some(Arc::clone(&inline));
                return Some(inline);
            }
            self.pump(state);
        }
        None
    }

    /// Any connection that answers, for a question beside the decisions.
    pub(crate) fn connection(&self) -> Option<Connection> {
        self.state().connection()
    }

    /// The error of a question for which there is no connection.
    pub(crate) fn no_answer(&self) -> BackendError {
        self.state().error()
    }

    /// Says whether an answer is likely enough to wait for.
    pub(crate) fn is_hopeful(&self) -> bool {
        self.state().is_hopeful()
    }

    /// Closes the queue, because the node has left the cluster. Returns the waiting jobs. Later jobs, which looked the node up
    /// before, are redirected.
    pub(crate) fn leave(&self) -> Vec<Job> {
        let mut state = self.state();
        state.has_left = true;
        state.queue.drain().collect()
    }

    /// Closes the queue, because the runtime has ended and with it all connections. Waiting and later callers are told so.
    fn end(&self) {
        let mut state = self.state();
        state.has_ended = true;
        let waiting: Vec<_> = state.queue.drain().collect();
        drop(state);
        for mut job in waiting {
            job.refuse(gone());
        }
    }

    pub(crate) fn timed_out(&self) -> FailureKind {
        FailureKind::TimedOut {
            deadline: self.limits.deadline,
        }
    }

    /// Has waiting jobs sent: with the call that is about to leave, or over a free lane, or when one is free. No caller may
    /// depend on another caller's polling, and a caller that has to wait is told when its deadline comes.
    fn pump(self: &Arc<Self>, mut state: MutexGuard<'_, Traffic>) {
        if state.queue.is_empty() {
            return;
        }
        let calls = if state.is_gathering() {
            state.take_inline_calls(Lane::is_gathering)
        } else if let Some(lane) = state.gather() {
            drop(state);
            self.spawn(lane::work(Arc::clone(self), lane));
            return;
        } else {
            self.watch(&mut state);
            state.take_inline_calls(|_any| true)
        };
        drop(state);
        calls.iter().for_each(|call| call.take_over());
    }

    /// Sets a timer for the waiting callers, if there is none. One timer is enough: their deadlines come in their order.
    fn watch(self: &Arc<Self>, state: &mut Traffic) {
        if state.queue.awaited() > 0 && !state.is_watched {
            state.is_watched = true;
            let watching = watch(Arc::downgrade(self));
            self.runtime.spawn_aside(watching);
        }
    }

    /// Fails the callers that can no longer be answered in time. Returns the time of the next check, if any caller is left.
    fn fail_late(&self) -> Option<Instant> {
        let mut state = self.state();
        let now = Instant::now();
        let takes = state.pace.answer_takes(now, self.limits.deadline);
        let late = state.queue.take_late(now + takes);
        let next = state.queue.first_deadline();
        state.is_watched = next.is_some();
        let away = (!state.is_connected()).then(|| state.error());
        drop(state);
        self.fail_as_late(late, now, away.as_ref());
        // No sooner than a timer can ring.
        next.map(|deadline| deadline.checked_sub(takes).unwrap_or(deadline))
    }

    /// Tells the callers that will not be sent that it is too late, or would be, or that they have waited for a connection in vain.
    fn fail_as_late(&self, late: Vec<Job>, now: Instant, away: Option<&BackendError>) {
        for mut job in late {
            if job.deadline <= now {
                job.fail(self.timed_out(), "");
            } else if let Some(error) = away {
                job.refuse(again(error));
            } else {
                job.fail(FailureKind::Overloaded, TOO_LATE);
            }
        }
    }

    /// The waiting jobs that one call may carry, and those whose answer would come too late.
    fn batch(&self, state: &mut Traffic, now: Instant) -> Batch {
        let (mut keys, mut weight, mut count) = (0, 0, 0);
        let fits = |job: &Job| {
            let with = (
                keys + job.request.long_states(),
                weight + job.request.weight(),
                count + 1,
            );
            let within = with.0 <= MAX_STATES && with.1 <= MAX_WEIGHT && with.2 <= MAX_REQUESTS;
            let fits = with.2 == 1 || (within && !job.route.alone);
            if fits {
                (keys, weight, count) = with;
            }
            fits
        };
        let takes = state.pace.answer_takes(now, self.limits.deadline);
        state.queue.take_turn(now + takes, fits)
    }

    /// Fails the jobs that are too late, and drops those that were withdrawn.
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

    fn state(&self) -> MutexGuard<'_, Traffic> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CreditSink for Dispatch {
    fn refund(self: Arc<Self>, credit: Request) {
        self.tell(credit);
    }
}

/// Rings when the deadline of waiting callers comes, for as long as there are any.
async fn watch(dispatch: Weak<Dispatch>) {
    loop {
        let Some(next) = dispatch.upgrade().map(|dispatch| dispatch.fail_late()) else {
            return;
        };
        let Some(next) = next else {
            return;
        };
        sleep_until(next).await;
    }
}
