//! The composed scripts for requests with ids, and for as much as there is, decide like the general one: each call is made once alone
//! and once with a probe beside it, of which no composed script knows.

use smallvec::SmallVec;
use tollgate_core::{Call, Charge, Key, Mode, Once, Quota, Scope};
use tollgate_testkit::Standalone;

use super::guarded_paths::{
    KEYS, NOW, States, budget_left_there, budget_state, drain, probe, quotas,
};
use super::questions::{Calls, Random};
use super::{World, cases, seed};
use crate::wire::{Plan, Request, Work};

/// A request for a budget, with an id.
#[derive(Clone, Copy, Debug)]
struct WithId {
    quota: Quota,
    once: Quota,
    costs: [u64; 2],
    modes: [Mode; 2],
    caller: usize,
    id: usize,
}

impl WithId {
    fn usual(quota: Quota, once: Quota, caller: usize, id: usize) -> Self {
        Self {
            quota,
            once,
            costs: [1, 1],
            modes: [Mode::Enforce; 2],
            caller,
            id,
        }
    }

    fn request(&self) -> Request {
        let key = Key::from("anybody");
        let charge = |quota, index: usize| Charge {
            scope: Scope::of("lean", 0, quota),
            quota,
            key: &key,
            cost: self.costs[index],
            mode: self.modes[index],
        };
        Request {
            work: Work::decide(Call::of(&[charge(&self.quota, 0), charge(&self.once, 1)])),
            names: SmallVec::from_iter([
                KEYS[2 * self.caller].into(),
                KEYS[2 * self.id + 1].into(),
            ]),
            owed: None,
            known: None,
        }
    }
}

/// A request for as much as there is.
#[derive(Clone, Copy, Debug)]
struct UpTo {
    quota: Quota,
    most: u64,
    least: u64,
    mode: Mode,
    caller: usize,
}

impl UpTo {
    fn request(&self) -> Request {
        let charge = Charge {
            scope: Scope::of("lean", 0, &self.quota),
            quota: &self.quota,
            key: &Key::from("anybody"),
            cost: self.most,
            mode: self.mode,
        };
        Request {
            work: Work::decide(Call::of(&[charge]).at_least(self.least)),
            names: SmallVec::from_iter([KEYS[2 * self.caller].into()]),
            owed: None,
            known: None,
        }
    }
}

fn once(life: u64, replays: u64) -> Quota {
    let once = Once::try_within(std::time::Duration::from_micros(life)).unwrap();
    once.try_replays(replays).unwrap().into()
}

fn terms() -> Vec<Quota> {
    vec![once(300, 1), once(2_000, 2), once(2_001, 100)]
}

fn id_state(used: u8, [since, ends]: [f64; 2]) -> Vec<u8> {
    let times = [since, ends].into_iter().flat_map(f64::to_le_bytes);
    [247, used].into_iter().chain(times).collect()
}

/// The state of an id as a call may have left it; rarely one that no call has.
fn id_left_there(random: &mut Random) -> Option<Vec<u8>> {
    if random.below(3) == 0 {
        return None;
    }
    let used = random.of(&[0, 0, 0, 1, 1, 2, 3, 99, 100, 255]);
    let since = NOW - random.of(&[0, 1, 299, 300, 500]) + random.of(&[0, 0, 0, 0, 1]);
    let ends = since + random.of(&[1, 2, 300, 2_000, 2_001]);
    let mut times = [since, ends].map(|time| time as f64);
    if random.below(6) == 0 {
        times[random.index(2)] = random.of(&[
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
    }
    let mut state = id_state(used, times);
    match random.below(24) {
        0 => state[0] = random.of(&[246, 248, 128, 137]),
        1 => state.truncate(random.index(state.len())),
        2 => state.extend(std::iter::repeat_n(0, 1 + random.index(20))),
        _ => {}
    }
    Some(state)
}

/// The state of a budget, at times with a debt.
fn owed_there(random: &mut Random, quota: &Quota) -> Option<Vec<u8>> {
    let (full, tag) = drain(quota);
    match random.below(6) {
        0 => Some(budget_state(
            tag,
            NOW + random.below(8 * full) + random.below(3),
            None,
        )),
        1 => {
            let furthest = NOW + 8 * full + random.below(3) - 1;
            Some(budget_state(tag, furthest, None))
        }
        _ => budget_left_there(random, quota),
    }
}

/// The callers and ids of a call.
fn asked(random: &mut Random) -> Vec<(usize, usize)> {
    let one = (random.index(2), random.index(2));
    match random.below(8) {
        0..3 => vec![one],
        3 => vec![(0, 0), (1, 1)],
        4 => vec![one; random.of(&[2, 3, 40, 128])],
        5 => vec![(0, 0), (0, 1)],
        6 => vec![(0, 0), (1, 1), (0, 0), (0, 1), (0, 1)],
        _ => vec![(0, 1), (1, 1), (1, 0)],
    }
}

/// Makes a call alone and with a probe beside it.
fn agree(world: &mut World, states: &States, mut requests: Vec<Request>, what: &str) {
    let count = requests.len();
    let own = world.left_by_guarded(states, &requests, count);
    requests.push(probe());
    let general = world.left_by_guarded(states, &requests, count);
    assert_eq!(own, general, "{what} on {states:?}");
}

#[test]
fn a_call_of_budgets_and_ids_is_decided_as_by_the_general_path() {
    let server = Standalone::start();
    let seed = seed();
    let mut world = World::new(&server, seed, Calls::Once);
    let mut random = Random::of_seed(seed);
    let (quotas, terms) = (quotas(), terms());
    for _ in 0..cases(6_000) {
        let (quota, once) = (random.of(&quotas), random.of(&terms));
        let states = [
            owed_there(&mut random, &quota),
            id_left_there(&mut random),
            owed_there(&mut random, &quota),
            id_left_there(&mut random),
        ];
        let mut asked: Vec<_> = asked(&mut random)
            .into_iter()
            .map(|(caller, id)| WithId::usual(quota, once, caller, id))
            .collect();
        let (costs, modes, odd) = match random.below(16) {
            0 => {
                let costs = random.of(&[[0, 1], [1, 0], [2, 1], [3, 2], [1 << 60, 1]]);
                (costs, [Mode::Enforce; 2], quota)
            }
            1 => ([1, 1], [Mode::Shadow; 2], quota),
            2 => ([1, 1], [Mode::Enforce, Mode::Shadow], quota),
            3 => ([1, 1], [Mode::Enforce, Mode::Probe], quota),
            4 | 5 => ([1, 1], [Mode::Enforce; 2], quota.keeping(1)),
            6 => ([1, 1], [Mode::Enforce; 2], random.of(&quotas)),
            _ => ([1, 1], [Mode::Enforce; 2], quota),
        };
        let (from, terms) = (random.index(asked.len()), random.of(&terms));
        for one in &mut asked[from..] {
            (one.costs, one.modes, one.quota) = (costs, modes, odd);
            if random.below(8) == 0 {
                one.once = terms;
            }
        }

        let requests = asked.iter().map(WithId::request).collect();
        agree(&mut world, &states, requests, &format!("{asked:?}"));
    }
}

#[test]
fn a_call_for_as_much_as_there_is_is_decided_as_by_the_general_path() {
    let server = Standalone::start();
    let seed = seed();
    let mut world = World::new(&server, seed, Calls::Any);
    let mut random = Random::of_seed(seed);
    let quotas = quotas();
    for _ in 0..cases(6_000) {
        let quota = random.of(&quotas);
        let states = [
            owed_there(&mut random, &quota),
            None,
            owed_there(&mut random, &quota),
            None,
        ];
        let largest = quota.capacity();
        let any = |random: &mut Random, caller| UpTo {
            quota,
            most: random.of(&[0, 1, 2, 3, 3, 7, largest, largest + 1, 1 << 60]),
            least: random.of(&[0, 1, 1, 1, 2, 3, largest, 1 << 59]),
            mode: Mode::Enforce,
            caller,
        };
        let first = any(&mut random, 0);
        let mut asked = match random.below(8) {
            0..3 => vec![first],
            3 => vec![first, UpTo { caller: 1, ..first }],
            4 | 5 => vec![first; random.of(&[2, 3, 40, 127, 128, 200])],
            6 => vec![first, any(&mut random, 1), first],
            _ => vec![first, any(&mut random, 0)],
        };
        let last = asked.len() - 1;
        match random.below(16) {
            0 => asked[last].mode = random.of(&[Mode::Shadow, Mode::Probe]),
            1 | 2 => asked[last].quota = quota.keeping(1),
            3 => asked[last].quota = random.of(&quotas),
            _ => {}
        }

        let requests = asked.iter().map(UpTo::request).collect();
        agree(&mut world, &states, requests, &format!("{asked:?}"));
    }
}

/// In place or whole: the comparison holds each state to the expiry that it has to have.
#[test]
fn a_budget_ends_when_it_has_to_wherever_it_stood_in_its_cell() {
    let server = Standalone::start();
    let mut world = World::new(&server, seed(), Calls::Once);
    // The clock stands at the beginning of a cell.
    assert_eq!(NOW % 1_024, 0);
    let quota = Quota::new(1, std::time::Duration::from_micros(1)).burst(2_000);
    for cost in [1, 340, 511, 512, 513] {
        for into in [0, 1, 510, 511, 512, 513, 1_022, 1_023] {
            let state = Some(budget_state(138, NOW + into, None));
            let states = [state.clone(), None, state, None];
            for asked in [&[(0, 0)][..], &[(0, 0), (1, 1)], &[(0, 0), (0, 1)]] {
                let with_id = |&(caller, id): &(usize, usize)| WithId {
                    costs: [cost, 1],
                    ..WithId::usual(quota, terms()[1], caller, id)
                };
                let requests = asked.iter().map(|by| with_id(by).request()).collect();
                agree(&mut world, &states, requests, "with ids");
                let up_to = |&(caller, _): &(usize, usize)| UpTo {
                    quota,
                    most: cost,
                    least: 1,
                    mode: Mode::Enforce,
                    caller,
                };
                let requests = asked.iter().map(|by| up_to(by).request()).collect();
                agree(&mut world, &states, requests, "as much as there is");
            }
        }
    }
}

/// A value of another type, where a budget or an id would be.
#[test]
fn a_value_of_another_type_stands_as_it_was_and_passes_nobody() {
    let server = Standalone::start();
    let mut world = World::new(&server, seed(), Calls::Once);
    let quota = quotas()[3];
    for key in &KEYS[..2] {
        for asked in [&[(0, 0)][..], &[(0, 0), (1, 1)]] {
            world.prepare(&[const { None }; 4]);
            let mut push = redis::cmd("RPUSH");
            push.arg(key).arg("a").exec(&mut world.redis).unwrap();
            let with_id = |&(caller, id): &(usize, usize)| {
                WithId::usual(quota, terms()[1], caller, id).request()
            };
            let up_to = |&(caller, _): &(usize, usize)| UpTo {
                quota,
                most: 2,
                least: 1,
                mode: Mode::Enforce,
                caller,
            };
            let script = world.script.clone();
            let requests: Vec<_> = asked.iter().map(with_id).collect();
            world.reply_of(&script, &requests).unwrap();
            let requests: Vec<_> = asked.iter().map(|by| up_to(by).request()).collect();
            world.reply_of(&script, &requests).unwrap();

            let mut list = redis::cmd("LLEN");
            let length: u64 = list.arg(key).query(&mut world.redis).unwrap();
            assert_eq!(length, 1);
        }
    }
}

/// What such calls leave is never left to the general script, but for an id of the same microsecond as another.
#[test]
fn the_usual_calls_with_ids_and_for_as_much_as_there_is_are_decided_by_composed_scripts() {
    let server = Standalone::start();
    let mut world = World::new(&server, seed(), Calls::Once);
    for quota in quotas() {
        for asked in [
            &[(0, 0)][..],
            &[(0, 0), (1, 1)],
            &[(0, 0), (0, 1), (0, 0), (1, 1)],
            &[(0, 0), (0, 0), (0, 0)],
        ] {
            world.prepare(&[const { None }; 4]);
            // New, replays, and one more that is charged or denied.
            for _ in 0..4 {
                redis::cmd("INCR")
                    .arg("clock")
                    .exec(&mut world.redis)
                    .unwrap();
                let with_id = |&(caller, id): &(usize, usize)| {
                    WithId::usual(quota, terms()[1], caller, id).request()
                };
                let requests: Vec<_> = asked.iter().map(with_id).collect();
                world.reply_to(&Plan::of(&requests).1).unwrap();
            }
        }
        for asked in [&[0][..], &[0, 0, 0], &[0, 1], &[0; 130]] {
            world.prepare(&[const { None }; 4]);
            for _ in 0..3 {
                let up_to = |caller: &usize| UpTo {
                    quota,
                    most: 2,
                    least: 1,
                    mode: Mode::Enforce,
                    caller: *caller,
                };
                let requests: Vec<_> = asked.iter().map(|by| up_to(by).request()).collect();
                world.reply_to(&Plan::of(&requests).1).unwrap();
            }
        }
    }
    assert_eq!(world.left, 0);
    assert!(world.answered > 0);
}
