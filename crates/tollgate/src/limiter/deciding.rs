//! How a request goes through a limiter: planned, decided by the backend, judged. One way, whoever asks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use http::Request;
use tollgate_core::{Answer, BackendError, Decision};

use super::planning::{self, Asking, Planned, Turned};
use super::{Fallback, Inner, Limiter, Plan};
use crate::key::ClientIp;
use crate::ledger::Ledger;
use crate::matching::{Covering, Matcher, PathForms};
use crate::request::FoundClient;
#[cfg(feature = "tonic")]
use crate::request::Routing;
use crate::{Policy, RequestView};

/// What became of a request.
#[derive(Debug)]
pub(crate) enum Judged {
    /// Every enforced quota had room.
    Admitted(Ledger),
    /// One had not.
    Denied(Ledger),
    /// Nobody could decide, and it passes.
    Undecided,
    /// Nobody could decide, and it is refused.
    Unavailable,
}

impl Limiter {
    /// The head of a request, with what this limiter trusts.
    #[inline]
    pub(crate) fn view<'a, B>(&'a self, request: &'a Request<B>) -> RequestView<'a> {
        RequestView::of(request).trusting(&self.0.client)
    }

    /// The same of a request that lies in parts.
    #[cfg(feature = "axum")]
    pub(crate) fn view_of<'a>(&'a self, parts: &'a http::request::Parts) -> RequestView<'a> {
        RequestView::of_parts(parts).trusting(&self.0.client)
    }

    /// Whose budgets a request spends under these policies, whatever other policies this limiter has.
    #[cfg(feature = "axum")]
    pub(crate) fn plan_for(
        &self,
        policies: &[Arc<Policy>],
        request: &RequestView<'_>,
    ) -> Result<Planned, Turned> {
        let found = FoundClient::new();
        self.warned(planning::plan(
            policies.iter(),
            &request.remembering(&found),
            None,
            Asking::Site,
        ))
    }

    /// Which policies cover the request, whose budgets they spend, and how much.
    pub(crate) fn plan(&self, request: &RequestView<'_>) -> Result<Planned, Turned> {
        self.warned(if self.0.needs_only_the_peer {
            planning::plan(self.0.matched.iter(), request, None, Asking::Layer)
        } else {
            self.0.plan(request)
        })
    }

    /// The same, if it is known already which policies cover the path.
    pub(super) fn plan_covering(
        &self,
        covering: &Covering<'_>,
        path: &PathForms<'_>,
        request: &RequestView<'_>,
    ) -> Result<Planned, Turned> {
        let matched = &self.0.matched;
        self.warned(plan_covering(matched, covering, path, request))
    }

    fn warned(&self, plan: Result<Planned, Turned>) -> Result<Planned, Turned> {
        if matches!(&plan, Ok(Planned::Now(plan)) if plan.misses_peer) {
            self.warn_of_missing_peer();
        }
        plan
    }

    /// Which policies cover the messages of the call, whose budgets they spend, and how much.
    #[cfg(feature = "tonic")]
    pub(crate) fn plan_messages(&self, call: &RequestView<'_>) -> Result<Planned, Turned> {
        let inner = &*self.0;
        let matcher = inner.message_matcher.as_ref();
        self.warned(inner.plan_under(&inner.for_messages, matcher, call))
    }

    /// Whether a policy for messages names the path, so that whatever is asked of it is a call.
    #[cfg(feature = "tonic")]
    pub(crate) fn names_messages_of(&self, call: &RequestView<'_>) -> bool {
        let inner = &*self.0;
        let path = PathForms::of(call.original_uri().path(), inner.ignores_path_case);
        inner.for_messages.iter().any(|policy| {
            let routes = policy.patterns().routes;
            let routing = Routing {
                path: &path,
                routes,
                is_exact: false,
            };
            routing.covering().is_some()
        })
    }

    /// Somebody charges messages.
    #[cfg(feature = "tonic")]
    pub(crate) fn attend_messages(&self) {
        self.0.attends_messages.store(true, Ordering::Relaxed);
    }

    /// Whether some policy is for messages.
    #[cfg(feature = "tonic")]
    pub(crate) fn has_messages(&self) -> bool {
        !self.0.for_messages.is_empty()
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

    /// Asks the backend.
    #[inline]
    pub(crate) fn decide(&self, plan: &Plan) -> Answer<Decision> {
        plan.with_charges(|charges| self.0.backend.decide(charges))
    }

    /// What the backend decided, or what the failure rule, which is applied here and nowhere else, makes of its failure.
    #[inline]
    pub(crate) fn rule(
        &self,
        plan: &Plan,
        answer: Result<Decision, BackendError>,
    ) -> Result<Decision, Fallback> {
        match answer {
            Ok(decision) => {
                self.backend_answered();
                Ok(decision)
            }
            Err(error) => {
                let place = || self.0.backend.place();
                self.0.health.failed(Instant::now(), &error, place);
                let fallback = self.0.local.rule_without_backend(plan, error);
                if matches!(fallback, Fallback::Pass(_)) {
                    self.0.health.passed();
                }
                // Whoever heard of a decision meanwhile may have found local budgets standing still. Whoever is next stops
                // them.
                self.0.health.fails_still();
                Err(fallback)
            }
        }
    }

    /// The same for a request, with who paid.
    pub(crate) fn judge(&self, plan: &Plan, answer: Result<Decision, BackendError>) -> Judged {
        let of = |decision: &Decision, ledger| {
            if decision.is_admitted() {
                Judged::Admitted(ledger)
            } else {
                Judged::Denied(ledger)
            }
        };
        match self.rule(plan, answer) {
            Ok(decision) => of(&decision, Ledger::of(plan, &decision)),
            Err(Fallback::Decide(local)) => {
                let (plan, decision) = &*local;
                of(decision, Ledger::of_local(plan, decision))
            }
            Err(Fallback::Pass(error)) => {
                tracing::debug!(%error, "passed undecided");
                Judged::Undecided
            }
            Err(Fallback::Refuse(error)) => {
                tracing::debug!(%error, "refused undecided");
                Judged::Unavailable
            }
        }
    }

    /// Whether a response may change what its request cost.
    #[inline]
    pub(crate) fn has_outcomes(&self) -> bool {
        self.0.has_outcomes
    }

    /// The backend is well: local budgets stand still.
    #[inline]
    pub(crate) fn backend_answered(&self) {
        if self.0.health.is_failing() {
            // In this order: an outage that begins in between is seen by whoever is next.
            let place = || self.0.backend.place();
            self.0.health.recovered(Instant::now(), place);
            self.0.local.backend_answered();
        }
    }
}

impl Inner {
    /// Reads headers for the client's address, and matches the path.
    #[inline(never)]
    fn plan(&self, request: &RequestView<'_>) -> Result<Planned, Turned> {
        if !self.for_messages.is_empty() {
            self.warn_of_unattended_messages();
        }
        self.plan_under(&self.matched, self.matcher.as_ref(), request)
    }

    fn plan_under(
        &self,
        matched: &[Arc<Policy>],
        matcher: Option<&Matcher>,
        request: &RequestView<'_>,
    ) -> Result<Planned, Turned> {
        let found = FoundClient::new();
        let request = request.remembering(&found);
        let all = matched.iter();
        if matcher.is_none() && !self.ignores_path_case {
            return planning::plan(all, &request, None, Asking::Layer);
        }
        let path = PathForms::of(request.original_uri().path(), self.ignores_path_case);
        let Some(matcher) = matcher else {
            return planning::plan(all, &request, Some(&path), Asking::Layer);
        };
        plan_covering(matched, &matcher.covering(&path), &path, &request)
    }

    #[cold]
    fn warn_of_unattended_messages(&self) {
        if !self.attends_messages.swap(true, Ordering::Relaxed) {
            let policy = self.for_messages.first().map(|policy| policy.name());
            tracing::warn!(
                policy,
                "messages pass uncharged: add `MessageLimitLayer::new(limiter)` to the server, which charges them"
            );
        }
    }
}

fn plan_covering(
    matched: &[Arc<Policy>],
    covering: &Covering<'_>,
    path: &PathForms<'_>,
    request: &RequestView<'_>,
) -> Result<Planned, Turned> {
    let covering = covering.as_slice().iter();
    let candidates = covering.filter_map(|index| matched.get(*index));
    planning::plan(candidates, request, Some(path), Asking::Layer)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use tollgate_core::{FailureKind, Key, Timestamp};

    use super::*;
    use crate::{OnFailure, Quota, Share};

    /// Whoever hears of a failure while another hears of a decision: whichever is first, the next decision stops the clock.
    #[test]
    fn local_budgets_stand_still_after_a_decision_whatever_else_was_heard_meanwhile() {
        const ROUNDS: usize = 20_000;
        let local = OnFailure::Local(Share::WHOLE);
        let policy = Policy::new("local", Quota::per_hour(1)).on_failure(local);
        let limiter = Limiter::from(policy);
        let policy = limiter.policy("local").expect("it has one");
        let plan = Plan::of_one(policy, None, Key::from("anyone"), 1, false);
        let fails = || {
            let error = BackendError::new(FailureKind::Unreachable, "");
            let _fallback = limiter.rule(&plan, Err(error));
        };
        let decides = || {
            let decision = tollgate_core::decide(Timestamp::from_micros(0), &[], &mut [][..]);
            let _decided = limiter.rule(&plan, Ok(decision));
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
