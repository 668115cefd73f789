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
use super::settler::Vacancy;
use super::{Limiter, Plan};
use crate::policy::{Limit, Rank};

/// The time after which the first of a queue asks again, if nothing was given back in this process: another process may have.
const PAUSE: Duration = Duration::from_millis(100);
/// With more queues than this the first of each pauses longer, so that a limiter asks no more than 640 times a second for this reason.
const QUEUES_AT_THAT_PACE: u32 = 64;

/// The queues of one limiter, one for each key that a request waits for.
#[derive(Debug, Default)]
pub(super) struct Places {
    queues: Mutex<HashMap<Arc<(Scope, Key)>, Queue>>,
    /// The number of queues, so that a release need not take the lock where none waits.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Queue {
    /// The first comes first. In the order of their positions, so that one is found without looking at the others.
    waiting: VecDeque<(Position, Arc<Notify>)>,
    /// The number of those that came.
    came: u64,
}

/// The order of a queue: the class in the highest bits, and the number in which the request came.
type Position = u64;

const CLASS_AT: u32 = 56;

impl Queue {
    fn wake_first(&self) {
        if let Some((_, first)) = self.waiting.front() {
            first.notify_one();
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
            queue.waiting.iter().for_each(|(_, one)| one.notify_one());
        }
    }
}

/// The first of the queue asks again.
impl Vacancy for Places {
    fn freed(&self, scope: Scope, key: &Key) {
        if self.count.load(Ordering::Acquire) > 0
            && let Some(queue) = self.lock().get(&(scope, key.clone()))
        {
            queue.wake_first();
        }
    }
}

/// The place of a request in the queue of one key. It does not know its limiter, so that ten thousand take less: the request does,
/// and leaves the queue.
struct Spot {
    /// The queue.
    of: Arc<(Scope, Key)>,
    position: Position,
    woken: Arc<Notify>,
}

impl Places {
    /// The last place of its class in the queue, before those of less important classes.
    fn stand_behind_all(&self, goal: Goal) -> Spot {
        let woken = Arc::new(Notify::new());
        let mut queues = self.lock();
        let of = match queues.get_key_value(&goal.of) {
            Some((of, _)) => Arc::clone(of),
            None => Arc::new(goal.of),
        };
        let queue = queues.entry(Arc::clone(&of)).or_default();
        queue.came += 1;
        let position = Position::from(goal.rank) << CLASS_AT | queue.came;
        let behind = (queue.waiting).partition_point(|(before, _)| *before < position);
        queue.waiting.insert(behind, (position, Arc::clone(&woken)));
        self.count.store(queues.len(), Ordering::Release);
        Spot {
            of,
            position,
            woken,
        }
    }

    /// Makes room for the next.
    fn leave(&self, spot: &Spot) {
        let mut queues = self.lock();
        if let Some(queue) = queues.get_mut(&spot.of) {
            let place =
                (queue.waiting).binary_search_by_key(&spot.position, |(position, _)| *position);
            drop(place.ok().and_then(|place| queue.waiting.remove(place)));
            if queue.waiting.is_empty() {
                drop(queues.remove(&spot.of));
            } else {
                queue.wake_first();
            }
        }
        self.count.store(queues.len(), Ordering::Release);
    }

    fn is_first(&self, spot: &Spot) -> bool {
        let queues = self.lock();
        let queue = queues.get(&spot.of);
        let first = queue.and_then(|queue| queue.waiting.front());
        first.is_some_and(|(first, _)| *first == spot.position)
    }

    /// Tells the first of the queue that it may be worth to ask again.
    fn wake_first(&self, spot: &Spot) {
        if let Some(queue) = self.lock().get(&spot.of) {
            queue.wake_first();
        }
    }

    /// The time at which the request asks again in any case, if it is the first of its queue and that is in time.
    fn next_question(&self, spot: &Spot, until: Instant) -> Option<Instant> {
        let queues = u32::try_from(self.count.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        let pause = PAUSE * queues.div_ceil(QUEUES_AT_THAT_PACE).max(1);
        let next = self.is_first(spot).then(|| Instant::now() + pause);
        next.filter(|next| *next <= until)
    }
}

/// A request that waits for a place. Dropped, it leaves its queue, and nothing was taken for it.
pub(super) struct PlaceWait {
    began: Instant,
    placed: Pin<Box<dyn Future<Output = PlaceOutcome> + Send>>,
}

/// The end of a wait, and the plan that it is about.
pub(super) type PlaceOutcome = (Plan<'static>, PlaceEnd);

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
        let request = QueuedRequest {
            spot: limiter.0.places.stand_behind_all(goal),
            limiter: limiter.clone(),
            plan: entries.to_plan(),
            refusal: refused.map(Box::new),
        };
        Self {
            began: Instant::now(),
            placed: Box::pin(request.stand(until, deadline)),
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

/// A request in a queue, and its latest refusal. The charges of that under policies on trial are given back when the request
/// leaves, and before the backend is asked again, so that the request is charged once.
struct QueuedRequest {
    limiter: Limiter,
    plan: Plan<'static>,
    spot: Spot,
    /// In a box: a request that stands behind others has none.
    refusal: Option<Box<Decision>>,
}

impl QueuedRequest {
    /// The answer when there is a place, or another reason to refuse, or when the time is over.
    // A block rather than an `async fn`, whose future would keep each argument twice: ten thousand may stand at a time.
    #[allow(clippy::manual_async_fn, reason = "of half the size")]
    fn stand(
        mut self,
        until: Instant,
        deadline: Option<Instant>,
    ) -> impl Future<Output = PlaceOutcome> + Send {
        async move {
            loop {
                // In a block of its own, which the future does not keep.
                let (wake_at, asks) = {
                    let next = self.places().next_question(&self.spot, until);
                    (next.unwrap_or(until), next.is_some())
                };
                let woken = timeout_at(wake_at, self.spot.woken.notified()).await;
                let is_over = woken.is_err() && !asks;
                if is_over || self.limiter.0.line.is_closed() {
                    break;
                }
                if !self.places().is_first(&self.spot) {
                    // It was the first when it was woken, and a more important request, which does not know of this, has
                    // overtaken it since.
                    self.places().wake_first(&self.spot);
                    continue;
                }
                self.withdraw();
                // The wait for a turn is the quota's: only the caller shortens it.
                let answer = self.ask_again(deadline).await;
                let lacked = match &answer {
                    Ok(decision) => lacks_place(self.plan.entries(), decision),
                    Err(_) => None,
                };
                let (Some(goal), Ok(decision)) = (lacked, &answer) else {
                    if let Ok(decision) = &answer {
                        self.limiter.strike_refused(self.plan.entries(), decision);
                    }
                    return self.end_with(PlaceEnd::Answered(answer));
                };
                self.refusal = Some(Box::new(decision.clone()));
                if goal.of != *self.spot.of {
                    // The requests behind it may pass, because they do not wait for the place that it lacks now.
                    let next = self.places().stand_behind_all(goal);
                    let left = mem::replace(&mut self.spot, next);
                    self.places().leave(&left);
                }
            }
            let refused = self.refusal.take().map(|refused| *refused);
            let refused = refused.unwrap_or_else(|| refusal(self.plan.entries()));
            if !self.limiter.0.line.is_closed() {
                self.limiter.strike_refused(self.plan.entries(), &refused);
            }
            self.end_with(PlaceEnd::TimedOut(refused))
        }
    }

    fn places(&self) -> &Places {
        &self.limiter.0.places
    }

    fn ask_again(&self, deadline: Option<Instant>) -> Answer<Decision> {
        let entries = self.plan.entries();
        self.limiter.decide_by(entries, deadline, Attempts::Again)
    }

    fn withdraw(&mut self) {
        if let Some(decision) = self.refusal.take() {
            give_back(&self.limiter, self.plan.entries(), &decision, |_| true);
        }
    }

    /// The plan, and the end.
    fn end_with(&mut self, end: PlaceEnd) -> PlaceOutcome {
        (mem::take(&mut self.plan), end)
    }
}

impl Drop for QueuedRequest {
    fn drop(&mut self) {
        self.withdraw();
        self.places().leave(&self.spot);
        // The plan of a request that has come to its end is with that.
        self.limiter.0.observers.left_undecided(self.plan.entries());
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
            let (first, _) = queues.get(&goal.of)?.waiting.front()?;
            (first >> CLASS_AT <= Position::from(goal.rank)).then_some(goal)
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
