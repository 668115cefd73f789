//! What was decided about a request, before it is written down.

use tollgate_core::Decision;

use super::{Ledger, Limiter, Plan};

/// A decision, with what it was about. It becomes a [`Ledger`] only where what was charged is to be shown, or may be corrected.
#[derive(Debug)]
pub(crate) struct Decided {
    pub(super) plan: Plan,
    pub(super) decision: Decision,
    /// Whether a budget of this process decided.
    pub(super) is_local: bool,
}

impl Decided {
    /// Whether a response may change what the request cost.
    pub(crate) fn has_outcomes(&self) -> bool {
        let mut policies = self.plan.policies();
        policies.any(|policy| policy.outcome.is_some())
    }

    #[inline]
    pub(crate) fn into_ledger(self, limiter: &Limiter) -> Ledger {
        Ledger::of(limiter, self.plan, &self.decision, self.is_local)
    }
}
