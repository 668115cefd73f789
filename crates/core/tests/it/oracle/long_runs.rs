//! Long runs at awkward rates: nothing drifts, and a week admits exactly as many as the fraction says.

use std::time::Duration;

use proptest::prelude::Rng;
use tollgate_core::{Algorithm, Quota};

use crate::oracle::model::{Model, whole};
use crate::oracle::random_calls::answer;
use crate::support::budget::{Budget, micros};
use crate::support::runner::rng;
use tollgate_testkit::{cases, seed};

const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;

fn awkward() -> Vec<Quota> {
    let rates = [
        (7, SECOND),
        (999_983, DAY),
        (1_000_000, DAY),
        (300_000, SECOND),
        (1, 366 * DAY),
        (1 << 30, SECOND),
        (1_000_003, 3_600 * SECOND),
        (1_000_000_007, SECOND),
        (1021, 60 * SECOND),
        (3, 7),
    ];
    let mut quotas = Vec::new();
    for (limit, period) in rates {
        let quota = Quota::new(limit, Duration::from_micros(period));
        let offset = Duration::from_micros(period / 3);
        let others = [
            Algorithm::FixedWindow { offset },
            Algorithm::SlidingWindow,
            Algorithm::RollingWindow { buckets: 100 },
            Algorithm::RollingWindow { buckets: 7 },
            Algorithm::SlidingLog,
            Algorithm::IntervalRefill { offset },
        ];
        let refilled = quota.try_using(Algorithm::IntervalRefill { offset });
        quotas.extend(refilled.and_then(|it| it.try_burst(3 * limit + 1)));
        quotas.push(quota);
        quotas.extend(quota.try_burst(1));
        quotas.extend(quota.try_burst(13));
        quotas.extend(others.iter().filter_map(|it| quota.try_using(*it).ok()));
    }
    quotas
}

/// Random bursts and pauses, a few thousand verdicts each.
#[test]
fn long_runs_at_awkward_rates_never_drift_from_the_oracle() {
    let seed = seed();
    let mut random = rng(seed);
    for quota in awkward() {
        let mut budget = Budget::full(quota);
        let mut model = Model::full(quota);
        let unit = (micros(quota.period()) / quota.limit()).max(1);
        let mut now = random.next_u64() % (1 << 50);
        for turn in 0..cases(120) {
            now += match random.next_u32() % 8 {
                0..4 => 0,
                4 => 1,
                5 => random.next_u64() % (3 * unit),
                6 => random.next_u64() % (2 * unit * 1000).min(micros(quota.period())),
                _ => micros(quota.period()) / (1 + random.next_u64() % 16),
            };
            if now > 4_000_000_000 * SECOND {
                // Longer than this crate's clock runs, at one per year.
                break;
            }
            let left = budget.peek(now).remaining();
            let cost = match random.next_u32() % 6 {
                0 => 1,
                1 => left,
                2 => left + 1,
                3 => 1 + random.next_u64() % quota.capacity(),
                _ => random.next_u64() % (left / 2 + 2),
            };

            let (verdict, _) = budget.charge(now, cost);

            let answer = answer(&verdict);
            let when = || format!("{quota:?}, turn {turn}, {cost} at {now}, TOLLGATE_SEED={seed}");
            assert_eq!(verdict.is_allowed(), model.passes(now, cost), "{}", when());
            if verdict.is_allowed() {
                model.take(now, cost);
            } else {
                let retry_after = verdict.retry_after().map(micros);
                assert_eq!(retry_after, model.retry_after(now, cost), "{}", when());
            }
            assert_eq!(answer.remaining, model.remaining(now), "{}", when());
            assert_eq!(answer.reset_after_us, model.reset_after(now), "{}", when());
        }
    }
}

/// Seven a second for a week, each taken in the microsecond in which it comes: 7 × 604,800 and the one that the burst held,
/// each at the exact microsecond of the fraction. An interval rounded down to 142,857 µs would let 5 more pass.
#[test]
#[ignore = "slow: four million decisions"]
fn seven_a_second_for_a_week_are_exactly_that_many() {
    const WEEK: u64 = 7 * DAY;
    // With a burst of 1 the bucket would stand empty for the rest of the microsecond in which a unit comes back.
    let quota = Quota::per_second(7).burst(2);
    let mut budget = Budget::full(quota);
    let start = 1_700_000_000 * SECOND;
    let mut passed = 0_u64;
    let mut now = start;

    while now < start + WEEK {
        let (verdict, _) = budget.charge(now, 1);
        if let Some(retry_after) = verdict.retry_after() {
            assert!(!retry_after.is_zero(), "denied at {now} for no time at all");
            now += micros(retry_after);
        } else {
            // Rounded up once, and never again.
            let due = (passed.saturating_sub(1) * SECOND).div_ceil(7);
            assert_eq!(now - start, due, "number {passed}");
            passed += 1;
        }
    }

    assert_eq!(whole(passed - 1), whole(7) * whole(WEEK) / whole(SECOND));
}
