//! A debit may take more than the budget has: the debt delays exactly as long as it says, and is bounded.

use std::time::Duration;

use proptest::prelude::*;
use tollgate_core::{Algorithm, DEBT_CEILING, Quota};

use crate::support::budget::{Budget, is_even_bucket, micros, receipt_of, warms_up};
use crate::support::history::History;
use crate::support::quotas;
use crate::support::runner::check;
use crate::support::steps::{amounts, starts, steps};

#[test]
fn a_debit_leaves_what_it_did_not_take() {
    let histories = (quotas::any(), starts(), steps(0..16), amounts());
    check(1_500, &histories, |(quota, start, steps, n)| {
        let mut history = History::after(quota, start, &steps);
        let now = history.now;
        let before = history.budget.peek(now);
        let n = n.units(&history.budget, now);

        history.budget.debit(now, &receipt_of(quota), n);

        let after = history.budget.peek(now);
        let left = before.remaining().saturating_sub(n);
        if warms_up(&quota) {
            prop_assert!(after.remaining() <= left);
        } else {
            prop_assert_eq!(after.remaining(), left);
        }
        prop_assert!(after.reset_after() >= before.reset_after());
        Ok(())
    });
}

/// A debit that fits is a charge like any other.
#[test]
fn a_debit_of_what_is_there_equals_a_charge() {
    let histories = (quotas::any(), starts(), steps(0..16), amounts());
    check(1_000, &histories, |(quota, start, steps, n)| {
        let mut history = History::after(quota, start, &steps);
        let now = history.now;
        let mut charged = history.budget.clone();
        let n = n.units(&charged, now).min(charged.peek(now).remaining());

        history.budget.debit(now, &receipt_of(quota), n);
        charged.charge(now, n);

        for at in history.later() {
            prop_assert_eq!(history.budget.peek(at), charged.peek(at), "at {}", at);
        }
        Ok(())
    });
}

#[test]
fn a_debt_of_a_bucket_drains_at_its_rate_before_anything_passes() {
    let gcra = quotas::any().prop_filter("a bucket", is_even_bucket);
    let debts = (gcra, starts(), 0_u64..=16, 1_u64..=16);
    check(1_500, &debts, |(quota, start, debt, cost)| {
        let capacity = quota.capacity();
        let debt = capacity + (DEBT_CEILING - 1) * capacity * debt / 16;
        let cost = (capacity * cost / 16).max(1);
        let mut budget = Budget::full(quota);
        budget.debit(start, &receipt_of(quota), debt);

        let (verdict, _) = budget.charge(start, cost);

        let drains = |units: u64| {
            let drain = u128::from(units) * u128::from(micros(quota.period()));
            u64::try_from(drain.div_ceil(u128::from(quota.limit()))).unwrap()
        };
        prop_assert_eq!(verdict.remaining(), 0);
        let retry_after = verdict.retry_after().map(micros);
        prop_assert_eq!(retry_after, Some(drains(debt + cost - capacity)));
        prop_assert_eq!(micros(verdict.reset_after()), drains(debt));
        Ok(())
    });
}

/// Debts are bounded: a bucket has drained after eight refills, and two periods later nothing of a window counts.
#[test]
fn no_debt_outlasts_the_ceiling() {
    let histories = (
        quotas::any(),
        starts(),
        steps(0..16),
        prop::collection::vec((amounts(), 0_u64..3), 0..12),
    );
    check(1_500, &histories, |(quota, start, steps, debits)| {
        let mut history = History::after(quota, start, &steps);
        let receipt = receipt_of(quota);
        for (n, wait) in debits {
            let n = n.units(&history.budget, history.now).saturating_mul(7);
            history.budget.debit(history.now, &receipt, n);
            history.now += wait;
        }
        history.budget.debit(history.now, &receipt, u64::MAX);

        let verdict = history.budget.peek(history.now);

        let longest = match quota.algorithm() {
            Algorithm::Gcra => history.budget.longest_debt(),
            Algorithm::SlidingWindow => 2 * history.budget.period_us(),
            Algorithm::IntervalRefill { .. } => {
                let eight = DEBT_CEILING * quota.capacity();
                eight.div_ceil(quota.limit()) * history.budget.period_us()
            }
            _ => history.budget.period_us(),
        };
        let reset_after = micros(verdict.reset_after());
        prop_assert_eq!(verdict.remaining(), 0);
        prop_assert!(reset_after <= longest, "{reset_after} > {longest}");
        // And a bucket's debt is as deep as it can be.
        if is_even_bucket(&quota) {
            prop_assert_eq!(reset_after, longest);
        }
        let later = history.budget.peek(history.now + longest);
        prop_assert_eq!(later.remaining(), quota.capacity());
        Ok(())
    });
}

/// Each refill pays a part of it, and questions in between change nothing.
#[test]
fn a_debt_of_a_budget_refilled_in_intervals_is_paid_by_its_refills_before_anything_passes() {
    const MINUTE: u64 = 60_000_000;
    const START: u64 = 30_000_000 * MINUTE;
    // given ten a minute up to thirty, and a debt of a burst and a half
    let offset = Duration::from_secs(20);
    let quota = Quota::per_minute(10).using(Algorithm::IntervalRefill { offset });
    let mut budget = Budget::full(quota.burst(30));
    budget.debit(START, &receipt_of(budget.quota), 45);

    // then the second refill pays the last of what is beyond the burst
    let passes_at = |minutes: u64| START + 20_000_000 + minutes * MINUTE;
    let (verdict, _) = budget.charge(START, 1);
    let retry_after = verdict.retry_after().map(micros);
    assert_eq!(retry_after, Some(passes_at(1) - START));
    assert_eq!(micros(verdict.reset_after()), passes_at(4) - START);
    assert_eq!(budget.peek(passes_at(1) - 1).remaining(), 0);
    assert!(budget.charge(passes_at(1) - 1, 1).0.is_denied());
    for (minutes, left) in [(1, 5), (2, 15), (3, 25), (4, 30), (5, 30)] {
        assert_eq!(budget.peek(passes_at(minutes)).remaining(), left);
    }
}

/// A window forgets its debts with its counts. So the ceiling shows only to a caller that gets a larger limit in that
/// window.
#[test]
fn a_debit_of_a_window_stops_at_the_ceiling() {
    let algorithms = [
        Algorithm::FixedWindow {
            offset: Duration::ZERO,
        },
        Algorithm::SlidingWindow,
        Algorithm::RollingWindow { buckets: 10 },
        Algorithm::SlidingLog,
    ];
    for algorithm in algorithms {
        let now = 1_000_000_000;
        let mut budget = Budget::full(Quota::per_second(10).using(algorithm));
        budget.charge(now, 10);
        for n in [7, u64::MAX, 1, u64::MAX] {
            budget.debit(now, &receipt_of(budget.quota), n);
        }

        budget.quota = Quota::per_second(100).using(algorithm);

        assert_eq!(budget.peek(now).remaining(), 20, "{algorithm:?}");
    }
}
