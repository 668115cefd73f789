//! States with random changes: either both sides accept them or both refuse them.

use std::time::Duration;

use smallvec::smallvec;
use tollgate_core::{Algorithm, BackendError, Call, Charge, FailureKind, Key, Mode, Quota, Scope};
use tollgate_testkit::Standalone;

use super::World;
use super::questions::{Calls, Random};
use crate::wire::{Outcome, Plan, Reply, Request, Work, replay};

const KEY: &[u8] = b"garbled";

/// Changes one byte, or removes or appends some. The script does not look inside a log, since that would be a scan.
fn garble(random: &mut Random, quota: &Quota, state: &mut Vec<u8>) {
    let at = match quota.algorithm() {
        Algorithm::SlidingLog if random.below(4) == 0 => 0,
        Algorithm::SlidingLog => return state.truncate(random.index(state.len())),
        _ => random.index(state.len()),
    };
    match random.below(4) {
        0 => state.truncate(at),
        1 => state.extend(std::iter::repeat_n(0, 1 + random.index(40))),
        _ => {
            let bytes = [
                0, 1, 31, 32, 127, 128, 161, 176, 177, 178, 247, 248, 253, 255,
            ];
            state[at] = random.of(&bytes);
        }
    }
}

impl World {
    fn value(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        redis::cmd("GET").arg(key).query(&mut self.redis).unwrap()
    }

    /// Decides one charge under the key, in a call of its own or together with another key.
    fn call_on_garbled(
        &mut self,
        quota: &Quota,
        with_another: bool,
    ) -> Result<Vec<(usize, Outcome)>, BackendError> {
        let request = |name: &[u8]| Request {
            work: Work::decide(Call::of(&[Charge {
                scope: Scope::of("garbled", 0, quota),
                quota,
                key: &Key::from("anybody"),
                cost: 1,
                mode: Mode::Enforce,
            }])),
            names: smallvec![name.into()],
            owed: None,
            known: None,
        };
        let mut requests = vec![request(KEY)];
        requests.extend(with_another.then(|| request(b"another")));
        self.outcomes(&requests)
    }

    pub(super) fn outcomes(
        &mut self,
        requests: &[Request],
    ) -> Result<Vec<(usize, Outcome)>, BackendError> {
        let (plan, call) = Plan::of(requests);
        let value = self.reply_to(&call).unwrap();
        let reply = Reply::parse(value).unwrap();
        replay(
            &reply,
            &plan,
            call.keys.len(),
            |position| &requests[position],
            |_, _, _| {},
        )
    }

    /// Says whether the charge was decided.
    fn decide_on_garbled(&mut self, quota: &Quota, with_another: bool) -> bool {
        let outcomes = self.call_on_garbled(quota, with_another);
        let outcomes = outcomes.unwrap_or_else(|error| panic!("{quota}, {error}"));
        let (_, of_it) = outcomes
            .into_iter()
            .find(|(position, _)| *position == 0)
            .unwrap();
        match of_it {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.kind(), FailureKind::ForeignState);
                false
            }
        }
    }
}

#[test]
fn what_is_no_state_is_left_as_it_is_and_what_is_one_is_decided_by_both() {
    decides_on_garbled_states(Calls::Any);
}

/// With turns and free places in them.
#[test]
fn what_is_no_queue_is_left_as_it_is_and_what_is_one_is_decided_by_both() {
    decides_on_garbled_states(Calls::Waiting);
}

/// With idle time in store.
#[test]
fn what_is_no_store_is_left_as_it_is_and_what_is_one_is_decided_by_both() {
    decides_on_garbled_states(Calls::Warming);
}

#[test]
fn a_store_with_numbers_that_none_can_have_is_left_as_it_is() {
    let server = Standalone::start();
    let mut world = World::new(&server, super::seed(), Calls::Warming);
    world.step();
    let quota = Quota::per_hour(10).warm_up(Duration::from_secs(3_600));
    let store = |cold_at: f64, ticks: u32, bucket: &[u8]| {
        let head = [&[178][..], &cold_at.to_le_bytes(), &ticks.to_le_bytes()];
        [&head.concat(), bucket].concat()
    };
    let bucket = [&[150][..], &1_000_000_f64.to_le_bytes()].concat();
    let largest = 1_u64 << 53;
    for (state, is_one) in [
        (store(0.0, 0, &bucket), true),
        (store((largest - 1) as f64, (1 << 20) - 1, &bucket), true),
        (store(0.0, 1 << 20, &bucket), false),
        (store(largest as f64, 0, &bucket), false),
        (store(0.5, 0, &bucket), false),
        (store(-1.0, 0, &bucket), false),
        (store(f64::NAN, 0, &bucket), false),
        (store(0.0, 0, &[]), false),
        (store(0.0, 0, &store(0.0, 0, &bucket)), false),
    ] {
        for with_another in [false, true] {
            let mut set = redis::cmd("SET");
            set.arg(KEY).arg(&state).arg("PX").arg(100_000);
            set.exec(&mut world.redis).unwrap();

            assert_eq!(
                world.decide_on_garbled(&quota, with_another),
                is_one,
                "{state:?}"
            );

            if !is_one {
                assert_eq!(world.value(KEY).as_ref(), Some(&state));
            }
        }
    }
}

/// With strikes in them.
#[test]
fn what_is_no_ban_is_left_as_it_is_and_what_is_one_is_decided_by_both() {
    decides_on_garbled_states(Calls::Bans);
}

/// With replays in them.
#[test]
fn what_is_no_id_is_left_as_it_is_and_what_is_one_is_decided_by_both() {
    decides_on_garbled_states(Calls::Once);
}

fn decides_on_garbled_states(calls: Calls) {
    let server = Standalone::start();
    let seed = super::seed();
    let mut world = World::new(&server, seed, calls);
    let mut random = Random::of_seed(seed);
    let (mut taken, mut left) = (0, 0);
    for _ in 0..400 {
        world.step();
        let names: Vec<_> = world.model.keys().cloned().collect();
        for _ in 0..10 {
            let name = &names[random.index(names.len())];
            let Some(mut state) = world.value(name) else {
                continue;
            };
            let policy = name.split(|byte| *byte == b':').next().unwrap();
            let family = world.questions.scopes.iter();
            let family = { family }.position(|scope| scope.policy().as_bytes() == policy);
            let quota = random.of(&world.questions.families[family.unwrap()]);
            garble(&mut random, &quota, &mut state);
            redis::cmd("SET")
                .arg(KEY)
                .arg(&state)
                .arg("PX")
                .arg(100_000)
                .exec(&mut world.redis)
                .unwrap();

            let is_one = world.decide_on_garbled(&quota, random.below(2) == 0);

            if is_one {
                taken += 1;
            } else {
                left += 1;
                assert_eq!(world.value(KEY), Some(state), "{quota}");
            }
        }
    }
    println!("{taken} taken, {left} left");
    assert!(taken > 100 && left > 100, "{taken} {left}");
}

/// `MGET` shows the key as missing, as if the budget were full, and `SET` would destroy it.
#[test]
fn what_is_no_string_is_left_as_it_is_by_calls_that_charge_several_keys() {
    let server = Standalone::start();
    let mut world = World::new(&server, super::seed(), Calls::Any);
    world.step();
    for quota in [Quota::per_hour(10), Quota::per_hour(7)] {
        for (command, word) in [("RPUSH", "a"), ("SADD", "a")] {
            for (what, names) in [
                ("of a charge each", [&[KEY][..], &[b"another" as &[u8]]]),
                (
                    "of a budget that they share",
                    [&[KEY, b"shared"], &[b"another", b"shared"]],
                ),
                (
                    "of the same budget",
                    [&[b"another" as &[u8]][..], &[b"another", KEY]],
                ),
            ] {
                // given a value of another type where a state would be
                for key in [KEY, b"another", b"shared"] {
                    redis::cmd("DEL").arg(key).exec(&mut world.redis).unwrap();
                }
                let mut put = redis::cmd(command);
                put.arg(KEY).arg(word).exec(&mut world.redis).unwrap();
                let dump = |world: &mut World| {
                    let mut dump = redis::cmd("DUMP");
                    dump.arg(KEY).query::<Vec<u8>>(&mut world.redis).unwrap()
                };
                let before = dump(&mut world);

                // when two requests of one call charge it and another key
                let requests = names.map(|names| {
                    let charge = Charge {
                        scope: Scope::of("garbled", 0, &quota),
                        quota: &quota,
                        key: &Key::from("anybody"),
                        cost: 1,
                        mode: Mode::Enforce,
                    };
                    Request {
                        work: Work::decide(Call::of(&vec![charge; names.len()])),
                        names: names.iter().map(|&name| name.into()).collect(),
                        owed: None,
                        known: None,
                    }
                });
                let mut outcomes = world.outcomes(&requests).unwrap();
                outcomes.sort_by_key(|(position, _)| *position);

                // then the caller that named it gets the error, and the value is unchanged
                for ((_, outcome), names) in outcomes.iter().zip(names) {
                    let outcome = outcome.as_ref().map_err(BackendError::kind);
                    if names.contains(&KEY) {
                        assert_eq!(outcome.err(), Some(FailureKind::ForeignState), "{what}");
                    } else {
                        let decision = outcome.unwrap().as_ref().unwrap();
                        assert!(decision.is_admitted(), "{what}");
                    }
                }
                assert_eq!(dump(&mut world), before, "{command}, two requests {what}");
            }
        }
    }
}

/// The script does not look there, since that would be a scan: it decides, and this process cannot tell what. Then no request
/// of the call passes, not even one for another state, because units that one request took may be the reason for another's
/// denial.
#[test]
fn a_log_that_is_garbled_in_its_middle_passes_nobody() {
    let server = Standalone::start();
    let mut world = World::new(&server, super::seed(), Calls::Any);
    let quota = Quota::per_hour(10).using(Algorithm::SlidingLog);
    world.step();
    let newest = world.questions.now;
    for garbled in [f64::NAN, 0.5, (newest + 1_000_000_000) as f64] {
        let mut log = vec![251, 0, 0, 0, 0];
        for (total, at) in [
            (1_u32, (newest - 2_000_000) as f64),
            (2, garbled),
            (3, newest as f64),
        ] {
            log.extend(at.to_le_bytes());
            log.extend(total.to_le_bytes());
        }
        for with_another in [false, true] {
            let mut set = redis::cmd("SET");
            set.arg(KEY).arg(&log).arg("PX").arg(100_000);
            set.exec(&mut world.redis).unwrap();

            let failed = world.call_on_garbled(&quota, with_another).unwrap_err();

            assert_eq!(failed.kind(), FailureKind::ScriptFailed, "{garbled}");
        }
    }
}
