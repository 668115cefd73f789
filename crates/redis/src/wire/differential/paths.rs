//! What has a path of its own is decided as the general path decides it: a call and the same call with a probe beside it, which no
//! path of its own takes, answer alike and leave the same states with the same expiry.

use std::time::Duration;

use redis::Value;
use smallvec::SmallVec;
use tollgate_core::{Algorithm, Charge, Key, Mode, Quota, Scope, Snapshot, Unit};
use tollgate_testkit::Standalone;

use super::expiry::{ends_ms, stated_end_us};
use super::questions::{Calls, Random};
use super::{World, seed};
use crate::wire::{Plan, Reply, Request, Work, state};

const KEYS: [&[u8]; 2] = [b"one", b"other"];
const NOW: u64 = 3_500_000_000_000_000;

/// Two of each drain, of which some have rests, and of several denominators.
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
    // Below a microsecond what was left by a larger burst is seen by the general path alone: less than any wait tells.
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

/// What another quota, or this one, may have left there: nothing, a point, a point with a rest, one with a debt; sometimes one that
/// is none; and often one at the end, or in the middle, of a cell of the expiry.
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
            state.extend(u32::try_from(rest).unwrap().to_le_bytes());
            state.extend(u16::try_from(denominator % 65_521).unwrap().to_le_bytes());
            state.push(if random.below(4) == 0 { 9 } else { 0 });
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
        work: Work::decide(&charges),
        names: names.iter().map(|&name| name.into()).collect(),
    }
}

/// How many were admitted, and each state with its end.
type Left = (u64, Vec<Option<(Vec<u8>, i64)>>);

impl World {
    fn left_by(&mut self, requests: &[&Request], states: &[Option<Vec<u8>>]) -> Left {
        let mut prepare = redis::pipe();
        prepare.cmd("FLUSHALL").cmd("SET").arg("clock").arg(NOW);
        for (key, state) in KEYS.iter().zip(states) {
            if let Some(state) = state {
                // With the expiry that the contract states, so far as it is a state at all.
                let ends = if (state[8] as i8) < 0 {
                    4_000_000_000_000_000
                } else {
                    stated(state)
                };
                let mut set = redis::cmd("SET");
                set.arg(key).arg(state).arg("PXAT").arg(ends / 1_000);
                prepare.add_command(set);
            }
        }
        prepare.exec(&mut self.redis).unwrap();
        let (_, call) = Plan::of(requests.iter().copied());
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.script).arg(call.keys.len());
        for part in call
            .keys
            .iter()
            .copied()
            .chain(call.runs.iter().map(|run| &run[..]))
        {
            command.arg(part);
        }
        let value: Value = command.query(&mut self.redis).unwrap();
        let text = match &value {
            Value::Int(_) => None,
            Value::BulkString(text) => Some(text),
            other => panic!("{other:?}"),
        };
        let admitted = match text {
            None => 1,
            Some(text) => {
                let behind = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap();
                match text[behind] {
                    b'+' => 1,
                    b'-' => 0,
                    _ => u64::from(text.split(|byte| *byte == b' ').nth(2).unwrap()[0]),
                }
            }
        };
        assert!(Reply::parse(value).is_some());
        let states = KEYS.map(|key| {
            let found: Option<Vec<u8>> = redis::cmd("GET").arg(key).query(&mut self.redis).unwrap();
            found.map(|state| (state, ends_ms(&mut self.redis, key)))
        });
        (admitted, states.to_vec())
    }
}

/// What a state says, or it as it stands if it is none; one that says something ends when it has to.
fn said(left: &Left, quota: &Quota) -> Vec<Option<(Option<Snapshot>, Vec<u8>)>> {
    let (_, states) = left;
    let said = |found: &Option<(Vec<u8>, i64)>| {
        let (bytes, ends) = found.as_ref()?;
        let Some(state) = state::decode(bytes, quota.unit()) else {
            return Some((None, bytes.clone()));
        };
        let ends_us = u64::try_from(*ends).unwrap() * 1_000;
        assert_eq!(ends_us, stated_end_us(bytes, quota.unit()), "{bytes:?}");
        Some((Some(state.snapshot()), Vec::new()))
    };
    states.iter().map(said).collect()
}

fn stated(state: &[u8]) -> u64 {
    let whole = f64::from_le_bytes(state[1..9].try_into().unwrap());
    if whole.fract() != 0.0 {
        return 4_000_000_000_000_000;
    }
    stated_end_us(state, Unit::Gcra)
}

#[test]
fn a_call_with_a_path_of_its_own_is_decided_as_by_the_general_path() {
    let server = Standalone::start();
    let seed = seed();
    let mut world = World::new(&server, seed, Calls::Any);
    let mut random = Random::of_seed(seed);
    let quotas = quotas();
    let probed = Quota::per_hour(3);
    for _ in 0..super::asked_for("TOLLGATE_STEPS").unwrap_or(3_000) {
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

        // when a call is about them alone, and with a probe of a third
        let alone: Vec<&Request> = requests.iter().collect();
        let probe = request(&[probed], &[1], Mode::Probe, &[b"third"]);
        let beside: Vec<&Request> = alone.iter().copied().chain([&probe]).collect();
        let own = world.left_by(&alone, &states);
        let general = world.left_by(&beside, &states);

        // then it is the same, but that a probe is open too
        assert_eq!(
            (own.0, said(&own, &one)),
            (general.0 - 1, said(&general, &one)),
            "{one}, {other} {costs:?} {mode:?} on {states:?}"
        );
    }
}

/// They are longer than any charge of a bucket if there are many of them.
#[test]
fn many_requests_by_other_rules_are_decided_by_these() {
    let server = Standalone::start();
    let mut world = World::new(&server, seed(), Calls::Any);
    let offset = Duration::ZERO;
    for algorithm in [
        Algorithm::FixedWindow { offset },
        Algorithm::SlidingWindow,
        Algorithm::SlidingLog,
    ] {
        let quota = Quota::per_hour(50).using(algorithm);
        let both = request(&[quota, quota], &[1, 1], Mode::Enforce, &KEYS);
        let requests = vec![&both; 70];

        let (admitted, states) = world.left_by(&requests, &[None, None]);

        assert_eq!(admitted, 50, "{quota}");
        let unit = quota.unit();
        let is_state = |found: &Option<(Vec<u8>, i64)>| {
            let (bytes, _) = found.as_ref().unwrap();
            state::decode(bytes, unit).is_some()
        };
        assert!(states.iter().all(is_state), "{quota}");
    }
}
