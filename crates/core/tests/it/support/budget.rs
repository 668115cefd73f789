//! One key's budget under one quota: the state that a backend keeps, and the ways to ask it.

use std::slice;

use tollgate_core::{
    Algorithm, Call, Charge, DEBT_CEILING, Decision, Key, Mode, Quota, Receipt, Scope, State,
    Timestamp, Verdict, decide,
};

/// A state with its quota. A clone asks "what if".
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    pub(crate) quota: Quota,
    pub(crate) state: State,
}

impl Budget {
    pub(crate) fn full(quota: Quota) -> Self {
        Self {
            quota,
            state: State::full(&quota),
        }
    }

    /// Decides one charge.
    pub(crate) fn decide(
        &mut self,
        now: u64,
        cost: u64,
        mode: Mode,
    ) -> (Decision, Option<Receipt>) {
        let key = Key::from("alice");
        let charge = Charge {
            scope: Scope::of("proof", 0, &self.quota),
            quota: &self.quota,
            key: &key,
            cost,
            mode,
        };
        let states = slice::from_mut(&mut self.state);
        let decision = decide(Timestamp::from_micros(now), Call::of(&[charge]), states);
        let receipt = decision.receipts(&[charge]).next();
        (decision, receipt)
    }

    /// Decides one enforced charge.
    pub(crate) fn charge(&mut self, now: u64, cost: u64) -> (Verdict, Option<Receipt>) {
        let (decision, receipt) = self.decide(now, cost, Mode::Enforce);
        (decision.verdicts()[0], receipt)
    }

    /// The verdict on such a charge, if it were the next to come.
    pub(crate) fn if_charged(&self, now: u64, cost: u64) -> Verdict {
        self.clone().charge(now, cost).0
    }

    /// The rest, read without a change.
    pub(crate) fn peek(&self, now: u64) -> Verdict {
        self.if_charged(now, 0)
    }

    pub(crate) fn refund(&mut self, now: u64, receipt: &Receipt, n: u64) {
        receipt.credit_to(&mut self.state, Timestamp::from_micros(now), n);
    }

    pub(crate) fn debit(&mut self, now: u64, receipt: &Receipt, n: u64) {
        receipt.debit_from(&mut self.state, Timestamp::from_micros(now), n);
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.quota.capacity()
    }

    pub(crate) fn period_us(&self) -> u64 {
        micros(self.quota.period())
    }

    /// The longest debt of a bucket, in µs: eight budgets. Of one that warms up these are cold, and rounded up as its states tell
    /// them.
    pub(crate) fn longest_debt(&self) -> u64 {
        let quota = &self.quota;
        match quota.reach() {
            Some((exponent, thirty_seconds)) if warms_up(quota) => {
                DEBT_CEILING * ((u64::from(32 + thirty_seconds) << exponent) / 32)
            }
            _ => {
                let eight = u128::from(DEBT_CEILING * quota.capacity());
                let drain = eight * u128::from(self.period_us());
                u64::try_from(drain.div_ceil(u128::from(quota.limit()))).unwrap()
            }
        }
    }

    pub(crate) fn meaningless_at(&self) -> u64 {
        self.state.meaningless_at(self.quota.unit()).as_micros()
    }
}

/// A receipt for `quota`, for debits that no charge came before.
pub(crate) fn receipt_of(quota: Quota) -> Receipt {
    let (_, receipt) = Budget::full(quota).charge(0, 1);
    receipt.expect("every quota admits one unit")
}

/// Whole microseconds: no duration in this crate is anything else.
pub(crate) fn micros(duration: std::time::Duration) -> u64 {
    assert_eq!(duration.subsec_nanos() % 1000, 0, "{duration:?}");
    u64::try_from(duration.as_micros()).expect("no duration here is longer than 584,942 years")
}

/// Says whether units of this quota cost more while it is cold.
pub(crate) fn warms_up(quota: &Quota) -> bool {
    !quota.warm_up_period().is_zero()
}

/// Says whether this is a bucket all of whose units drain in the same time.
#[allow(dead_code, reason = "the oracle knows all prices")]
pub(crate) fn is_even_bucket(quota: &Quota) -> bool {
    quota.algorithm() == Algorithm::Gcra && !warms_up(quota)
}

/// This quota without a warm-up.
#[allow(dead_code, reason = "the oracle knows all prices")]
pub(crate) fn without_warm_up(quota: Quota) -> Quota {
    if warms_up(&quota) {
        Quota::try_with_burst(quota.limit(), quota.period(), quota.capacity()).unwrap()
    } else {
        quota
    }
}
