//! One policy with one quota, which is all that most limiters have: decided without a plan.
//!
//! The same steps as with a [`Plan`], one after the other, on a key that stays where its extractor put it. A plan is
//! made only when there is something to be remembered, which is when the request does not pass at once.

use std::slice;

use tollgate_core::{Charge, Decide, Decision};

use super::{Inner, Plan};
use crate::policy::Limit;
use crate::report::Report;
use crate::{Key, Policy, RequestView};

/// The only quota of the only policy.
#[derive(Clone, Copy)]
pub(crate) struct Sole<'a> {
    limiter: &'a Inner,
    policy: &'a Policy,
    limit: &'a Limit,
}

impl<'a> Sole<'a> {
    #[inline]
    pub(super) fn of(limiter: &'a Inner) -> Option<Self> {
        if limiter.needs_only_the_peer
            && let [policy] = &limiter.policies[..]
            && let [limit] = &policy.limits[..]
        {
            return Some(Self {
                limiter,
                policy,
                limit,
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
            cost: self.policy.cost,
            mode: self.policy.mode(),
        };
        self.limiter.backend.decide(slice::from_ref(&charge))
    }

    #[inline]
    pub(crate) fn report(self, decision: &Decision) -> Report {
        match decision.verdicts() {
            [verdict] => Report::of_one(self.limit.labels, self.policy.mode(), verdict),
            _ => Report::default(),
        }
    }

    /// What was asked, to be remembered.
    pub(crate) fn plan(self, key: Key) -> Plan {
        Plan::of_one(0, key, self.policy.cost, false)
    }
}
