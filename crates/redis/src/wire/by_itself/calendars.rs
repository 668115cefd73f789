//! Windows of calendars.

use redis::Value;
use smallvec::smallvec;
use tollgate_core::{FailureKind, Mode, Quota, Scope};

use super::{KEY, SECOND, START, Server, receipt, request};
use crate::wire::calendars::Calendars;
use crate::wire::numbers::{Words, put};
use crate::wire::{Plan, Reply, Request, Work, replay, state};

/// A state of a calendar's window, as it stands in Redis.
fn of_calendar(start: u64, end: u64, count: u64) -> Words {
    let mut value = Words::new();
    value.push(255);
    for number in [start, end, count] {
        put(&mut value, number);
    }
    value
}

/// Neither to the script nor to this side.
#[test]
fn a_window_that_ends_before_it_begins_is_no_state() {
    let mut server = Server::start();
    let quota: Quota = "10/day in UTC".parse().unwrap();
    for (start, end, is_one) in [
        (START - 1, START + 1, true),
        (START + 1, START + 1, false),
        (START + 2, START + 1, false),
    ] {
        let value = of_calendar(start, end, 1);
        let mut set = redis::cmd("SET");
        set.arg(KEY)
            .arg(&value[..])
            .exec(&mut server.redis)
            .unwrap();

        let reply = server.send(&request(&quota, Mode::Enforce, &[1]));

        let Value::BulkString(text) = reply else {
            panic!("{reply:?}");
        };
        assert_eq!(text.ends_with(&[0, 0x91, 0xa0]), !is_one, "{start}");
        assert_eq!(state::decode(&value, quota.unit()).is_some(), is_one);
    }
}

/// Another process may know another version of the zone, by which the window that has begun ends at another time.
#[test]
fn no_window_of_a_calendar_begins_before_the_one_that_has_begun_is_over() {
    let mut server = Server::start();
    let quota: Quota = "10/day in UTC".parse().unwrap();
    let day = 86_400 * SECOND;
    let midnight = START - START % day + day;
    for end in [midnight - 3_600 * SECOND, midnight + 3_600 * SECOND] {
        // given a day that was used up, and ends an hour before midnight or after it
        let value = of_calendar(end - day, end, 10);
        let mut set = redis::cmd("SET");
        set.arg(KEY)
            .arg(&value[..])
            .exec(&mut server.redis)
            .unwrap();

        // then nothing passes before that, whatever this process knows
        server.now = end - 1;
        assert!(!server.admits(&quota, 1));
        server.now = end;
        assert!(server.admits(&quota, 10));
        // And what was charged before is not given back to the window behind it.
        server.refund(&quota, 5, end - 1, 0);
        assert!(!server.admits(&quota, 1));
        // The next window ends at this process's midnight.
        server.now = if end < midnight {
            midnight
        } else {
            midnight + day
        };
        assert!(server.admits(&quota, 10));
    }
}

/// A clock that is at the beginning of a window has not stepped back, however long the window lasts by another version of the zone.
#[test]
fn a_window_of_a_calendar_that_begins_at_this_very_microsecond_stays_however_late_it_ends() {
    let mut server = Server::start();
    let quota: Quota = "10/day in UTC".parse().unwrap();
    let day = 86_400 * SECOND;
    for (ahead_us, stays) in [(0, true), (1, false)] {
        // given five days that were used up, and a clock at their beginning or a microsecond before it
        let value = of_calendar(START + ahead_us, START + 5 * day, 10);
        server.put_state(&value);
        server.now = START;
        assert!(!server.admits(&quota, 1));

        // when this process's next day begins, then they are not over, unless the clock stepped back
        server.now = START - START % day + day;
        assert_eq!(server.admits(&quota, 1), !stays, "{ahead_us} µs");
    }
}

#[test]
fn a_window_of_a_calendar_has_its_first_and_its_last_microsecond_whichever_of_those_that_travel_it_is()
 {
    let mut server = Server::start();
    let quota: Quota = "10/day in UTC".parse().unwrap();
    let day = 86_400 * SECOND;
    let first = START - START % day;
    let asked = request(&quota, Mode::Enforce, &[1]);
    for (days, into_us) in (-2..=2).flat_map(|days| [(days, 0), (days, day - 1)]) {
        // given a process that asks on the first day, and a server at an end of another
        server.forget();
        let start = first.saturating_add_signed(days * day.cast_signed());
        server.now = start + into_us;

        // when
        let (_, call) = Plan::with(Calendars::at(first + day / 2), [&asked]);
        drop(server.call(&call));

        // then
        let expected = of_calendar(start, start + day, 1);
        assert_eq!(server.state(), &expected[..], "{days} days, {into_us} µs");
    }
}

#[test]
fn a_server_whose_clock_is_days_off_takes_nothing_for_a_calendar() {
    let mut server = Server::start();
    let quota: Quota = "10/day in UTC".parse().unwrap();
    let day = 86_400 * SECOND;
    let first = START - START % day;
    let window = Scope::of("by-itself", 0, &quota);
    let (earliest, end) = (first - 2 * day, first + 3 * day);
    for (server_us, is_served) in [
        (earliest - 1, false),
        (earliest, true),
        (end - 1, true),
        (end, false),
    ] {
        // given a process that asks on the first of these days, and a server at an end of the two days each way around it
        server.forget();
        let asked = request(&quota, Mode::Enforce, &[1]);
        let (plan, call) = Plan::with(Calendars::at(first + day / 2), [&asked]);
        server.now = server_us;

        // when
        let reply = server.call(&call);

        // then it is admitted, or nothing is taken and the error names both clocks
        let reply = Reply::parse(reply).unwrap();
        let mut outcomes = replay(&reply, &plan, 1, |_| &asked, |_, _, _| {}).unwrap();
        let (_, outcome) = outcomes.remove(0);
        let exists = redis::cmd("EXISTS").arg(KEY).query(&mut server.redis);
        assert_eq!(exists, Ok(is_served), "at {server_us}");
        if is_served {
            assert!(outcome.unwrap().unwrap().is_admitted(), "at {server_us}");
        } else {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), FailureKind::Unready);
            for clock in [server.now, first + day / 2] {
                let named = (clock / SECOND).to_string();
                assert!(error.detail().contains(&named), "{error}");
            }
        }

        // And nothing is given back or taken afterwards, with a state or without, but a reset does not depend on the time.
        let decided = server.admits(&quota, 1);
        assert!(decided);
        let receipt = receipt(&quota, server.now);
        for is_forgotten in [false, true] {
            if is_forgotten {
                server.forget();
            }
            let before = server.state_if_any();
            for work in [
                Work::Credit(receipt.copy(), 1),
                Work::Debit(receipt.copy(), 1),
            ] {
                let asked = Request {
                    work,
                    names: smallvec![KEY.into()],
                    owed: None,
                    known: None,
                };
                let (plan, call) = Plan::with(Calendars::at(first + day / 2), [&asked]);
                let reply = Reply::parse(server.call(&call)).unwrap();
                let mut outcomes = replay(&reply, &plan, 1, |_| &asked, |_, _, _| {}).unwrap();
                assert_eq!(outcomes.remove(0).1.is_ok(), is_served, "at {server_us}");
            }
            if !is_served {
                assert_eq!(server.state_if_any(), before, "at {server_us}");
            }
        }
        let asked = Request {
            work: Work::Reset(window),
            names: smallvec![KEY.into()],
            owed: None,
            known: None,
        };
        let (_, call) = Plan::with(Calendars::at(first + day / 2), [&asked]);
        drop(server.call(&call));
        let exists = redis::cmd("EXISTS").arg(KEY).query(&mut server.redis);
        assert_eq!(exists, Ok(false));
    }
}
