//! The ruling on an answer of the backend, or on its failure.

use tokio::time::Instant;
use tollgate_core::{
    BackendError, Capability, Charge, Decision, FailureKind, Mode, Outcome, Quota, Settlement,
    Timestamp, Verdict,
};

use super::{Entries, Fallback, Judgement, Limiter, Plan, Rejection, Ruling};
use crate::Policy;
use crate::limiter::Ledger;
use crate::limiter::event::{Cause, Origin};
use crate::limiter::fallback::{DecidedPart, LocalPayers};
use crate::limiter::line::{Attempts, give_back};
use crate::limiter::local::has_share;

impl Limiter {
    /// Takes the backend's decision, or applies the failure rule. Every decision passes here, and observers are told from here.
    #[doc(hidden)]
    pub fn judge(
        &self,
        waited_us: u32,
        entries: Entries<'_>,
        answer: Result<Decision, BackendError>,
    ) -> Result<Decision, Fallback> {
        match answer {
            Ok(decision) if decision.failure().is_some() => {
                Err(self.fall_back_in_part(waited_us, entries, &decision))
            }
            Ok(decision) => {
                let cause = Cause::of(&decision);
                self.hear(entries, &decision, cause.after(waited_us));
                Ok(decision)
            }
            Err(error) => Err(self.fall_back(waited_us, entries, error)),
        }
    }

    /// The first half of that: what the backend decided.
    #[inline(always)]
    pub(super) fn hear(
        &self,
        entries: Entries<'_>,
        decision: &Decision,
        origin: impl Into<Origin>,
    ) {
        self.backend_answered(decision);
        let observers = &self.0.observers;
        observers.decided(entries, decision, origin);
    }

    /// Hears a decision that no server was asked for.
    #[inline(never)]
    pub(super) fn hear_known(&self, entries: Entries<'_>, decision: &Decision) {
        self.hear(entries, decision, Cause::of(decision));
    }

    /// The backend's decision about the quotas for which `is_part` holds.
    pub(super) fn hear_part(
        &self,
        waited_us: u32,
        entries: Entries<'_>,
        decision: &Decision,
        is_part: fn(&Quota) -> bool,
    ) {
        self.backend_answered(decision);
        let (observers, cause) = (&self.0.observers, Cause::of(decision));
        observers.decided_in_part(entries, decision, cause.after(waited_us), is_part);
    }

    #[cold]
    pub(super) fn fall_back(
        &self,
        waited_us: u32,
        entries: Entries<'_>,
        error: BackendError,
    ) -> Fallback {
        self.backend_failed(entries, &error);
        if let Some((decided, left_out)) = self.decide_without_permits(entries, &error) {
            return self.join(waited_us, decided, &left_out, error);
        }
        let fallback = self.0.local.rule_without_backend(entries, error);
        self.observe_fallback(waited_us, entries, &fallback);
        fallback
    }

    fn backend_failed(&self, entries: Entries<'_>, error: &BackendError) {
        // In this order: a thread that hears of a decision meanwhile stops the local budgets, or the next one does.
        self.0.local.backend_failed(entries);
        let place = || self.0.backend.admin().place();
        let now = Instant::now().into_std();
        self.0.health.failed(now, error, place);
    }

    fn observe_fallback(&self, waited_us: u32, entries: Entries<'_>, fallback: &Fallback) {
        let observers = &self.0.observers;
        let after = |cause: Cause| cause.after(waited_us);
        match fallback {
            Fallback::Decide(part) => {
                let origin = after(Cause::Local);
                observers.decided(part.plan.entries(), &part.decision, origin);
                // The other policies have no say in it.
                let passed = after(Cause::PassedUndecided);
                observers.undecided(entries, passed, |policy| !has_share(policy));
            }
            Fallback::Pass(_) => {
                self.0.health.passed();
                observers.undecided(entries, after(Cause::PassedUndecided), |_| true);
            }
            Fallback::Refuse(_) => {
                observers.undecided(entries, after(Cause::RefusedUndecided), |_| true);
            }
        }
    }

    /// Applies the failure rules of the policies whose server failed, beside the decision about the others. So whoever names an identity
    /// whose server is away gets around no other policy.
    #[cold]
    fn fall_back_in_part(
        &self,
        waited_us: u32,
        entries: Entries<'_>,
        decision: &Decision,
    ) -> Fallback {
        let is_known = |verdict: &Verdict| verdict.outcome() != Outcome::Unknown;
        let (decided, failed) = DecidedPart::of(entries, decision, is_known);
        let error = decision.failure().cloned();
        let error = error.unwrap_or_else(|| BackendError::new(FailureKind::Unreachable, ""));
        self.backend_failed(failed.entries(), &error);
        self.join(waited_us, decided, &failed, error)
    }

    /// The outcome of a decision about some policies and of a failure about others.
    fn join(
        &self,
        waited_us: u32,
        decided: DecidedPart,
        failed: &Plan<'static>,
        error: BackendError,
    ) -> Fallback {
        let origin = Cause::of(&decided.decision).after(waited_us);
        let observers = &self.0.observers;
        let (entries, decision) = (decided.plan.entries(), &decided.decision);
        if !decision.is_admitted() {
            observers.decided(entries, decision, origin);
            let passed = Cause::PassedUndecided.after(waited_us);
            observers.undecided(failed.entries(), passed, |_| true);
            return Fallback::Decide(Box::new(decided));
        }
        let fallback = self.0.local.rule_without_backend(failed.entries(), error);
        self.observe_fallback(waited_us, failed.entries(), &fallback);
        let is_refused = match &fallback {
            Fallback::Decide(local) => !local.decision.is_admitted(),
            Fallback::Pass(_) => false,
            Fallback::Refuse(_) => true,
        };
        if is_refused {
            give_back(self, entries, decision, |_| true);
            let refused = Cause::RefusedUndecided.after(waited_us);
            observers.undecided(entries, refused, |_| true);
            return fallback;
        }
        observers.decided(entries, decision, origin);
        let rest = match fallback {
            Fallback::Decide(local) => Some(*local),
            _ => self.assume(failed.entries()).map(|decision| DecidedPart {
                plan: failed.entries().to_plan(),
                decision,
                local: LocalPayers::NONE,
            }),
        };
        Fallback::Decide(Box::new(match rest {
            Some(rest) => decided.and(rest),
            None => decided,
        }))
    }

    /// Decides without the policies that hold something, if a backend in this process has no room for that. So whoever fills their
    /// part of the memory gets around no other policy. Returns the rest as well.
    fn decide_without_permits(
        &self,
        entries: Entries<'_>,
        error: &BackendError,
    ) -> Option<(DecidedPart, Plan<'static>)> {
        if error.kind() != FailureKind::Full {
            return None;
        }
        let plan = entries.only(|policy| !policy.holds());
        if plan.is_empty() {
            return None;
        }
        let now = Some(Instant::now());
        let answer = self.decide_by(plan.entries(), now, Attempts::Once);
        let decision = answer.try_now().ok()?.ok()?;
        let decided = DecidedPart {
            plan,
            decision,
            local: LocalPayers::NONE,
        };
        Some((decided, entries.only(Policy::holds)))
    }

    pub(super) fn rule<T>(
        &self,
        entries: Entries<'_>,
        answer: Result<Decision, BackendError>,
        conclude: impl FnOnce(Ruling<'_>) -> T,
    ) -> T {
        self.rule_after(0, entries, answer, conclude)
    }

    /// Rules on a request that has waited.
    pub(super) fn rule_after<T>(
        &self,
        waited_us: u32,
        entries: Entries<'_>,
        answer: Result<Decision, BackendError>,
        conclude: impl FnOnce(Ruling<'_>) -> T,
    ) -> T {
        match self.judge(waited_us, entries, answer) {
            Ok(decision) => conclude(Ruling::of(
                self,
                entries,
                &decision,
                LocalPayers::NONE,
                waited_us,
            )),
            Err(fallback) => self.rule_by(fallback, waited_us, entries, conclude),
        }
    }

    /// Rules on a request about which the backend failed.
    pub(super) fn rule_by<T>(
        &self,
        fallback: Fallback,
        waited_us: u32,
        entries: Entries<'_>,
        conclude: impl FnOnce(Ruling<'_>) -> T,
    ) -> T {
        let (part, assumed);
        conclude(match fallback {
            Fallback::Decide(decided) => {
                part = decided;
                let (plan, decision) = (&part.plan, &part.decision);
                Ruling::of(self, plan.entries(), decision, part.local, waited_us)
            }
            Fallback::Pass(error) => {
                assumed = self.assume(entries);
                let holds = assumed.as_ref().map(|decision| Judgement {
                    settler: &self.0.settler,
                    entries,
                    decision,
                    local: LocalPayers::NONE,
                    waited_us,
                });
                Ruling::Undecided(error, holds)
            }
            Fallback::Refuse(error) => Ruling::Refused(Rejection::Unavailable(error)),
        })
    }

    /// The charges of a decision, for a transport that asks by itself.
    #[doc(hidden)]
    #[must_use]
    pub fn ledger(&self, entries: Entries<'_>, decision: &Decision, local: LocalPayers) -> Ledger {
        Ledger::of(&self.0.settler, entries, decision, local)
    }

    /// Refuses a request for want of a place, which the backend was not asked about: that says nothing of its health.
    pub(super) fn refuse_unasked<T>(
        &self,
        waited_us: u32,
        entries: Entries<'_>,
        refused: &Decision,
        conclude: impl FnOnce(Ruling<'_>) -> T,
    ) -> T {
        let origin = Cause::NoPlace.after(waited_us);
        self.0.observers.decided(entries, refused, origin);
        conclude(Ruling::of(
            self,
            entries,
            refused,
            LocalPayers::NONE,
            waited_us,
        ))
    }

    /// The units that an undecided request holds all the same, if the backend is to count them. The verdicts are unknown, so that
    /// no caller is told of them.
    fn assume(&self, entries: Entries<'_>) -> Option<Decision> {
        let assumes = self.0.backend.admin().capabilities();
        let assumes = assumes.has(Capability::Assumes);
        let verdict = |charge: &Charge<'_>| {
            let holds = charge.quota.is_held() && charge.cost > 0 && charge.mode != Mode::Probe;
            if holds && assumes {
                self.0.backend.settle(Settlement::Assume(charge));
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

    /// The backend is well: local budgets stand still soon. A decision without its server says nothing of that.
    #[inline]
    fn backend_answered(&self, decision: &Decision) {
        if self.0.health.is_failing() && !decision.is_known() {
            self.recovered();
        }
    }

    #[cold]
    fn recovered(&self) {
        // In this order: an outage that begins in between is seen by the next decision.
        let place = || self.0.backend.admin().place();
        self.0.health.recovered(Instant::now().into_std(), place);
        self.0.local.backend_answered();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use tollgate_core::{Call, FailureKind};

    use super::*;
    use crate::limiter::plan::{Demand, Entry, Plan, PlannedPolicy};
    use crate::{Key, Limiter, OnFailure, Quota, Share};

    /// It came from this process: the backend may be as far away as before.
    #[test]
    fn a_known_denial_ends_no_outage() {
        let local = OnFailure::Local(Share::WHOLE);
        let quota = Quota::per_hour(1);
        let policy = Policy::new("local", quota).on_failure(local);
        let limiter = Limiter::from(policy);
        let policy = limiter.policy("local").expect("it has one");
        let mut plan = Plan::default();
        plan.push(Entry::new(
            PlannedPolicy::Lent(&policy),
            Key::from("anyone"),
            Demand::ONCE,
        ));
        let charge = Charge {
            scope: tollgate_core::Scope::of("local", 0, &quota),
            quota: &quota,
            key: &Key::from("anyone"),
            cost: 1,
            mode: Mode::Enforce,
        };
        let (now, mut states) = (Timestamp::default(), [tollgate_core::State::full(&quota)]);
        let asked = tollgate_core::decide(now, Call::of(&[charge]), &mut states[..]);
        let known = tollgate_core::deny_by_known(now, now, Call::of(&[charge]), &states);
        let error = BackendError::new(FailureKind::Unreachable, "");
        let _fallback = limiter.judge(0, plan.entries(), Err(error));
        assert!(limiter.0.health.is_failing());

        for (decision, is_failing) in [(known.expect("a denial"), true), (asked, false)] {
            assert!(limiter.judge(0, plan.entries(), Ok(decision)).is_ok());
            assert_eq!(limiter.0.health.is_failing(), is_failing);
        }
    }

    /// One thread hears of a failure while another hears of a decision. In either order the next decision stops the clock.
    #[test]
    fn local_budgets_stand_still_after_a_decision_whatever_else_was_heard_meanwhile() {
        const ROUNDS: usize = 20_000;
        let local = OnFailure::Local(Share::WHOLE);
        let policy = Policy::new("local", Quota::per_hour(1)).on_failure(local);
        let limiter = Limiter::from(policy);
        let policy = limiter.policy("local").expect("it has one");
        let mut plan = Plan::default();
        plan.push(Entry::new(
            PlannedPolicy::Lent(&policy),
            Key::from("anyone"),
            Demand::ONCE,
        ));
        let fails = || {
            let error = BackendError::new(FailureKind::Unreachable, "");
            let _fallback = limiter.judge(0, plan.entries(), Err(error));
        };
        let decides = || {
            let decision =
                tollgate_core::decide(Timestamp::from_micros(0), Call::of(&[]), &mut [][..]);
            let _decided = limiter.judge(0, plan.entries(), Ok(decision));
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
                ran_on += usize::from(!limiter.0.local.have_heard_of_a_decision());
            }
            assert_eq!(ran_on, 0, "of {ROUNDS}");
        });
    }
}
