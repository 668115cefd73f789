//! The bound on what passes of a leased budget: which passes it allows, and which it names.

#![allow(clippy::panic, reason = "a test says what it expects by panicking")]

use std::time::Duration;

use fastrand::Rng;
use tollgate_core::{Algorithm, Lease, Quota};
use tollgate_fire::LeasedBound;

const MS: u64 = 1_000;

const SECOND: Duration = Duration::from_secs(1);

const ZERO: Duration = Duration::ZERO;

/// The last excess of these passes, at milliseconds, under a lease of 100 ms.
fn excess(quota: &Quota, passes: &[(u64, u64)]) -> u64 {
    let Some(mut bound) = LeasedBound::of(quota, &Lease::up_to(50)) else {
        panic!("{quota} can be leased");
    };
    let passes = passes.iter();
    let excesses = passes.map(|&(at_ms, units)| bound.pass(at_ms * MS, units));
    excesses.last().unwrap_or_default()
}

#[test]
fn the_worst_legal_case_of_a_leased_bucket_is_allowed_and_one_unit_more_is_named() {
    let quota = Quota::new(20, SECOND).burst(5);
    // The burst and two for the time of the lease; then the refill.
    for (passes, over) in [
        (vec![(1_000, 7)], 0),
        (vec![(1_000, 8)], 1),
        (vec![(1_000, 7), (1_500, 7)], 0),
        (vec![(1_000, 7), (1_500, 8)], 1),
        (vec![(1_000, 7), (1_049, 1)], 1),
        (vec![(1_000, 7), (1_050, 1)], 0),
        // A pause saves no more than the burst.
        (vec![(1_000, 1), (60_000, 7)], 0),
        (vec![(1_000, 1), (60_000, 8)], 1),
    ] {
        assert_eq!(excess(&quota, &passes), over, "{passes:?}");
    }
}

#[test]
fn the_worst_legal_case_of_a_leased_interval_refill_is_one_refill_more() {
    let refilled = Algorithm::IntervalRefill { offset: ZERO };
    let quota = Quota::new(10, SECOND).using(refilled).burst(15);
    // Just before a refill and just after it, and one for the time of the lease.
    assert_eq!(excess(&quota, &[(1_999, 15), (2_000, 11)]), 0);
    assert_eq!(excess(&quota, &[(2_000, 27)]), 1);
}

#[test]
fn leased_windows_are_exact() {
    let windows = Algorithm::FixedWindow {
        offset: Duration::from_millis(300),
    };
    let quota = Quota::new(10, SECOND).using(windows);
    assert_eq!(excess(&quota, &[(1_299, 10), (1_300, 10)]), 0);
    assert_eq!(excess(&quota, &[(1_300, 10), (2_299, 1)]), 1);
}

#[test]
fn other_algorithms_and_calendars_have_no_leased_bound() {
    let lease = Lease::up_to(50);
    for algorithm in [Algorithm::SlidingWindow, Algorithm::SlidingLog] {
        let quota = Quota::new(10, SECOND).using(algorithm);
        assert!(LeasedBound::of(&quota, &lease).is_none(), "{quota}");
    }
}

#[test]
fn a_budget_that_is_handed_out_anew_allows_a_burst_more() {
    let quota = Quota::new(20, SECOND).burst(5);
    let Some(mut bound) = LeasedBound::of(&quota, &Lease::up_to(5)) else {
        panic!("it can be leased");
    };
    assert_eq!(bound.pass(MS, 7), 0);
    bound.allow(5);
    assert_eq!(bound.pass(MS, 5), 0);
    assert_eq!(bound.pass(MS, 1), 1);
}

/// By the definition: each interval from one pass to another.
#[test]
fn the_excess_is_that_of_the_worst_interval() {
    let mut rng = Rng::with_seed(27);
    let mut seen = [0; 2];
    for _ in 0..2_000 {
        let (limit, burst) = (rng.u64(1..=40), rng.u64(1..=10));
        let quota = Quota::new(limit, SECOND).burst(burst);
        let mut at_ms = 0;
        let passes: Vec<_> = (0..rng.usize(1..20))
            .map(|_| {
                at_ms += rng.u64(0..200);
                (at_ms, rng.u64(1..=3))
            })
            .collect();
        let end_ms = at_ms;
        let worst = (0..passes.len()).map(|first| {
            let units: u64 = passes[first..].iter().map(|(_, units)| units).sum();
            let interval_ms = end_ms - passes[first].0;
            // In thousandths of a unit.
            (units * 1_000).saturating_sub(burst * 1_000 + limit * (interval_ms + 100))
        });
        let worst = worst.max().unwrap_or_default().div_ceil(1_000);
        assert_eq!(excess(&quota, &passes), worst, "{quota}: {passes:?}");
        seen[usize::from(worst > 0)] += 1;
    }
    assert!(seen.iter().all(|seen| *seen > 200), "{seen:?}");
}

#[test]
fn the_most_of_an_interval_is_what_the_bound_lets_through_in_it() {
    let quota = Quota::new(20, SECOND).burst(5);
    let Some(bound) = LeasedBound::of(&quota, &Lease::up_to(50)) else {
        panic!("it can be leased");
    };
    assert_eq!([0, 50, 500].map(|ms| bound.most_in(ms * MS)), [7, 8, 17]);
    let windows = Quota::new(10, SECOND).using(Algorithm::FixedWindow { offset: ZERO });
    let Some(bound) = LeasedBound::of(&windows, &Lease::up_to(50)) else {
        panic!("it can be leased");
    };
    // Each window that it may touch.
    assert_eq!(
        [0, 999, 1_000].map(|ms| bound.most_in(ms * MS)),
        [20, 20, 30]
    );
}
