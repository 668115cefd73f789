//! The one way of a request through a limiter: covered by policies, decided by the backend, and ruled on if the backend fails.

use std::future::Future;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Extensions;
use tokio::time::Instant;
use tollgate_core::{
    Answer, BackendError, Charge, Decision, Mode, Quota, RetryAfter, Timestamp, Verdict,
};

use super::event::Cause;
use super::line::{Attempts, Place, Turn, give_back};
use super::local::has_share;
use super::places::{self, PlaceEnd, PlaceWait};
use super::plan::Entries;
use super::planning::{PendingPlan, Planning, Rejection};
use super::snapshot::Snapshot;
use super::{Fallback, Judgement, Limiter, Plan, coverage};
use crate::key::ClientIp;
use crate::request::CallerDeadline;
use crate::{Key, Policy, RequestView};

/// The caller's result for a ruling on its request, or a request that has to wait for a ruling.
#[derive(Debug)]
pub enum Admission<T> {
    /// The caller's result for the ruling.
    Ruled(T),
    /// In a box: it is large, and few requests wait.
    Pending(Box<PendingAdmission>),
}

/// The ruling on a request.
#[derive(Debug)]
pub enum Ruling<'a> {
    /// No quota has a say in it.
    Uncharged,
    /// Every enforced quota had room.
    Admitted(Judgement<'a>),
    /// A quota had no room.
    Denied(Judgement<'a>),
    /// The backend failed, and the request passes. What it holds all the same is here, if it holds anything.
    Undecided(BackendError, Option<Judgement<'a>>),
    /// No quota was asked, and the request is refused.
    Refused(Rejection),
}

/// The policies that a request is put before.
#[derive(Clone, Copy, Debug)]
pub enum PolicySet<'a> {
    /// Those of the limiter that cover it.
    Covering,
    /// Those of a handler or route, wherever the limiter has them from.
    Handler(&'a [Arc<Policy>]),
}

/// A request that waits for an answer. Dropping it leaves nothing behind: a decision that was not sent is withdrawn, one that was
/// sent is given back when it arrives.
#[derive(Debug)]
pub struct PendingAdmission {
    step: Step,
    /// The time at which the caller goes away, for a request that may wait for its turn.
    deadline: Option<Instant>,
    /// The time for which it has waited so far.
    waited: Duration,
    /// The time at which the backend was asked, if that is measured.
    asked: Option<std::time::Instant>,
}

#[derive(Debug)]
enum Step {
    /// The identity of the request is not known yet, or its tier or quotas.
    Resolving(PendingPlan),
    /// The backend was asked. The place is that of a request that may have to wait for its turn.
    Deciding(Answer<Decision>, Plan, Option<Place>),
    /// No place is free, and the backend was asked for a turn alone.
    Queueing(Answer<Decision>, Plan, Place),
    /// The backend let it in, later.
    Waiting(Turn),
    /// The turn has come, and what is held is asked for.
    Holding(Answer<Decision>, Turn),
    /// It waits until a held place is given back.
    Standing(PlaceWait, Place),
    /// Others are before it, and it cannot wait behind them.
    Refused(Decision, Plan),
    Over,
}

impl PendingAdmission {
    fn new(limiter: &Limiter, step: Step, deadline: Option<Instant>) -> Self {
        Self {
            step,
            deadline,
            waited: Duration::ZERO,
            asked: limiter.0.observers.asked(),
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
        loop {
            match &mut self.step {
                Step::Resolving(resolving) => {
                    match ready!(resolving.poll(cx, request, &limiter.0.observers)) {
                        Ok(plan) if plan.is_empty() => {
                            return Poll::Ready(conclude(Ruling::Uncharged));
                        }
                        Ok(plan) => {
                            self.asked = limiter.0.observers.asked();
                            self.step = Step::deciding(limiter, plan, self.deadline);
                        }
                        Err(refused) => return Poll::Ready(conclude(Ruling::Refused(refused))),
                    }
                }
                Step::Deciding(decide, plan, place) => {
                    let answer = ready!(Pin::new(decide).poll(cx));
                    limiter.0.observers.answered(self.asked);
                    let entries = plan.entries();
                    match limiter.next_step(entries, answer, place.take(), self.deadline) {
                        Ok(step) => self.step = step,
                        Err(answer) => {
                            return Poll::Ready(limiter.rule(entries, *answer, conclude));
                        }
                    }
                }
                Step::Standing(standing, _) => {
                    let (plan, end) = ready!(standing.future().poll(cx));
                    self.waited += standing.began().elapsed();
                    let Step::Standing(_, place) = mem::replace(&mut self.step, Step::Over) else {
                        continue;
                    };
                    let (entries, waited) = (plan.entries(), micros(self.waited));
                    match end {
                        PlaceEnd::Answered(Ok(decision)) if !decision.wait().is_zero() => {
                            match limiter.turn(entries, decision, place, self.deadline) {
                                Ok(turn) => self.step = Step::Waiting(turn),
                                Err(refused) => {
                                    return Poll::Ready(
                                        limiter.rule_after(waited, entries, *refused, conclude),
                                    );
                                }
                            }
                        }
                        PlaceEnd::Answered(answer) => {
                            return Poll::Ready(
                                limiter.rule_after(waited, entries, answer, conclude),
                            );
                        }
                        PlaceEnd::TimedOut(refused) => {
                            return Poll::Ready(
                                limiter.refuse_unasked(waited, entries, &refused, conclude),
                            );
                        }
                    }
                }
                Step::Queueing(decide, ..) => {
                    let answer = ready!(Pin::new(decide).poll(cx));
                    let step = mem::replace(&mut self.step, Step::Over);
                    let Step::Queueing(_, plan, place) = step else {
                        continue;
                    };
                    match limiter.queued(plan.entries(), answer, place, self.deadline) {
                        Ok(turn) => self.step = Step::Waiting(turn),
                        Err(answer) => {
                            let entries = plan.entries();
                            return Poll::Ready(limiter.rule(entries, *answer, conclude));
                        }
                    }
                }
                Step::Refused(refused, plan) => {
                    let entries = plan.entries();
                    return Poll::Ready(limiter.refuse_unasked(0, entries, refused, conclude));
                }
                Step::Waiting(turn) => {
                    if let Err(refused) = ready!(turn.poll(cx)) {
                        return Poll::Ready(conclude(Ruling::Refused(refused)));
                    }
                    self.waited += turn.decision().wait();
                    let held = turn.decide_held();
                    let Step::Waiting(mut turn) = mem::replace(&mut self.step, Step::Over) else {
                        continue;
                    };
                    if let Some(held) = held {
                        self.step = Step::Holding(held, turn);
                        continue;
                    }
                    turn.keep();
                    let (entries, decision) = (turn.plan().entries(), turn.decision());
                    let waited = micros(self.waited);
                    let ruling = Ruling::of(limiter, entries, decision, false, waited);
                    return Poll::Ready(conclude(ruling));
                }
                Step::Holding(held, turn) => {
                    let held = ready!(Pin::new(held).poll(cx));
                    let held = match held {
                        Ok(held) => held,
                        Err(error) => {
                            let entries = turn.plan().entries();
                            let waited = micros(self.waited);
                            let (mut passes, mut is_local) = (false, false);
                            let ruled = limiter.rule_after(waited, entries, Err(error), |ruling| {
                                passes = !matches!(ruling, Ruling::Refused(_) | Ruling::Denied(_));
                                is_local =
                                    matches!(&ruling, Ruling::Admitted(local) if local.is_local);
                                conclude(ruling)
                            });
                            // Refused, it gives its turn back.
                            if is_local {
                                // It was charged to a budget of this process, and is not charged twice.
                                turn.withdraw();
                            } else if passes {
                                turn.keep();
                            }
                            return Poll::Ready(ruled);
                        }
                    };
                    turn.enter_held(&held);
                    limiter.hear_part(turn.plan().entries(), turn.decision(), Quota::is_held);
                    // Refused now, it gives its turn back.
                    if held.is_admitted() {
                        turn.keep();
                    } else {
                        limiter.strike_refused(turn.plan().entries(), turn.decision());
                    }
                    let (entries, decision) = (turn.plan().entries(), turn.decision());
                    let waited = micros(self.waited);
                    let ruling = Ruling::of(limiter, entries, decision, false, waited);
                    return Poll::Ready(conclude(ruling));
                }
                // Polled after its end.
                Step::Over => return Poll::Pending,
            }
        }
    }
}

impl Step {
    fn deciding(limiter: &Limiter, plan: Plan, deadline: Option<Instant>) -> Self {
        let entries = plan.entries();
        if !entries.may_wait() {
            return Self::Deciding(limiter.decide(entries), plan, None);
        }
        if let Some(standing) = limiter.stand_behind_others(entries, deadline) {
            return standing;
        }
        let (decide, place) = limiter.decide_in_line(entries, deadline);
        Self::Deciding(decide, plan, place)
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

impl<'a> Ruling<'a> {
    #[inline]
    fn of(
        limiter: &'a Limiter,
        entries: Entries<'a>,
        decision: &'a Decision,
        is_local: bool,
        waited_us: u32,
    ) -> Self {
        let decided = Judgement {
            limiter,
            entries,
            decision,
            is_local,
            waited_us,
        };
        if decision.is_admitted() {
            Self::Admitted(decided)
        } else {
            Self::Denied(decided)
        }
    }
}

impl Limiter {
    /// Puts a request before policies, asks the backend, and passes the ruling to `conclude`. Plans and decisions are large, so
    /// `conclude` reads them in place. Under pressure `is_let_in` says whether this limiter has let the request in further out, so
    /// that it is not refused now.
    #[doc(hidden)]
    // Every request comes here, and once: a call would cost as much again.
    #[inline(always)]
    pub fn admit<T>(
        &self,
        request: &RequestView<'_>,
        asked: PolicySet<'_>,
        is_let_in: impl FnOnce() -> bool,
        conclude: impl FnOnce(Ruling<'_>) -> T,
    ) -> Admission<T> {
        if self.is_shedding() {
            return self.admit_under_pressure(*request, asked, is_let_in, conclude);
        }
        self.admit_asked(request, asked, conclude)
    }

    /// The way of a request while some are refused because of pressure. That is decided before all else: nothing is asked or
    /// charged for a request that the process has no room for.
    // The request is a copy, so that without pressure it need not lie in memory: 30 instructions of 750.
    #[cold]
    #[inline(never)]
    fn admit_under_pressure<T>(
        &self,
        request: RequestView<'_>,
        asked: PolicySet<'_>,
        is_let_in: impl FnOnce() -> bool,
        conclude: impl FnOnce(Ruling<'_>) -> T,
    ) -> Admission<T> {
        if !is_let_in()
            && let Some(refused) = self.shed(&request)
        {
            return Admission::Ruled(conclude(Ruling::Refused(refused)));
        }
        self.admit_asked(&request, asked, conclude)
    }

    #[inline(always)]
    fn admit_asked<T>(
        &self,
        request: &RequestView<'_>,
        asked: PolicySet<'_>,
        conclude: impl FnOnce(Ruling<'_>) -> T,
    ) -> Admission<T> {
        let policies = self.snapshot();
        if let PolicySet::Covering = asked {
            if let Some(policy) = policies.messages.policies.first() {
                self.warn_of_unattended_messages(policy);
            }
            let terms = &self.0.terms;
            policies.requests.watch(request, terms, &policies.proxies);
            // Most limiters and most requests: charged here, and where everything lies.
            if let Some(sole) = policies.requests.sole()
                && let Some((limit, peer)) = sole.peer(request)
            {
                let key = match peer {
                    // Nothing to group.
                    SocketAddr::V4(peer) => Key::from(*peer.ip()),
                    SocketAddr::V6(peer) => self.client_key(IpAddr::V6(*peer.ip())),
                };
                let payer = sole.paid_by(&key);
                let answer = self.0.backend.decide(&[payer.charge(limit)]);
                return self.answered(Entries::SolePolicy(&payer), answer, conclude);
            }
        }
        self.admit_planned(&policies, *request, asked, conclude)
    }

    #[inline(never)]
    fn admit_planned<T>(
        &self,
        policies: &Snapshot,
        request: RequestView<'_>,
        asked: PolicySet<'_>,
        conclude: impl FnOnce(Ruling<'_>) -> T,
    ) -> Admission<T> {
        let (terms, observers) = (&self.0.terms, &self.0.observers);
        let deadline = || terms.deadline(&request);
        let planned = match asked {
            PolicySet::Covering => {
                if let Some(sole) = policies.requests.sole()
                    && let Some(key) = sole.key(&request)
                {
                    let payer = sole.asked_by(&key, &request);
                    return self.ask(Entries::SolePolicy(&payer), deadline, conclude);
                }
                policies.requests.plan(&request, terms, observers)
            }
            PolicySet::Handler(policies) => {
                coverage::plan_at_handler(policies, &request, observers)
            }
        };
        self.go_on(self.warned(planned), deadline, conclude)
    }

    /// Asks the backend.
    fn ask<T>(
        &self,
        entries: Entries<'_>,
        deadline: impl FnOnce() -> Option<Instant>,
        conclude: impl FnOnce(Ruling<'_>) -> T,
    ) -> Admission<T> {
        if entries.may_wait() {
            return self.ask_in_line(entries, deadline(), conclude);
        }
        self.answered(entries, self.decide(entries), conclude)
    }

    /// Asks the backend about a request that may wait for its turn.
    #[inline(never)]
    fn ask_in_line<T>(
        &self,
        entries: Entries<'_>,
        deadline: Option<Instant>,
        conclude: impl FnOnce(Ruling<'_>) -> T,
    ) -> Admission<T> {
        let step = match self.stand_behind_others(entries, deadline) {
            Some(step) => step,
            None => {
                let (decide, place) = self.decide_in_line(entries, deadline);
                match decide.try_now() {
                    Ok(answer) => match self.next_step(entries, answer, place, deadline) {
                        Ok(step) => step,
                        Err(answer) => {
                            return Admission::Ruled(self.rule(entries, *answer, conclude));
                        }
                    },
                    Err(decide) => Step::Deciding(decide, entries.to_plan(), place),
                }
            }
        };
        Admission::Pending(Box::new(PendingAdmission::new(self, step, deadline)))
    }

    /// Lets a request stand behind those that wait for a place already. If it cannot wait, it is refused, and overtakes none.
    fn stand_behind_others(&self, entries: Entries<'_>, deadline: Option<Instant>) -> Option<Step> {
        let of = places::queue_ahead(self, entries)?;
        let place = if places::is_over(deadline) {
            None
        } else {
            Place::take(self)
        };
        Some(match place {
            Some(place) => Step::Standing(PlaceWait::behind(self, entries, deadline, of), place),
            None => Step::Refused(places::refusal(entries), entries.to_plan()),
        })
    }

    /// The next step of a request that has to wait by this answer; otherwise the answer.
    fn next_step(
        &self,
        entries: Entries<'_>,
        answer: Result<Decision, BackendError>,
        place: Option<Place>,
        deadline: Option<Instant>,
    ) -> Result<Step, Box<Result<Decision, BackendError>>> {
        match (answer, place) {
            (Ok(decision), Some(place)) if !decision.wait().is_zero() => {
                let turn = self.turn(entries, decision, place, deadline);
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
                    return Ok(Step::Queueing(decide, entries.to_plan(), place));
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
    ) -> Result<Turn, Box<Result<Decision, BackendError>>> {
        let decision = match answer {
            Ok(decision) => places::without_places(entries, &decision),
            Err(error) => return Err(Box::new(Err(error))),
        };
        if !decision.is_admitted() {
            self.strike_refused(entries, &decision);
            return Err(Box::new(Ok(decision)));
        }
        self.turn(entries, decision, place, deadline)
    }

    /// The turn of a request that the backend lets in later; a refusal if the caller will be gone by then, since the answer took
    /// some of its time.
    fn turn(
        &self,
        entries: Entries<'_>,
        decision: Decision,
        place: Place,
        deadline: Option<Instant>,
    ) -> Result<Turn, Box<Result<Decision, BackendError>>> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if let Some(left) = left.filter(|left| *left < decision.wait()) {
            give_back(self, entries, &decision, |_| true);
            return Err(Box::new(Ok(too_late(entries, &decision, left))));
        }
        // Places are asked for again when the turn has come, and the observer hears of them then.
        self.hear_part(entries, &decision, |quota| !quota.is_held());
        Ok(Turn::new(entries.to_plan(), decision, place))
    }

    /// Goes on with the answer of the backend, which is there if that is in memory.
    #[inline(always)]
    fn answered<T>(
        &self,
        entries: Entries<'_>,
        answer: Answer<Decision>,
        conclude: impl FnOnce(Ruling<'_>) -> T,
    ) -> Admission<T> {
        let Some(Ok(decision)) = answer.peek() else {
            return self.wait_or_rule(entries, answer, conclude);
        };
        self.hear(entries, decision);
        Admission::Ruled(conclude(Ruling::of(self, entries, decision, false, 0)))
    }

    #[inline(never)]
    fn wait_or_rule<T>(
        &self,
        entries: Entries<'_>,
        answer: Answer<Decision>,
        conclude: impl FnOnce(Ruling<'_>) -> T,
    ) -> Admission<T> {
        match answer.try_now() {
            Ok(answer) => Admission::Ruled(self.rule(entries, answer, conclude)),
            Err(decide) => {
                let step = Step::Deciding(decide, entries.to_plan(), None);
                let deadline = None;
                Admission::Pending(Box::new(PendingAdmission::new(self, step, deadline)))
            }
        }
    }

    /// Asks the backend about what was planned.
    #[inline(never)]
    pub(super) fn go_on<T>(
        &self,
        planned: Result<Planning, Rejection>,
        deadline: impl FnOnce() -> Option<Instant>,
        conclude: impl FnOnce(Ruling<'_>) -> T,
    ) -> Admission<T> {
        let ruling = match planned {
            Ok(Planning::Now(plan)) if plan.is_empty() => Ruling::Uncharged,
            Ok(Planning::Now(plan)) => return self.ask(plan.entries(), deadline, conclude),
            Ok(Planning::Later(resolving)) => {
                return Admission::Pending(Box::new(PendingAdmission::new(
                    self,
                    Step::Resolving(resolving),
                    deadline(),
                )));
            }
            Err(refused) => Ruling::Refused(refused),
        };
        Admission::Ruled(conclude(ruling))
    }

    pub(super) fn warned(&self, plan: Result<Planning, Rejection>) -> Result<Planning, Rejection> {
        if matches!(&plan, Ok(Planning::Now(plan)) if plan.misses_peer) {
            self.warn_of_missing_peer();
        }
        plan
    }

    #[cold]
    fn warn_of_missing_peer(&self) {
        if !self.0.warned_of_missing_peer.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                missing = ClientIp::MISSING,
                "the server does not state its peers, so all callers share one budget; serve the router with \
                 `.into_make_service_with_connect_info::<SocketAddr>()`, or in tests add `MockConnectInfo` outside the \
                 limiter; callers over a Unix socket have no address, so limit them by another key"
            );
        }
    }

    #[inline]
    fn warn_of_unattended_messages(&self, policy: &Policy) {
        let attended = &self.0.attends_messages;
        if !attended.load(Ordering::Relaxed) && !attended.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                policy = policy.name(),
                "messages pass uncharged: add `MessageLimitLayer::new(limiter)` to the server, which charges them"
            );
        }
    }

    /// Asks the backend.
    #[doc(hidden)]
    #[inline]
    pub fn decide(&self, entries: Entries<'_>) -> Answer<Decision> {
        let backend = &self.0.backend;
        match entries.at_least() {
            None => entries.with_charges(|charges| backend.decide(charges)),
            Some(at_least) => {
                entries.with_charges(|charges| backend.decide_up_to(charges, at_least))
            }
        }
    }

    /// Takes the backend's decision, or applies the failure rule. Every decision passes here, and observers are told from here.
    #[doc(hidden)]
    pub fn judge(
        &self,
        entries: Entries<'_>,
        answer: Result<Decision, BackendError>,
    ) -> Result<Decision, Fallback> {
        match answer {
            Ok(decision) => {
                self.hear(entries, &decision);
                Ok(decision)
            }
            Err(error) => Err(self.fall_back(entries, error)),
        }
    }

    /// The first half of that: what the backend decided.
    #[inline(always)]
    fn hear(&self, entries: Entries<'_>, decision: &Decision) {
        self.backend_answered();
        let observers = &self.0.observers;
        observers.decided(entries, decision, Cause::Backend);
    }

    /// The backend's decision about the quotas for which `is_part` holds.
    fn hear_part(&self, entries: Entries<'_>, decision: &Decision, is_part: fn(&Quota) -> bool) {
        self.backend_answered();
        let observers = &self.0.observers;
        observers.decided_in_part(entries, decision, Cause::Backend, is_part);
    }

    #[cold]
    fn fall_back(&self, entries: Entries<'_>, error: BackendError) -> Fallback {
        let observers = &self.0.observers;
        let place = || self.0.backend.place();
        self.0
            .health
            .failed(Instant::now().into_std(), &error, place);
        let fallback = self.0.local.rule_without_backend(entries, error);
        match &fallback {
            Fallback::Decide(local) => {
                observers.decided(local.0.entries(), &local.1, Cause::Local);
                // The other policies have no say in it.
                observers.undecided(entries, Cause::PassedUndecided, |policy| !has_share(policy));
            }
            Fallback::Pass(_) => {
                self.0.health.passed();
                observers.undecided(entries, Cause::PassedUndecided, |_| true);
            }
            Fallback::Refuse(_) => observers.undecided(entries, Cause::RefusedUndecided, |_| true),
        }
        // A thread that heard of a decision meanwhile may have found local budgets standing still. The next decision
        // stops them.
        self.0.health.fails_still();
        fallback
    }

    fn rule<T>(
        &self,
        entries: Entries<'_>,
        answer: Result<Decision, BackendError>,
        conclude: impl FnOnce(Ruling<'_>) -> T,
    ) -> T {
        self.rule_after(0, entries, answer, conclude)
    }

    /// Rules on a request that has waited.
    fn rule_after<T>(
        &self,
        waited_us: u32,
        entries: Entries<'_>,
        answer: Result<Decision, BackendError>,
        conclude: impl FnOnce(Ruling<'_>) -> T,
    ) -> T {
        let (decision, local, assumed);
        conclude(match self.judge(entries, answer) {
            Ok(decided) => {
                decision = decided;
                Ruling::of(self, entries, &decision, false, waited_us)
            }
            Err(Fallback::Decide(decided)) => {
                local = decided;
                Ruling::of(self, local.0.entries(), &local.1, true, waited_us)
            }
            Err(Fallback::Pass(error)) => {
                assumed = self.assume(entries);
                let holds = assumed.as_ref().map(|decision| Judgement {
                    limiter: self,
                    entries,
                    decision,
                    is_local: false,
                    waited_us,
                });
                Ruling::Undecided(error, holds)
            }
            Err(Fallback::Refuse(error)) => Ruling::Refused(Rejection::Unavailable(error)),
        })
    }

    /// Refuses a request for want of a place, which the backend was not asked about: that says nothing of its health.
    fn refuse_unasked<T>(
        &self,
        waited_us: u32,
        entries: Entries<'_>,
        refused: &Decision,
        conclude: impl FnOnce(Ruling<'_>) -> T,
    ) -> T {
        self.0.observers.decided(entries, refused, Cause::NoPlace);
        conclude(Ruling::of(self, entries, refused, false, waited_us))
    }

    /// The units that an undecided request holds all the same, if the backend is to count them. The verdicts are unknown, so that
    /// no caller is told of them.
    fn assume(&self, entries: Entries<'_>) -> Option<Decision> {
        let verdict = |charge: &Charge<'_>| {
            let holds = charge.quota.is_held() && charge.cost > 0 && charge.mode != Mode::Probe;
            if holds && self.0.backend.assume(charge) {
                Verdict::assumed(charge)
            } else {
                Verdict::unknown(charge.quota.capacity())
            }
        };
        let holds = entries.policies().any(Policy::holds);
        holds.then(|| {
            entries.with_charges(|charges| {
                Decision::new(Timestamp::default(), true, charges.iter().map(verdict))
            })
        })
    }

    /// The backend is well: local budgets stand still.
    #[inline]
    fn backend_answered(&self) {
        if self.0.health.is_failing() {
            self.recovered();
        }
    }

    #[cold]
    fn recovered(&self) {
        // In this order: an outage that begins in between is seen by the next decision.
        let place = || self.0.backend.place();
        self.0.health.recovered(Instant::now().into_std(), place);
        self.0.local.backend_answered();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use tollgate_core::{FailureKind, Timestamp};

    use super::super::plan::{Demand, Entry};
    use super::*;
    use crate::{OnFailure, Quota, Share};

    /// One thread hears of a failure while another hears of a decision. In either order the next decision stops the clock.
    #[test]
    fn local_budgets_stand_still_after_a_decision_whatever_else_was_heard_meanwhile() {
        const ROUNDS: usize = 20_000;
        let local = OnFailure::Local(Share::WHOLE);
        let policy = Policy::new("local", Quota::per_hour(1)).on_failure(local);
        let limiter = Limiter::from(policy);
        let policy = limiter.policy("local").expect("it has one");
        let mut plan = Plan::default();
        plan.push(Entry::new(&policy, Key::from("anyone"), Demand::ONCE));
        let fails = || {
            let error = BackendError::new(FailureKind::Unreachable, "");
            let _fallback = limiter.judge(plan.entries(), Err(error));
        };
        let decides = || {
            let decision = tollgate_core::decide(Timestamp::from_micros(0), &[], &mut [][..]);
            let _decided = limiter.judge(plan.entries(), Ok(decision));
        };
        let (begin, end) = (Barrier::new(3), Barrier::new(3));
        thread::scope(|scope| {
            for rule in [&fails as &(dyn Fn() + Sync), &decides] {
                let (begin, end) = (&begin, &end);
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        begin.wait();
                        rule();
                        end.wait();
                    }
                });
            }
            let mut ran_on = 0;
            for _ in 0..ROUNDS {
                // The backend is known to fail, as in the middle of an outage.
                fails();
                begin.wait();
                end.wait();
                decides();
                ran_on += usize::from(limiter.0.local.are_running());
            }
            assert_eq!(ran_on, 0, "of {ROUNDS}");
        });
    }
}
