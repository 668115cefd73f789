//! The quotas that can be built, and the sentences for those that cannot.

use super::*;
use crate::Concurrent;
use crate::bounds::MAX_WARM_UP;

#[test]
fn literals_are_const() {
    const QUOTA: Quota = Quota::per_second(7).burst(3);
    assert_eq!(
        (QUOTA.limit(), QUOTA.capacity(), QUOTA.period()),
        (7, 3, Duration::from_secs(1))
    );
}

#[test]
#[should_panic(expected = "a limit of 0 admits nothing")]
fn a_literal_that_is_nonsense_panics_while_it_is_built() {
    let _ = Quota::per_second(0);
}

#[test]
fn a_quota_that_keeps_units_for_others_differs_in_its_capacity_alone() {
    let wait = Duration::from_secs(2);
    let offset = Duration::from_secs(20);
    let minute = |limit| Quota::per_minute(limit);
    let alike = |algorithm: Algorithm| (minute(100).using(algorithm), minute(70).using(algorithm));
    let cases = [
        (minute(100), minute(100).burst(70)),
        (minute(5).burst(100), minute(5).burst(70)),
        alike(Algorithm::FixedWindow { offset }),
        alike(Algorithm::SlidingWindow),
        alike(Algorithm::RollingWindow { buckets: 6 }),
        alike(Algorithm::SlidingLog),
        (
            minute(100).using(Algorithm::IntervalRefill { offset }),
            minute(100)
                .using(Algorithm::IntervalRefill { offset })
                .burst(70),
        ),
        (
            Concurrent::at_most(100).into(),
            Concurrent::at_most(70).into(),
        ),
        (
            Concurrent::at_most(100).wait_up_to(wait).into(),
            Concurrent::at_most(70).wait_up_to(wait).into(),
        ),
    ];
    for (whole, expected) in cases {
        assert_eq!(whole.keeping(30), expected, "{whole}");
        assert_eq!(whole.keeping(30).unit(), whole.unit());
        assert_eq!(whole.keeping(0), whole);
        assert!(whole.try_keeping(99).is_ok() && whole.try_keeping(100).is_err());
    }
}

#[test]
fn ordinary_and_awkward_rates_are_exact() {
    for (limit, secs) in [
        (7, 1),
        (999_983, 86_400),
        (1_000_000, 86_400),
        (300_000, 1),
        (1, 31_536_000),
    ] {
        Quota::try_new(limit, Duration::from_secs(secs)).unwrap();
    }
    // It could not be exact as a rate; two counters can.
    let tebibyte = Quota::try_with(
        1 << 40,
        Duration::from_secs(86_400),
        Algorithm::SlidingWindow,
    );
    assert_eq!(
        "1099511627776/day sliding-window".parse::<Quota>().ok(),
        tebibyte.ok()
    );
    assert!(Quota::try_new((1 << 40) - 87, Duration::from_secs(1)).is_err());
    // A gibibyte per second, in bytes, and a prime about a billion.
    Quota::try_new(1 << 30, Duration::from_secs(1)).unwrap();
    Quota::try_new(1_000_000_007, Duration::from_secs(1)).unwrap();
}

#[test]
fn nonsense_is_refused_with_a_sentence() {
    let second = Duration::from_secs(1);
    let quota = Quota::per_second(10);
    let refilled = |limit| {
        let offset = Duration::ZERO;
        Quota::per_day(limit).using(Algorithm::IntervalRefill { offset })
    };
    assert!(refilled(1).try_burst(3_660).is_ok() && refilled(2).try_burst(7_320).is_ok());
    let cases = [
        (Quota::try_new(0, second), "a limit of 0 admits nothing"),
        (
            Quota::try_new(1, Duration::ZERO),
            "a period of 0 has no rate",
        ),
        (
            Quota::try_new(MAX_LIMIT + 1, second),
            "1099511627777 is above the largest limit",
        ),
        (
            Quota::try_new(1, MAX_PERIOD + second),
            "longer than 366 days",
        ),
        (
            Quota::try_new(1, Duration::from_nanos(1500)),
            "1.5µs is not a whole number of microseconds",
        ),
        (Quota::try_new((1 << 40) - 87, second), "cannot be exact"),
        (quota.try_burst(0), "a burst of 0 admits nothing"),
        (quota.try_burst(MAX_LIMIT + 1), "above the largest limit"),
        (
            Quota::per_day(1).try_burst(100_000),
            "longer than ten years to refill",
        ),
        (
            quota.using(Algorithm::SlidingWindow).try_burst(5),
            "a burst of 5 has no meaning",
        ),
        (
            quota.try_using(Algorithm::FixedWindow { offset: second }),
            "the offset 1s",
        ),
        (
            quota.try_using(Algorithm::IntervalRefill { offset: second }),
            "the offset 1s",
        ),
        (refilled(10).try_burst(0), "a burst of 0 admits nothing"),
        (
            refilled(10).try_burst(MAX_LIMIT + 1),
            "above the largest limit",
        ),
        // 3,660 days of whole refills are the most.
        (
            refilled(1).try_burst(3_661),
            "a burst of 3661 takes longer than ten years to refill",
        ),
        (
            refilled(2).try_burst(7_321),
            "a burst of 7321 takes longer than ten years to refill",
        ),
        (refilled(1).try_wait_up_to(second), "requests cannot wait"),
        (
            quota.try_using(Algorithm::RollingWindow { buckets: 1 }),
            "1 buckets",
        ),
        (
            quota.try_using(Algorithm::RollingWindow { buckets: 129 }),
            "129 buckets",
        ),
        (
            quota.try_using(Algorithm::RollingWindow { buckets: 3 }),
            "3 buckets",
        ),
        (
            quota.try_using(Algorithm::Concurrent),
            "a limit on how many at once has no period",
        ),
        (
            Quota::from(Concurrent::at_most(5)).try_burst(3),
            "a limit on how many at once has no period",
        ),
        (
            Quota::from(Concurrent::at_most(5)).try_using(Algorithm::Gcra),
            "a limit on how many at once has no period",
        ),
        (
            quota.try_keeping(10),
            "10 kept of a full budget of 10: nothing ever passes",
        ),
        (
            quota.wait_up_to(second).try_keeping(1),
            "a line of turns has no classes",
        ),
        (
            quota.warm_up(second).try_keeping(1),
            "cold units take more room than one each, and would take the share",
        ),
        (
            quota.try_warm_up(Duration::ZERO),
            "a warm-up of 0 has no effect: leave it out",
        ),
        (
            quota.try_warm_up(Duration::from_nanos(1500)),
            "1.5µs is not a whole number of microseconds",
        ),
        (
            quota.try_warm_up(MAX_WARM_UP + Duration::from_micros(1)),
            "a warm-up of 3600.000001s is longer than an hour",
        ),
        (
            quota.try_warm_up(Duration::MAX),
            "a warm-up of 18446744073709551615.999999999s is longer than an hour",
        ),
        // A cold unit takes 300 ms, and a warm one 100.
        (
            quota.try_warm_up(Duration::from_micros(199_999)),
            "a warm-up of 199.999ms is over before one request has passed at this rate",
        ),
        (
            Quota::new(1_000_001, second).try_warm_up(second),
            "more than one unit in a microsecond: warm-ups are counted in microseconds",
        ),
        (
            quota.warm_up(second).try_cold_factor(20),
            "a warm-up of 1s is over before one request has passed at this rate",
        ),
        (
            quota.using(Algorithm::SlidingLog).try_warm_up(second),
            "a window, a log or a refill does not warm up: use gcra",
        ),
        (
            quota.warm_up(second).try_using(Algorithm::SlidingLog),
            "a window, a log or a refill does not warm up: use gcra",
        ),
        (
            quota.wait_up_to(second).try_warm_up(second),
            "requests cannot wait for their turn under a quota that warms up",
        ),
        (
            quota.warm_up(second).try_wait_up_to(second),
            "requests cannot wait for their turn under a quota that warms up",
        ),
        (
            Quota::from(Concurrent::at_most(5)).try_warm_up(second),
            "a limit on how many at once has no period",
        ),
        (
            quota.try_cold_factor(3),
            "a cold factor has no meaning without a warm-up",
        ),
        (
            quota.warm_up(second).try_cold_factor(0),
            "a cold factor of 0 is not between 2 and 100",
        ),
        (
            quota.warm_up(second).try_cold_factor(1),
            "a cold factor of 1 is not between 2 and 100",
        ),
        (
            quota.warm_up(second).try_cold_factor(101),
            "a cold factor of 101 is not between 2 and 100",
        ),
        (
            quota.warm_up(second).try_burst(0),
            "a burst of 0 admits nothing",
        ),
        // Three times ten years and a little.
        (
            Quota::per_day(100).burst(122_100).try_warm_up(MAX_WARM_UP),
            "a burst of 122100 takes longer than ten years to refill",
        ),
        (
            Quota::per_day(1025).try_using(Algorithm::SlidingLog),
            "a log of 1025 entries",
        ),
    ];
    for (result, expected) in cases {
        let message = result.unwrap_err().to_string();
        assert!(
            message.contains(expected),
            "{message:?} does not say {expected:?}"
        );
    }
}
