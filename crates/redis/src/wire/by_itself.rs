//! The script by itself: the tests count what it admits and leaves behind, from its own replies and from the bytes on the
//! server. Core's rules have no part in it, so that a mistake in both is found.

use std::time::{Duration, SystemTime};

use redis::{Client, Connection, RedisResult, Value};
use smallvec::smallvec;
use tollgate_core::{
    Algorithm, Charge, FailureKind, Key, MAX_DRAIN, MAX_PERIOD, Mode, Quota, Receipt, Scope, State,
    Timestamp, decide,
};
use tollgate_testkit::Standalone;

use super::calendars::Calendars;
use super::numbers::{Reader, Words, put};
use super::plan::Call;
use super::{Plan, Reply, Request, Work, replay, state};
use crate::script::Script;

const SECOND: u64 = 1_000_000;
/// Far ahead of the server's clock, so that no key expires meanwhile.
const START: u64 = 3_500_000_000 * SECOND;
const KEY: &[u8] = b"key";

struct Server {
    _server: Standalone,
    redis: Connection,
    script: String,
    now: u64,
}

impl Server {
    fn start() -> Self {
        let server = Standalone::start();
        let url = format!("redis+unix://{}", server.socket().display());
        let mut redis = Client::open(url).unwrap().get_connection().unwrap();
        let script = redis::cmd("SCRIPT")
            .arg("LOAD")
            .arg(Script::with_clock("clock").source())
            .query(&mut redis)
            .unwrap();
        Self {
            _server: server,
            redis,
            script,
            now: START,
        }
    }

    fn send(&mut self, request: &Request) -> Value {
        let (_, call) = Plan::with(Calendars::at(self.now), [request]);
        self.call(&call)
    }

    fn call(&mut self, call: &Call<'_>) -> Value {
        let mut command = redis::pipe();
        command.cmd("SET").arg("clock").arg(self.now).ignore();
        command
            .cmd("EVALSHA")
            .arg(&self.script)
            .arg(call.keys.len());
        for part in &call.keys {
            command.arg(&part[..]);
        }
        for run in &call.runs {
            command.arg(&run[..]);
        }
        let [reply] = command.query::<[Value; 1]>(&mut self.redis).unwrap();
        reply
    }

    /// Says whether a charge is admitted, by any form of the script's reply.
    fn admits(&mut self, quota: &Quota, cost: u64) -> bool {
        let reply = self.send(&request(quota, Mode::Enforce, &[cost]));
        match reply {
            Value::Int(_) => true,
            Value::BulkString(text) => {
                let behind = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap();
                match text[behind] {
                    b'+' => true,
                    b'-' => false,
                    // Two decimals with a space behind each, and then the number of admitted requests.
                    _ => text.split(|byte| *byte == b' ').nth(2).unwrap()[0] == 1,
                }
            }
            other => panic!("{other:?}"),
        }
    }

    /// Says whether a charge is admitted together with one on a budget of which there is always enough.
    fn admits_beside_another(&mut self, quota: &Quota, cost: u64) -> bool {
        let (key, plenty) = (
            Key::from("anybody"),
            Quota::per_second(1_000).burst(1_000_000),
        );
        let charge = |quota, cost| Charge {
            scope: Scope::of("by-itself", 0, quota),
            quota,
            key: &key,
            cost,
            mode: Mode::Enforce,
        };
        let request = Request {
            work: Work::decide(&[charge(quota, cost), charge(&plenty, 1)]),
            names: smallvec![KEY.into(), b"plenty"[..].into()],
            owed: None,
        };
        let reply = self.send(&request);
        let Value::BulkString(text) = reply else {
            panic!("{reply:?}");
        };
        text.split(|byte| *byte == b' ').nth(2).unwrap()[0] == 1
    }

    /// Debits without an earlier charge: a debit takes only the quota from its receipt. Piece by piece, because a cost above
    /// the capacity is sent as the capacity plus one.
    fn debit(&mut self, quota: &Quota, mut n: u64) {
        while n > 0 {
            let piece = n.min(quota.capacity());
            let mut run = vec![1, 2, 1];
            run.extend_from_slice(&charge_words(quota, piece)[..]);
            run.push(1);
            self.run(&run);
            n -= piece;
        }
    }

    /// Gives back a charge made at `at`, after which the budget was to be full at `full_at`.
    fn credit(&mut self, quota: &Quota, n: u64, at: u64, full_at: u64) {
        let mut run = vec![1, 1, 1];
        run.extend_from_slice(&charge_words(quota, n)[..]);
        run.push(1);
        run.extend_from_slice(&(at as f64).to_le_bytes());
        run.extend_from_slice(&(full_at as f64).to_le_bytes());
        run.extend_from_slice(&[0; 4]);
        self.run(&run);
    }

    fn run(&mut self, run: &[u8]) {
        self.try_run(run).unwrap();
    }

    fn try_run(&mut self, run: &[u8]) -> RedisResult<()> {
        let mut command = redis::pipe();
        command.cmd("SET").arg("clock").arg(self.now).ignore();
        command
            .cmd("EVALSHA")
            .arg(&self.script)
            .arg(1)
            .arg(KEY)
            .arg(run)
            .ignore();
        command.exec(&mut self.redis)
    }

    fn state(&mut self) -> Vec<u8> {
        self.state_if_any().unwrap()
    }

    fn put_state(&mut self, value: &[u8]) {
        let mut set = redis::cmd("SET");
        set.arg(KEY).arg(value).exec(&mut self.redis).unwrap();
    }

    fn state_if_any(&mut self) -> Option<Vec<u8>> {
        redis::cmd("GET").arg(KEY).query(&mut self.redis).unwrap()
    }

    /// Makes the server refuse writes without this many replicas.
    fn needs_replicas(&mut self, count: u32) {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("min-replicas-to-write").arg(count);
        set.exec(&mut self.redis).unwrap();
    }

    fn forget(&mut self) {
        redis::cmd("DEL").arg(KEY).exec(&mut self.redis).unwrap();
    }

    /// The time for which a bucket's state says that something is owed; a rest counts as a microsecond.
    fn owed_us(&mut self) -> u64 {
        let state = self.state();
        let mut reader = Reader(&state[1..]);
        let at = reader.whole().unwrap();
        let rest = reader.u32().unwrap_or(0);
        (at + u64::from(rest > 0)).saturating_sub(self.now)
    }
}

fn request(quota: &Quota, mode: Mode, costs: &[u64]) -> Request {
    let key = Key::from("anybody");
    let charges: Vec<_> = costs
        .iter()
        .map(|cost| Charge {
            scope: Scope::of("by-itself", 0, quota),
            quota,
            key: &key,
            cost: *cost,
            mode,
        })
        .collect();
    Request {
        work: Work::decide(&charges),
        names: smallvec![KEY.into(); costs.len()],
        owed: None,
    }
}

/// The words of one probe, whose run is never shortened.
fn charge_words(quota: &Quota, cost: u64) -> Vec<u8> {
    let (_, call) = {
        let request = request(quota, Mode::Probe, &[cost]);
        let (plan, call) = Plan::with(Calendars::at(START), [&request]);
        (plan, call.runs)
    };
    // Without times, verb and number of charges.
    call[0][3..].to_vec()
}

fn drain_us(quota: &Quota, units: u64) -> u64 {
    let drain = u128::from(units) * quota.period().as_micros();
    u64::try_from(drain / u128::from(quota.limit())).unwrap()
}

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

#[test]
fn credits_that_have_lost_their_meaning_are_dropped_by_a_key_that_stays_in_use() {
    let mut server = Server::start();
    for (quota, short) in [
        (Quota::per_second(10).burst(40), 9),
        (Quota::new(10, Duration::from_micros(999_999)).burst(40), 16),
    ] {
        // given a bucket with thirty credits, the last of which gave back a charge that was to have drained three seconds later
        server.forget();
        let at = server.now;
        for _ in 0..30 {
            assert!(server.admits(&quota, 1));
        }
        let full_at = at + server.owed_us();
        for _ in 0..30 {
            server.credit(&quota, 1, at, full_at);
        }
        assert_eq!(server.state().len(), 23 + 30 * 28, "{quota}");

        // when it is charged while a receipt could still be open, and then
        let mut lengths = Vec::new();
        for later in [full_at - 2, full_at] {
            server.now = later;
            assert!(server.admits(&quota, 1));
            lengths.push(server.state().len());
        }

        // then it carries them as long and no longer
        assert_eq!(lengths, [23 + 30 * 28, short], "{quota}");
    }
}

/// The parts of a credit: its time, the start of the stretch that it took out, the length of the stretch, and the last place of
/// any charge then.
type CreditMark = [u64; 4];

fn packed(credits: &[CreditMark]) -> Vec<u8> {
    let numbers = credits.iter().flatten();
    numbers
        .flat_map(|number| number.to_le_bytes()[..7].to_vec())
        .collect()
}

fn credits_of(state: &[u8]) -> Vec<CreditMark> {
    let mut reader = Reader(&state[23..]);
    let mut credits = Vec::new();
    while !reader.0.is_empty() {
        credits.push([(); 4].map(|()| reader.u56().unwrap()));
    }
    credits
}

/// Credits of these lengths, the oldest first, all of which an open receipt could still need.
fn credits_of_lengths(lengths: &[u64; 32]) -> Vec<CreditMark> {
    let credits = (0..).zip(lengths).map(|(n, &length)| {
        // The beginnings and the ends are out of the order of time.
        let (from, last) = (START + 7 * n % 5, START + SECOND + 3 * n % 4);
        [START - 100 + n, from, length, last]
    });
    credits.collect()
}

#[test]
fn of_more_credits_than_are_told_apart_the_oldest_two_become_one_that_are_small_beside_what_came_after()
 {
    const LONGEST: u64 = 1 << 52;
    let mut server = Server::start();
    let quota = Quota::per_second(10).burst(40);
    let then_none = |lengths: &[u64]| {
        let mut all = [0; 32];
        all[..lengths.len()].copy_from_slice(lengths);
        all
    };
    // Each is more than half of all that came after it.
    let falling: [u64; 32] = std::array::from_fn(|n| 3_u64.pow(31 - u32::try_from(n).unwrap()));
    for (lengths, older) in [
        (then_none(&[8, 7, 30]), 0),
        (then_none(&[8, 7, 29]), 3),
        (then_none(&[20, 8, 7, 29, 1]), 1),
        (then_none(&[20, 8, 7, 29]), 4),
        (then_none(&[]), 0),
        (falling, 0),
        // Together longer than anything drains: they are cut to the largest number that Lua counts exactly.
        ([LONGEST; 32], 0),
        ([LONGEST / 2; 32], 0),
    ] {
        // given as many credits as are told apart, in a state that owes a second
        let mut credits = credits_of_lengths(&lengths);
        let newest = START + SECOND;
        let mut state = vec![128 + 21];
        state.extend((newest as f64).to_le_bytes());
        state.extend([0; 7]);
        state.extend(&(newest + 3).to_le_bytes()[..7]);
        state.extend(packed(&credits));
        let mut set = redis::cmd("SET");
        set.arg(KEY).arg(&state).exec(&mut server.redis).unwrap();

        // when one more is given, for a charge that was made after all of them
        server.credit(&quota, 2, START, newest);

        // then two of them are one, which errs on the strict side in each of its parts
        let [_, from, length, last] = credits.remove(older);
        let merged = &mut credits[older];
        merged[1] = merged[1].min(from);
        merged[2] = (merged[2] + length).min(LONGEST);
        merged[3] = merged[3].max(last);
        credits.push([START, newest - 200_000, 200_000, newest]);
        assert_eq!(credits_of(&server.state()), credits, "{lengths:?}");
    }
}

#[test]
fn a_credit_is_forgotten_once_all_have_drained_that_stood_when_it_was_given() {
    let mut server = Server::start();
    let quota = Quota::per_second(10).burst(40);
    // given three credits, the last charge of which has drained, drains just now, or is about to
    let of_last = |last| [START - 100, START - 50, 9, last];
    let credits = [START - 1, START, START + 1].map(of_last);
    let mut state = vec![128 + 21];
    state.extend(((START + SECOND) as f64).to_le_bytes());
    state.extend([0; 7]);
    state.extend(&(START + 1).to_le_bytes()[..7]);
    state.extend(packed(&credits));
    let mut set = redis::cmd("SET");
    set.arg(KEY).arg(&state).exec(&mut server.redis).unwrap();

    // when one more is given
    server.credit(&quota, 1, START, START + SECOND);

    // then
    let newest = [START, START + SECOND - 100_000, 100_000, START + SECOND];
    assert_eq!(credits_of(&server.state()), [credits[2], newest]);
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
    let outcomes = replay(&reply, &plan, 0, |_| &nothing).unwrap();
    let [(0, Ok(Some(decision)))] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    assert_eq!(decision.at(), Timestamp::from_micros(START));
}

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
                // given a value that begins like a state, and has the length of none
                let mut set = redis::cmd("SET");
                set.arg(KEY).arg(&value).exec(&mut server.redis).unwrap();

                // when a charge asks for it
                let replies = [&[1][..], &[1, 1]]
                    .map(|costs| server.send(&request(&quota, Mode::Enforce, costs)));

                // then an empty text stands for it, and it is unchanged
                for reply in replies {
                    let Value::BulkString(text) = reply else {
                        panic!("{reply:?}");
                    };
                    let end = &text[text.len() - 3..];
                    assert_eq!(end, [0, 0x91, 0xa0], "{quota}: {text:?}");
                }
                assert_eq!(server.state(), value);
            }
        }
    }
}

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
        server.credit(&quota, 5, end - 1, 0);
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
        let mut outcomes = replay(&reply, &plan, 1, |_| &asked).unwrap();
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
                };
                let (plan, call) = Plan::with(Calendars::at(first + day / 2), [&asked]);
                let reply = Reply::parse(server.call(&call)).unwrap();
                let mut outcomes = replay(&reply, &plan, 1, |_| &asked).unwrap();
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
        };
        let (_, call) = Plan::with(Calendars::at(first + day / 2), [&asked]);
        drop(server.call(&call));
        let exists = redis::cmd("EXISTS").arg(KEY).query(&mut server.redis);
        assert_eq!(exists, Ok(false));
    }
}

/// The receipt of one unit, taken at this time.
fn receipt(quota: &Quota, now: u64) -> Receipt {
    let key = Key::from("anybody");
    let charge = Charge {
        scope: Scope::of("by-itself", 0, quota),
        quota,
        key: &key,
        cost: 1,
        mode: Mode::Enforce,
    };
    let mut states = [State::full(quota)];
    let decision = decide(Timestamp::from_micros(now), &[charge], &mut states[..]);
    decision.receipts(&[charge]).next().unwrap()
}

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
    };
    drop(server.send(&asked));

    // then
    assert_eq!(server.state(), &value[..]);
}

/// A state of a budget that warms up, as it stands in Redis.
fn of_warm_up(cold_at: u64, ticks: u32, inner: &[u8]) -> Words {
    let mut value = Words::new();
    value.push(178);
    put(&mut value, cold_at);
    value.extend_from_slice(&ticks.to_le_bytes());
    value.extend_from_slice(inner);
    value
}

#[test]
fn a_store_is_forgotten_only_after_the_last_tick_that_it_lacks() {
    let mut server = Server::start();
    let quota = Quota::per_hour(10);
    assert!(server.admits(&quota, 1));
    let inner = server.state();
    for (ticks, is_kept) in [(0, false), (1, true)] {
        // given a store that is full at this microsecond, or a 2^20th of one later
        server.put_state(&of_warm_up(server.now, ticks, &inner));

        // when a quota without a warm-up takes a unit
        assert!(server.admits(&quota, 1));

        // then
        assert_eq!(server.state()[0] == 178, is_kept, "{ticks} ticks");
    }
}

#[test]
fn a_charge_comes_back_to_a_store_of_one_tick_and_not_to_an_empty_one() {
    let mut server = Server::start();
    let (warm_us, owed_us) = (3_000_000, 300_000);
    let quota = Quota::per_second(7).warm_up(Duration::from_micros(warm_us));
    // As many ticks as there are in three sevenths of a microsecond, which are owed beside the whole ones.
    let ticks = 3 * (1 << 20) / 7;
    for (in_store, comes_back) in [(0, false), (1, true)] {
        // given
        server.forget();
        assert!(server.admits(&quota, 1));
        let mut inner = server.state().split_off(13);
        let full_at = server.now + owed_us;
        inner[1..9].copy_from_slice(&(full_at as f64).to_le_bytes());
        inner[9..13].copy_from_slice(&3_u32.to_le_bytes());
        inner[13..15].copy_from_slice(&7_u16.to_le_bytes());
        server.put_state(&of_warm_up(full_at + warm_us, ticks - in_store, &inner));

        // when
        let now = server.now;
        server.credit(&quota, 1, now, full_at + 1);

        // then
        let cold_at = Reader(&server.state()[1..]).whole().unwrap();
        let unit_us = 142_858;
        let is_less = cold_at + unit_us < full_at + warm_us;
        assert_eq!(is_less, comes_back, "{in_store}: {cold_at}");
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
            let mut set = redis::cmd("SET");
            set.arg(KEY).arg(&value).exec(&mut server.redis).unwrap();

            // when a charge asks for it alone, and in a call of two charges
            let replies = [&[1][..], &[1, 1]]
                .map(|costs| server.send(&request(&quota, Mode::Enforce, costs)));

            // then an empty text stands for it, and it is unchanged
            for reply in replies {
                let Value::BulkString(text) = reply else {
                    panic!("{reply:?}");
                };
                let end = &text[text.len() - 3..];
                assert_eq!(end, [0, 0x91, 0xa0], "{quota}, {moved}: {text:?}");
            }
            assert_eq!(server.state(), value, "{quota}, {moved}");
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
    // The answer for a full budget is the time alone.
    let now: u64 = command.query(&mut server.redis).unwrap();

    assert!((before..=time(&mut server)).contains(&now), "{now}");
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
                    server.credit(&quota, n.into(), at, at);

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
