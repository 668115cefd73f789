//! Requests that wait for a place under a limit on how many at once: first come, first served, within this process.
//!
//! Only the first of a queue asks the backend again: when something of its key was given back in this process, and otherwise
//! every [`PAUSE`], since another process may have given back. A heavy request at the head keeps those behind it waiting, who
//! might fit. A request that lacks a place under another limit by then moves to the end of that queue, so that one who has used up
//! its own places does not keep others from those of all. Between processes there is no order.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};
use tollgate_core::{
    BackendError, Charge, Decision, Key, Mode, Outcome, RetryAfter, Scope, Timestamp, Verdict,
};

use super::line::give_back;
use super::plan::Entries;
use super::{Limiter, Plan};

/// The time after which the first of a queue asks again, if nobody gave back in this process.
const PAUSE: Duration = Duration::from_millis(100);

/// The queues of one limiter, one for each key that somebody waits for.
#[derive(Debug, Default)]
pub(super) struct Places {
    queues: Mutex<HashMap<(Scope, Key), Queue>>,
    /// The number of queues, so that a release need not take the lock where nobody waits.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Queue {
    /// The first comes first.
    waiting: VecDeque<(u64, Arc<Notify>)>,
    next: u64,
}

impl Queue {
    fn wake_first(&self) {
        if let Some((_, first)) = self.waiting.front() {
            first.notify_one();
        }
    }
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, HashMap<(Scope, Key), Queue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes all who wait, to look whether there is any sense in it.
    pub(super) fn wake_all(&self) {
        for queue in self.lock().values() {
            queue
                .waiting
                .iter()
                .for_each(|(_, woken)| woken.notify_one());
        }
    }

    /// Something that is held was given back: the first of its queue asks again.
    pub(super) fn freed(&self, scope: Scope, key: &Key) {
        if self.count.load(Ordering::Acquire) > 0
            && let Some(queue) = self.lock().get(&(scope, key.clone()))
        {
            queue.wake_first();
        }
    }
}

/// A place in the queue of one key. Dropped, it makes room for the next.
struct Spot {
    limiter: Limiter,
    of: (Scope, Key),
    number: u64,
    woken: Arc<Notify>,
}

impl Spot {
    /// The last place of the queue.
    fn behind_all(limiter: &Limiter, of: (Scope, Key)) -> Self {
        let places = &limiter.0.places;
        let woken = Arc::new(Notify::new());
        let mut queues = places.lock();
        let queue = queues.entry(of.clone()).or_default();
        let number = queue.next;
        queue.next += 1;
        queue.waiting.push_back((number, Arc::clone(&woken)));
        places.count.store(queues.len(), Ordering::Release);
        drop(queues);
        Self {
            limiter: limiter.clone(),
            of,
            number,
            woken,
        }
    }

    fn is_first(&self) -> bool {
        let queues = self.limiter.0.places.lock();
        let first = queues.get(&self.of).and_then(|queue| queue.waiting.front());
        first.is_some_and(|(number, _)| *number == self.number)
    }

    /// Until it may be worth to ask again.
    async fn wait(&self) {
        if self.is_first() {
            // Woken or not, it asks.
            drop(timeout(PAUSE, self.woken.notified()).await);
        } else {
            self.woken.notified().await;
        }
    }
}

impl Drop for Spot {
    fn drop(&mut self) {
        let places = &self.limiter.0.places;
        let mut queues = places.lock();
        if let Some(queue) = queues.get_mut(&self.of) {
            queue.waiting.retain(|(number, _)| *number != self.number);
            if queue.waiting.is_empty() {
                drop(queues.remove(&self.of));
            } else {
                queue.wake_first();
            }
        }
        places.count.store(queues.len(), Ordering::Release);
    }
}

/// A request that waits for a place. Dropped, it leaves its queue, and nothing was taken for it.
pub(super) struct Standing {
    began: Instant,
    placed: Pin<Box<dyn Future<Output = Placed> + Send>>,
}

/// The answer in the end, and the plan that it is about.
pub(super) type Placed = (Plan, Result<Decision, BackendError>);

impl Standing {
    /// The request stands behind those that wait in this queue already.
    pub(super) fn behind(
        limiter: &Limiter,
        entries: Entries<'_>,
        deadline: Option<Instant>,
        of: (Scope, Key),
    ) -> Self {
        Self::new(limiter, entries, deadline, of, None)
    }

    /// The request waits, if it was refused for want of a place and may wait for one.
    pub(super) fn after(
        limiter: &Limiter,
        entries: Entries<'_>,
        deadline: Option<Instant>,
        refused: &Decision,
    ) -> Option<Self> {
        let of = lacks_place(entries, refused).filter(|_| !is_over(deadline))?;
        Some(Self::new(
            limiter,
            entries,
            deadline,
            of,
            Some(refused.clone()),
        ))
    }

    fn new(
        limiter: &Limiter,
        entries: Entries<'_>,
        deadline: Option<Instant>,
        of: (Scope, Key),
        refused: Option<Decision>,
    ) -> Self {
        let longest = entries.with_charges(|charges| {
            let waits = charges.iter().filter(|charge| waits_for_place(charge));
            waits.map(|charge| charge.quota.longest_wait()).min()
        });
        let until = Instant::now() + longest.unwrap_or_default();
        let until = deadline.map_or(until, |deadline| deadline.min(until));
        let spot = Spot::behind_all(limiter, of);
        Self {
            began: Instant::now(),
            placed: Box::pin(stand(spot, entries.to_plan(), until, deadline, refused)),
        }
    }

    pub(super) fn future(&mut self) -> Pin<&mut (dyn Future<Output = Placed> + Send)> {
        self.placed.as_mut()
    }

    pub(super) fn began(&self) -> Instant {
        self.began
    }
}

impl fmt::Debug for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Standing")
    }
}

/// The last refusal of a request that stands, with what it took under policies on trial. That is given back before the backend is
/// asked again, so that the request is charged once, and when the request leaves.
struct Refused {
    limiter: Limiter,
    plan: Plan,
    decision: Option<Decision>,
}

impl Refused {
    fn withdraw(&mut self) {
        if let Some(decision) = self.decision.take() {
            give_back(&self.limiter, &self.plan, &decision, |_| true);
        }
    }

    /// The plan, and the answer in the end.
    fn end_with(&mut self, answer: Result<Decision, BackendError>) -> Placed {
        (mem::take(&mut self.plan), answer)
    }
}

impl Drop for Refused {
    fn drop(&mut self) {
        self.withdraw();
    }
}

/// The answer when there is a place, or another reason to refuse, or when the time is over.
async fn stand(
    mut spot: Spot,
    plan: Plan,
    until: Instant,
    deadline: Option<Instant>,
    refused: Option<Decision>,
) -> Placed {
    let limiter = spot.limiter.clone();
    let refused = refused.unwrap_or_else(|| refusal(plan.entries()));
    let mut last = Refused {
        limiter: limiter.clone(),
        plan,
        decision: Some(refused),
    };
    while timeout_at(until, spot.wait()).await.is_ok() {
        if limiter.0.line.is_closed() {
            break;
        }
        last.withdraw();
        // The wait for a turn is the quota's: only the caller shortens it.
        let answer = limiter.decide_by(last.plan.entries(), deadline).await;
        let lacked = match &answer {
            Ok(decision) => lacks_place(last.plan.entries(), decision),
            Err(_) => None,
        };
        let (Some(of), Ok(decision)) = (lacked, &answer) else {
            return last.end_with(answer);
        };
        last.decision = Some(decision.clone());
        if of != spot.of {
            // Those behind it may pass: they do not wait for what it lacks now.
            spot = Spot::behind_all(&limiter, of);
        }
    }
    let refused = last.decision.take();
    let refused = refused.unwrap_or_else(|| refusal(last.plan.entries()));
    last.end_with(Ok(refused))
}

/// True if the caller does not wait at all.
pub(super) fn is_over(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| deadline <= Instant::now())
}

fn waits_for_place(charge: &Charge<'_>) -> bool {
    let waits = charge.quota.is_held() && charge.quota.waits();
    waits && charge.cost > 0 && charge.mode == Mode::Enforce
}

/// The first limit on how many at once whose places a request may wait for, if such limits alone refuse it, for now.
fn lacks_place(entries: Entries<'_>, refused: &Decision) -> Option<(Scope, Key)> {
    if refused.is_admitted() {
        return None;
    }
    let mut of = None;
    for ((limit, key, mode), verdict) in entries.quotas().zip(refused.verdicts()) {
        if !verdict.is_denied() || mode != Mode::Enforce {
            continue;
        }
        let is_for_now = verdict.outcome() == Outcome::Deny(RetryAfter::Unknown);
        if !(limit.quota.waits() && limit.quota.is_held() && is_for_now) {
            return None;
        }
        of = of.or_else(|| Some((limit.scope, key.clone())));
    }
    of
}

/// The queue of a place that the request asks for, if somebody waits in it.
pub(super) fn queue_ahead(limiter: &Limiter, entries: Entries<'_>) -> Option<(Scope, Key)> {
    let places = &limiter.0.places;
    if places.count.load(Ordering::Acquire) == 0 {
        return None;
    }
    let queues = places.lock();
    entries.with_charges(|charges| {
        let mut sought = charges.iter().filter(|charge| waits_for_place(charge));
        sought.find_map(|charge| {
            let of = (charge.scope, charge.key.clone());
            queues.contains_key(&of).then_some(of)
        })
    })
}

/// The refusal of a request that stood behind others all the time, or cannot stand there: the backend is not asked, so that it
/// overtakes nobody.
pub(super) fn refusal(entries: Entries<'_>) -> Decision {
    let verdict = |charge: &Charge<'_>| {
        if waits_for_place(charge) {
            Verdict::denied(charge, RetryAfter::Unknown, 0)
        } else {
            Verdict::unknown(charge.quota.capacity())
        }
    };
    entries.with_charges(|charges| {
        Decision::new(Timestamp::default(), false, charges.iter().map(verdict))
    })
}
