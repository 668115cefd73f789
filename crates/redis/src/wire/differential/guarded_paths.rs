//! The composed scripts of a budget and its ban decide like the general one: each call is made once alone and once with a probe
//! beside it, of which they do not know. And they do answer the usual calls.

use std::time::Duration;

use redis::Value;
use tollgate_core::{Ban, Call, Charge, Key, Mode, Quota, Scope, Snapshot, Unit};
use tollgate_testkit::Standalone;

use super::expiry::{ends_ms, stated_end_us};
use super::questions::{Calls, Random};
use super::{World, cases, seed};
use crate::wire::{Plan, Reply, Request, Work, replay, state};

/// The budgets of two callers, each with its ban or an id behind it.
pub(super) const KEYS: [&[u8]; 4] = [b"one", b"one's ban", b"other", b"other's ban"];
pub(super) const NOW: u64 = 3_500_000_000_000_000;

const fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// A request for a budget and its ban.
#[derive(Clone, Copy, Debug)]
struct Guarded {
    quota: Quota,
    ban: Quota,
    costs: [u64; 2],
    modes: [Mode; 2],
    caller: usize,
}

impl Guarded {
    fn usual(quota: Quota, ban: Quota, caller: usize) -> Self {
        Self {
            quota,
            ban,
            costs: [1, 0],
            modes: [Mode::Enforce; 2],
            caller,
        }
    }

    fn request(&self) -> Request {
        let key = Key::from("anybody");
        let charge = |quota, index: usize| Charge {
            scope: Scope::of("guarded", 0, quota),
            quota,
            key: &key,
            cost: self.costs[index],
            mode: self.modes[index],
        };
        let names = &KEYS[2 * self.caller..2 * self.caller + 2];
        Request {
            work: Work::decide(Call::of(&[charge(&self.quota, 0), charge(&self.ban, 1)])),
            names: names.iter().map(|&name| name.into()).collect(),
            owed: None,
            known: None,
        }
    }
}

pub(super) fn probe() -> Request {
    let quota = Quota::per_hour(3);
    let charge = Charge {
        scope: Scope::of("guarded", 0, &quota),
        quota: &quota,
        key: &Key::from("anybody"),
        cost: 1,
        mode: Mode::Probe,
    };
    Request {
        work: Work::decide(Call::of(&[charge])),
        names: [b"third"[..].into()].into_iter().collect(),
        owed: None,
        known: None,
    }
}

fn unit_of(key: usize, state: &[u8]) -> Unit {
    match state.first() {
        _ if key.is_multiple_of(2) => Unit::Gcra,
        Some(247) => Unit::Once,
        _ => Unit::Ban,
    }
}

/// The content of a state, or its bytes if they are invalid. One content has two forms, and each form its own expiry.
pub(super) type Said = Option<Result<Snapshot, Vec<u8>>>;

pub(super) type States = [Option<Vec<u8>>; 4];

/// The number of admitted requests in a reply of the general form.
fn admitted(text: &[u8]) -> u64 {
    let packed = text.splitn(3, |byte| *byte == b' ').nth(2).unwrap();
    let number = if packed[0] == 0xcc {
        packed[1]
    } else {
        packed[0]
    };
    number.into()
}

impl World {
    pub(super) fn prepare(&mut self, states: &States) {
        let mut prepare = redis::pipe();
        prepare.cmd("FLUSHALL").cmd("SET").arg("clock").arg(NOW);
        for (number, (key, state)) in KEYS.iter().zip(states).enumerate() {
            if let Some(state) = state {
                let unit = unit_of(number, state);
                let ends = match state::decode(state, unit) {
                    Some(_) => stated_end_us(state, unit),
                    None => 4_000_000_000_000_000,
                };
                let mut set = redis::cmd("SET");
                set.arg(key).arg(state).arg("PXAT").arg(ends / 1_000);
                prepare.add_command(set);
            }
        }
        prepare.exec(&mut self.redis).unwrap();
    }

    pub(super) fn reply_of(
        &mut self,
        script: &str,
        requests: &[Request],
    ) -> redis::RedisResult<Value> {
        let (_, call) = Plan::of(requests);
        self.call(script, &call)
    }

    /// The outcomes of the first so many requests, as this process reads them, and their states afterwards.
    pub(super) fn left_by_guarded(
        &mut self,
        states: &States,
        requests: &[Request],
        first: usize,
    ) -> (Vec<String>, Vec<Said>) {
        self.prepare(states);
        let (plan, call) = Plan::of(requests);
        let reply = self.reply_to(&call).unwrap();
        let reply = Reply::parse(reply).unwrap();
        let outcomes = replay(
            &reply,
            &plan,
            call.keys.len(),
            |position| &requests[position],
            |_, _, _| {},
        );
        let mut outcomes = outcomes.unwrap();
        outcomes.sort_by_key(|(position, _)| *position);
        let outcomes = outcomes.into_iter().take(first);
        let outcomes = outcomes.map(|(_, outcome)| format!("{:?}", outcome.map_err(|e| e.kind())));
        (outcomes.collect(), self.said_of_guarded())
    }

    fn said_of_guarded(&mut self) -> Vec<Said> {
        let said = |(number, key): (usize, &&[u8])| {
            let found: Option<Vec<u8>> = redis::cmd("GET").arg(key).query(&mut self.redis).unwrap();
            let bytes = found?;
            let unit = unit_of(number, &bytes);
            let Some(state) = state::decode(&bytes, unit) else {
                return Some(Err(bytes));
            };
            let ends = ends_ms(&mut self.redis, key);
            let stated = stated_end_us(&bytes, unit) / 1_000;
            assert_eq!(u64::try_from(ends).unwrap(), stated, "{bytes:?}");
            Some(Ok(state.snapshot()))
        };
        KEYS.iter().enumerate().map(said).collect()
    }
}

/// Two of each kind: in whole microseconds, and with rests.
pub(super) fn quotas() -> Vec<Quota> {
    let quota = |limit, period, burst| Quota::new(limit, us(period)).burst(burst);
    vec![
        quota(10, 1_000, 2),
        quota(10, 1_000, 30),
        quota(10, 60_000_000, 10),
        quota(1_000_000, 1_000_000, 1_500),
        quota(7, 1_000, 2),
        quota(7, 1_000_000, 30),
    ]
}

fn bans() -> Vec<Quota> {
    let ban = Ban::after(3, us(2_000)).lasting(us(500));
    vec![
        ban.into(),
        ban.doubling_to(us(9_000)).forgiven_after(us(3_000)).into(),
        Ban::after(1, us(900)).lasting(us(700)).into(),
        ban.extending().into(),
        ban.try_imposed(us(1_000)).unwrap().into(),
        Quota::from(ban).unheard(),
    ]
}

fn ban_state(level: u8, times: [f64; 3], strikes: &[f64]) -> Vec<u8> {
    let times = times.iter().chain(strikes);
    let times = times.flat_map(|time| time.to_le_bytes());
    [253, level].into_iter().chain(times).collect()
}

/// The state of a ban as a call may have left it; rarely one that no call has.
fn ban_left_there(random: &mut Random) -> Option<Vec<u8>> {
    if random.below(4) == 0 {
        return None;
    }
    let level = random.of(&[0, 0, 0, 1, 2, 62, 63, 64, 255]);
    let since = NOW - random.of(&[0, 0, 1, 499, 500, 2_000]);
    let ends = NOW + random.of(&[0, 1, 400, 5_000]) - random.of(&[0, 0, 1]);
    let mut times = [since, ends.max(since), ends.max(since) + 3_000].map(|time| time as f64);
    if random.below(2) == 0 {
        // No ban has begun.
        (times[0], times[1]) = (0.0, 0.0);
    }
    let count = random.of(&[0, 0, 0, 1, 2, 3, 63, 64, 65]);
    let mut strikes: Vec<f64> = (0..count)
        .map(|_| (NOW - random.below(2_500)) as f64)
        .collect();
    strikes.sort_by(f64::total_cmp);
    if random.below(3) == 0 {
        let garbled = random.of(&[
            3_500_000_000_000_000.5,
            3_499_999_999_999_999.5,
            3_500_000_000_000_001.0,
            NOW as f64,
            -1.0,
            0.0,
            2_f64.powi(53),
            9_007_199_254_740_991.0,
            f64::INFINITY,
            f64::NAN,
        ]);
        let at = random.index(3 + strikes.len());
        match at.checked_sub(3) {
            None => times[at] = garbled,
            Some(strike) => strikes[strike] = garbled,
        }
    }
    let mut state = ban_state(level, times, &strikes);
    match random.below(24) {
        0 => state[0] = random.of(&[252, 254, 128, 137]),
        1 => state.truncate(random.index(state.len())),
        2 => state.extend(std::iter::repeat_n(0, 1 + random.index(20))),
        _ => {}
    }
    Some(state)
}

/// The time in which a full budget drains, and the tag of its states.
pub(super) fn drain(quota: &Quota) -> (u64, u8) {
    let period = u64::try_from(quota.period().as_micros()).unwrap();
    let full = quota.capacity() * period / quota.limit();
    (full, 128 + u8::try_from(full.ilog2()).unwrap())
}

/// The state of a budget, perhaps with a rest and its mark.
pub(super) fn budget_state(tag: u8, at: u64, rest: Option<(u32, u16)>) -> Vec<u8> {
    let mut state = vec![tag];
    state.extend((at as f64).to_le_bytes());
    if let Some((rest, mark)) = rest {
        state.extend(rest.to_le_bytes());
        state.extend(mark.to_le_bytes());
        state.push(0);
    }
    state
}

pub(super) fn budget_left_there(random: &mut Random, quota: &Quota) -> Option<Vec<u8>> {
    if random.below(4) == 0 {
        return None;
    }
    let period = u64::try_from(quota.period().as_micros()).unwrap();
    let (full, tag) = drain(quota);
    let cell = 1 << (u32::from(tag) - 128).max(10);
    let mut at = NOW - random.below(3) + random.below(full + 3);
    match random.below(8) {
        0 => at = NOW + full + random.below(3) - 1,
        1 => at = at / cell * cell + random.of(&[0, 1, cell - 1, cell - 2]),
        2 => at = NOW + full - period / quota.limit() + random.below(3) - 1,
        _ => {}
    }
    // Half a microsecond later, rarely.
    let odd = random.of(&[0, 0, 0, 0, 0, 0, 0, 1]);
    let tag = random.of(&[tag, tag, tag, tag, tag, tag, tag + 1, 128, 177]);
    let mut state = vec![tag];
    state.extend(((at as f64).to_bits() + odd).to_le_bytes());
    if random.below(3) == 0 {
        let rest = u32::try_from(random.below(8)).unwrap();
        state.extend(rest.to_le_bytes());
        state.extend(random.of(&[7_u16, 7, 7, 1, 10]).to_le_bytes());
        state.push(random.of(&[0, 0, 0, 0, 9]));
    }
    match random.below(24) {
        0 => state.truncate(random.index(state.len())),
        1 => state.extend(std::iter::repeat_n(0, 1 + random.index(40))),
        _ => {}
    }
    Some(state)
}

/// One request, one of either caller, many of one caller, some of them of a class that leaves a unit to the others, or one of one
/// and several of the other.
fn asked(random: &mut Random, guarded: Guarded) -> Vec<Guarded> {
    let by = |caller| Guarded { caller, ..guarded };
    let of_class = Guarded {
        quota: guarded.quota.keeping(1),
        ..by(0)
    };
    match random.below(6) {
        5 => vec![by(0), of_class, of_class, by(0), by(0)],
        0 | 1 => vec![by(random.index(2))],
        2 => vec![by(0), by(1)],
        3 => vec![by(0); random.of(&[2, 3, 40, 128])],
        _ => [vec![by(0); random.of(&[1, 2])], vec![by(1); 3]].concat(),
    }
}

#[test]
fn a_call_of_budgets_and_their_bans_is_decided_as_by_the_general_path() {
    let server = Standalone::start();
    let seed = seed();
    let mut world = World::new(&server, seed, Calls::Bans);
    let mut random = Random::of_seed(seed);
    let (quotas, bans) = (quotas(), bans());
    for _ in 0..cases(6_000) {
        // given states as earlier calls have left them
        let (quota, ban) = (random.of(&quotas), random.of(&bans));
        let states = [
            budget_left_there(&mut random, &quota),
            ban_left_there(&mut random),
            budget_left_there(&mut random, &quota),
            ban_left_there(&mut random),
        ];
        let mut guarded = Guarded::usual(quota, ban, 0);
        match random.below(16) {
            0 => guarded.costs = random.of(&[[0, 0], [1, 1], [2, 0], [1 << 60, 0]]),
            1 => guarded.modes = [Mode::Shadow; 2],
            2 => guarded.modes = [Mode::Enforce, Mode::Shadow],
            3 => guarded.modes = [Mode::Enforce, Mode::Probe],
            _ => {}
        }
        let asked = asked(&mut random, guarded);

        // when a call names them alone, and with a probe of another state
        let mut requests: Vec<_> = asked.iter().map(Guarded::request).collect();
        let own = world.left_by_guarded(&states, &requests, asked.len());
        requests.push(probe());
        let general = world.left_by_guarded(&states, &requests, asked.len());

        // then both agree
        assert_eq!(own, general, "{asked:?} on {states:?}");
    }
}

/// A call with another verb behind such requests: no path answers before it is done.
#[test]
fn what_stands_behind_requests_with_bans_in_a_call_is_done() {
    let server = Standalone::start();
    let mut world = World::new(&server, seed(), Calls::Bans);
    let ban = bans()[0];
    for asked in [&[0][..], &[0, 1], &[0, 0]] {
        let over = Some(ban_state(0, [0.0, 0.0, (NOW + 5_000) as f64], &[]));
        let guarded = |by: &usize| Guarded::usual(quotas()[3], ban, *by);
        let mut requests: Vec<_> = asked.iter().map(|by| guarded(by).request()).collect();
        requests.push(Request {
            work: Work::Reset(Scope::of("guarded", 0, &ban)),
            names: [KEYS[1].into()].into_iter().collect(),
            owed: None,
            known: None,
        });

        let left = world.left_by_guarded(&[None, over.clone(), None, over], &requests, 0);

        assert_eq!(left.1[1], None, "{asked:?}");
        assert!(left.1[0].is_some(), "{asked:?}");
    }
}

/// In place or whole, short or with a rest: the comparison holds each state to the expiry that it has to have.
#[test]
fn a_budget_beside_a_ban_ends_when_it_has_to_wherever_it_stood_in_its_cell() {
    let server = Standalone::start();
    let mut world = World::new(&server, seed(), Calls::Bans);
    // The clock stands at the beginning of a cell.
    assert_eq!(NOW % 1_024, 0);
    let whole = Quota::new(1, us(1)).burst(2_000);
    let halves = Quota::new(2, us(3)).burst(1_300);
    for quota in [whole, halves] {
        for cost in [1, 2, 340, 341, 342, 511, 512, 513] {
            for into in [0, 1, 510, 511, 512, 513, 1_021, 1_022, 1_023] {
                for rest in [None, Some((0, 2)), Some((1, 2))] {
                    // given
                    let state = Some(budget_state(138, NOW + into, rest));
                    let states = [state.clone(), None, state, None];
                    for asked in [&[0][..], &[0, 1], &[0, 0]] {
                        let guarded = |by: &usize| Guarded {
                            costs: [cost, 0],
                            ..Guarded::usual(quota, bans()[0], *by)
                        };
                        let mut requests: Vec<_> =
                            asked.iter().map(|by| guarded(by).request()).collect();

                        // when
                        let own = world.left_by_guarded(&states, &requests, asked.len());
                        requests.push(probe());
                        let general = world.left_by_guarded(&states, &requests, asked.len());

                        // then
                        let what = format!("{quota}, {cost} for {asked:?} at {into}, {rest:?}");
                        assert_eq!(own, general, "{what}");
                    }
                }
            }
        }
    }
}

/// Times out of the ordinary, in each place of a ban's state: no path reads one that the others refuse.
#[test]
fn a_time_that_is_none_makes_no_state_of_a_ban_to_any_path() {
    let server = Standalone::start();
    let mut world = World::new(&server, seed(), Calls::Bans);
    let now = NOW as f64;
    let values = [
        2_f64.powi(53),
        2_f64.powi(54),
        9_007_199_254_740_991.0,
        3_500_000_000_000_000.5,
        f64::INFINITY,
        f64::NAN,
        -1.0,
        now,
    ];
    for value in values {
        for place in 0..5 {
            // given a ban that is over or in force, with two strikes or without, of which one time is another
            for ends in [now, 3_500_000_000_000_400.0] {
                let mut times = [now, ends, ends, now, now];
                times[place] = value;
                let [since, ends, kept, strikes @ ..] = times;
                let strikes = if place > 2 { &strikes[..] } else { &[] };
                let ban = Some(ban_state(1, [since, ends, kept], strikes));
                for asked in [&[0][..], &[0, 1], &[0, 0]] {
                    let guarded = |by: &usize| Guarded::usual(quotas()[3], bans()[1], *by);
                    let mut requests: Vec<_> =
                        asked.iter().map(|by| guarded(by).request()).collect();

                    // when a call of each form asks, then it decides as the general path
                    let states = [None, ban.clone(), None, None];
                    let own = world.left_by_guarded(&states, &requests, asked.len());
                    requests.push(probe());
                    let general = world.left_by_guarded(&states, &requests, asked.len());
                    assert_eq!(own, general, "{asked:?} on {ban:?}");
                }
            }
        }
    }
}

#[test]
fn a_new_budget_beside_a_ban_is_as_short_as_one_without() {
    let server = Standalone::start();
    let mut world = World::new(&server, seed(), Calls::Bans);
    for quota in &quotas()[..4] {
        for asked in [&[0][..], &[0, 1], &[0, 0]] {
            world.prepare(&[const { None }; 4]);
            let guarded = |by: &usize| Guarded::usual(*quota, bans()[0], *by);
            let requests: Vec<_> = asked.iter().map(|by| guarded(by).request()).collect();
            world.reply_to(&Plan::of(&requests).1).unwrap();
            let mut length = redis::cmd("STRLEN");
            let length: usize = length.arg(KEYS[0]).query(&mut world.redis).unwrap();
            assert_eq!(length, 9, "{quota}, {asked:?}");
        }
    }
}

/// A value of another type, where a budget or a ban would be.
#[test]
fn a_value_of_another_type_where_a_ban_would_be_stands_as_it_was_and_passes_nobody() {
    let server = Standalone::start();
    let mut world = World::new(&server, seed(), Calls::Bans);
    for quota in quotas() {
        for key in &KEYS[..2] {
            for (callers, is_new) in [
                (&[0][..], true),
                (&[0, 1], true),
                (&[0, 0], true),
                (&[0], false),
                (&[0, 0], false),
            ] {
                // Beside missing states, or as the only one that seems to be missing.
                let budget = budget_state(drain(&quota).1, NOW, None);
                let over = ban_state(0, [0.0, 0.0, (NOW + 5_000) as f64], &[]);
                let states = [
                    Some(budget.clone()),
                    Some(over.clone()),
                    Some(budget),
                    Some(over),
                ];
                let states = if is_new { [const { None }; 4] } else { states };
                world.prepare(&states);
                redis::cmd("DEL").arg(key).exec(&mut world.redis).unwrap();
                let mut push = redis::cmd("RPUSH");
                push.arg(key).arg("a").exec(&mut world.redis).unwrap();
                let guarded = |caller: &usize| Guarded::usual(quota, bans()[0], *caller);
                let requests: Vec<_> = callers.iter().map(|by| guarded(by).request()).collect();

                let reply = world.reply_to(&Plan::of(&requests).1).unwrap();

                let Value::BulkString(text) = reply else {
                    panic!("{reply:?}");
                };
                let others = callers.iter().filter(|by| **by == 1).count();
                assert_eq!(admitted(&text), others as u64, "{quota}, {callers:?}");
                let mut list = redis::cmd("LLEN");
                let length: u64 = list.arg(key).query(&mut world.redis).unwrap();
                assert_eq!(length, 1);
            }
        }
    }
}

/// The number of admitted requests of each call, of states of bans that neither strike nor extend.
fn usually_admitted(world: &mut World, quota: Quota, asked: &[usize]) {
    let at = |time: u64| time as f64;
    let times = |since, ends| [at(since), at(ends), at(ends + 3_000)];
    let in_force = ban_state(1, times(NOW - 100, NOW + 400), &[]);
    let over = ban_state(1, times(NOW - 500, NOW), &[]);
    let struck = ban_state(0, [0.0, 0.0, at(NOW + 2_000)], &[at(NOW - 9), at(NOW)]);
    let guarded = |caller: &usize| Guarded::usual(quota, bans()[1], *caller);
    let requests: Vec<_> = asked.iter().map(|by| guarded(by).request()).collect();
    let bans = [(None, true), (Some(over), true), (Some(in_force), false)];
    for (ban, passes) in bans.into_iter().chain([(Some(struck), true)]) {
        world.prepare(&[None, ban.clone(), None, ban.clone()]);
        // On missing budgets, and on those that this leaves. No more than two requests pass under the smallest quota.
        for round in 0..if asked.len() == 1 { 2 } else { 1 } {
            let reply = world.reply_to(&Plan::of(&requests).1);

            let what = format!("{quota}, {asked:?} on {ban:?}, round {round}");
            let Ok(Value::BulkString(text)) = reply else {
                panic!("{what}: {reply:?}");
            };
            let expected = if passes { asked.len() } else { 0 };
            assert_eq!(admitted(&text), expected as u64, "{what}");
        }
    }
}

#[test]
fn the_usual_calls_of_budgets_and_their_bans_are_not_left_to_the_general_script() {
    let server = Standalone::start();
    let mut world = World::new(&server, seed(), Calls::Bans);
    for quota in quotas() {
        for asked in [&[0][..], &[0, 1], &[0, 0], &[0, 1, 1]] {
            usually_admitted(&mut world, quota, asked);
        }
    }
    usually_admitted(&mut world, quotas()[3], &[0; 127]);
    assert_eq!(world.left, 0);
}
