//! Refills in intervals.

use std::time::Duration;

use redis::Value;
use smallvec::smallvec;
use tollgate_core::{Algorithm, Mode, Quota};

use super::{KEY, SECOND, Server, receipt, request};
use crate::wire::numbers::{Words, put};
use crate::wire::{Request, Work, state};

/// Neither to the script nor to this side.
#[test]
fn refills_that_would_come_later_than_exact_numbers_reach_are_no_state() {
    let mut server = Server::start();
    let offset = Duration::ZERO;
    let period_us = 1 << 20;
    let quota = Quota::new(1, Duration::from_micros(period_us));
    let quota = quota.using(Algorithm::IntervalRefill { offset });
    let window = server.now / period_us + 1;
    for (ahead, count, is_one) in [
        (0, 0, true),
        (0, 1, true),
        ((1 << 33) - 1, 1, true),
        (1 << 33, 1, false),
        (1, 0, false),
    ] {
        // given a state with so many whole refills to come, and a part of one
        let mut value = Words::new();
        value.push(254);
        for number in [window, ahead, count] {
            put(&mut value, number);
        }
        let mut set = redis::cmd("SET");
        set.arg(KEY)
            .arg(&value[..])
            .exec(&mut server.redis)
            .unwrap();

        // when a charge asks for more than there ever is
        let reply = server.send(&request(&quota, Mode::Enforce, &[2]));

        // then an empty text stands for a value that is not a state
        let Value::BulkString(text) = reply else {
            panic!("{reply:?}");
        };
        assert_eq!(text.ends_with(&[0, 0x91, 0xa0]), !is_one, "{ahead}");
        let read = state::decode(&value, quota.unit());
        assert_eq!(read.is_some(), is_one, "{ahead}");
    }
}

#[test]
fn what_is_taken_beyond_the_furthest_debt_leaves_refills_of_another_limit_as_they_are() {
    let mut server = Server::start();
    let offset = Duration::ZERO;
    let quota = Quota::per_second(5).using(Algorithm::IntervalRefill { offset });
    // given the furthest debt, by this quota and by one of 20 units at once: seven whole refills, and one that is left in part to
    // neither
    let mut value = Words::new();
    value.push(254);
    for number in [server.now / SECOND + 1, 7, 20] {
        put(&mut value, number);
    }
    server.put_state(&value);

    // when a unit more is taken by this one
    let work = Work::Debit(receipt(&quota, server.now), 1);
    let names = smallvec![KEY.into()];
    let asked = Request {
        work,
        names,
        owed: None,
        known: None,
    };
    drop(server.send(&asked));

    // then
    assert_eq!(server.state(), &value[..]);
}
