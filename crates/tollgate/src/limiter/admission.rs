//! The one way of a request through a limiter: covered by policies, decided by the backend, and ruled on if the backend fails.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tollgate_core::{Answer, BackendError, Decide, Decision};

use super::observer::Cause;
use super::planning::{Planned, Refused, Resolving};
use super::{Decided, Fallback, Limiter, Plan, coverage};
use crate::key::ClientIp;
use crate::{Policy, RequestView};

/// A request that was let in or refused, or that has to wait until that is known.
pub(crate) enum Admission {
    Ruled(Ruling),
    Pending(Pending),
}

/// What became of a request.
#[derive(Debug)]
pub(crate) enum Ruling {
    /// No quota has a say in it.
    Uncharged,
    /// Every enforced quota had room.
    Admitted(Decided),
    /// A quota had no room.
    Denied(Decided),
    /// The backend failed, and the request passes.
    Undecided(BackendError),
    /// No quota was asked, and the request is refused.
    Refused(Refused),
}

/// The policies that a request is put before.
#[derive(Clone, Copy)]
pub(crate) enum Asked<'a> {
    /// Those of the limiter that cover it.
    Covering,
    /// Those of a handler or route, wherever the limiter has them from.
    #[cfg_attr(
        not(feature = "axum"),
        expect(dead_code, reason = "limits stand nowhere else")
    )]
    Handler(&'a [Arc<Policy>]),
}

/// A request that waits for an answer. Dropping it leaves nothing behind: a decision that was not sent is withdrawn, one that was
/// sent is given back when it arrives.
pub(crate) struct Pending(Step);

enum Step {
    /// Who the request is from is not known yet, or in which tier that is.
    Resolving(Resolving),
    /// The backend was asked.
    Deciding(Decide, Plan),
}

impl Pending {
    /// What becomes of the request, which is the one that was put before this limiter; there is none if the key was brought along.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        limiter: &Limiter,
        request: Option<&RequestView<'_>>,
    ) -> Poll<Ruling> {
        loop {
            match &mut self.0 {
                Step::Resolving(resolving) => {
                    let planned = ready!(resolving.poll(cx, request, &limiter.0.observers));
                    match limiter.go_on(planned.map(Planned::Now)) {
                        Admission::Ruled(ruling) => return Poll::Ready(ruling),
                        Admission::Pending(next) => *self = next,
                    }
                }
                Step::Deciding(decide, plan) => {
                    let answer = ready!(Pin::new(decide).poll(cx));
                    let plan = std::mem::take(plan);
                    return Poll::Ready(limiter.rule(plan, answer));
                }
            }
        }
    }
}

impl Limiter {
    /// Puts a request before policies, and asks the backend.
    #[inline]
    pub(crate) fn admit(&self, request: &RequestView<'_>, asked: Asked<'_>) -> Admission {
        let (policies, terms, observers) = (self.snapshot(), &self.0.terms, &self.0.observers);
        let planned = match asked {
            Asked::Covering => {
                if let Some(policy) = policies.messages.policies.first() {
                    self.warn_of_unattended_messages(policy);
                }
                policies.requests.watch(request, terms, &policies.proxies);
                if let Some(plan) = policies.requests.sole_plan(request) {
                    return self.ask(plan);
                }
                policies.requests.plan(request, terms, observers)
            }
            Asked::Handler(policies) => coverage::plan_at_handler(policies, request, observers),
        };
        self.go_on(self.warned(planned))
    }

    /// Asks the backend about a plan.
    #[inline]
    fn ask(&self, plan: Plan) -> Admission {
        if plan.is_empty() {
            return Admission::Ruled(Ruling::Uncharged);
        }
        match self.decide(&plan).try_now() {
            Ok(answer) => Admission::Ruled(self.rule(plan, answer)),
            Err(decide) => Admission::Pending(Pending(Step::Deciding(decide, plan))),
        }
    }

    /// Asks the backend about what was planned.
    pub(super) fn go_on(&self, planned: Result<Planned, Refused>) -> Admission {
        match planned {
            Ok(Planned::Now(plan)) => self.ask(plan),
            Ok(Planned::Later(resolving)) => {
                Admission::Pending(Pending(Step::Resolving(resolving)))
            }
            Err(refused) => Admission::Ruled(Ruling::Refused(refused)),
        }
    }

    pub(super) fn warned(&self, plan: Result<Planned, Refused>) -> Result<Planned, Refused> {
        if matches!(&plan, Ok(Planned::Now(plan)) if plan.misses_peer) {
            self.warn_of_missing_peer();
        }
        plan
    }

    #[cold]
    fn warn_of_missing_peer(&self) {
        if !self.0.warned_of_missing_peer.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                missing = ClientIp::MISSING,
                "the server does not say who its peers are, so all callers share one budget; serve the router with \
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
    #[inline]
    pub(crate) fn decide(&self, plan: &Plan) -> Answer<Decision> {
        plan.with_charges(|charges| self.0.backend.decide(charges))
    }

    /// What the backend decided, or what the failure rule makes of its failure. Every decision comes through here, and is told from
    /// here.
    #[inline]
    pub(crate) fn judge(
        &self,
        plan: &Plan,
        answer: Result<Decision, BackendError>,
    ) -> Result<Decision, Fallback> {
        let observers = &self.0.observers;
        match answer {
            Ok(decision) => {
                self.backend_answered();
                observers.decided(plan, &decision, Cause::Backend);
                Ok(decision)
            }
            Err(error) => {
                let place = || self.0.backend.place();
                self.0.health.failed(Instant::now(), &error, place);
                let fallback = self.0.local.rule_without_backend(plan, error);
                match &fallback {
                    Fallback::Decide(local) => observers.decided(&local.0, &local.1, Cause::Local),
                    Fallback::Pass(_) => {
                        self.0.health.passed();
                        observers.undecided(plan, Cause::PassedUndecided);
                    }
                    Fallback::Refuse(_) => observers.undecided(plan, Cause::RefusedUndecided),
                }
                // A thread that heard of a decision meanwhile may have found local budgets standing still. The next decision
                // stops them.
                self.0.health.fails_still();
                Err(fallback)
            }
        }
    }

    #[inline]
    fn rule(&self, plan: Plan, answer: Result<Decision, BackendError>) -> Ruling {
        let ruling = |plan, decision: Decision, is_local| {
            let is_admitted = decision.is_admitted();
            let decided = Decided {
                plan,
                decision,
                is_local,
            };
            if is_admitted {
                Ruling::Admitted(decided)
            } else {
                Ruling::Denied(decided)
            }
        };
        match self.judge(&plan, answer) {
            Ok(decision) => ruling(plan, decision, false),
            Err(Fallback::Decide(local)) => {
                let (plan, decision) = *local;
                ruling(plan, decision, true)
            }
            Err(Fallback::Pass(error)) => Ruling::Undecided(error),
            Err(Fallback::Refuse(error)) => Ruling::Refused(Refused::Unavailable(error)),
        }
    }

    /// The backend is well: local budgets stand still.
    #[inline]
    fn backend_answered(&self) {
        if self.0.health.is_failing() {
            // In this order: an outage that begins in between is seen by the next decision.
            let place = || self.0.backend.place();
            self.0.health.recovered(Instant::now(), place);
            self.0.local.backend_answered();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use tollgate_core::{FailureKind, Key, Timestamp};

    use super::super::plan::Entry;
    use super::*;
    use crate::{OnFailure, Quota, Share};

    /// A thread hears of a failure while another hears of a decision: whichever is first, the next decision stops the clock.
    #[test]
    fn local_budgets_stand_still_after_a_decision_whatever_else_was_heard_meanwhile() {
        const ROUNDS: usize = 20_000;
        let local = OnFailure::Local(Share::WHOLE);
        let policy = Policy::new("local", Quota::per_hour(1)).on_failure(local);
        let limiter = Limiter::from(policy);
        let policy = limiter.policy("local").expect("it has one");
        let mut plan = Plan::default();
        plan.push(Entry::new(&policy, None, Key::from("anyone"), 1, false));
        let fails = || {
            let error = BackendError::new(FailureKind::Unreachable, "");
            let _fallback = limiter.judge(&plan, Err(error));
        };
        let decides = || {
            let decision = tollgate_core::decide(Timestamp::from_micros(0), &[], &mut [][..]);
            let _decided = limiter.judge(&plan, Ok(decision));
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
                // What is known from before is that the backend fails, as in the middle of an outage.
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
