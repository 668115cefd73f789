//! One policy with one quota, which is all that most limiters have: decided without a plan.
//!
//! The same steps as with a [`Plan`], one after the other, on a key that stays where its extractor put it. A plan is
//! made only when there is something to be remembered, which is when the request does not pass at once.

use std::slice;
use std::sync::Arc;

use tollgate_core::{Charge, Decide, Decision};

use super::{Inner, Plan};
use crate::ledger::Ledger;
use crate::policy::Limit;
use crate::{Key, Policy, PolicyVerdict, RequestView};

/// The only quota of the only policy.
#[derive(Clone, Copy)]
pub(crate) struct Sole<'a> {
    limiter: &'a Inner,
    policy: &'a Arc<Policy>,
    limit: &'a Limit,
    cost: u64,
}

impl<'a> Sole<'a> {
    #[inline]
    pub(super) fn of(limiter: &'a Inner) -> Option<Self> {
        if limiter.needs_only_the_peer
            && let [policy] = &limiter.matched[..]
            && let [limit] = &policy.limits[..]
            && let Some(cost) = policy.cost.fixed()
            && policy.tiers.is_none()
            && policy.outcome.is_none()
        {
            return Some(Self {
                limiter,
                policy,
                limit,
                cost,
            });
        }
        None
    }

    /// Whose budget the request spends, if it can be said so simply.
    #[inline]
    pub(crate) fn key(self, request: &RequestView<'_>) -> Option<Key> {
        let is_covered = !request.is_preflight() && self.policy.covers(request);
        if !is_covered || self.policy.has_lists() {
            return None;
        }
        self.policy.key.extract(request).ok()
    }

    #[inline]
    pub(crate) fn decide(self, key: &Key) -> Decide {
        let charge = Charge {
            scope: self.limit.scope,
            quota: &self.limit.quota,
            key,
            cost: self.cost,
            mode: self.policy.mode(),
        };
        self.limiter.backend.decide(slice::from_ref(&charge))
    }

    /// What was decided, and who paid.
    #[inline]
    pub(crate) fn ledger(self, key: &Key, decision: &Decision) -> Ledger {
        match decision.verdicts() {
            [verdict] => {
                let verdict = PolicyVerdict::new(self.limit.labels, self.policy.mode(), *verdict);
                Ledger::of_one(verdict, key.clone(), decision.at())
            }
            _ => Ledger::default(),
        }
    }

    /// What was asked, to be remembered.
    pub(crate) fn plan(self, key: Key) -> Plan {
        Plan::of_one(self.policy, None, key, self.cost, false)
    }
}
