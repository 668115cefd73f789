//! Requests that wait for a place under a limit on how many at once: the more important class first, and within one first come,
//! first served, within this process.
//!
//! Only the first of a queue asks the backend again: when something of its key was given back in this process, and otherwise
//! every [`PAUSE`], since another process may have given back. A request for several places blocks all requests behind it, even
//! those that would fit. A request that lacks a place under another limit by then moves to the end of that queue, so that a caller
//! that has used up its own places does not keep others from the shared ones. Between processes there is no order.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tollgate_core::{
    Answer, BackendError, Charge, Decision, Key, Mode, Outcome, RetryAfter, Scope, Timestamp,
    Verdict,
};

use super::line::{Attempts, give_back};
use super::plan::{Entries, is_place, waits_for_place};
use super::{Limiter, Plan};
use crate::policy::{Limit, Rank};

/// The time after which the first of a queue asks again, if nothing was given back in this process.
const PAUSE: Duration = Duration::from_millis(100);

/// The queues of one limiter, one for each key that a request waits for.
#[derive(Debug, Default)]
pub(super) struct Places {
    queues: Mutex<HashMap<Arc<(Scope, Key)>, Queue>>,
    /// The number of queues, so that a release need not take the lock where none waits.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Queue {
    /// The first comes first.
    waiting: VecDeque<QueueEntry>,
    next: u64,
}

#[derive(Debug)]
struct QueueEntry {
    rank: Rank,
    number: u64,
    woken: Arc<Notify>,
}

impl Queue {
    fn wake_first(&self) {
        if let Some(first) = self.waiting.front() {
            first.woken.notify_one();
        }
    }
}

/// The queue in which a request waits, or would, and the class in which it does.
#[derive(Clone, Debug)]
pub(super) struct Goal {
    of: (Scope, Key),
    rank: Rank,
}

impl Goal {
    fn of(limit: &Limit, key: &Key) -> Self {
        Self {
            of: (limit.scope, key.clone()),
            rank: limit.label.rank(),
        }
    }
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<(Scope, Key)>, Queue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes all that wait, so that each checks whether to go on waiting.
    pub(super) fn wake_all(&self) {
        for queue in self.lock().values() {
            queue.waiting.iter().for_each(|one| one.woken.notify_one());
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
    /// The queue.
    of: Arc<(Scope, Key)>,
    number: u64,
    woken: Arc<Notify>,
}

impl Spot {
    /// The last place of its class in the queue, before those of less important classes.
    fn behind_all(limiter: &Limiter, goal: Goal) -> Self {
        let places = &limiter.0.places;
        let woken = Arc::new(Notify::new());
        let mut queues = places.lock();
        let of = match queues.get_key_value(&goal.of) {
            Some((of, _)) => Arc::clone(of),
            None => Arc::new(goal.of),
        };
        let queue = queues.entry(Arc::clone(&of)).or_default();
        let number = queue.next;
        queue.next += 1;
        let place = queue.waiting.partition_point(|one| one.rank <= goal.rank);
        let one = QueueEntry {
            rank: goal.rank,
            number,
            woken: Arc::clone(&woken),
        };
        queue.waiting.insert(place, one);
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
        let queue = queues.get(&self.of);
        let first = queue.and_then(|queue| queue.waiting.front());
        first.is_some_and(|first| first.number == self.number)
    }

    /// Tells the first of the queue that it may be worth to ask again.
    fn wake_first(&self) {
        if let Some(queue) = self.limiter.0.places.lock().get(&self.of) {
            queue.wake_first();
        }
    }

    /// The time at which it asks again in any case, if it is the first of its queue and that is in time.
    fn next_question(&self, until: Instant) -> Option<Instant> {
        let next = self.is_first().then(|| Instant::now() + PAUSE);
        next.filter(|next| *next <= until)
    }
}

impl Drop for Spot {
    fn drop(&mut self) {
        let places = &self.limiter.0.places;
        let mut queues = places.lock();
        if let Some(queue) = queues.get_mut(&self.of) {
            queue.waiting.retain(|one| one.number != self.number);
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
pub(super) struct PlaceWait {
    began: Instant,
    placed: Pin<Box<dyn Future<Output = PlaceOutcome> + Send>>,
}

/// The end of a wait, and the plan that it is about.
pub(super) type PlaceOutcome = (Plan, PlaceEnd);

/// The end of a wait for a place.
pub(super) enum PlaceEnd {
    /// The backend answered, or failed.
    Answered(Result<Decision, BackendError>),
    /// The time is over, or the line is closed: the last refusal holds.
    TimedOut(Decision),
}

impl PlaceWait {
    /// The request stands behind those that wait in this queue already and are no less important.
    pub(super) fn behind(
        limiter: &Limiter,
        entries: Entries<'_>,
        deadline: Option<Instant>,
        goal: Goal,
    ) -> Self {
        Self::new(limiter, entries, deadline, goal, None)
    }

    /// The request waits, if it was refused for want of a place and may wait for one.
    pub(super) fn after(
        limiter: &Limiter,
        entries: Entries<'_>,
        deadline: Option<Instant>,
        refused: &Decision,
    ) -> Option<Self> {
        let goal = lacks_place(entries, refused).filter(|_| !is_over(deadline))?;
        Some(Self::new(
            limiter,
            entries,
            deadline,
            goal,
            Some(refused.clone()),
        ))
    }

    fn new(
        limiter: &Limiter,
        entries: Entries<'_>,
        deadline: Option<Instant>,
        goal: Goal,
        refused: Option<Decision>,
    ) -> Self {
        let longest = entries.with_charges(|charges| {
            let waits = charges.iter().filter(|charge| waits_for_place(charge));
            waits.map(|charge| charge.quota.longest_wait()).min()
        });
        let until = Instant::now() + longest.unwrap_or_default();
        let until = deadline.map_or(until, |deadline| deadline.min(until));
        let spot = Spot::behind_all(limiter, goal);
        let last = Refusal {
            limiter: limiter.clone(),
            plan: entries.to_plan(),
            decision: refused.map(Box::new),
        };
        Self {
            began: Instant::now(),
            placed: Box::pin(stand(spot, last, until, deadline)),
        }
    }

    pub(super) fn future(&mut self) -> Pin<&mut (dyn Future<Output = PlaceOutcome> + Send)> {
        self.placed.as_mut()
    }

    pub(super) fn began(&self) -> Instant {
        self.began
    }
}

impl fmt::Debug for PlaceWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlaceWait")
    }
}

/// The latest refusal of a queued request, with its charges under policies on trial. These charges are given back when the request
/// leaves, and before the backend is asked again, so that the request is charged once.
struct Refusal {
    limiter: Limiter,
    plan: Plan,
    /// In a box: a request that stands behind others has none.
    decision: Option<Box<Decision>>,
}

impl Refusal {
    fn ask_again(&self, deadline: Option<Instant>) -> Answer<Decision> {
        let entries = self.plan.entries();
        self.limiter.decide_by(entries, deadline, Attempts::Again)
    }

    fn withdraw(&mut self) {
        if let Some(decision) = self.decision.take() {
            give_back(&self.limiter, self.plan.entries(), &decision, |_| true);
        }
    }

    /// The plan, and the end.
    fn end_with(&mut self, end: PlaceEnd) -> PlaceOutcome {
        (mem::take(&mut self.plan), end)
    }
}

impl Drop for Refusal {
    fn drop(&mut self) {
        self.withdraw();
    }
}

/// The answer when there is a place, or another reason to refuse, or when the time is over.
// A block rather than an `async fn`, whose future would keep each argument twice: ten thousand may stand at a time.
#[allow(clippy::manual_async_fn, reason = "of half the size")]
fn stand(
    mut spot: Spot,
    mut last: Refusal,
    until: Instant,
    deadline: Option<Instant>,
) -> impl Future<Output = PlaceOutcome> + Send {
    async move {
        loop {
            let next = spot.next_question(until);
            let asks = next.is_some();
            let woken = timeout_at(next.unwrap_or(until), spot.woken.notified()).await;
            let is_over = woken.is_err() && !asks;
            if is_over || last.limiter.0.line.is_closed() {
                break;
            }
            if !spot.is_first() {
                // It was the first when it was woken, and a more important request, which does not know of this, has overtaken it
                // since.
                spot.wake_first();
                continue;
            }
            last.withdraw();
            // The wait for a turn is the quota's: only the caller shortens it.
            let answer = last.ask_again(deadline).await;
            let lacked = match &answer {
                Ok(decision) => lacks_place(last.plan.entries(), decision),
                Err(_) => None,
            };
            let (Some(goal), Ok(decision)) = (lacked, &answer) else {
                if let Ok(decision) = &answer {
                    last.limiter.strike_refused(last.plan.entries(), decision);
                }
                return last.end_with(PlaceEnd::Answered(answer));
            };
            last.decision = Some(Box::new(decision.clone()));
            if goal.of != *spot.of {
                // The requests behind it may pass, because they do not wait for the place that it lacks now.
                spot = Spot::behind_all(&last.limiter, goal);
            }
        }
        let refused = last.decision.take().map(|refused| *refused);
        let refused = refused.unwrap_or_else(|| refusal(last.plan.entries()));
        if !last.limiter.0.line.is_closed() {
            last.limiter.strike_refused(last.plan.entries(), &refused);
        }
        last.end_with(PlaceEnd::TimedOut(refused))
    }
}

/// True if the caller does not wait at all.
pub(super) fn is_over(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| deadline <= Instant::now())
}

/// The first limit on how many at once whose places the request may wait for. `None` unless such limits alone refuse it, and only
/// for now.
fn lacks_place(entries: Entries<'_>, refused: &Decision) -> Option<Goal> {
    if refused.is_admitted() {
        return None;
    }
    let mut goal = None;
    for ((limit, key, mode), verdict) in entries.quotas().zip(refused.verdicts()) {
        if !verdict.is_denied() || mode != Mode::Enforce {
            continue;
        }
        let is_for_now = verdict.outcome() == Outcome::Deny(RetryAfter::Unknown);
        if !(limit.quota.waits() && limit.quota.is_held() && is_for_now) {
            return None;
        }
        goal = goal.or_else(|| Some(Goal::of(limit, key)));
    }
    goal
}

/// True if only places are lacking that may be free when the turn of the request comes.
pub(super) fn lacks_place_until_turn(entries: Entries<'_>, refused: &Decision) -> bool {
    let mut has_turn = false;
    for ((limit, _, mode), verdict) in entries.quotas().zip(refused.verdicts()) {
        let is_for_now = verdict.outcome() == Outcome::Deny(RetryAfter::Unknown);
        if mode != Mode::Enforce {
            continue;
        }
        if verdict.is_denied() && !(limit.quota.is_held() && is_for_now) {
            return false;
        }
        has_turn |= !verdict.wait().is_zero();
    }
    has_turn
}

/// A decision on a turn alone: nothing was decided about places.
pub(super) fn without_places(entries: Entries<'_>, decision: &Decision) -> Decision {
    entries.with_charges(|charges| {
        let verdicts = charges.iter().zip(decision.verdicts()).enumerate();
        let verdicts = verdicts.map(|(position, (charge, verdict))| {
            let verdict = if is_place(charge) {
                Verdict::unknown(charge.quota.capacity())
            } else {
                *verdict
            };
            (decision.verdict_at(position), verdict)
        });
        Decision::apart(decision.is_admitted(), verdicts)
    })
}

/// The queue of a place that the request asks for, if one waits in it that is no less important. A request that is more important
/// than all that wait asks at once, because a free place may be kept for it.
pub(super) fn queue_ahead(limiter: &Limiter, entries: Entries<'_>) -> Option<Goal> {
    let places = &limiter.0.places;
    if places.count.load(Ordering::Acquire) == 0 {
        return None;
    }
    let queues = places.lock();
    entries.with_charges(|charges| {
        let asked = charges.iter().zip(entries.quotas());
        let mut sought = asked.filter(|(charge, _)| waits_for_place(charge));
        sought.find_map(|(_, (limit, key, _))| {
            let goal = Goal::of(limit, key);
            let first = queues.get(&goal.of)?.waiting.front()?;
            (first.rank <= goal.rank).then_some(goal)
        })
    })
}

/// The refusal of a request that stood behind others all the time, or cannot stand there: the backend is not asked, so that it
/// overtakes none.
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
