//! Two quotas for one key, as while a deploy changes a limit: neither forgives the other's debt.

use std::time::Duration;

use tollgate_core::{Algorithm, DEBT_CEILING, Quota};

use crate::support::budget::{Budget, micros, receipt_of};

const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;
const START: u64 = 1_800_000_000 * SECOND;

/// Rates from one a day to a million a second, and bursts from one on.
fn grid() -> Vec<Quota> {
    let rates = [
        (1, DAY),
        (997, DAY),
        (10, 60 * SECOND),
        (7, SECOND),
        (10, SECOND),
        (100, SECOND),
        (999_983, 60 * SECOND),
        (1_000_000, SECOND),
    ];
    let bursts = [1, 7, 12, 100, 3_000];
    let pairs = rates
        .into_iter()
        .flat_map(|rate| bursts.map(|burst| (rate, burst)));
    pairs
        .map(|((limit, period), burst)| {
            Quota::new(limit, Duration::from_micros(period)).burst(burst)
        })
        .collect()
}

/// The drain of a full budget, in whole microseconds.
fn drain_us(quota: &Quota) -> u64 {
    let drain = u128::from(quota.capacity()) * quota.period().as_micros();
    u64::try_from(drain / u128::from(quota.limit())).unwrap()
}

/// The time until the budget is full again, as this quota sees it.
fn owed_us(budget: &Budget, quota: Quota, now: u64) -> u64 {
    let seen = Budget {
        quota,
        ..budget.clone()
    };
    micros(seen.peek(now).reset_after())
}

/// A turn of both quotas: each asks for little, and for more than its budget ever holds.
fn asks_of_both(one: Quota, other: Quota) -> [(Quota, u64); 4] {
    [
        (other, 1),
        (other, other.capacity() + 1),
        (one, 1),
        (one, one.capacity() + 1),
    ]
}

#[test]
fn no_other_quota_forgives_what_an_unchanged_one_would_not() {
    for one in grid() {
        for other in grid() {
            // given a budget that is spent under one quota
            let mut budget = Budget::full(one);
            assert!(budget.charge(START, one.capacity()).0.is_allowed());
            let mut owed = owed_us(&budget, one, START);
            let wait = (drain_us(&one) / 50).max(1);
            let mut now = START;

            // when both charge in turns, for little and for more than the budget ever holds
            for turn in 0..40 {
                for (quota, cost) in asks_of_both(one, other) {
                    budget.quota = quota;
                    budget.charge(now, cost);

                    // then time alone has reduced the debt
                    let left = owed_us(&budget, one, now);
                    assert!(
                        left >= owed,
                        "{one} beside {other}, turn {turn}: {owed} µs became {left}"
                    );
                    owed = left;
                }
                now += wait;
                owed = owed.saturating_sub(wait);
            }
        }
    }
}

#[test]
fn no_other_quota_forgives_a_debt() {
    for one in grid() {
        for other in grid() {
            // given a budget with the largest debt
            let mut budget = Budget::full(one);
            budget.debit(START, &receipt_of(one), u64::MAX);
            let owed = owed_us(&budget, one, START);
            assert!(owed >= DEBT_CEILING * drain_us(&one), "{one}");

            // when the other quota asks, and charges to either quota go on
            for cost in [0, 1, other.capacity() + 1, 1, 0] {
                budget.quota = other;
                budget.charge(START, cost);
                budget.debit(START, &receipt_of(other), 1);
                budget.debit(START, &receipt_of(one), 1);
            }

            // then less than one full budget of the larger is forgiven
            let left = owed_us(&budget, one, START);
            let larger = drain_us(&one).max(drain_us(&other));
            assert!(
                left + larger > owed,
                "{one} beside {other}: {owed} µs became {left}"
            );
        }
    }
}

/// Windows and logs of one length are one state, whatever their limits are.
#[test]
fn no_other_limit_of_a_window_forgives_what_an_unchanged_one_would_not() {
    const LIMITS: [u64; 5] = [1, 7, 12, 100, 1_000];
    let offset = Duration::ZERO;
    for algorithm in [
        Algorithm::FixedWindow { offset },
        Algorithm::SlidingWindow,
        Algorithm::RollingWindow { buckets: 10 },
        Algorithm::SlidingLog,
        Algorithm::IntervalRefill { offset },
    ] {
        let quotas = LIMITS.map(|limit| Quota::per_second(limit).using(algorithm));
        let pairs = quotas
            .iter()
            .flat_map(|one| quotas.map(|other| (*one, other)));
        for (one, other) in pairs {
            // given a window that is spent under one limit, in the middle of it
            let mut now = START + SECOND / 2;
            let mut budget = Budget::full(one);
            assert!(budget.charge(now, one.capacity()).0.is_allowed());

            // when both ask in turns, for little and for more than there ever is
            for turn in 0..40 {
                for (quota, cost) in asks_of_both(one, other) {
                    budget.quota = one;
                    let before = budget.clone();
                    budget.quota = quota;
                    budget.charge(now, cost);
                    budget.quota = one;

                    // then the first has no more left for that, at once or later
                    for later in (0..=20).map(|part| now + part * SECOND / 10) {
                        let (was, is) = (before.peek(later), budget.peek(later));
                        assert!(
                            is.remaining() <= was.remaining()
                                && is.reset_after() >= was.reset_after(),
                            "{one} beside {other}, turn {turn}, {} µs later: {was:?} became {is:?}",
                            later - now
                        );
                    }
                }
                now += SECOND / 13;
            }
        }
    }
}

/// A caller of the shorter quota waits for at most one drain of the larger, unless the key owes more than a budget.
#[test]
fn a_caller_of_the_shorter_quota_waits_for_at_most_one_drain_of_the_longer() {
    for one in grid() {
        for other in grid() {
            // given a budget that is spent under one quota
            let mut budget = Budget::full(one);
            budget.charge(START, one.capacity());

            // when the other asks
            budget.quota = other;
            let (verdict, _) = budget.charge(START, other.capacity());

            // then it is told how long the wait is, and passes by then
            let larger = drain_us(&one).max(drain_us(&other));
            let wait = verdict.retry_after().map(micros).unwrap_or_default();
            assert!(wait <= larger + 1, "{one} beside {other}: {wait} µs");
            assert!(
                budget
                    .if_charged(START + wait, other.capacity())
                    .is_allowed()
            );
        }
    }
}

/// The wait of at most one drain begins when nobody charges the other quota any more: until then that spends all that drains.
#[test]
fn a_quota_passes_nothing_beside_another_that_is_used_up_and_passes_within_one_drain_after_that() {
    for (starved, used_up) in [
        // Of two that drain in one time the slower one starves,
        (Quota::per_second(10), Quota::per_second(100)),
        // and of others the one that drains sooner, even if it is the faster one.
        (
            Quota::per_second(10).burst(1),
            Quota::per_second(100).burst(1_000),
        ),
        (Quota::per_second(100), Quota::per_minute(10)),
    ] {
        // given callers who have spent one quota, and spend each unit as it drains
        let mut budget = Budget::full(used_up);
        assert!(budget.charge(START, used_up.capacity()).0.is_allowed());
        let unit = micros(used_up.period()) / used_up.limit();
        let (mut now, mut passed) = (START, [0, 0]);

        // when those of the other quota ask ten times as often
        for turn in 1..=10_000 {
            now += unit / 10;
            budget.quota = starved;
            passed[0] += u64::from(budget.charge(now, 1).0.is_allowed());
            if turn % 10 == 0 {
                budget.quota = used_up;
                passed[1] += u64::from(budget.charge(now, 1).0.is_allowed());
            }
        }

        // then they pass only once the first have ended, within one full drain of the longer quota
        assert_eq!(passed, [0, 1_000], "{starved} beside {used_up}");
        budget.quota = starved;
        let wait = budget.charge(now, 1).0.retry_after().map(micros).unwrap();
        assert!(wait <= drain_us(&starved).max(drain_us(&used_up)));
        assert!(budget.if_charged(now + wait, 1).is_allowed());
    }
}

#[test]
fn pitfall_a_shorter_quota_beside_a_longer_one_switches_the_limit_off() {
    for (long, short) in [
        (Quota::per_minute(10), Quota::per_second(10)),
        (Quota::per_second(100), Quota::per_second(100).burst(12)),
    ] {
        // given a deploy in which both quotas charge in turns, two thousand times in half a second
        let mut budget = Budget::full(long);
        let mut passed = 0;
        for turn in 0..2_000 {
            let now = START + turn * 250;
            budget.quota = short;
            budget.charge(now, 1);
            budget.quota = long;

            // when the longer one asks
            passed += u64::from(budget.charge(now, 1).0.is_allowed());
        }

        // then it is held to its burst and its rate
        let drained = SECOND / 2 * long.limit() / micros(long.period());
        assert!(
            passed <= long.capacity() + drained,
            "{long} beside {short}: {passed}"
        );
    }
}

/// A rest is a fraction of the denominator of the quota that left it. Another quota cannot know that fraction, and so takes it
/// for a whole microsecond.
#[test]
fn a_rest_that_another_denominator_left_is_never_read_as_a_smaller_fraction() {
    let us = Duration::from_micros(1);
    for [one, other] in [
        [
            Quota::new(3, us).burst(30),
            Quota::new(1_000, us).burst(10_000),
        ],
        [
            Quota::new(7, us).burst(70),
            Quota::new(1_001, us).burst(10_010),
        ],
        [
            Quota::new(7, Duration::from_secs(1)),
            Quota::new(997, Duration::from_secs(142)),
        ],
    ] {
        // given one instant in which two quotas charge in turns until neither has anything left
        let mut budget = Budget::full(one);
        let mut passed = [0, 0];
        for turn in 0..40_000 {
            let quota = [one, other][turn % 2];
            budget.quota = quota;
            passed[turn % 2] += u64::from(budget.charge(START, 1).0.is_allowed());
        }

        // then all that passed drains within the longer drain of the two
        let drain = |quota: &Quota, units: u64| {
            units as f64 * quota.period().as_micros() as f64 / quota.limit() as f64
        };
        let drained = drain(&one, passed[0]) + drain(&other, passed[1]);
        let most = drain(&one, one.capacity()).max(drain(&other, other.capacity()));
        assert!(
            drained <= most + 0.001,
            "{one} beside {other}: {drained} of {most} µs"
        );
    }
}

#[test]
fn a_debt_under_one_tier_is_held_by_a_decision_under_another() {
    // given a debt of eight budgets of twenty
    let large = Quota::per_second(20);
    let mut budget = Budget::full(large);
    budget.debit(START, &receipt_of(large), 160);

    // when a tier whose bursts are smaller decides
    for burst in [1, 12, 16, 19] {
        budget.quota = large.burst(burst);
        assert!(budget.charge(START, 1).0.is_denied());
    }

    // then the debt is as before, but for less than a budget
    let owed = owed_us(&budget, large, START);
    assert!(
        owed > 140 * SECOND / 20 && owed <= 160 * SECOND / 20,
        "{owed}"
    );
}

/// Quotas of one period that is refilled in intervals: small and large refills, and room for less than one and for many.
fn refilled_grid() -> Vec<Quota> {
    let offset = Duration::from_millis(300);
    let refills = |limit| Quota::per_second(limit).using(Algorithm::IntervalRefill { offset });
    let limits = [1, 7, 12, 100].into_iter();
    let pairs = limits.flat_map(|limit| [1, 5, 12, 100, 3_000].map(|burst| (limit, burst)));
    pairs
        .map(|(limit, burst)| refills(limit).burst(burst))
        .collect()
}

/// The time in which as many refills come as a full budget owes.
fn refill_us(quota: &Quota) -> u64 {
    quota.capacity().div_ceil(quota.limit()) * SECOND
}

#[test]
fn no_other_quota_forgives_what_is_to_be_refilled_in_intervals_and_none_delays_it_by_more_than_the_longer_refill()
 {
    let quotas = refilled_grid();
    for one in &quotas {
        for other in &quotas {
            // given a budget that is spent under one quota
            let mut now = START + SECOND / 2;
            let mut budget = Budget::full(*one);
            assert!(budget.charge(now, one.capacity()).0.is_allowed());
            let longer = refill_us(one).max(refill_us(other));

            // when both ask in turns, and are debited in the end
            for turn in 0..30 {
                for (quota, cost) in asks_of_both(*one, *other) {
                    budget.quota = *one;
                    let before = budget.clone();
                    budget.quota = quota;
                    let (verdict, _) = budget.charge(now, cost);
                    let wait = verdict.retry_after().map(micros).unwrap_or_default();
                    let is_in_debt = turn >= 20;
                    assert!(
                        is_in_debt || wait <= longer,
                        "{one} beside {other}: {wait} µs"
                    );
                    if is_in_debt {
                        budget.debit(now, &receipt_of(quota), 3);
                    }
                    budget.quota = *one;

                    // then the first has no more left for that, at once or later
                    for later in (0..=20).map(|part| now + part * SECOND / 4) {
                        let (was, is) = (before.peek(later), budget.peek(later));
                        assert!(
                            is.remaining() <= was.remaining()
                                && is.reset_after() >= was.reset_after(),
                            "{one} beside {other}, turn {turn}, {} µs later: {was:?} became {is:?}",
                            later - now
                        );
                    }
                }
                now += SECOND * 10 / 13;
            }
        }
    }
}

/// The part of a refill is a number of units, as of a window, and whole refills are time, as of a bucket.
#[test]
fn another_refill_finds_what_is_spent_of_one_as_units_and_what_is_owed_beyond_as_refills() {
    let offset = Duration::ZERO;
    let refills = |limit| Quota::per_second(limit).using(Algorithm::IntervalRefill { offset });
    let (small, large) = (refills(10).burst(30), refills(100).burst(1_000));
    for (spent, left_of_large) in [(0, 1_000), (1, 999), (10, 990), (11, 899), (30, 790)] {
        let mut budget = Budget::full(small);
        assert!(budget.charge(START, spent).0.is_allowed());

        budget.quota = large;

        assert_eq!(budget.peek(START).remaining(), left_of_large, "{spent}");
    }
    // And the part of a larger one is a whole refill at most.
    let mut budget = Budget::full(large);
    assert!(budget.charge(START, 250).0.is_allowed());
    budget.quota = small;
    assert_eq!(budget.peek(START).remaining(), 0);
    assert_eq!(micros(budget.peek(START).reset_after()), 3 * SECOND);
}
