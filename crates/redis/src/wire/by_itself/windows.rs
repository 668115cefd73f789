//! Windows and logs.

use std::time::{Duration, SystemTime};

use redis::Value;
use tollgate_core::{Algorithm, Mode, Quota};

use super::{KEY, SECOND, START, Server, request};
use crate::wire::numbers::Reader;

/// Three tenths of a second forward and back, sixty times.
#[test]
fn a_log_whose_clock_steps_back_and_forth_gains_one_step_and_no_more() {
    const STEP: u64 = 300_000;
    let mut server = Server::start();
    let quota = Quota::per_second(10).using(Algorithm::SlidingLog);
    for (denied, costs) in [(false, [1, 1]), (true, [0, 1]), (true, [1, 0])] {
        // given a clock that is wrong by one step half of the time
        server.forget();
        let mut passed = 0;

        // when calls come all the time, in either half or in both, refused ones as well
        for real in (0..11 * SECOND).step_by(10_000) {
            let is_ahead = real / 91_666 % 2 == 1;
            server.now = START + real + if is_ahead { STEP } else { 0 };
            if denied {
                server.admits(&quota, 10);
            }
            let cost = costs[usize::from(is_ahead)];
            passed += u64::from(cost > 0 && server.admits(&quota, cost));
        }

        // then no more passed than the limit for each period begun, and the step
        assert!(passed <= 120, "{passed} of 120");
    }
}

#[test]
fn a_log_of_debts_is_no_longer_than_one_of_charges_and_owes_as_much() {
    const ENTRIES: u64 = 1_024;
    let mut server = Server::start();
    let quota = Quota::per_second(ENTRIES).using(Algorithm::SlidingLog);
    let entry =
        |at: u64, total: u32| [&(at as f64).to_le_bytes()[..], &total.to_le_bytes()].concat();
    for (before, debts) in [(0, 3_u32), (u32::MAX - 1_024, 3)] {
        // given as many charges as a log can have, each in a microsecond of its own
        let mut charges = vec![251];
        charges.extend(before.to_le_bytes());
        for n in 1..=ENTRIES {
            let total = before.wrapping_add(u32::try_from(n).unwrap());
            charges.extend(entry(START + n, total));
        }
        redis::cmd("SET")
            .arg(KEY)
            .arg(&charges)
            .exec(&mut server.redis)
            .unwrap();

        // when it is debited many times, each a microsecond later
        server.now = START + ENTRIES;
        for _ in 0..debts {
            server.now += 1;
            server.debit(&quota, 2);
        }

        // then all charges are there as they were, and behind them one debt, which waits for the last debit
        let total = before.wrapping_add(1_024 + 2 * debts);
        let expected = [charges, entry(server.now, total)].concat();
        assert_eq!(server.state(), expected);
        assert!(!server.admits(&quota, 1));
        // One more entry makes it invalid.
        let longer = [&expected[..], &entry(server.now + 1, total)].concat();
        let set = |server: &mut Server, state: &[u8]| {
            let mut set = redis::cmd("SET");
            set.arg(KEY).arg(state).exec(&mut server.redis).unwrap();
        };
        set(&mut server, &longer);
        let reply = server.send(&request(&quota, Mode::Enforce, &[1]));
        let Value::BulkString(text) = reply else {
            panic!("{reply:?}");
        };
        assert_eq!(text[text.len() - 3..], [0, 0x91, 0xa0]);
        // It is valid as it stands, and drains like any other.
        set(&mut server, &expected);
        server.now = START + SECOND + 100;
        assert!(!server.admits(&quota, 95) && server.admits(&quota, 94));
    }
}

/// By the server's own clock the window has ended. Its state stays for as long as a clock may come back to it.
#[test]
fn no_window_admits_more_than_its_limit_to_a_clock_less_than_a_period_behind() {
    let mut server = Server::start();
    let real = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let real = u64::try_from(real.unwrap().as_micros()).unwrap();
    // Less than a quarter of the period has passed, so that none ends during the test.
    let period = (3_600..).find(|s| real / SECOND % s < s / 4).unwrap() * SECOND;
    let quota = |algorithm| Quota::new(10, Duration::from_micros(period)).using(algorithm);
    let (offset, start) = (Duration::ZERO, real - real % period);
    let cases = [
        (Algorithm::FixedWindow { offset }, start - 1),
        (Algorithm::SlidingWindow, start - period - 1),
        (Algorithm::RollingWindow { buckets: 4 }, start - period),
        (Algorithm::SlidingLog, real - period - SECOND),
        (Algorithm::IntervalRefill { offset }, start - 1),
    ];
    for (algorithm, spent_at) in cases {
        // given a window that was spent and no longer counts
        let quota = quota(algorithm);
        server.forget();
        server.now = spent_at;
        assert!(server.admits(&quota, 10), "{quota}");

        // when the clock, past the end for the server, goes back by less than a period
        server.now = spent_at;

        // then it admits nothing more
        assert!(!server.admits(&quota, 1), "{quota}");
    }
}

/// Compares numbers beyond those that a double holds exactly.
#[test]
fn a_sliding_window_admits_to_the_last_unit_however_large_its_figures_are() {
    let mut server = Server::start();
    let day = 86_400 * SECOND;
    let limit = 864_000_000_000;
    let quota = Quota::new(limit, Duration::from_micros(day)).using(Algorithm::SlidingWindow);
    let start = START - START % day;
    for previous in [
        863_999_999_999,
        123_456_789_012,
        500_000_000_003,
        16_777_217,
    ] {
        for passed in [1, 12_345_678_901, 43_200_000_000, 77_777_777_777, day - 1] {
            // given charges in the window before
            server.forget();
            server.now = start + 5;
            assert!(server.admits(&quota, previous));

            // when some of this one has passed
            server.now = start + day + passed;

            // then there is room for all but the part of it that still counts
            let fading = u128::from(previous) * u128::from(day - passed);
            let room = limit - u64::try_from(fading.div_ceil(u128::from(day))).unwrap();
            let what = format!("{previous} before, {passed} us passed: {room}");
            assert!(!server.admits(&quota, room + 1), "{what}");
            assert!(room == 0 || server.admits(&quota, room), "{what}");
            assert!(!server.admits(&quota, 1), "{what}");
        }
    }
}

/// A log of these entries: times and counts.
fn log_of(before: u32, entries: &[(u64, u32)]) -> Vec<u8> {
    let mut log = vec![251];
    log.extend(before.to_le_bytes());
    let mut total = before;
    for (at, count) in entries {
        total = total.wrapping_add(*count);
        log.extend((*at as f64).to_le_bytes());
        log.extend(total.to_le_bytes());
    }
    log
}

/// The time and the count of each entry.
fn entries_of(log: &[u8]) -> Vec<(u64, u32)> {
    let mut before = u32::from_le_bytes(log[1..5].try_into().unwrap());
    let entry = |bytes: &[u8]| {
        let at = Reader(bytes).whole().unwrap();
        let total = u32::from_le_bytes(bytes[8..].try_into().unwrap());
        let count = total.wrapping_sub(before);
        before = total;
        (at, count)
    };
    log[5..].chunks(12).map(entry).collect()
}

#[test]
fn what_is_given_back_to_a_log_leaves_all_other_entries_as_they_are() {
    let mut server = Server::start();
    let quota = Quota::per_second(1_000).using(Algorithm::SlidingLog);
    for count in [1, 2, 3, 9, 600] {
        // One for each microsecond, or with gaps.
        for step in [1, 7] {
            let entries: Vec<_> = (0..count).map(|n| (START + n * step, 2)).collect();
            for given_back in (0..count).filter(|n| count < 10 || n % 149 < 2) {
                for n in [1_u32, 2] {
                    // given
                    let state = log_of(u32::MAX - 5, &entries);
                    let mut set = redis::cmd("SET");
                    set.arg(KEY).arg(&state).exec(&mut server.redis).unwrap();
                    server.now = START + count * step;

                    // when
                    let at = START + given_back * step;
                    server.refund(&quota, n.into(), at, at);

                    // then
                    let mut expected = entries.clone();
                    expected[usize::try_from(given_back).unwrap()].1 -= n;
                    expected.retain(|(_, count)| *count > 0);
                    let found = redis::cmd("GET").arg(KEY).query(&mut server.redis);
                    let found: Option<Vec<u8>> = found.unwrap();
                    let found = found.map_or_else(Vec::new, |log| entries_of(&log));
                    assert_eq!(found, expected, "{n} of number {given_back} of {count}");
                }
            }
        }
    }
}

#[test]
fn a_log_whose_clock_is_a_period_behind_moves_to_now_and_not_before() {
    let mut server = Server::start();
    let quota = Quota::per_second(10).using(Algorithm::SlidingLog);
    let newest = START + 100;
    let entries = [(START, 1), (START + 50, 2), (newest, 3)];
    for (now, expected) in [
        (
            newest - SECOND + 1,
            vec![(START, 1), (START + 50, 2), (newest, 4)],
        ),
        (newest - SECOND, vec![(newest - SECOND, 7)]),
        (newest - SECOND - 1, vec![(newest - SECOND - 1, 7)]),
    ] {
        let mut set = redis::cmd("SET");
        let state = log_of(0, &entries);
        set.arg(KEY).arg(state).exec(&mut server.redis).unwrap();
        server.now = now;

        assert!(server.admits(&quota, 1));

        assert_eq!(entries_of(&server.state()), expected, "{now}");
    }
    // Entries at or before the new time stay where they are, and count until they are a period old.
    let at = START + SECOND;
    for (earlier, kept) in [(2, 2), (1, 2), (0, 1)] {
        let state = log_of(0, &[(at - earlier, 4), (at + SECOND, 3)]);
        let mut set = redis::cmd("SET");
        set.arg(KEY).arg(state).exec(&mut server.redis).unwrap();
        server.now = at;
        assert!(server.admits(&quota, 1));
        assert_eq!(entries_of(&server.state()).len(), kept, "{earlier}");
        server.now = at - earlier + SECOND - 1;
        assert!(!server.admits(&quota, 3), "{earlier}");
        server.now += 1;
        assert!(server.admits(&quota, 3), "{earlier}");
    }
}
