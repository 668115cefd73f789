//! A decision about a request, before it is written down.

use std::sync::Arc;

use tollgate_core::Decision;

use super::Ledger;
use super::fallback::LocalPayers;
use super::ledger::{Verdicts, verdicts_on};
use super::plan::Entries;
use super::settler::Settler;
use crate::Policy;

/// A decision and the charges that it is about, borrowed. It becomes a [`Ledger`] only where what was charged is to be shown, or
/// may be corrected.
#[derive(Clone, Copy, Debug)]
pub struct Judgement<'a> {
    pub(super) settler: &'a Arc<Settler>,
    pub(super) entries: Entries<'a>,
    pub(super) decision: &'a Decision,
    /// The policies that budgets of this process decided.
    pub(super) local: LocalPayers,
    /// The time for which the request waited, in microseconds. No wait is longer than an hour.
    pub(super) waited_us: u32,
}

impl Judgement<'_> {
    /// True if the response matters: it may change the cost, or its end gives back what is held.
    pub fn follows_response(self) -> bool {
        let mut policies = self.entries.policies();
        policies.any(Policy::follows_responses)
    }

    /// True if the response itself matters: it sets the cost, or may be a strike.
    pub fn judges_response(self) -> bool {
        let mut policies = self.entries.policies();
        policies.any(|policy| policy.outcome.is_some())
    }

    /// The verdicts alone.
    #[inline]
    pub fn verdicts(self) -> Verdicts {
        verdicts_on(self.entries, self.decision, self.local)
    }

    /// The payments, to be shown, corrected or given back later.
    #[inline(always)]
    #[must_use]
    pub fn ledger(self) -> Ledger {
        let ledger = Ledger::of(self.settler, self.entries, self.decision, self.local);
        ledger.after(self.waited_us)
    }
}
