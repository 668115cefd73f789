//! No window of one period lets through more than its algorithm's documented worst case, wherever the window starts.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use tollgate_core::{Algorithm, Quota};

use crate::support::budget::{Budget, micros};
use crate::support::quotas;
use crate::support::runner::check;
use crate::support::steps::{Step, charges, starts};

/// The charges that passed, with their times.
fn admitted(quota: Quota, start: u64, steps: &[Step]) -> Vec<(u64, u64)> {
    let mut budget = Budget::full(quota);
    let mut now = start;
    let mut admitted = Vec::new();
    for step in steps {
        match *step {
            Step::Wait(span) => now += span.micros(&quota, now),
            Step::Charge(amount) => {
                let cost = amount.units(&budget, now);
                if budget.charge(now, cost).0.is_allowed() {
                    admitted.push((now, cost));
                }
            }
            Step::Credit(..) | Step::Debit(_) => unreachable!("only charges"),
        }
    }
    admitted
}

/// The sum that passed from `from` on within `span`.
fn within(admitted: &[(u64, u64)], from: u64, span: u64) -> u64 {
    let inside = admitted
        .iter()
        .filter(|(at, _)| (from..from + span).contains(at));
    inside.map(|(_, cost)| cost).sum()
}

/// The most that may pass in any half-open window of one period.
fn worst_case(quota: &Quota) -> u64 {
    let limit = quota.limit();
    match quota.algorithm() {
        Algorithm::Gcra => quota.capacity() + limit,
        // All of one window at its end and all of the next at its start.
        Algorithm::FixedWindow { .. } | Algorithm::RollingWindow { .. } => 2 * limit,
        // The previous window's last `period − 1` microseconds hold at most the limit. Until a period is over, the next window
        // then admits at most the limit × (period − 2)/period.
        Algorithm::SlidingWindow => {
            let period = u128::from(micros(quota.period()));
            let twice = 2 * u128::from(limit) * (period - 1) / period;
            limit.max(u64::try_from(twice).unwrap())
        }
        Algorithm::SlidingLog => limit,
        // A full burst before a refill, and the refill.
        Algorithm::IntervalRefill { .. } => quota.capacity() + limit.min(quota.capacity()),
        other => panic!("no worst case is known of {other:?}"),
    }
}

fn nothing_beats_the_worst_case(quota: Quota, start: u64, steps: &[Step]) -> TestCaseResult {
    let admitted = admitted(quota, start, steps);

    let period = micros(quota.period());
    // The sum over a sliding window grows only where the window's end takes in an admission, or its start stands on one.
    for &(at, _) in &admitted {
        for from in [at, at.saturating_sub(period - 1)] {
            let sum = within(&admitted, from, period);
            let bound = worst_case(&quota);
            prop_assert!(sum <= bound, "{sum} > {bound} in the period from {from}");
        }
        if let Algorithm::RollingWindow { buckets } = quota.algorithm() {
            let bucket = period / u64::from(buckets);
            // Any period that starts with a bucket, and any span that is a bucket shorter than a period.
            for (from, span) in [(at - at % bucket, period), (at, period - bucket)] {
                let sum = within(&admitted, from, span);
                prop_assert!(sum <= quota.limit(), "{sum} in {span} µs from {from}");
            }
        }
        if let Algorithm::FixedWindow { offset } = quota.algorithm() {
            let into = (at + period - micros(offset)) % period;
            if into <= at {
                let sum = within(&admitted, at - into, period);
                prop_assert!(
                    sum <= quota.limit(),
                    "{sum} in the window from {}",
                    at - into
                );
            }
        }
    }
    Ok(())
}

#[test]
fn no_period_lets_through_more_than_the_worst_case() {
    let histories = (quotas::any(), starts(), charges(1..60));
    check(1_500, &histories, |(quota, start, steps)| {
        nothing_beats_the_worst_case(quota, start, &steps)
    });
}

#[test]
fn no_short_period_lets_through_more_than_the_worst_case() {
    let histories = (quotas::tiny(), 0_u64..30, charges(1..60));
    check(2_000, &histories, |(quota, start, steps)| {
        nothing_beats_the_worst_case(quota, start, &steps)
    });
}

/// Over any span a bucket lets through one burst and the units that drain meanwhile, and not a unit more.
#[test]
fn a_bucket_never_exceeds_its_burst_and_its_rate() {
    let gcra = quotas::any().prop_filter("a bucket", |it| it.algorithm() == Algorithm::Gcra);
    check(
        1_500,
        &(gcra, starts(), charges(1..60)),
        |(quota, start, steps)| {
            let admitted = admitted(quota, start, &steps);

            for (index, (from, _)) in admitted.iter().enumerate() {
                let mut sum = 0;
                for (to, cost) in &admitted[index..] {
                    sum += u128::from(*cost);
                    let drained = u128::from(to - from) * u128::from(quota.limit())
                        / u128::from(micros(quota.period()));
                    prop_assert!(sum <= u128::from(quota.capacity()) + drained);
                }
            }
            Ok(())
        },
    );
}

/// Over any span a budget that is refilled in intervals lets through one burst and the refills that come meanwhile, and not a unit
/// more. So no period from refill to refill lets through more than a burst.
#[test]
fn a_budget_refilled_in_intervals_never_exceeds_its_burst_and_its_refills() {
    let quotas = prop_oneof![
        2 => quotas::tiny_refills(),
        1 => quotas::any().prop_filter("refilled in intervals", |it| {
            matches!(it.algorithm(), Algorithm::IntervalRefill { .. })
        }),
    ];
    check(
        3_000,
        &(quotas, starts(), charges(1..60)),
        |(quota, start, steps)| {
            let Algorithm::IntervalRefill { offset } = quota.algorithm() else {
                unreachable!("it was just filtered");
            };
            let (period, offset) = (micros(quota.period()), micros(offset));
            let number = |at: u64| (at + period - offset) / period;
            let admitted = admitted(quota, start, &steps);

            for (index, (from, _)) in admitted.iter().enumerate() {
                let mut sum = 0;
                for (to, cost) in &admitted[index..] {
                    sum += u128::from(*cost);
                    let bound = |refills: u64| {
                        let refilled = u128::from(refills) * u128::from(quota.limit());
                        u128::from(quota.capacity()) + refilled
                    };
                    prop_assert!(sum <= bound(number(*to) - number(*from)));
                    prop_assert!(sum <= bound((to - from) / period + 1));
                }
            }
            Ok(())
        },
    );
}

/// The bounds above are tight: each can be reached, so that a looser rule would not pass unnoticed.
#[test]
fn the_worst_cases_are_reached() {
    let quota = |algorithm| Quota::per_second(10).using(algorithm);
    let offset = std::time::Duration::ZERO;
    let cases = [
        (quota(Algorithm::FixedWindow { offset }), 20),
        (quota(Algorithm::RollingWindow { buckets: 10 }), 20),
        (quota(Algorithm::SlidingWindow), 19),
        (quota(Algorithm::SlidingLog), 10),
        (quota(Algorithm::IntervalRefill { offset }), 20),
        (quota(Algorithm::IntervalRefill { offset }).burst(35), 45),
        (quota(Algorithm::IntervalRefill { offset }).burst(4), 8),
        (quota(Algorithm::Gcra), 19),
    ];
    for (quota, most) in cases {
        let mut budget = Budget::full(quota);
        let mut passed = 0;

        // Takes all there is, from the last microsecond of a window on, at every boundary that could matter.
        for at in (0..10_u64).flat_map(|n| [999_999 + n * 100_000, 1_000_000 + n * 100_000]) {
            if at < 999_999 + 1_000_000 {
                let cost = budget.peek(at).remaining();
                assert!(budget.charge(at, cost).0.is_allowed());
                passed += cost;
            }
        }

        assert_eq!(passed, most, "{quota}");
    }
}

/// The bound of a bucket is tight as well: its burst and its limit if both ends of the period are counted, and one unit less if
/// they are not, as with the windows above.
#[test]
fn the_worst_case_of_a_bucket_is_reached_within_a_period_and_its_last_instant() {
    for quota in [
        Quota::per_second(10),
        Quota::per_second(10).burst(3),
        Quota::per_second(1).burst(50),
        Quota::per_minute(7),
    ] {
        let period = micros(quota.period());
        let (capacity, limit) = (quota.capacity(), quota.limit());
        let mut budget = Budget::full(quota);
        let mut passed = Vec::new();

        // when every unit is taken as soon as it is there
        let instants = (0..=limit).map(|n| (n * period).div_ceil(limit));
        for at in instants {
            let cost = budget.peek(at).remaining();
            assert!(budget.charge(at, cost).0.is_allowed());
            passed.push((at, cost));
        }

        // then that is the burst and the limit, and the last unit came when a period was over
        assert_eq!(within(&passed, 0, period + 1), capacity + limit, "{quota}");
        assert_eq!(within(&passed, 0, period), capacity + limit - 1, "{quota}");
    }
}
