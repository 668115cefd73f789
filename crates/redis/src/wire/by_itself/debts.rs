//! Debts: of another quota, of a clock that stepped back, and of debits.

use std::time::Duration;

use tollgate_core::{MAX_DRAIN, MAX_PERIOD, Quota};

use super::{SECOND, START, Server, charge_words, drain_us};

fn grid() -> Vec<Quota> {
    let day = 86_400 * SECOND;
    let rates = [
        (1, day),
        (997, day),
        (10, 60 * SECOND),
        (7, SECOND),
        (100, SECOND),
        (1_000_000, SECOND),
    ];
    let quotas = rates.into_iter().flat_map(|(limit, period)| {
        [1, 12, 3_000].map(|burst| Quota::new(limit, Duration::from_micros(period)).burst(burst))
    });
    // A drain of a power of two microseconds, and the longest drain.
    let two = Quota::new(1, Duration::from_micros(1 << 20));
    let longest = Quota::new(1, MAX_PERIOD).burst(10);
    assert_eq!(u128::from(drain_us(&longest, 10)), MAX_DRAIN.as_micros());
    quotas.chain([two, longest]).collect()
}

#[test]
fn no_other_quota_forgives_what_an_unchanged_one_would_not() {
    let mut server = Server::start();
    for one in grid() {
        for other in grid() {
            // given a budget that is spent under one quota
            server.forget();
            server.now = START;
            assert!(server.admits(&one, one.capacity()));
            let mut owed = server.owed_us();
            let wait = (drain_us(&one, one.capacity()) / 7).max(1);

            // when both charge in turns, for little and for more than the budget ever holds
            for _ in 0..3 {
                for (quota, cost) in [
                    (&other, 1),
                    (&other, other.capacity() + 1),
                    (&one, 1),
                    (&one, one.capacity() + 1),
                ] {
                    server.admits(quota, cost);

                    // then time alone has reduced the debt
                    let left = server.owed_us();
                    assert!(
                        left >= owed,
                        "{one} beside {other}: {owed} µs became {left}"
                    );
                    owed = left;
                }
                server.now += wait;
                owed = owed.saturating_sub(wait);
            }
        }
    }
}

#[test]
fn no_other_quota_forgives_a_debt() {
    let mut server = Server::start();
    for one in grid() {
        for other in grid() {
            // given a budget with the largest debt
            server.forget();
            server.debit(&one, 9 * one.capacity());
            let mut owed = server.owed_us();
            assert!(owed >= drain_us(&one, 8 * one.capacity()), "{one}: {owed}");
            assert!(
                owed <= drain_us(&one, 8 * one.capacity()) + 1,
                "{one}: {owed}"
            );

            // when both ask in turns, and charges to either go on
            for (quota, cost, debt) in [
                (&other, 1, 1),
                (&one, one.capacity() + 1, 1),
                (&other, other.capacity() + 1, 9 * other.capacity()),
                (&one, 1, 1),
                (&other, 1, 1),
            ] {
                server.admits(quota, cost);
                server.debit(quota, debt);
                owed = owed.max(server.owed_us());
            }

            // then less than one full budget of the larger is forgiven
            let left = server.owed_us();
            let larger = drain_us(&one, one.capacity()).max(drain_us(&other, other.capacity()));
            assert!(
                left + larger > owed,
                "{one} beside {other}: {owed} µs became {left}"
            );
        }
    }
}

#[test]
fn a_clock_that_steps_back_by_years_locks_nobody_out_for_longer_than_eight_refills() {
    let mut server = Server::start();
    for quota in grid() {
        for debt in [0, 8 * quota.capacity()] {
            server.forget();
            server.now = START;
            assert!(server.admits(&quota, 1));
            server.debit(&quota, debt);

            server.now = START - 86_400 * SECOND * 366;
            assert!(!server.admits(&quota, quota.capacity() + 1));

            let owed = server.owed_us();
            assert!(
                owed <= drain_us(&quota, 8 * quota.capacity()) + 1,
                "{quota}: {owed}"
            );
        }
    }
}

#[test]
fn pitfall_a_shorter_quota_beside_a_longer_one_switches_the_limit_off() {
    let mut server = Server::start();
    for (long, short) in [
        (Quota::per_minute(10), Quota::per_second(10)),
        (Quota::per_second(100), Quota::per_second(100).burst(12)),
    ] {
        server.forget();
        let mut passed = 0;
        for _ in 0..2_000 {
            server.now += 250;
            server.admits(&short, 1);
            passed += u64::from(server.admits(&long, 1));
        }

        let drained = SECOND / 2 * long.limit() / u64::try_from(long.period().as_micros()).unwrap();
        assert!(
            passed <= long.capacity() + drained,
            "{long} beside {short}: {passed}"
        );
    }
}

/// The first quota has no whole microsecond in its drain, and states tell no shorter drain than one.
#[test]
fn a_budget_owes_eight_of_it_and_no_more_however_much_is_debited() {
    let mut server = Server::start();
    let us = Duration::from_micros(1);
    for (quota, eight_us) in [
        (Quota::new(3, us).burst(2), 6),
        (Quota::new(1, us), 8),
        (Quota::per_second(7), 8 * SECOND),
    ] {
        // given a budget that is full
        server.forget();

        // when debits exceed what it can owe, at once and bit by bit
        let mut run = vec![1, 2, 1];
        run.extend_from_slice(&charge_words(&quota, 1));
        run[5..13].copy_from_slice(&1e12_f64.to_le_bytes());
        run.push(1);
        server.run(&run);
        let at_once = server.owed_us();
        server.debit(&quota, 9 * quota.capacity());

        // then
        assert_eq!([at_once, server.owed_us()], [eight_us; 2], "{quota}");
        assert!(!server.admits(&quota, 1));
    }
}
