//! The special paths for what is held against the general one: each call is made once alone and once with a probe beside it, which
//! no special path takes. Both admit as many and leave the same states with the same expiry.

use redis::Value;
use tollgate_testkit::Standalone;

use super::expiry::stored;
use super::questions::{Calls, Random};
use super::{World, cases, happened_often, seed};
use crate::wire::Reply;

const KEYS: [&[u8]; 3] = [b"one", b"other", b"third"];
const NOW_MS: u64 = 3_500_000_000_000;
const LEASE_MS: u64 = 400;
const OWN: u64 = 7;

/// The requests of a call for one key: `times` equal ones, as often as `repeats` says.
#[derive(Clone, Copy, Debug)]
struct Asks {
    acquires: bool,
    times: u8,
    cost: u64,
    limit: u64,
    repeats: usize,
}

impl Asks {
    fn random(random: &mut Random) -> Self {
        Self {
            acquires: random.below(3) > 0,
            times: random.of(&[1, 1, 1, 2, 3, 5, 255]),
            cost: random.of(&[1, 1, 1, 2, 2, 3, 0]),
            limit: random.of(&[1, 2, 3, 4, 7, 20, 1 << 40]),
            repeats: random.of(&[1, 1, 1, 2]),
        }
    }

    fn run(self, numbers: &[u8]) -> Vec<u8> {
        let mut run = vec![self.times];
        run.extend(if self.acquires {
            [0, 1, 6, 0]
        } else {
            [6, 1, 6, 2]
        });
        run.extend((self.cost as f64).to_le_bytes());
        run.extend((self.limit as f64).to_le_bytes());
        run.extend(numbers);
        run
    }
}

/// A state, what it says of the sum, and the number of the own entry.
type Left = (Vec<u8>, u64, Option<u16>);

fn u48(number: i64) -> [u8; 6] {
    *number.to_le_bytes().first_chunk().unwrap()
}

fn left_there(random: &mut Random, now_ms: u64, generation: u64) -> Option<Left> {
    let ends = now_ms - now_ms % (LEASE_MS / 4) + LEASE_MS;
    let entries = match random.below(60) {
        0 => 1_024,
        1..4 => random.of(&[23, 24, 30]),
        _ => random.below(4),
    };
    if entries == 0 {
        return None;
    }
    let own = match random.below(4) {
        0 => entries,
        _ => random.below(entries),
    };
    // Few of them have an entry that moves the expiry, or has expired.
    let odd = random.below(4) == 0;
    let (mut body, mut total, mut expiries) = (Vec::new(), 0, Vec::new());
    for entry in 0..entries {
        let is_own = entry == own;
        let holder = if is_own { OWN } else { 1_000 + entry };
        let (old, new) = match random.below(8) {
            0 => (-1, random.of(&[0, 1, 2, 5])),
            1 => (random.of(&[0, 1, 4]), -2),
            2 if !is_own => (
                (1 << 31) - random.of(&[0, 0, 1, 2, 3]),
                random.of(&[0, 0, 1]),
            ),
            _ => (random.of(&[0, 0, 1, 2]), random.of(&[0, 1, 1, 2, 5])),
        };
        let of = random.of(&[
            generation,
            generation,
            generation.saturating_sub(1),
            generation.saturating_sub(2),
            0,
            generation + 1,
        ]);
        let mark = 256 * of + random.of(&[0, 0, 1, 254, 255]);
        let expires = if odd {
            random.of(&[
                ends,
                ends - 100,
                now_ms,
                now_ms + 1,
                now_ms + 4 * LEASE_MS,
                now_ms + 4 * LEASE_MS + 1,
            ])
        } else {
            ends
        };
        body.extend(holder.to_le_bytes());
        body.extend([old, new].map(u48).as_flattened());
        body.extend([mark, expires].map(|it| u48(it as i64)).as_flattened());
        total += u64::try_from(old + new).unwrap_or(0);
        expiries.push(expires);
    }
    let mut state = vec![252];
    state.extend((total as f64).to_le_bytes());
    let bounds = [expiries.iter().min(), expiries.iter().max()];
    state.extend(bounds.map(|it| u48(*it.unwrap() as i64)).as_flattened());
    state.extend(body);
    match random.below(40) {
        0 => state.push(0),
        1 => state.truncate(state.len() - 1),
        2 => state[0] = 251,
        3 => state[1] |= 1,
        _ => {}
    }
    let place = (own < entries).then(|| u16::try_from(own + 1).unwrap());
    Some((state, total, place))
}

struct Asked {
    admitted: u64,
    /// The number that the reply says of the first state, if it is one.
    said: Option<u64>,
    states: Vec<Option<(Vec<u8>, i64)>>,
}

impl World {
    fn ask_of_held(
        &mut self,
        now_ms: u64,
        found: &[Option<Left>],
        keys: usize,
        runs: &[Vec<u8>],
    ) -> Asked {
        let mut prepare = redis::pipe();
        prepare.cmd("FLUSHALL").cmd("SET").arg("clock");
        prepare.arg(now_ms * 1_000 + 999);
        for (key, state) in KEYS.iter().zip(found) {
            if let Some((state, ..)) = state {
                let set = prepare.cmd("SET").arg(key).arg(state);
                set.arg("PXAT").arg(now_ms + 2 * LEASE_MS);
            }
        }
        prepare.exec(&mut self.redis).unwrap();
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.script).arg(keys);
        command.arg(&KEYS[..keys]);
        for run in runs {
            command.arg(&run[..]);
        }
        let value: Value = command.query(&mut self.redis).unwrap();
        let Value::BulkString(text) = &value else {
            panic!("{value:?}");
        };
        let words = text.splitn(3, |byte| *byte == b' ').nth(2).unwrap();
        let (admitted, rest) = match words {
            [0xcc, admitted, rest @ ..] => (u64::from(*admitted), rest),
            [0xcd, high, low, rest @ ..] => (u64::from(u16::from_be_bytes([*high, *low])), rest),
            [admitted, rest @ ..] => (u64::from(*admitted), rest),
            [] => panic!("{text:?}"),
        };
        let said = match rest {
            [0x91, 0xce, number @ ..] => number
                .first_chunk()
                .map(|it| u64::from(u32::from_be_bytes(*it))),
            _ => None,
        };
        assert!(Reply::parse(value).is_some());
        let states = KEYS[..2].iter().map(|key| stored(&mut self.redis, key));
        Asked {
            admitted,
            said,
            states: states.collect(),
        }
    }
}

#[test]
fn the_paths_for_what_is_held_decide_as_the_general_one() {
    let server = Standalone::start();
    let seed = seed();
    let mut world = World::new(&server, seed, Calls::Any);
    let mut random = Random::of_seed(seed);
    let (mut admitted, mut wrote) = (0, 0);
    for _ in 0..cases(6_000) {
        let now_ms = NOW_MS + random.below(200);
        let generation = random.of(&[0, 1, 2, 3, 255, 256, 300]);
        let keys = random.of(&[1, 1, 1, 2]);
        let found: Vec<_> = (0..keys)
            .map(|_| left_there(&mut random, now_ms, generation))
            .collect();
        let knows = random.below(3) == 0;
        let places: Vec<_> = found
            .iter()
            .map(|found| match random.below(5) {
                0 => random.of(&[0, 1, 2, 40]),
                _ => found.as_ref().and_then(|(.., place)| *place).unwrap_or(0),
            })
            .collect();
        let mut caller = vec![0, 4];
        caller.extend(OWN.to_le_bytes());
        caller.extend(
            [generation, LEASE_MS]
                .map(|it| u48(it as i64))
                .as_flattened(),
        );
        let mut beside = caller.clone();
        if knows {
            caller.extend(places.iter().flat_map(|place| place.to_le_bytes()));
            beside.extend(places.iter().flat_map(|place| place.to_le_bytes()));
            beside.extend([0, 0]);
        }
        let asks = Asks::random(&mut random);
        // One run for all keys, or one for each.
        let (mut own, mut general) = (vec![caller], vec![beside]);
        if keys == 1 || random.below(2) == 0 {
            let all: Vec<u8> = (1..=u8::try_from(keys).unwrap()).collect();
            let numbers = if keys == 1 && asks.repeats == 2 {
                vec![1, 1]
            } else {
                all
            };
            own.push(asks.run(&numbers));
            general.push(asks.run(&numbers));
        } else {
            for number in 1..=u8::try_from(keys).unwrap() {
                let run = Asks::random(&mut random).run(&[number]);
                own.push(run.clone());
                general.push(run);
            }
        }
        let probe = Asks {
            acquires: true,
            times: 1,
            cost: 1,
            limit: 9,
            repeats: 1,
        };
        let mut probe = probe.run(&[u8::try_from(keys).unwrap() + 1]);
        probe[4] = 2;
        general.push(probe);

        let by_itself = world.ask_of_held(now_ms, &found, keys, &own);
        let by_general = world.ask_of_held(now_ms, &found, keys + 1, &general);

        let what = format!("{own:?} at {now_ms} on {:?}", found.iter().flatten().next());
        assert_eq!(by_itself.admitted, by_general.admitted - 1, "{what}");
        assert_eq!(by_itself.states, by_general.states, "{what}");
        if let (Some(said), Some((_, total, place))) = (by_itself.said, &found[0]) {
            assert_eq!(said, 2 * total + u64::from(place.is_some()), "{what}");
        }
        admitted += by_itself.admitted;
        let before = found.iter().map(|it| it.as_ref().map(|it| &it.0));
        let after = by_itself.states.iter();
        let after = after.map(|it| it.as_ref().map(|it| &it.0));
        wrote += usize::from(!before.eq(after.take(keys)));
    }
    println!("{admitted} admitted, {wrote} calls wrote");
    happened_often(admitted, 100);
    happened_often(wrote, 100);
}
