//! What is needed to undo a charge honestly.

use crate::algorithm::Point;
use crate::{Charge, Decision, Key, Quota, Scope, State, Timestamp, Verdict};

/// Proof that a charge was taken: when, from whom, how much, under which quota as it then was.
///
/// It is what [`Backend::credit`](crate::Backend::credit) and [`Backend::debit`](crate::Backend::debit) ask for. A credit
/// uses it up, and there is no second one of it, so that nothing is given back twice. What is to be given back piece by
/// piece is [split](Self::split_off) first.
///
/// **A credit returns only what would still count**, so that what remains is a history that could have happened without
/// it. Windows and logs subtract from the window, bucket or entry that was charged, and nothing once that is gone. Of a
/// GCRA charge after which the budget would have been full again at *F*, at most *F − now* (as drain time) comes back.
/// What other credits of the same key have returned since the charge comes off *F*, as far as it stood before it in the
/// queue: what one credit returned, no other can. Wherever this rule errs it errs on the strict side.
#[derive(Debug)]
pub struct Receipt {
    scope: Scope,
    quota: Quota,
    key: Key,
    cost: u64,
    at: Timestamp,
    full_at: Point,
}

impl Receipt {
    /// The receipt for a charge that was decided at `at`, if `verdict` says that it was taken.
    #[must_use]
    pub fn of(charge: &Charge<'_>, verdict: &Verdict, at: Timestamp) -> Option<Self> {
        (verdict.taken() > 0).then(|| Self {
            scope: charge.scope,
            quota: *charge.quota,
            key: charge.key.clone().compact(),
            cost: verdict.taken(),
            at,
            full_at: verdict.full_at(),
        })
    }

    /// Which budget of the key was charged.
    #[must_use]
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// The quota as it was when it was charged.
    #[must_use]
    pub fn quota(&self) -> &Quota {
        &self.quota
    }

    /// Whose budget was charged.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// How much was taken.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// When, by the backend's clock.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// Takes a part of the charge, at most `n`, out of this receipt into one of its own.
    #[must_use = "what is split off and dropped can no longer be given back"]
    pub fn split_off(&mut self, n: u64) -> Self {
        let n = n.min(self.cost);
        self.cost -= n;
        Self {
            cost: n,
            ..self.copy()
        }
    }

    /// For backends, whose debits travel, and for tests that ask what if: the same once more. Of two only one may be credited.
    #[doc(hidden)]
    #[must_use]
    pub fn copy(&self) -> Self {
        Self {
            scope: self.scope,
            quota: self.quota,
            key: self.key.clone(),
            cost: self.cost,
            at: self.at,
            full_at: self.full_at,
        }
    }

    /// For backends: when the budget was to be full again after this charge, in whole microseconds and a rest in the
    /// quota's denominator. Zero for algorithms whose credits do not ask.
    #[must_use]
    pub fn full_at(&self) -> (u64, u32) {
        (self.full_at.us, self.full_at.rest)
    }

    /// For backends: gives back at most `n` of this charge to `state`.
    pub fn credit_to(&self, state: &mut State, now: Timestamp, n: u64) {
        let n = n.min(self.cost);
        let (now, at) = (now.as_micros(), self.at.as_micros());
        let rule = self.quota.rule();
        rule.credit(state, now, at, self.full_at, n);
    }

    /// For backends: takes `n` more from `state`, past the capacity if need be, up to
    /// [`DEBT_CEILING`](crate::DEBT_CEILING) budgets.
    pub fn debit_from(&self, state: &mut State, now: Timestamp, n: u64) {
        self.quota.rule().debit(state, now.as_micros(), n);
    }
}

impl Decision {
    /// The receipts for what was taken, given the `charges` that were decided.
    pub fn receipts<'a>(&'a self, charges: &'a [Charge<'a>]) -> impl Iterator<Item = Receipt> + 'a {
        let decided = charges.iter().zip(self.verdicts()).enumerate();
        decided.filter_map(|(position, (charge, verdict))| {
            Receipt::of(charge, verdict, self.verdict_at(position))
        })
    }
}
