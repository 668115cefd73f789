//! Calls that write nothing, that fail, or that find foreign values.

use std::time::Duration;

use redis::Value;
use tollgate_core::{Algorithm, Mode, Quota, Timestamp};

use super::{KEY, SECOND, START, Server, request};
use crate::script::Script;
use crate::wire::calendars::Calendars;
use crate::wire::{Plan, Reply, Request, replay};

/// The server would refuse a write. So the test shows that a denial costs neither a write nor the copies of one.
#[test]
fn a_call_that_takes_nothing_and_moves_no_window_writes_nothing() {
    let mut server = Server::start();
    let windows = [
        Algorithm::FixedWindow {
            offset: Duration::ZERO,
        },
        Algorithm::SlidingWindow,
        Algorithm::RollingWindow { buckets: 4 },
        Algorithm::SlidingLog,
        Algorithm::IntervalRefill {
            offset: Duration::ZERO,
        },
    ]
    .map(|algorithm| Quota::per_hour(10).using(algorithm));
    let of_calendar = "10/day in Asia/Tokyo".parse().unwrap();
    for quota in [Quota::per_hour(10), Quota::per_hour(7), of_calendar]
        .into_iter()
        .chain(windows)
    {
        let most = quota.capacity();
        for is_spent in [false, true] {
            // given a budget that is full, or spent a moment ago
            server.forget();
            if is_spent {
                assert!(server.admits(&quota, most));
            } else if !matches!(quota.algorithm(), Algorithm::Gcra | Algorithm::SlidingLog) {
                // A window begins with the first request.
                continue;
            }
            let mut set = redis::cmd("SET");
            set.arg("clock").arg(server.now + 1);
            set.exec(&mut server.redis).unwrap();
            server.needs_replicas(1);

            // when a charge asks for more than there is, or for nothing
            for (mode, costs) in [
                (Mode::Enforce, &[most + 1][..]),
                (Mode::Enforce, &[0]),
                (Mode::Enforce, &[most, 1]),
                (Mode::Shadow, &[most + 1]),
                (Mode::Probe, &[1]),
            ] {
                let request = request(&quota, mode, costs);
                let (_, call) = Plan::with(Calendars::at(server.now), [&request]);
                let mut command = redis::cmd("EVALSHA");
                command.arg(&server.script).arg(1).arg(KEY);
                let reply = command.arg(&call.runs[0][..]).query(&mut server.redis);

                // then it is answered
                let reply: Value = reply.unwrap_or_else(|error| panic!("{quota}: {error}"));
                assert!(Reply::parse(reply).is_some(), "{quota}, {mode:?} {costs:?}");
            }
            server.needs_replicas(0);
        }
    }
}

/// No run of ours is empty, but others may call the script.
#[test]
fn a_run_without_charges_is_an_error_and_leaves_the_state() {
    let mut server = Server::start();
    for quota in [Quota::per_hour(10), Quota::per_hour(7)] {
        server.forget();
        assert!(server.admits(&quota, 1));
        let state = server.state();
        for verb in 0..4 {
            for behind in [&[][..], &[1], &[1, 1]] {
                let run = [&[1, verb, 0], behind].concat();

                let error = server.try_run(&run).unwrap_err();

                let said = error.to_string();
                assert!(said.contains("a run without charges"), "{run:?}: {said}");
                assert_eq!(server.state(), state, "{run:?}");
            }
        }
    }
}

/// A new connection asks so, to find out whether its server answers.
#[test]
fn a_call_of_no_request_says_what_time_it_is() {
    let mut server = Server::start();
    let nothing = Request::nothing();
    let reply = Reply::parse(server.send(&nothing)).unwrap();

    let (plan, _) = Plan::of([&nothing]);
    let outcomes = replay(&reply, &plan, 0, |_| &nothing, |_, _, _| {}).unwrap();
    let [(0, Ok(Some(decision)))] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    assert_eq!(decision.at(), Timestamp::from_micros(START));
}

#[test]
fn what_is_no_state_comes_back_as_a_mark() {
    let mut server = Server::start();
    let other = |algorithm| Quota::per_hour(10).using(algorithm);
    let offset = Duration::ZERO;
    for quota in [
        Quota::per_hour(10),
        Quota::per_hour(7),
        other(Algorithm::FixedWindow { offset }),
        other(Algorithm::SlidingWindow),
        other(Algorithm::RollingWindow { buckets: 10 }),
        other(Algorithm::SlidingLog),
        other(Algorithm::IntervalRefill { offset }),
        "10/day in Asia/Tokyo".parse().unwrap(),
    ] {
        for cost in [1, quota.capacity()] {
            server.forget();
            assert!(server.admits(&quota, cost));
            let state = server.state();
            let entry = &state[state.len() - 12.min(state.len())..];
            for value in [
                [&state[..], &entry.repeat(10_000)].concat(),
                [&state[..], &[0]].concat(),
                state[..state.len() - 1].to_vec(),
            ] {
                // A value that begins like a state, and has the length of none.
                server.takes_for_foreign(&quota, &value);
            }
        }
    }
}

#[test]
fn a_value_of_another_type_stands_as_it_was_however_many_ask_for_it() {
    let mut server = Server::start();
    for quota in [
        Quota::per_hour(10),
        Quota::per_hour(7),
        Quota::per_hour(10).wait_up_to(Duration::from_secs(3_600)),
        Quota::per_hour(10).using(Algorithm::SlidingWindow),
    ] {
        for costs in [&[1][..], &[0], &[1, 1]] {
            server.forget();
            let mut push = redis::cmd("RPUSH");
            push.arg(KEY).arg("a").exec(&mut server.redis).unwrap();

            let reply = server.send(&request(&quota, Mode::Enforce, costs));

            let Value::BulkString(text) = reply else {
                panic!("{quota}, {costs:?}: {reply:?}");
            };
            assert_eq!(
                text[text.len() - 3..],
                [0, 0x91, 0xa0],
                "{quota}, {costs:?}"
            );
            let mut list = redis::cmd("LRANGE");
            let list: Vec<String> = { list.arg(KEY).arg(0).arg(-1) }
                .query(&mut server.redis)
                .unwrap();
            assert_eq!(list, ["a"], "{quota}, {costs:?}");
        }
    }
}

#[test]
fn a_right_that_is_missing_is_the_error_of_the_call_and_not_of_the_state() {
    let mut server = Server::start();
    // With the server's own clock: the tests' clock is read by the command that is missing.
    let mut load = redis::cmd("SCRIPT");
    let load = load.arg("LOAD").arg(Script::shipped().source());
    let script: String = load.query(&mut server.redis).unwrap();
    let acl = ["SETUSER", "default", "+@all", "-get"];
    redis::cmd("ACL").arg(&acl).exec(&mut server.redis).unwrap();
    for quota in [Quota::per_hour(10), Quota::per_hour(7)] {
        for costs in [&[1][..], &[1, 1]] {
            let request = request(&quota, Mode::Enforce, costs);
            let (_, call) = Plan::of([&request]);
            let mut command = redis::cmd("EVALSHA");
            command.arg(&script).arg(1).arg(KEY).arg(&call.runs[0][..]);
            let error = command.query::<Value>(&mut server.redis).unwrap_err();
            let said = error.to_string();
            assert!(
                said.contains("ermission") || said.contains("can't run"),
                "{said}"
            );
        }
    }
}

#[test]
fn the_shipped_script_decides_by_the_clock_of_the_server() {
    let mut server = Server::start();
    let mut load = redis::cmd("SCRIPT");
    let load = load.arg("LOAD").arg(Script::shipped().source());
    let script: String = load.query(&mut server.redis).unwrap();
    let time = |server: &mut Server| {
        let (seconds, us): (u64, u64) = redis::cmd("TIME").query(&mut server.redis).unwrap();
        seconds * SECOND + us
    };
    let request = request(&Quota::per_hour(10), Mode::Enforce, &[1]);
    let (_, call) = Plan::of([&request]);

    let before = time(&mut server);
    let mut command = redis::cmd("EVALSHA");
    command.arg(script).arg(1).arg(KEY).arg(&call.runs[0][..]);
    let reply = Reply::parse(command.query(&mut server.redis).unwrap());
    let now = reply.and_then(|reply| reply.now_of(1)).unwrap().as_micros();

    assert!((before..=time(&mut server)).contains(&now), "{now}");
}

#[test]
fn a_value_of_another_type_stands_as_it_was_beside_a_state() {
    let mut server = Server::start();
    for quota in [Quota::per_hour(10), Quota::per_hour(7)] {
        // given a state beside a list
        assert!(server.admits_beside_another(&quota, 1));
        let length = if quota == Quota::per_hour(10) { 9 } else { 16 };
        assert_eq!(server.state().len(), length, "{quota}");
        server.forget();
        let mut push = redis::cmd("RPUSH");
        push.arg(KEY).arg("a").exec(&mut server.redis).unwrap();

        // when one call asks for both
        assert!(!server.admits_beside_another(&quota, 1));

        // then
        let mut list = redis::cmd("LLEN");
        let length: u64 = list.arg(KEY).query(&mut server.redis).unwrap();
        assert_eq!(length, 1, "{quota}");
        server.forget();
    }
}
