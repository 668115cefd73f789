//! A state that says only that the budget is full may be forgotten, and no caller can notice.

use proptest::prelude::*;
use tollgate_core::{Algorithm, DEBT_CEILING};

use crate::support::budget::{Budget, micros, receipt_of};
use crate::support::history::History;
use crate::support::quotas;
use crate::support::runner::check;
use crate::support::steps::{starts, steps};

#[test]
fn nobody_notices_when_a_meaningless_state_is_forgotten() {
    let histories = (
        quotas::any(),
        starts(),
        steps(0..24),
        0_u64..3,
        steps(0..12),
    );
    check(4_000, &histories, |(quota, start, before, late, after)| {
        let mut kept = History::after(quota, start, &before);
        kept.now = kept.now.max(kept.budget.meaningless_at()) + late;
        let mut forgotten = kept.clone();
        forgotten.budget = Budget::full(quota);

        // Receipts of earlier charges are still open: their credits must not differ either.
        for &step in &after {
            kept.step(step);
            forgotten.step(step);
            for at in kept.later() {
                prop_assert_eq!(kept.budget.peek(at), forgotten.budget.peek(at), "at {}", at);
            }
        }
        Ok(())
    });
}

#[test]
fn a_budget_that_is_not_full_is_not_forgotten() {
    let histories = (quotas::any(), starts(), steps(0..24));
    check(2_000, &histories, |(quota, start, steps)| {
        let history = History::after(quota, start, &steps);

        let full_at = history.now + micros(history.budget.peek(history.now).reset_after());

        if full_at > history.now {
            prop_assert!(history.budget.meaningless_at() >= full_at);
        }
        Ok(())
    });
}

#[test]
fn no_state_is_kept_for_longer_than_a_debt() {
    let histories = (quotas::any(), starts(), steps(0..24), any::<bool>());
    check(2_000, &histories, |(quota, start, steps, debt)| {
        let mut history = History::after(quota, start, &steps);
        if debt {
            history
                .budget
                .debit(history.now, &receipt_of(quota), u64::MAX);
        }

        let kept = history.budget.meaningless_at().saturating_sub(history.now);

        let period = history.budget.period_us();
        let longest = match quota.algorithm() {
            // And until it is cold.
            Algorithm::Gcra => history.budget.longest_debt() + micros(quota.warm_up_period()),
            // And a period more, for a clock that is behind.
            Algorithm::SlidingWindow => 3 * period,
            Algorithm::IntervalRefill { .. } => {
                let refills = (DEBT_CEILING * quota.capacity()).div_ceil(quota.limit());
                (refills + 1) * period
            }
            _ => 2 * period,
        };
        prop_assert!(kept <= longest, "{kept} > {longest}");
        Ok(())
    });
}

#[test]
fn a_key_never_seen_has_nothing_to_keep() {
    check(200, &quotas::any(), |quota| {
        prop_assert_eq!(Budget::full(quota).meaningless_at(), 0);
        Ok(())
    });
}
