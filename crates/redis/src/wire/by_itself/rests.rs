//! Rests: the parts of a microsecond that a quota leaves.

use std::time::Duration;

use tollgate_core::Quota;

use super::{SECOND, START, Server};

#[test]
fn a_rest_that_another_denominator_left_is_never_read_as_a_smaller_fraction() {
    let us = Duration::from_micros(1);
    let mut server = Server::start();
    for [one, other] in [
        [
            Quota::new(3, us).burst(30),
            Quota::new(1_000, us).burst(10_000),
        ],
        [
            Quota::new(7, us).burst(70),
            Quota::new(1_001, us).burst(10_010),
        ],
    ] {
        for admits in [Server::admits, Server::admits_beside_another] {
            // given one instant in which two quotas charge in turns
            server.forget();
            let mut passed = [0, 0];
            for turn in 0..400 {
                passed[turn % 2] += u64::from(admits(&mut server, &[one, other][turn % 2], 1));
            }

            // then all that passed drains within the longer of the two
            let drain = |quota: &Quota, units: u64| units as f64 / quota.limit() as f64;
            let drained = drain(&one, passed[0]) + drain(&other, passed[1]);
            assert!(
                passed[0] > 0 && drained <= 10.001,
                "{one} beside {other}: {drained}"
            );
        }
    }
}

/// Overwritten in place where the expiry stays, and written whole where it moves: either way the next charge finds the state.
#[test]
fn whole_microseconds_of_a_quota_with_rests_are_kept() {
    let mut server = Server::start();
    let quota = Quota::per_second(7).burst(30);
    for second in 0..8 {
        // given an instant, in one cell of the expiry or another
        server.forget();
        server.now = START + second * SECOND;

        // when a charge drains in whole seconds
        let passed = (0..10).filter(|_| server.admits(&quota, 7)).count();

        // then all of it is owed
        assert_eq!((passed, server.owed_us()), (4, 4 * SECOND));
        assert_eq!(server.state().len(), 9);
        assert!(server.admits(&quota, 2) && !server.admits(&quota, 1));
    }
}

/// A charge on a state without a rest may end at the very last part of a burst.
#[test]
fn a_budget_with_rests_is_admitted_to_its_last_part() {
    let mut server = Server::start();
    let quota = Quota::per_second(7).burst(8);
    for costs in [&[7, 1][..], &[1, 7], &[1, 1, 6], &[1; 8]] {
        server.forget();
        for cost in costs {
            assert!(server.admits(&quota, *cost), "{costs:?}");
        }
        assert!(!server.admits(&quota, 1), "{costs:?}");
    }
}

#[test]
fn a_point_between_two_microseconds_is_no_state_to_any_path() {
    let mut server = Server::start();
    for quota in [
        Quota::per_hour(10),
        Quota::per_second(7),
        Quota::per_hour(7),
    ] {
        // given a state whose point is moved
        server.forget();
        assert!(server.admits(&quota, 1));
        let mut value = server.state();
        let point = f64::from_le_bytes(value[1..9].try_into().unwrap());
        for moved in [point + 0.5, point - 0.5, -point, 2_f64.powi(53), f64::NAN] {
            value[1..9].copy_from_slice(&moved.to_le_bytes());
            server.takes_for_foreign(&quota, &value);
        }
    }
}

/// A quota of whole microseconds, which adds no rest of its own: the state is as short as before.
#[test]
fn a_quota_of_whole_microseconds_rounds_up_the_rest_of_another() {
    let mut server = Server::start();
    let halves = Quota::new(2, Duration::from_micros(3)).burst(3);
    let whole = Quota::new(1, Duration::from_micros(1)).burst(10);
    assert!(server.admits(&halves, 1));
    assert_eq!((server.state().len(), server.owed_us()), (16, 2));

    assert!(server.admits(&whole, 1));

    assert_eq!((server.state().len(), server.owed_us()), (9, 3));
}
