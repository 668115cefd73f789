//! Requests that were taken and wait for their turn.

use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU16;
use std::panic::catch_unwind;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio::time::{Instant, Sleep, sleep};
use tollgate_core::{Answer, BackendError, Call, Charge, Decision, FailureKind, Mode, Quota};

use super::plan::{Entries, is_place};
use super::{Limiter, Plan, Rejection};
use crate::Key;

/// The requests of one limiter that wait, or may have to when the backend answers.
#[derive(Debug, Default)]
pub(super) struct Line {
    length: AtomicUsize,
    is_closed: AtomicBool,
    closing: Arc<Notify>,
    /// True if the first runtime in which a request had to wait has a timer.
    has_timer: OnceLock<bool>,
    callers: Callers,
}

impl Line {
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Says whether a timer could tell the turn. A runtime does not say whether it has one, and panics when it is asked for a
    /// timer that it lacks. So it is asked once, where a panic ends before it reaches a request.
    fn has_timer(&self) -> bool {
        *self.has_timer.get_or_init(|| {
            let has_timer =
                Handle::try_current().is_ok() && catch_unwind(|| drop(sleep(Duration::ZERO))).is_ok();
            if !has_timer {
                tracing::warn!(
                    "no request waits for its turn, since the runtime has no timer: build it with `enable_time` or `enable_all`"
                );
            }
            has_timer
        })
    }
}

/// The number of times that a request asks the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempts {
    Once,
    /// For the first time, and perhaps again.
    First,
    Again,
    /// Again, and for the turn alone. The request asks for its places when the turn has come.
    ForTurn,
}

/// The number of requests in the line for each key, more or less: keys share a number now and then. A caller cannot choose with whom,
/// since it does not know the hash.
#[derive(Debug, Default)]
struct Callers {
    hashing: RandomState,
    /// Empty until a request waits.
    lengths: OnceLock<Box<[AtomicUsize]>>,
}

/// The first few keys of a request, as their numbers in [`Callers`]: small, since each request that waits has them.
type CallerNumbers = [Option<NonZeroU16>; 4];

impl Callers {
    const NUMBERS: u16 = 4_096;

    fn length(&self, caller: NonZeroU16) -> &AtomicUsize {
        let lengths = (self.lengths).get_or_init(|| {
            (0..=Self::NUMBERS)
                .map(|_| AtomicUsize::default())
                .collect()
        });
        &lengths[usize::from(caller.get())]
    }

    fn number(&self, policy: &str, key: &Key) -> Option<NonZeroU16> {
        let hash = self.hashing.hash_one((policy, key)) % u64::from(Self::NUMBERS);
        NonZeroU16::new(u16::try_from(hash + 1).ok()?)
    }

    /// Adds a request of these entries, unless `most` of one of its keys are in the line.
    fn add(&self, entries: Entries<'_>, most: usize) -> Option<CallerNumbers> {
        let mut added = CallerNumbers::default();
        let waits = entries.payers().filter(|(policy, ..)| policy.may_wait);
        for (index, (policy, key, _)) in waits.enumerate().take(added.len()) {
            let caller = self.number(policy.name(), key);
            if added.contains(&caller) {
                continue;
            }
            if caller.is_some_and(|caller| !add_one(self.length(caller), most)) {
                self.remove(added);
                return None;
            }
            added[index] = caller;
        }
        Some(added)
    }

    fn remove(&self, callers: CallerNumbers) {
        for caller in callers.into_iter().flatten() {
            self.length(caller).fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// False, and nothing is added, if there are `most` already.
fn add_one(count: &AtomicUsize, most: usize) -> bool {
    let more = |count| (count < most).then_some(count + 1);
    let added = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    added.is_ok()
}

/// A place in the line, which ends with its owner.
pub(super) struct Place(Limiter, CallerNumbers);

impl Place {
    /// `None` if the line is full or closed, if too many of the same caller wait, or if there is no runtime whose timer could tell the
    /// turn.
    pub(super) fn take(limiter: &Limiter, entries: Entries<'_>) -> Option<Self> {
        let line = &limiter.0.line;
        if line.is_closed() || Handle::try_current().is_err() || !line.has_timer() {
            return None;
        }
        let terms = &limiter.0.terms;
        let callers = line.callers.add(entries, terms.max_waiting_per_key)?;
        if !add_one(&line.length, terms.max_waiting) {
            line.callers.remove(callers);
            return None;
        }
        Some(Self(limiter.clone(), callers))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let line = &self.0.0.line;
        line.length.fetch_sub(1, Ordering::Relaxed);
        line.callers.remove(self.1);
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Place")
    }
}

/// A request whose charges were taken and that goes on when its turn comes. Dropped before that, it gives the charges back.
pub(super) struct Turn {
    plan: Plan<'static>,
    decision: Decision,
    place: Place,
    timer: Pin<Box<Sleep>>,
    closing: Pin<Box<OwnedNotified>>,
    /// True if the request goes on, so that nothing is given back.
    is_kept: bool,
}

impl Turn {
    /// The wait is counted from now, when the answer has arrived.
    pub(super) fn new(plan: Plan<'static>, decision: Decision, place: Place) -> Self {
        let closing = Arc::clone(&place.0.0.line.closing).notified_owned();
        give_back(&place.0, plan.entries(), &decision, Quota::is_held);
        Self {
            timer: Box::pin(sleep(decision.wait())),
            closing: Box::pin(closing),
            plan,
            decision,
            place,
            is_kept: false,
        }
    }

    /// Ready when the turn has come, or when the line was closed and the request is refused.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Rejection>> {
        if self.timer.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        // Polled before the line is looked at, so that the notice is not missed.
        let _notice = self.closing.as_mut().poll(cx);
        if self.place.0.0.line.is_closed() {
            let error = BackendError::new(FailureKind::Unready, "no request may wait any longer");
            return Poll::Ready(Err(Rejection::Unavailable(error)));
        }
        Poll::Pending
    }

    pub(super) fn plan(&self) -> &Plan<'static> {
        &self.plan
    }

    pub(super) fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Asks for the places, which the request did not hold while it waited; `None` if it needs none.
    pub(super) fn decide_held(&self) -> Option<Answer<Decision>> {
        let (limiter, entries) = (&self.place.0, self.plan.entries());
        entries.with_charges(|charges| {
            let held = charges.iter().filter(|charge| charge.quota.is_held());
            let held: SmallVec<[_; 4]> = held.copied().collect();
            (!held.is_empty()).then(|| limiter.0.backend.decide(Call::of(&held)))
        })
    }

    /// Replaces the earlier decision by the one on the places.
    pub(super) fn enter_held(&mut self, held: &Decision) {
        let mut latest = held.verdicts().iter().enumerate();
        let mut limits = self.plan.entries().quotas();
        let decided = self.decision.verdicts().iter().enumerate();
        let verdicts = decided.map(|(position, verdict)| {
            // Ids stand behind all quotas.
            let is_held = { limits.next() }.is_some_and(|(limit, ..)| limit.quota.is_held());
            match is_held.then(|| latest.next()).flatten() {
                Some((position, newer)) => (held.verdict_at(position), *newer),
                None => (self.decision.verdict_at(position), *verdict),
            }
        });
        let verdicts: Vec<_> = verdicts.collect();
        self.decision = Decision::apart(held.is_admitted(), verdicts);
    }

    /// Lets the request go on.
    pub(super) fn keep(&mut self) {
        self.is_kept = true;
    }

    /// Gives the charges back, and lets the request go on all the same.
    pub(super) fn withdraw(&mut self) {
        let entries = self.plan.entries();
        give_back(&self.place.0, entries, &self.decision, |quota| {
            !quota.is_held()
        });
        self.is_kept = true;
    }
}

/// Gives back the charges under quotas for which `gives` holds.
#[cold]
pub(super) fn give_back(
    limiter: &Limiter,
    entries: Entries<'_>,
    decision: &Decision,
    gives: fn(&Quota) -> bool,
) {
    entries.with_charges(|charges| give_back_charges(limiter, charges.iter(), decision, gives));
}

fn give_back_charges<'c>(
    limiter: &Limiter,
    charges: impl Iterator<Item = &'c Charge<'c>>,
    decision: &Decision,
    gives: fn(&Quota) -> bool,
) {
    let charges: SmallVec<[Charge<'_>; 4]> = charges.copied().collect();
    for receipt in decision.receipts(&charges) {
        if gives(receipt.quota()) {
            let taken = receipt.cost();
            limiter.give_back(receipt, taken);
        }
    }
}

/// The answer to a request that has waited: one about a part of what `was_asked` is a failure, and gives that back.
pub(super) fn entire(
    limiter: &Limiter,
    entries: Entries<'_>,
    was_asked: fn(&Quota) -> bool,
    answer: Result<Decision, BackendError>,
) -> Result<Decision, BackendError> {
    let decision = answer?;
    let Some(failure) = decision.failure().cloned() else {
        return Ok(decision);
    };
    entries.with_charges(|charges| {
        let asked = charges.iter().filter(|charge| was_asked(charge.quota));
        give_back_charges(limiter, asked, &decision, |_| true);
    });
    Err(failure)
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.is_kept {
            let limiter = &self.place.0;
            let entries = self.plan.entries();
            give_back(limiter, entries, &self.decision, |quota| !quota.is_held());
            limiter.0.observers.left(entries, &self.decision);
        }
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn")
            .field("decision", &self.decision)
            .finish_non_exhaustive()
    }
}

impl Limiter {
    /// The number of requests that wait for their turn, those included whose decision is still under way and may be to wait.
    ///
    /// ```
    /// use tollgate::{Limiter, Quota};
    ///
    /// // For metrics.
    /// assert_eq!(Limiter::from(Quota::per_second(10)).waiting(), 0);
    /// ```
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.line.length.load(Ordering::Relaxed)
    }

    /// Lets no request wait from now on: a request that waits for its turn is refused at once with 503, and one that waits for a
    /// place, or comes later and would have to wait, with 429. A server calls it when it shuts down and should not take as long as
    /// the longest wait. A server that does not call it drains the line: each request goes on when its turn comes.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let quota = Quota::per_minute(1).wait_up_to(Duration::from_secs(300));
    /// let limiter = Limiter::from(Policy::new("mail", quota));
    /// assert!(limiter.acquire("mail", "alice").await?.is_allowed());
    ///
    /// limiter.stop_waiting();
    /// assert!(!limiter.acquire("mail", "alice").await?.is_allowed());
    /// # Ok(()) }
    /// ```
    pub fn stop_waiting(&self) {
        self.0.line.is_closed.store(true, Ordering::Relaxed);
        self.0.line.closing.notify_waiters();
        self.0.places.wake_all();
    }

    /// Asks the backend about a request that has a place in the line, and may wait until `deadline` at the latest. A request
    /// that may ask again hears of its strike when it is refused in the end, and so its bans are
    /// [unheard](Quota::unheard) until then.
    pub(super) fn decide_by(
        &self,
        entries: Entries<'_>,
        deadline: Option<Instant>,
        asks: Attempts,
    ) -> Answer<Decision> {
        if deadline.is_none() && asks == Attempts::Once {
            return self.decide(entries);
        }
        let patience = deadline.map_or(Duration::MAX, |deadline| {
            deadline.saturating_duration_since(Instant::now())
        });
        entries.with_charges(|charges| {
            let limited = |charge: &Charge<'_>| {
                let quota = charge.quota.waiting_at_most(patience);
                match asks {
                    Attempts::Again | Attempts::ForTurn => quota.unheard(),
                    Attempts::First if charge.mode == Mode::Enforce => quota.unheard(),
                    Attempts::First | Attempts::Once => quota,
                }
            };
            let quotas: Vec<_> = charges.iter().map(limited).collect();
            let mut charges = charges.to_vec();
            for (charge, quota) in charges.iter_mut().zip(&quotas) {
                charge.quota = quota;
                if asks == Attempts::ForTurn && is_place(charge) {
                    charge.mode = Mode::Probe;
                }
            }
            self.0.backend.decide(Call::of(&charges))
        })
    }

    /// Asks the backend about a request that may wait, if there is room in the line.
    pub(super) fn decide_in_line(
        &self,
        entries: Entries<'_>,
        deadline: Option<Instant>,
    ) -> (Answer<Decision>, Option<Place>) {
        let place = Place::take(self, entries);
        let now = || Some(Instant::now());
        let deadline = if place.is_some() { deadline } else { now() };
        let asks = if place.is_some() && entries.may_ask_again() {
            Attempts::First
        } else {
            Attempts::Once
        };
        (self.decide_by(entries, deadline, asks), place)
    }
}
