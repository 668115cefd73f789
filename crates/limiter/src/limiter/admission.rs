//! The one way of a request through a limiter: covered by policies, decided by the backend, and ruled on if the backend fails.

mod judging;
mod pending;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;
use tollgate_core::{Answer, BackendError, Call, Decision};

pub use self::pending::PendingAdmission;
use self::pending::Step;
use super::entry::Entrant;
use super::event::Cause;
use super::fallback::LocalPayers;
use super::plan::Entries;
use super::planning::{Planning, Rejection};
use super::snapshot::Snapshot;
use super::{Fallback, Judgement, Limiter, Plan, coverage};
use crate::key::ClientIp;
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
    /// The backend failed, and the request passes. If the request holds places all the same, they are here.
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

impl<'a> Ruling<'a> {
    #[inline]
    fn of(
        limiter: &'a Limiter,
        entries: Entries<'a>,
        decision: &'a Decision,
        local: LocalPayers,
        waited_us: u32,
    ) -> Self {
        let decided = Judgement {
            settler: &limiter.0.settler,
            entries,
            decision,
            local,
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

    /// The way of a request while some are refused because of pressure. Pressure is decided first: a request that the process has
    /// no room for asks no backend and is charged nothing.
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
            && let Some(refused) = self.shed(Entrant::Request(&request))
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
                let answer = self.0.backend.decide(Call::of(&[payer.charge(limit)]));
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
                    let mut payer = sole.asked_by(&key, &request);
                    observers.state_transport(&mut payer, &request);
                    return self.ask(Entries::SolePolicy(&payer), deadline, conclude);
                }
                policies.requests.plan(&request, terms, observers)
            }
            PolicySet::Handler(policies) => {
                coverage::plan_at_handler(policies, &request, terms, observers)
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
                    Ok(answer) => match self.step_after(entries, answer, place, deadline) {
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

    /// Goes on with the answer of the backend, which is there if that is in memory.
    #[inline(always)]
    fn answered<T>(
        &self,
        entries: Entries<'_>,
        answer: Answer<Decision>,
        conclude: impl FnOnce(Ruling<'_>) -> T,
    ) -> Admission<T> {
        let decision = match answer.peek() {
            Some(Ok(decision)) if decision.failure().is_none() => decision,
            _ => return self.wait_or_rule(entries, answer, conclude),
        };
        if decision.is_known() {
            self.hear_known(entries, decision);
        } else {
            // A cause that the compiler knows.
            self.hear(entries, decision, Cause::Backend);
        }
        Admission::Ruled(conclude(Ruling::of(
            self,
            entries,
            decision,
            LocalPayers::NONE,
            0,
        )))
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
        planned: Result<Planning<'_>, Rejection>,
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

    pub(super) fn warned<'p>(
        &self,
        plan: Result<Planning<'p>, Rejection>,
    ) -> Result<Planning<'p>, Rejection> {
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
        let at_least = entries.at_least();
        entries.with_charges(|charges| backend.decide(Call { charges, at_least }))
    }
}
