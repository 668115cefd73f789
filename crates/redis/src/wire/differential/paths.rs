//! The composed scripts decide like the general one. Each call is made once alone and once with a probe beside it, of which
//! no composed script knows: both answer alike and leave the same states with the same expiry.

use std::time::Duration;

use redis::Value;
use smallvec::SmallVec;
use tollgate_core::{Algorithm, Call, Charge, Key, Mode, Quota, Scope, Snapshot, Unit};
use tollgate_testkit::Standalone;

use super::expiry::{stated_end_us, stored};
use super::questions::{Calls, Random};
use super::{World, cases, seed};
use crate::wire::{Plan, Reply, Request, Work, state};

const KEYS: [&[u8]; 2] = [b"one", b"other"];
const NOW: u64 = 3_500_000_000_000_000;

/// Two of each drain, some of them with rests, and of several denominators.
fn quotas() -> Vec<Quota> {
    let us = Duration::from_micros;
    let mut quotas = Vec::new();
    for (limit, period) in [
        (10, 60_000_000),
        (7, 1_000_000),
        (9, 1_000_000),
        (100, 1_000_000),
        (7, 1_000),
        (3, 1),
        (1_000, 1),
        (1, 1),
    ] {
        quotas.extend([1, 4, 30].map(|burst| Quota::new(limit, us(period)).burst(burst)));
    }
    // Only the general path sees a remnant of a larger burst below a microsecond, which is less than any wait tells.
    quotas.retain(|quota| drain_us(quota) > 0);
    quotas
}

fn drain_us(quota: &Quota) -> u64 {
    let drain = u128::from(quota.capacity()) * quota.period().as_micros();
    u64::try_from(drain / u128::from(quota.limit())).unwrap()
}

fn tag(quota: &Quota) -> u8 {
    128 + u8::try_from(drain_us(quota).max(1).ilog2()).unwrap()
}

/// States that another quota, or this one, may have left there: none, a point, a point with a rest, one with a debt; sometimes
/// an invalid one; and often one at the end, or in the middle, of a cell of the expiry.
fn left_there(random: &mut Random, quota: &Quota, quotas: &[Quota]) -> Option<Vec<u8>> {
    let by = if random.below(2) == 0 {
        *quota
    } else {
        random.of(quotas)
    };
    let cell = 1_u64 << (u32::from(tag(&by)) - 128).max(10);
    let ahead = random.below(3 * drain_us(&by) / 2 + 3);
    let mut at = NOW - 1 + ahead;
    match random.below(4) {
        0 => at = at / cell * cell + random.of(&[0, 1, cell / 2 - 1, cell / 2, cell - 2, cell - 1]),
        1 => at = at / cell * cell + cell - 1 - random.below(3),
        _ => {}
    }
    let (limit, period) = (by.limit(), u64::try_from(by.period().as_micros()).unwrap());
    let (mut one, mut other) = (limit, period);
    while other > 0 {
        (one, other) = (other, one % other);
    }
    let denominator = limit / one;
    let point = (at as f64).to_bits();
    let point = match random.below(30) {
        // Half a microsecond later, and before the epoch: no states.
        0 => point + 1,
        1 => point | 1 << 63,
        _ => point,
    };
    let mut state = vec![tag(&by)];
    state.extend(point.to_le_bytes());
    match random.below(8) {
        0 => return None,
        1..=3 => {}
        rest => {
            let rest = if rest == 4 {
                denominator + random.below(2)
            } else {
                random.below(denominator)
            };
            let parts = if random.below(4) == 0 { 9 } else { 0 };
            // Without either it is written short.
            if rest > 0 || parts > 0 {
                state.extend(u32::try_from(rest).unwrap().to_le_bytes());
                state.extend(u16::try_from(denominator % 65_521).unwrap().to_le_bytes());
                state.push(parts);
            }
        }
    }
    Some(state)
}

fn request(quotas: &[Quota], costs: &[u64], mode: Mode, names: &[&[u8]]) -> Request {
    let key = Key::from("anybody");
    let charges: SmallVec<[Charge<'_>; 2]> = { quotas.iter().zip(costs) }
        .map(|(quota, &cost)| Charge {
            scope: Scope::of("paths", 0, quota),
            quota,
            key: &key,
            cost,
            mode,
        })
        .collect();
    Request {
        work: Work::decide(Call::of(&charges)),
        names: names.iter().map(|&name| name.into()).collect(),
        owed: None,
        known: None,
    }
}

/// The number of admitted requests, and each state with its expiry.
type Left = (u64, Vec<Option<(Vec<u8>, i64)>>);

impl World {
    fn left_by(&mut self, now: u64, requests: &[&Request], states: &[Option<Vec<u8>>]) -> Left {
        let mut prepare = redis::pipe();
        prepare.cmd("FLUSHALL").cmd("SET").arg("clock").arg(now);
        for (key, state) in KEYS.iter().zip(states) {
            if let Some(state) = state {
                // With the expiry of the contract, if it is a valid state.
                let ends = match state::decode(state, Unit::Gcra) {
                    Some(_) => stated_end_us(state, Unit::Gcra),
                    None => 4_000_000_000_000_000,
                };
                let mut set = redis::cmd("SET");
                set.arg(key).arg(state).arg("PXAT").arg(ends / 1_000);
                prepare.add_command(set);
            }
        }
        prepare.exec(&mut self.redis).unwrap();
        let (_, call) = Plan::of(requests.iter().copied());
        let value = self.reply_to(&call).unwrap();
        let Value::BulkString(text) = &value else {
            panic!("{value:?}");
        };
        let admitted = u64::from(text.split(|byte| *byte == b' ').nth(2).unwrap()[0]);
        assert!(Reply::parse(value).is_some());
        let states = KEYS.map(|key| stored(&mut self.redis, key));
        (admitted, states.to_vec())
    }

    /// The number of admitted requests and the states afterwards: by a call of their own, and by one with a probe of a third
    /// key, which the general path takes.
    fn by_both_paths(
        &mut self,
        now: u64,
        requests: &[Request],
        states: &[Option<Vec<u8>>],
    ) -> [(u64, Vec<Said>); 2] {
        let alone: Vec<&Request> = requests.iter().collect();
        let probe = request(&[Quota::per_hour(3)], &[1], Mode::Probe, &[b"third"]);
        let beside: Vec<&Request> = alone.iter().copied().chain([&probe]).collect();
        let own = self.left_by(now, &alone, states);
        let general = self.left_by(now, &beside, states);
        // A probe is an open charge, too.
        [(own.0, said(&own)), (general.0 - 1, said(&general))]
    }
}

type Said = Option<(Option<Snapshot>, Vec<u8>)>;

/// The content of a state, or its bytes if it is invalid. A valid state has the right expiry.
fn said((_, states): &Left) -> Vec<Said> {
    let said = |found: &Option<(Vec<u8>, i64)>| {
        let (bytes, ends) = found.as_ref()?;
        let Some(state) = state::decode(bytes, Unit::Gcra) else {
            return Some((None, bytes.clone()));
        };
        let ends_us = u64::try_from(*ends).unwrap() * 1_000;
        assert_eq!(ends_us, stated_end_us(bytes, Unit::Gcra), "{bytes:?}");
        Some((Some(state.snapshot()), Vec::new()))
    };
    states.iter().map(said).collect()
}

#[test]
fn a_call_with_a_path_of_its_own_is_decided_as_by_the_general_path() {
    let server = Standalone::start();
    let seed = seed();
    let mut world = World::new(&server, seed, Calls::Any);
    let mut random = Random::of_seed(seed);
    let quotas = quotas();
    for _ in 0..cases(3_000) {
        // given two states as some quotas have left them
        let (one, other) = (random.of(&quotas), random.of(&quotas));
        let states = [one, other].map(|quota| left_there(&mut random, &quota, &quotas));
        let mode = random.of(&[Mode::Enforce, Mode::Enforce, Mode::Enforce, Mode::Shadow]);
        let cost = |random: &mut Random, quota: &Quota| 1 + random.below(quota.capacity().min(9));
        let costs = [cost(&mut random, &one), cost(&mut random, &other)];
        let requests: Vec<Request> = match random.below(4) {
            0 => vec![request(&[one], &costs, mode, &KEYS[..1])],
            1 => { KEYS.iter() }
                .map(|key| request(&[one], &costs, mode, &[key]))
                .collect(),
            _ => (0..random.of(&[1, 2, 3, 20]))
                .map(|_| request(&[one, other], &costs, mode, &KEYS))
                .collect(),
        };

        // when a call names them alone, and with a probe of a third, then both agree
        let [own, general] = world.by_both_paths(NOW, &requests, &states);
        assert_eq!(
            own, general,
            "{one}, {other} {costs:?} {mode:?} on {states:?}"
        );
    }
}

/// Quotas whose units drain in one microsecond, in one and a half, and in that and a fraction of many parts; and calls for each
/// special path: of one charge, of two keys with equal charges, and of two charges.
fn requests_of_each_path(cost: u64) -> Vec<(Quota, Vec<Request>)> {
    let us = Duration::from_micros;
    let whole = Quota::new(1, us(1)).burst(2_000);
    let halves = Quota::new(2, us(3)).burst(1_300);
    // The mark of this denominator is that of 3.
    let parts = Quota::new(65_524, us(98_289)).burst(1_300);
    let of = |quota: Quota| {
        let one = |key: &[u8]| request(&[quota], &[cost], Mode::Enforce, &[key]);
        let both = || request(&[quota; 2], &[cost; 2], Mode::Enforce, &KEYS);
        let paths = [
            vec![one(KEYS[0])],
            KEYS.map(one).into(),
            vec![both()],
            vec![both(), both()],
        ];
        paths.map(|requests| (quota, requests))
    };
    // Its drain is shorter than the narrowest cell.
    let short = halves.burst(400);
    let quotas = [whole, halves, parts, short].into_iter();
    quotas.flat_map(of).collect()
}

/// A state as a quota of either kind leaves it. Its full drain has cells of 1,024 µs.
fn state_of(at: u64, rest: Option<(u32, u16, u8)>) -> Vec<u8> {
    let mut state = vec![128 + 10];
    state.extend((at as f64).to_le_bytes());
    if let Some((rest, mark, parts)) = rest {
        state.extend(rest.to_le_bytes());
        state.extend(mark.to_le_bytes());
        state.push(parts);
    }
    state
}

/// The beginning of a cell.
const CELL: u64 = NOW / 1_024 * 1_024;

/// A state has the right expiry whether it is written in place or whole: it may stand at the beginning of a cell, in its middle
/// or at its end, and move anywhere from there.
#[test]
fn every_path_ends_a_state_when_it_has_to_wherever_it_stood_in_its_cell() {
    let server = Standalone::start();
    let mut world = World::new(&server, seed(), Calls::Any);
    for cost in [1, 2, 340, 341, 342, 511, 512, 513] {
        for (quota, requests) in requests_of_each_path(cost) {
            for into in [0, 1, 510, 511, 512, 513, 1_022, 1_023] {
                for rest in [None, Some((1, 2, 0))] {
                    // Within a full budget, and further ahead than a debt may be, so that it is brought back.
                    let eight = 8 * drain_us(&quota);
                    let back = [1, 2, 3, 512, 513, 1_024].map(|us| eight + us);
                    let back = if cost == 1 { &back[..] } else { &[] };
                    for ahead in [500].iter().chain(back) {
                        let mut state = state_of(CELL + into, rest);
                        state[0] = tag(&quota);
                        let now = CELL + into - ahead;
                        let states = [Some(state.clone()), Some(state)];

                        let [own, general] = world.by_both_paths(now, &requests, &states);

                        assert_eq!(own, general, "{quota}, {cost} at {now} on {states:?}");
                    }
                }
            }
        }
    }
}

/// States out of the ordinary: with another tag, another denominator, a rest without a denominator, in debt, with credits,
/// further ahead than a budget or a debt may be, or between two microseconds. A special path decides them like the general
/// path, or leaves them to it.
#[test]
fn every_path_leaves_alone_what_is_no_usual_state_of_its_quota() {
    let server = Standalone::start();
    let mut world = World::new(&server, seed(), Calls::Any);
    let at = CELL + 512;
    let rests = [
        (0, 2),
        (1, 2),
        (1, 1),
        (1, 3),
        (2, 2),
        (3, 2),
        (7, 2),
        (7, 9),
    ];
    // The last of them, in three bytes, is 2 × 65,521.
    let debts = [(0, 2, 9), (1, 2, 31), (0, 0, 32), (1, 65_506, 1)];
    let rests = rests.map(|(rest, mark)| (rest, mark, 0));
    let forms = rests.into_iter().chain(debts).map(Some).chain([None]);
    // It depends on whether some quota may have left such a rest.
    let mut states = Vec::new();
    for form in forms {
        let state = state_of(at, form);
        for tag in [137, 138, 139] {
            states.push((true, [&[tag], &state[1..]].concat()));
        }
        for point in [at as f64 + 0.5, -(at as f64)] {
            let point = &point.to_le_bytes()[..];
            states.push((false, [&state[..1], point, &state[9..]].concat()));
        }
        states.push((false, [&state[..], &[0]].concat()));
        states.push((false, state[..state.len() - 1].to_vec()));
    }
    for (quota, requests) in requests_of_each_path(1) {
        let drain = drain_us(&quota);
        for (may_be_left, state) in &states {
            let ahead = [1_000, 0, 1, drain, drain + 1, 8 * drain + 2];
            let ahead = if *may_be_left {
                &ahead[..]
            } else {
                &ahead[..1]
            };
            // As many microseconds ahead, and one behind.
            let times = ahead.iter().map(|ahead| at - ahead).chain([at + 1]);
            for now in times {
                for other in [None, Some(state_of(at, None)), Some(state.clone())] {
                    let states = [Some(state.clone()), other];

                    let [own, general] = world.by_both_paths(now, &requests, &states);

                    assert_eq!(own, general, "{quota} at {now} on {states:?}");
                }
            }
        }
    }
}

/// A special path knows no turns: it would deny a request that may wait, and forget those that wait. So it takes no charge of a
/// quota under which requests may wait, alone or beside one of a quota that counts the same, and no state with the first byte of
/// a queue.
#[test]
fn no_path_takes_a_charge_that_may_wait_or_a_state_in_whose_queue_somebody_waits() {
    let server = Standalone::start();
    let mut world = World::new(&server, seed(), Calls::Any);
    let us = Duration::from_micros;
    for plain in [
        Quota::new(1, us(1)).burst(2_000),
        Quota::new(2, us(3)).burst(1_300),
    ] {
        // given budgets that are used up, and others for whose next unit a request waits already
        let waits = plain.wait_up_to(us(1_000));
        let whole = plain.capacity();
        let one = |quota: Quota, cost, key| request(&[quota], &[cost], Mode::Enforce, &[key]);
        let both = |quotas: [Quota; 2]| request(&quotas, &[1; 2], Mode::Enforce, &KEYS);
        let used_up = KEYS.map(|key| one(plain, whole, key));
        let (_, points) = world.left_by(NOW, &used_up.each_ref(), &[None, None]);
        let waited = KEYS.map(|key| one(waits, 1, key));
        let found = |states: Vec<Option<(Vec<u8>, i64)>>| {
            let bytes = |state: Option<(Vec<u8>, i64)>| state.map(|(bytes, _)| bytes);
            states.into_iter().map(bytes).collect::<Vec<_>>()
        };
        let points = found(points);
        let (_, queues) = world.left_by(NOW, &waited.each_ref(), &points);
        let queues = found(queues);
        let first = |state: &Option<Vec<u8>>| state.as_ref().unwrap()[0];
        assert_eq!(queues.iter().map(first).collect::<Vec<_>>(), [177; 2]);
        // And what begins like a queue, and is else the state of a budget that has room.
        let short = |length: usize| {
            let mut state = state_of(NOW, None);
            state[0] = 177;
            state.resize(length, 0);
            vec![Some(state); 2]
        };
        let foreign = [9, 16].map(short);

        // when charges that may wait, and others, ask in a call of each path: with the number of those that pass
        let calls = [
            (1, vec![one(waits, 1, KEYS[0])]),
            (2, KEYS.map(|key| one(waits, 1, key)).into()),
            (1, vec![both([waits, waits])]),
            (2, vec![both([waits, waits]), both([waits, waits])]),
            (0, vec![both([plain, waits])]),
            (0, vec![both([waits, plain])]),
            (1, vec![both([plain, plain]), both([waits, waits])]),
            (0, vec![one(plain, 1, KEYS[0])]),
            (0, KEYS.map(|key| one(plain, 1, key)).into()),
            (0, vec![both([plain, plain])]),
        ];
        for (passed, requests) in &calls {
            for states in [&points, &queues] {
                let [own, general] = world.by_both_paths(NOW, requests, states);

                assert_eq!(own, general, "{plain}, {requests:?} on {states:?}");
                assert_eq!(own.0, *passed, "{plain}, {requests:?} on {states:?}");
            }
            // then no path changes a value that is not a state
            for states in &foreign {
                let [own, general] = world.by_both_paths(NOW, requests, states);

                assert_eq!(own, general, "{plain}, {requests:?} on {states:?}");
                assert_eq!(own.0, 0, "{plain}, {requests:?} on {states:?}");
                let left = own.1.into_iter().map(|state| state.map(|(_, bytes)| bytes));
                assert_eq!(left.collect::<Vec<_>>(), *states, "{plain}, {requests:?}");
            }
        }
    }
}

/// Many of them are longer than any charge of a bucket.
#[test]
fn many_requests_by_other_rules_are_decided_by_these() {
    let server = Standalone::start();
    let mut world = World::new(&server, seed(), Calls::Any);
    let offset = Duration::ZERO;
    let callers: Vec<_> = (0..40).map(|n| format!("caller {n}")).collect();
    for algorithm in [
        Algorithm::FixedWindow { offset },
        Algorithm::SlidingWindow,
        Algorithm::SlidingLog,
        Algorithm::IntervalRefill { offset },
    ] {
        let quota = Quota::per_hour(50).using(algorithm);
        let both = request(&[quota, quota], &[1, 1], Mode::Enforce, &KEYS);
        let names: Vec<_> = callers.iter().map(String::as_bytes).collect();
        // Half of them ask for more, so that each request has to name its key.
        let alone = names.iter().enumerate();
        let alone = alone.map(|(n, name)| {
            let cost = 1 + n as u64 % 2;
            request(&[quota], &[cost], Mode::Enforce, &[name])
        });
        let alone: Vec<_> = alone.collect();
        for (requests, names, passed) in [
            (vec![&both; 70], KEYS.to_vec(), 50),
            (alone.iter().collect(), names, 40),
        ] {
            let (admitted, _) = world.left_by(NOW, &requests, &[None, None]);

            assert_eq!(admitted, passed, "{quota}");
            for name in names {
                let mut get = redis::cmd("GET");
                let state: Vec<u8> = get.arg(name).query(&mut world.redis).unwrap();
                assert!(state::decode(&state, quota.unit()).is_some(), "{quota}");
            }
        }
    }
}
