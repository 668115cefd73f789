//! The failure rule, and the budgets of this process that decide under it.

use std::sync::OnceLock;
use std::time::Duration;

use tollgate_core::{
    Backend, BackendError, Call, Clock, FailureKind, ImmediateBackend, Quota, Receipt,
};
use tollgate_memory::{MemoryBackend, SystemClock};

use super::Fallback;
use super::fallback::{DecidedPart, LocalPayers};
use super::outages::OutageClock;
use super::plan::Entries;
use crate::policy::Limit;
use crate::{Key, OnFailure, Policy, Share};

/// The budgets that decide while the backend cannot.
#[derive(Debug, Default)]
pub(super) struct LocalBudgets {
    /// Empty until a policy that says [`OnFailure::Local`] has to be decided.
    budgets: OnceLock<Budgets>,
}

#[derive(Debug)]
struct Budgets {
    clock: OutageClock,
    backend: MemoryBackend,
}

impl LocalBudgets {
    /// The backend has decided something: local budgets stand still soon.
    pub(super) fn backend_answered(&self) {
        if let Some(budgets) = self.budgets.get() {
            budgets.clock.decided();
        }
    }

    #[cfg(test)]
    pub(super) fn have_heard_of_a_decision(&self) -> bool {
        let budgets = self.budgets.get();
        budgets.is_some_and(|budgets| budgets.clock.has_decided())
    }

    /// The backend has failed to decide about these.
    pub(super) fn backend_failed(&self, entries: Entries<'_>) {
        if entries.policies().any(has_share) {
            self.budgets().clock.failed();
        }
    }

    fn budgets(&self) -> &Budgets {
        self.budgets
            .get_or_init(|| Budgets::new(SystemClock::new()))
    }

    /// Takes more of a budget of this process.
    pub(super) fn debit(&self, receipt: &Receipt, n: u64) {
        if let Some(budgets) = self.budgets.get() {
            budgets.backend.debit(receipt, n);
        }
    }

    /// Gives back what is held in a budget of this process.
    pub(super) fn refund(&self, receipt: Receipt, n: u64) {
        if let Some(budgets) = self.budgets.get() {
            budgets.backend.refund(receipt, n);
        }
    }

    /// Any [`OnFailure::Deny`] refuses, else [`OnFailure::Local`] decides, else the request passes. Policies on trial have
    /// no say.
    pub(super) fn rule_without_backend(
        &self,
        entries: Entries<'_>,
        error: BackendError,
    ) -> Fallback {
        let says = |rule: fn(OnFailure) -> bool| {
            entries
                .policies()
                .any(|policy| !policy.shadow && rule(policy.on_failure))
        };
        // More charges than a call may have are no outage: an odd path has brought several sets of routes together.
        let is_invalid = error.kind() == FailureKind::InvalidCall;
        if is_invalid || says(|rule| rule == OnFailure::Deny) {
            return Fallback::Refuse(error);
        }
        if !says(|rule| matches!(rule, OnFailure::Local(_))) {
            return Fallback::Pass(error);
        }
        self.budgets().decide(entries, error)
    }
}

/// True if a budget of this process decides for the policy while the backend fails.
pub(super) fn has_share(policy: &Policy) -> bool {
    !policy.shadow && matches!(policy.on_failure, OnFailure::Local(_))
}

impl Budgets {
    fn new(wall: impl Clock) -> Self {
        let clock = OutageClock::new(wall);
        let backend = MemoryBackend::builder().clock(clock.clone()).build();
        Self { clock, backend }
    }

    fn decide(&self, entries: Entries<'_>, error: BackendError) -> Fallback {
        let plan = entries.only(has_share);
        let (decision, too_dear) = plan.entries().with_charges(|charges| {
            let quotas: Vec<_> = plan.entries().payers().flat_map(shares).collect();
            let mut shares: Vec<_> = charges.to_vec();
            for (charge, quota) in shares.iter_mut().zip(&quotas) {
                charge.quota = quota;
            }
            // More than a process's share holds, but not more than the budget itself: that one might say yes.
            let at_least = plan.entries().at_least();
            let too_dear = charges.iter().zip(&shares).any(|(whole, share)| {
                // A share may grant less than the budget would.
                let cost = at_least.unwrap_or(whole.cost);
                share.quota.capacity() < cost && cost <= whole.quota.capacity()
            });
            let decision = self.backend.decide_now(Call {
                charges: &shares,
                at_least,
            });
            (decision, too_dear)
        });
        match decision {
            Ok(decision) if !too_dear => Fallback::Decide(Box::new(DecidedPart {
                plan,
                decision,
                local: LocalPayers::ALL,
            })),
            _ => Fallback::Refuse(error),
        }
    }
}

/// The share of each quota that this process may spend.
fn shares<'a>(
    (policy, _, limits): (&'a Policy, &Key, &'a [Limit]),
) -> impl Iterator<Item = Quota> + 'a {
    let share = match policy.on_failure {
        OnFailure::Local(share) => share,
        _ => Share::WHOLE,
    };
    // A budget that ends with the outage has no line.
    let part = move |limit: &Limit| share.of(&limit.quota).waiting_at_most(Duration::ZERO);
    limits.iter().map(part)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tollgate_core::{FailureKind, ManualClock, Timestamp};

    use super::super::plan::{Demand, Entry, Plan, PlannedPolicy};

    use super::super::outages::LINGERS;
    use super::*;

    #[test]
    fn local_budgets_refill_while_there_is_an_outage_and_only_then() {
        // given a local budget of one an hour, spent in an outage
        let wall = ManualClock::new();
        let rule = OnFailure::Local(Share::WHOLE);
        let policy = Arc::new(Policy::new("local", Quota::per_hour(1)).on_failure(rule));
        let local = LocalBudgets {
            budgets: Budgets::new(wall.clone()).into(),
        };
        let mut plan = Plan::default();
        plan.push(Entry::new(
            PlannedPolicy::Lent(&policy),
            Key::from("anyone"),
            Demand::ONCE,
        ));
        let fails = || {
            let error = BackendError::new(FailureKind::Unreachable, "");
            local.backend_failed(plan.entries());
            match local.rule_without_backend(plan.entries(), error) {
                Fallback::Decide(part) => part.decision.is_admitted(),
                other => panic!("{other:?}"),
            }
        };
        assert!(fails());
        assert!(!fails());

        // when the backend is well for two hours
        local.backend_answered();
        wall.advance(Duration::from_secs(2 * 60 * 60));

        // then ten seconds of them count, and the outage that follows
        assert!(!fails());
        wall.advance(Duration::from_secs(59 * 60 + 49));
        assert!(!fails());
        wall.advance(Duration::from_secs(1));
        assert!(fails());
    }

    fn ran(clock: &OutageClock, start: Timestamp) -> Duration {
        Duration::from_micros(clock.now().as_micros() - start.as_micros())
    }

    /// One server of a cluster fails, and the others decide.
    #[test]
    fn local_budgets_refill_while_only_some_requests_fail() {
        let wall = ManualClock::new();
        let clock = OutageClock::new(wall.clone());
        clock.failed();
        let start = clock.now();
        for _ in 0..100 {
            clock.decided();
            wall.advance(Duration::from_secs(9));
            clock.failed();
        }
        assert_eq!(ran(&clock, start), Duration::from_secs(900));
    }

    #[test]
    fn the_clock_of_outages_stands_still_between_them() {
        let wall = ManualClock::new();
        let clock = OutageClock::new(wall.clone());
        let start = clock.now();
        let shows = || ran(&clock, start);

        clock.failed();
        assert_eq!(shows(), Duration::ZERO);

        wall.advance(Duration::from_secs(60));
        clock.failed();
        assert_eq!(shows(), Duration::from_secs(60));

        clock.decided();
        wall.advance(Duration::from_secs(60));
        clock.failed();
        assert_eq!(shows(), Duration::from_secs(60) + LINGERS);

        wall.advance(Duration::from_secs(1));
        clock.failed();
        assert_eq!(shows(), Duration::from_secs(61) + LINGERS);
    }
}
