//! Requests whose ruling has to be waited for: each is in one step, whose end leads to the next step or to the ruling.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Extensions;
use tokio::time::Instant;
use tollgate_core::{BackendError, Charge, Decision, LateAnswer, Mode, Quota, RetryAfter, Verdict};

use super::{Entries, Fallback, Limiter, Plan, Rejection, Ruling};
use crate::RequestView;
use crate::limiter::fallback::LocalPayers;
use crate::limiter::line::{Attempts, Place, Turn, entire, give_back};
use crate::limiter::observer::Observers;
use crate::limiter::places::{self, PlaceEnd, PlaceWait};
use crate::limiter::planning::PendingPlan;
use crate::request::CallerDeadline;

/// A request that waits for an answer. Dropping it leaves nothing behind: a decision that was not sent is withdrawn, one that was
/// sent is given back when it arrives.
#[derive(Debug)]
pub struct PendingAdmission {
    step: Step,
    /// The time at which the caller goes away, for a request that may wait for its turn.
    deadline: Option<Instant>,
    /// The time for which it has waited so far, in microseconds.
    waited_us: u32,
    /// The time at which the backend was asked, if that is measured.
    asked: Option<std::time::Instant>,
    /// Hear of a request that leaves.
    observers: Arc<Observers>,
}

impl Drop for PendingAdmission {
    fn drop(&mut self) {
        if let Step::Deciding(_, plan, _) | Step::Queueing(_, plan, _) = &self.step {
            self.observers.left_undecided(plan.entries());
        }
    }
}

// Answers and turns are in boxes, since they are large: ten thousand requests may wait, and most for something else.
#[derive(Debug)]
pub(super) enum Step {
    /// The identity of the request is not known yet, or its tier or quotas.
    Resolving(PendingPlan),
    /// The backend was asked. The place is that of a request that may have to wait for its turn.
    Deciding(LateAnswer<Decision>, Plan<'static>, Option<Place>),
    /// No place is free, and the backend was asked for a turn alone.
    Queueing(LateAnswer<Decision>, Plan<'static>, Place),
    /// The backend let it in, later.
    Waiting(Box<Turn>),
    /// The turn has come, and the request asks for its places.
    Holding(LateAnswer<Decision>, Box<Turn>),
    /// It waits until a held place is given back.
    Standing(PlaceWait, Place),
    Ended(End),
    /// The ruling was told.
    Over,
}

/// The end of a request's way, from which its ruling follows.
#[derive(Debug)]
pub(super) enum End {
    Uncharged,
    Rejected(Rejection),
    /// The backend answered, or failed.
    Answered(Plan<'static>, Box<Result<Decision, BackendError>>),
    /// Others are before it, and it cannot wait behind them, or has waited in vain.
    NoPlace(Plan<'static>, Box<Decision>),
    /// Its turn has come.
    InTurn(Box<Turn>),
    /// Its turn has come, and the backend fails to say whether a place is free.
    FailedInTurn(Box<Turn>, BackendError),
}

impl PendingAdmission {
    pub(super) fn new(limiter: &Limiter, step: Step, deadline: Option<Instant>) -> Self {
        Self {
            step,
            deadline,
            waited_us: 0,
            asked: limiter.0.observers.asked(),
            observers: Arc::clone(&limiter.0.observers),
        }
    }

    /// Leaves the caller's deadline with the request, for the limits further in.
    pub fn leave_deadline(&self, request: &mut Extensions) {
        if let Some(deadline) = self.deadline {
            let _earlier = request.insert(CallerDeadline(deadline));
        }
    }

    /// The result of `conclude` for the ruling on the request. The request is the one that was put before this limiter; there is
    /// none if the caller brought the key.
    pub fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        limiter: &Limiter,
        request: Option<&RequestView<'_>>,
        conclude: impl FnOnce(Ruling<'_>) -> T,
    ) -> Poll<T> {
        while !matches!(self.step, Step::Ended(_) | Step::Over) {
            self.step = ready!(self.next_step(cx, limiter, request));
        }
        match self.take_step() {
            Step::Ended(end) => Poll::Ready(end.conclude(limiter, self.waited_us, conclude)),
            // Polled after its end.
            _ => Poll::Pending,
        }
    }

    fn take_step(&mut self) -> Step {
        mem::replace(&mut self.step, Step::Over)
    }

    fn add_wait(&mut self, waited: Duration) {
        self.waited_us = self.waited_us.saturating_add(micros(waited));
    }

    /// The step that follows when this one has come to its end.
    fn next_step(
        &mut self,
        cx: &mut Context<'_>,
        limiter: &Limiter,
        request: Option<&RequestView<'_>>,
    ) -> Poll<Step> {
        let observers = &limiter.0.observers;
        Poll::Ready(match &mut self.step {
            Step::Resolving(resolving) => match ready!(resolving.poll(cx, request, observers)) {
                Ok(plan) if plan.is_empty() => Step::Ended(End::Uncharged),
                Ok(plan) => {
                    self.asked = observers.asked();
                    Step::deciding(limiter, plan, self.deadline)
                }
                Err(refused) => Step::Ended(End::Rejected(refused)),
            },
            Step::Deciding(decide, ..) => {
                let answer = ready!(Pin::new(decide).poll(cx));
                observers.answered(self.asked);
                let Step::Deciding(_, plan, place) = self.take_step() else {
                    return Poll::Pending;
                };
                match limiter.step_after(plan.entries(), answer, place, self.deadline) {
                    Ok(step) => step,
                    Err(answer) => Step::Ended(End::Answered(plan, answer)),
                }
            }
            Step::Queueing(decide, ..) => {
                let answer = ready!(Pin::new(decide).poll(cx));
                let Step::Queueing(_, plan, place) = self.take_step() else {
                    return Poll::Pending;
                };
                match limiter.queued(plan.entries(), answer, place, self.deadline) {
                    Ok(turn) => Step::Waiting(turn),
                    Err(answer) => Step::Ended(End::Answered(plan, answer)),
                }
            }
            Step::Standing(standing, _) => {
                let (plan, end) = ready!(standing.future().poll(cx));
                let waited = standing.began().elapsed();
                self.add_wait(waited);
                let Step::Standing(_, place) = self.take_step() else {
                    return Poll::Pending;
                };
                match end {
                    PlaceEnd::Answered(Ok(decision)) if !decision.wait().is_zero() => match limiter
                        .turn(
                            plan.entries(),
                            decision,
                            place,
                            self.deadline,
                            self.waited_us,
                        ) {
                        Ok(turn) => Step::Waiting(turn),
                        Err(refused) => Step::Ended(End::Answered(plan, refused)),
                    },
                    PlaceEnd::Answered(answer) => {
                        Step::Ended(End::Answered(plan, Box::new(answer)))
                    }
                    PlaceEnd::TimedOut(refused) => {
                        Step::Ended(End::NoPlace(plan, Box::new(refused)))
                    }
                }
            }
            Step::Waiting(turn) => {
                if let Err(refused) = ready!(turn.poll(cx)) {
                    return Poll::Ready(Step::Ended(End::Rejected(refused)));
                }
                let (waited, held) = (turn.decision().wait(), turn.decide_held());
                self.add_wait(waited);
                let Step::Waiting(mut turn) = self.take_step() else {
                    return Poll::Pending;
                };
                match held {
                    Some(held) => Step::Holding(held.into(), turn),
                    None => {
                        turn.keep();
                        Step::Ended(End::InTurn(turn))
                    }
                }
            }
            Step::Holding(held, _) => {
                let held = ready!(Pin::new(held).poll(cx));
                let Step::Holding(_, turn) = self.take_step() else {
                    return Poll::Pending;
                };
                let held = entire(limiter, turn.plan().entries(), Quota::is_held, held);
                Step::Ended(match held {
                    Ok(held) => End::InTurn(limiter.with_places(turn, &held, self.waited_us)),
                    Err(error) => End::FailedInTurn(turn, error),
                })
            }
            Step::Ended(_) | Step::Over => return Poll::Pending,
        })
    }
}

impl Step {
    fn deciding(limiter: &Limiter, plan: Plan<'static>, deadline: Option<Instant>) -> Self {
        let entries = plan.entries();
        if !entries.may_wait() {
            return Self::Deciding(limiter.decide(entries).into(), plan, None);
        }
        if let Some(standing) = limiter.stand_behind_others(entries, deadline) {
            return standing;
        }
        let (decide, place) = limiter.decide_in_line(entries, deadline);
        Self::Deciding(decide.into(), plan, place)
    }
}

impl End {
    fn conclude<T>(
        self,
        limiter: &Limiter,
        waited_us: u32,
        conclude: impl FnOnce(Ruling<'_>) -> T,
    ) -> T {
        match self {
            Self::Uncharged => conclude(Ruling::Uncharged),
            Self::Rejected(refused) => conclude(Ruling::Refused(refused)),
            Self::Answered(plan, answer) => {
                limiter.rule_after(waited_us, plan.entries(), *answer, conclude)
            }
            Self::NoPlace(plan, refused) => {
                limiter.refuse_unasked(waited_us, plan.entries(), &refused, conclude)
            }
            Self::InTurn(turn) => {
                let (entries, decision) = (turn.plan().entries(), turn.decision());
                conclude(Ruling::of(
                    limiter,
                    entries,
                    decision,
                    LocalPayers::NONE,
                    waited_us,
                ))
            }
            Self::FailedInTurn(mut turn, error) => {
                let entries = turn.plan().entries();
                let fallback = limiter.fall_back(waited_us, entries, error);
                let is_charged_again =
                    matches!(&fallback, Fallback::Decide(part) if part.decision.is_admitted());
                let is_undecided = matches!(&fallback, Fallback::Pass(_));
                let ruled = limiter.rule_by(fallback, waited_us, entries, conclude);
                if is_charged_again {
                    turn.withdraw();
                } else if is_undecided {
                    turn.keep();
                }
                // Refused, it gives its turn back.
                ruled
            }
        }
    }
}

/// The refusal of a request whose caller will be gone when its turn comes.
fn too_late(entries: Entries<'_>, decision: &Decision, left: Duration) -> Decision {
    let refused = |(charge, verdict): (&Charge<'_>, &Verdict)| {
        let late = verdict.wait().saturating_sub(left);
        if charge.mode != Mode::Enforce || late.is_zero() {
            return Verdict::unknown(charge.quota.capacity());
        }
        let wait = RetryAfter::Micros(micros(late).into());
        Verdict::denied(charge, wait, verdict.remaining())
    };
    entries.with_charges(|charges| {
        let decided = charges.iter().zip(decision.verdicts());
        Decision::new(decision.at(), false, decided.map(refused))
    })
}

/// The time in microseconds. No wait is longer than an hour, which fits.
fn micros(waited: Duration) -> u32 {
    u32::try_from(waited.as_micros()).unwrap_or(u32::MAX)
}

impl Limiter {
    /// Lets a request stand behind those that wait for a place already. If it cannot wait, it is refused, and overtakes none.
    pub(super) fn stand_behind_others(
        &self,
        entries: Entries<'_>,
        deadline: Option<Instant>,
    ) -> Option<Step> {
        let of = places::queue_ahead(self, entries)?;
        let place = if places::is_over(deadline) {
            None
        } else {
            Place::take(self, entries)
        };
        Some(match place {
            Some(place) => Step::Standing(PlaceWait::behind(self, entries, deadline, of), place),
            None => Step::Ended(End::NoPlace(
                entries.to_plan(),
                Box::new(places::refusal(entries)),
            )),
        })
    }

    /// The next step of a request that has to wait by this answer; otherwise the answer.
    pub(super) fn step_after(
        &self,
        entries: Entries<'_>,
        answer: Result<Decision, BackendError>,
        place: Option<Place>,
        deadline: Option<Instant>,
    ) -> Result<Step, Box<Result<Decision, BackendError>>> {
        match (answer, place) {
            (Ok(decision), Some(place)) if !decision.wait().is_zero() => {
                let turn = self.turn(entries, decision, place, deadline, 0);
                turn.map(Step::Waiting)
            }
            (Ok(decision), Some(place)) if !decision.is_admitted() => {
                if let Some(standing) = PlaceWait::after(self, entries, deadline, &decision) {
                    return Ok(Step::Standing(standing, place));
                }
                if places::lacks_place_until_turn(entries, &decision) {
                    // Policies on trial have taken, and will again.
                    give_back(self, entries, &decision, |_| true);
                    let decide = self.decide_by(entries, deadline, Attempts::ForTurn);
                    return Ok(Step::Queueing(decide.into(), entries.to_plan(), place));
                }
                if entries.may_ask_again() {
                    self.strike_refused(entries, &decision);
                }
                Err(Box::new(Ok(decision)))
            }
            (answer, _) => Err(Box::new(answer)),
        }
    }

    /// The turn of a request that the backend was asked about without what is held. It is asked for that when the turn has come,
    /// also if the turn has come already.
    fn queued(
        &self,
        entries: Entries<'_>,
        answer: Result<Decision, BackendError>,
        place: Place,
        deadline: Option<Instant>,
    ) -> Result<Box<Turn>, Box<Result<Decision, BackendError>>> {
        let decision = match entire(self, entries, |_| true, answer) {
            Ok(decision) => places::without_places(entries, &decision),
            Err(error) => return Err(Box::new(Err(error))),
        };
        if !decision.is_admitted() {
            self.strike_refused(entries, &decision);
            return Err(Box::new(Ok(decision)));
        }
        self.turn(entries, decision, place, deadline, 0)
    }

    /// The turn of a request that the backend lets in later; a refusal if the caller will be gone by then, since the answer
    /// took some of its time. It may have waited for a place before.
    fn turn(
        &self,
        entries: Entries<'_>,
        decision: Decision,
        place: Place,
        deadline: Option<Instant>,
        waited_us: u32,
    ) -> Result<Box<Turn>, Box<Result<Decision, BackendError>>> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // While a server fails, no request begins to wait.
        let left = decision.failure().map(|_| Duration::ZERO).or(left);
        if let Some(left) = left.filter(|left| *left < decision.wait()) {
            give_back(self, entries, &decision, |_| true);
            return Err(Box::new(Ok(too_late(entries, &decision, left))));
        }
        // Places are asked for again when the turn has come, and the observer hears of them then.
        self.hear_part(waited_us, entries, &decision, |quota| !quota.is_held());
        Ok(Box::new(Turn::new(entries.to_plan(), decision, place)))
    }
    /// The turn of a request of which the backend has decided now whether it gets its places.
    fn with_places(&self, mut turn: Box<Turn>, held: &Decision, waited_us: u32) -> Box<Turn> {
        turn.enter_held(held);
        self.hear_part(
            waited_us,
            turn.plan().entries(),
            turn.decision(),
            Quota::is_held,
        );
        if held.is_admitted() {
            turn.keep();
        } else {
            // Refused now, it gives its turn back.
            self.strike_refused(turn.plan().entries(), turn.decision());
        }
        turn
    }
}
