//! Receipts: the record that is needed to undo a charge honestly.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::algorithm::Point;
use crate::{Charge, Decision, Key, Quota, Scope, State, Timestamp, Verdict};

/// Proof of a charge: its time, key and cost, and its quota as it then was.
///
/// [`Backend::refund`](crate::Backend::refund) and [`Backend::debit`](crate::Backend::debit) ask for it. A credit uses it up,
/// and it cannot be cloned, so that nothing is given back twice. To give a charge back piece by piece, [split](Self::split_off)
/// the receipt first.
///
/// **A credit returns only what would still count**, so that the remaining charges are a history that could have happened.
/// Windows and logs subtract from the window, bucket or entry that was charged. Once that is gone, they subtract nothing. For
/// GCRA, let *F* be the time at which the budget would have been full again after the charge: a credit returns at most *F −
/// now* (as drain time). Other credits of this key since the charge move *F* forward, as far as they stood before it in the
/// queue: drain time that one credit returned, no other can return. But a charge never drains before it was made, so that a credit in
/// the microsecond of its charge returns all of it. Any error of this rule is on the strict side.
///
/// **A charge with an idempotency key is given back whole only if no retry has passed on it**, and only within the key's life
/// (see [`Once`](crate::Once)). Then no later retry passes on it. Otherwise retries of a request that is given back in the end
/// would get around the budget. A part of the charge may always be given back.
///
/// ```
/// use tollgate::{Call, Backend, Charge, ImmediateBackend, Key, MemoryBackend, Mode, Quota, Receipt, Scope};
///
/// let backend = MemoryBackend::new();
/// let quota = Quota::per_minute(5);
/// let charge = Charge {
///     scope: Scope::of("render", 0, &quota),
///     quota: &quota,
///     key: &Key::from("alice"),
///     cost: 5,
///     mode: Mode::Enforce,
/// };
/// let decision = backend.decide_now(Call::of(&[charge]))?;
/// let mut receipt = Receipt::of(&charge, &decision.verdicts()[0], decision.at()).expect("it was taken");
/// assert_eq!((receipt.cost(), receipt.at()), (5, decision.at()));
/// assert_eq!((receipt.scope(), receipt.quota(), receipt.key()), (charge.scope, &quota, charge.key));
///
/// // Three pages were not rendered. The receipt for the other two is kept.
/// let three = receipt.split_off(3);
/// backend.refund(three, 3);
/// assert_eq!(receipt.cost(), 2);
/// assert!(backend.decide_now(Call::of(&[Charge { cost: 3, ..charge }]))?.is_admitted());
/// # Ok::<(), tollgate::BackendError>(())
/// ```
#[derive(Debug)]
pub struct Receipt {
    scope: Scope,
    quota: Quota,
    key: Key,
    cost: u64,
    at: Timestamp,
    full_at: Point,
    id: Option<Arc<ReceiptId>>,
}

/// The idempotency key of a charge, which knows whether retries have passed on it.
#[derive(Debug, PartialEq, Eq)]
pub struct ReceiptId {
    scope: Scope,
    quota: Quota,
    key: Key,
}

impl ReceiptId {
    /// The idempotency key that is remembered by `charge`.
    #[must_use]
    pub fn of(charge: &Charge<'_>) -> Self {
        Self {
            scope: charge.scope,
            quota: *charge.quota,
            key: charge.key.compact_clone(),
        }
    }

    /// The name of its memory.
    #[must_use]
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// Its terms.
    #[must_use]
    pub fn quota(&self) -> &Quota {
        &self.quota
    }

    /// The identity with the idempotency key.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }
}

impl Receipt {
    /// The receipt for a charge that was decided at `at`, if `verdict` says that it was taken.
    #[must_use]
    #[inline]
    pub fn of(charge: &Charge<'_>, verdict: &Verdict, at: Timestamp) -> Option<Self> {
        (verdict.taken() > 0).then(|| Self {
            scope: charge.scope,
            quota: *charge.quota,
            key: charge.key.compact_clone(),
            cost: verdict.taken(),
            at,
            full_at: verdict.full_at(),
            id: None,
        })
    }

    /// This receipt of a charge that was the first with this idempotency key.
    #[must_use]
    pub fn with_id(self, id: Arc<ReceiptId>) -> Self {
        Self {
            id: Some(id),
            ..self
        }
    }

    /// The idempotency key that a credit of `n` must [close](Self::close) first, if there is one: also if it gives back a part, since
    /// retries that cost more than what stays would pass on it. For backends.
    #[doc(hidden)]
    #[must_use]
    pub fn id_to_close(&self, n: u64) -> Option<&ReceiptId> {
        self.id.as_deref().filter(|_| n > 0)
    }

    /// Says by the state of the idempotency key whether the charge, or a part of it, may be given back. If so, no retry passes on it
    /// from now on. For backends.
    #[doc(hidden)]
    pub fn close(&self, id: &mut State, now: Timestamp) -> bool {
        self.id.as_deref().is_none_or(|terms| {
            let rule = terms.quota.rule();
            rule.close(id, now.as_micros(), self.at.as_micros())
        })
    }

    /// The name of the charged budget.
    #[must_use]
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// The quota as it was when it was charged.
    #[must_use]
    pub fn quota(&self) -> &Quota {
        &self.quota
    }

    /// The identity whose budget was charged.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The amount that was taken.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// The time of the charge, by the backend's clock; 0 if it was not decided, and the backend
    /// [assumes](crate::Settlement::Assume) it.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// Moves a part of the charge, at most `n`, out of this receipt into one of its own.
    #[must_use = "what is split off and dropped can no longer be given back"]
    pub fn split_off(&mut self, n: u64) -> Self {
        let n = n.min(self.cost);
        let part = Self {
            cost: n,
            ..self.copy()
        };
        self.cost -= n;
        // Two parts that are withdrawn before their turn free two stretches, and not one twice.
        self.full_at = self.quota.rule().earlier(self.full_at, n);
        part
    }

    /// A second copy of this receipt. For backends, whose debits travel, and for tests that ask what if. Only one of the two
    /// may be credited.
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
            id: self.id.clone(),
        }
    }

    /// The time at which the budget was to be full again after this charge: whole microseconds, and a rest in the quota's
    /// denominator. Zero for algorithms whose credits do not need it. For backends.
    ///
    /// ```
    /// use tollgate::{Call, Charge, ImmediateBackend, Key, ManualClock, MemoryBackend, Mode, Quota, Scope};
    ///
    /// let backend = MemoryBackend::builder().clock(ManualClock::new()).build();
    /// let quota = Quota::per_minute(60);
    /// let charge = Charge {
    ///     scope: Scope::of("page", 0, &quota),
    ///     quota: &quota,
    ///     key: &Key::global(),
    ///     cost: 3,
    ///     mode: Mode::Enforce,
    /// };
    /// let decision = backend.decide_now(Call::of(&[charge]))?;
    /// let receipt = decision.receipts(std::slice::from_ref(&charge)).next().expect("it was taken");
    /// let (full_at_us, _) = receipt.full_at();
    /// assert_eq!(full_at_us - receipt.at().as_micros(), 3_000_000);
    /// # Ok::<(), tollgate::BackendError>(())
    /// ```
    #[must_use]
    pub fn full_at(&self) -> (u64, u32) {
        (self.full_at.us, self.full_at.rest)
    }

    /// Gives back at most `n` of this charge to `state`. For backends.
    #[inline]
    pub fn credit_to(&self, state: &mut State, now: Timestamp, n: u64) {
        let n = n.min(self.cost);
        let (now, at) = (now.as_micros(), self.at.as_micros());
        let rule = self.quota.rule();
        rule.refund(state, now, at, self.full_at, n);
    }

    /// Takes `n` more from `state`, past the capacity if need be, up to [`DEBT_CEILING`](crate::DEBT_CEILING) budgets. For
    /// backends.
    pub fn debit_from(&self, state: &mut State, now: Timestamp, n: u64) {
        self.quota.rule().debit(state, now.as_micros(), n);
    }
}

impl Decision {
    /// The receipts for the charges that were taken, given the `charges` that were decided. An idempotency key has none of its
    /// own: it goes with those of its charges.
    pub fn receipts<'a>(&'a self, charges: &'a [Charge<'a>]) -> impl Iterator<Item = Receipt> + 'a {
        let decided = || charges.iter().zip(self.verdicts());
        let ids: SmallVec<[_; 1]> = decided()
            .filter(|(charge, verdict)| charge.quota.is_once() && verdict.taken() > 0)
            .map(|(charge, _)| (charge, Arc::new(ReceiptId::of(charge))))
            .collect();
        decided()
            .enumerate()
            .filter_map(move |(position, (charge, verdict))| {
                if charge.quota.is_once() {
                    return None;
                }
                let receipt = Receipt::of(charge, verdict, self.verdict_at(position))?;
                let id = ids.iter().find(|(id, _)| id.is_id_of(charge));
                Some(match id {
                    Some((_, id)) => receipt.with_id(Arc::clone(id)),
                    None => receipt,
                })
            })
    }
}
