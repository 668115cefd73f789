//! Nothing overflows and nothing panics, whatever the figures: these tests run with overflow checks on.

use std::mem::discriminant;

use proptest::prelude::*;
use tollgate_core::{MAX_LIMIT, Mode, Quota, Timestamp};

use crate::support::budget::{Budget, receipt_of};
use crate::support::quotas;
use crate::support::runner::check;

#[derive(Clone, Copy, Debug)]
enum Call {
    Decide(u64, Mode),
    Credit(usize, u64),
    Debit(u64),
}

fn times() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(Timestamp::MAX.as_micros()),
        Just(Timestamp::MAX.as_micros() - 1),
        Just(u64::MAX),
        any::<u64>(),
        (0_u32..=52).prop_map(|bits| 1 << bits),
    ]
}

fn figures() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(MAX_LIMIT),
        Just(MAX_LIMIT + 1),
        Just(u64::MAX),
        Just(u64::MAX - 1),
        any::<u64>(),
        (0_u32..=63).prop_map(|bits| 1 << bits),
    ]
}

fn calls() -> impl Strategy<Value = Call> {
    let modes = prop::sample::select(vec![Mode::Enforce, Mode::Shadow, Mode::Probe]);
    prop_oneof![
        3 => (figures(), modes).prop_map(|(cost, mode)| Call::Decide(cost, mode)),
        2 => (any::<usize>(), figures()).prop_map(|(n, amount)| Call::Credit(n, amount)),
        1 => figures().prop_map(Call::Debit),
    ]
}

#[test]
fn no_figures_and_no_times_are_too_much() {
    let histories = (
        quotas::any(),
        quotas::any(),
        prop::collection::vec((times(), calls(), any::<bool>()), 1..24),
    );
    check(4_000, &histories, |(quota, other, steps)| {
        let mut budget = Budget::full(quota);
        let mut receipts = vec![receipt_of(quota)];
        let kind = |quota: Quota| discriminant(&quota.algorithm());
        let is_kin = quota.unit() == other.unit() || kind(quota) != kind(other);
        for (now, call, change) in steps {
            // States of another algorithm never share a scope, but one that strayed must not cause a panic.
            budget.quota = if change && is_kin { other } else { quota };
            match call {
                Call::Decide(cost, mode) => {
                    let (decision, receipt) = budget.decide(now, cost, mode);
                    receipts.extend(receipt);
                    let verdict = decision.verdicts()[0];
                    prop_assert!(verdict.remaining() <= budget.capacity());
                    prop_assert!(verdict.taken() <= budget.capacity());
                    prop_assert!(verdict.retry_after() != Some(std::time::Duration::ZERO));
                }
                Call::Credit(which, n) => {
                    let receipt = receipts[which % receipts.len()].copy();
                    budget.refund(now, &receipt, n);
                }
                Call::Debit(n) => {
                    let receipt = receipts[0].copy();
                    budget.debit(now, &receipt, n);
                }
            }
            budget.meaningless_at();
        }
        Ok(())
    });
}
