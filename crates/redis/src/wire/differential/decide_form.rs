//! The decide form against core: each reply says what core decides, and the states are those of core. Between its calls come those
//! of this crate's own client, on the same states.

mod edges;

use std::time::Duration;

use tollgate_core::{
    Algorithm, Call, Charge, Decision, Key, Mode, Outcome, Quota, RetryAfter, Scope, State,
    Timestamp, decide,
};
use tollgate_testkit::Standalone;

use super::questions::{Calls, Random, name};
use super::{Model, World, cases, happened_often, seed};
use crate::name::Name;
use crate::script::Script;
use crate::wire::{Request, decide_form_words};

/// The reply that tells this decision.
fn told(charges: &[Charge<'_>], decision: &Decision) -> String {
    let verdicts = || charges.iter().zip(decision.verdicts()).enumerate();
    let counts = |charge: &Charge<'_>| charge.mode == Mode::Enforce && !charge.quota.is_ban();
    let most = verdicts()
        .filter(|(_, (charge, _))| counts(charge))
        .reduce(|best, one| {
            if one.1.1.is_tighter_than(best.1.1) {
                one
            } else {
                best
            }
        });
    let most = most.map_or(0, |(number, _)| number + 1);
    let retry_after = match (decision.is_admitted(), decision.retry_after()) {
        (true, _) => "0".to_owned(),
        (false, Some(wait)) => wait.as_micros().div_ceil(1_000_000).to_string(),
        (false, None) => "-1".to_owned(),
    };
    let mut text = format!(
        "0 {} {} {most} {retry_after}",
        decision.at().as_micros(),
        u8::from(decision.is_admitted()),
    );
    for verdict in decision.verdicts() {
        let (passes, wait) = match verdict.outcome() {
            Outcome::Allow => (1, "0".to_owned()),
            Outcome::Deny(RetryAfter::Micros(us)) => (0, us.to_string()),
            _ => (0, "-1".to_owned()),
        };
        let reset_us = verdict.reset_after().as_micros();
        text.push_str(&format!(
            " {passes} {} {reset_us} {wait}",
            verdict.remaining()
        ));
    }
    text
}

/// The charges of a request as the form takes them: each state once, bans behind all others and without strikes of their own.
fn taken<'a>(request: &'a Request) -> Vec<(Charge<'a>, &'a Name)> {
    let mut taken: Vec<(Charge<'_>, &Name)> = Vec::new();
    for (charge, name) in { request.work.charges() }
        .unwrap_or_default()
        .iter()
        .zip(&request.names)
    {
        if taken.iter().all(|(_, known)| *known != name) {
            let charge = charge.borrow();
            let cost = if charge.quota.is_ban() {
                0
            } else {
                charge.cost
            };
            taken.push((Charge { cost, ..charge }, name));
        }
    }
    taken.sort_by_key(|(charge, _)| charge.quota.is_ban());
    taken
}

/// The words of the charges; `None` if the form decides about none such.
fn words(charges: &[Charge<'_>], process_us: u64) -> Option<Vec<Vec<u8>>> {
    let time = Timestamp::from_micros(process_us);
    let words = charges.iter().enumerate().map(|(number, charge)| {
        let before = charges[..number].iter().rev().take(32).enumerate();
        let guards = before.fold(0, |bits, (back, other)| {
            bits | u32::from(charge.guards(other)) << back
        });
        Some(decide_form_words(charge, guards, time)?.to_vec())
    });
    words.collect()
}

/// The decide form beside this crate's own client.
struct Gateway {
    world: World,
    script: String,
    asked: usize,
    admitted: usize,
    /// The denied requests of several charges, some of which pass.
    denied_in_part: usize,
    spared: usize,
}

impl Gateway {
    fn new(server: &Standalone, calls: Calls) -> Self {
        let mut world = World::new(server, seed(), calls);
        let script = loaded(&mut world);
        Self {
            world,
            script,
            asked: 0,
            admitted: 0,
            denied_in_part: 0,
            spared: 0,
        }
    }

    fn step(&mut self) {
        for request in self.world.questions.next() {
            let is_grant = request.least().is_some();
            let taken = taken(&request);
            let charges: Vec<_> = taken.iter().map(|(charge, _)| *charge).collect();
            // Now and then this crate's client asks, as another process would.
            let is_other = self.world.questions.flips(6);
            match words(&charges, self.world.questions.process_us) {
                Some(words) if !charges.is_empty() && !is_grant && !is_other => {
                    let names: Vec<_> = taken.iter().map(|(_, name)| (*name).clone()).collect();
                    self.ask(&charges, &names, &words);
                }
                _ => self.world.play(&[request]),
            }
        }
    }

    fn ask(&mut self, charges: &[Charge<'_>], names: &[Name], words: &[Vec<u8>]) {
        let world = &mut self.world;
        let now = Timestamp::from_micros(world.questions.now);
        redis::cmd("SET")
            .arg("clock")
            .arg(now.as_micros())
            .exec(&mut world.redis)
            .unwrap();
        for name in names {
            world.move_totals(name);
        }
        let reply = call(&mut world.redis, &self.script, names, words).unwrap();
        for (charge, name) in charges.iter().zip(names) {
            let full = || State::full(charge.quota);
            world.model.entry(name.clone()).or_insert_with(full);
        }
        let mut states = Model {
            names,
            states: &mut world.model,
        };
        let decision = decide(now, Call::of(charges), &mut states);
        world.questions.receipts.extend(decision.receipts(charges));
        assert_eq!(reply, told(charges, &decision), "{charges:?}");
        for name in names {
            world.compare(name, &[]);
        }
        self.asked += 1;
        self.admitted += usize::from(decision.is_admitted());
        let passes = decision.verdicts().iter().filter(|it| it.is_allowed());
        self.denied_in_part += usize::from(!decision.is_admitted() && passes.count() > 0);
        self.spared += usize::from(charges.iter().zip(decision.verdicts()).any(|(charge, it)| {
            charge.quota.is_ban() && charge.mode == Mode::Shadow && it.is_denied()
        }));
    }
}

fn loaded(world: &mut World) -> String {
    redis::cmd("SCRIPT")
        .arg("LOAD")
        .arg(Script::decide_form_with_clock("clock").source())
        .query(&mut world.redis)
        .unwrap()
}

fn call(
    redis: &mut redis::Connection,
    script: &str,
    names: &[Name],
    words: &[Vec<u8>],
) -> redis::RedisResult<String> {
    let mut command = redis::cmd("EVALSHA");
    command.arg(script).arg(names.len());
    for name in names {
        command.arg(&name[..]);
    }
    for words in words {
        command.arg(&words[..]);
    }
    command.query(redis)
}

fn run(calls: Calls, steps: u64) -> Gateway {
    let server = Standalone::start();
    let mut gateway = Gateway::new(&server, calls);
    for _ in 0..cases(steps) {
        gateway.step();
    }
    let (asked, admitted) = (gateway.asked, gateway.admitted);
    println!("{asked} asked in the form, {admitted} admitted");
    happened_often(asked, 20);
    happened_often(admitted, 5);
    gateway
}

#[test]
fn the_decide_form_tells_what_core_decides() {
    let gateway = run(Calls::Any, 1_000);
    let partly = gateway.denied_in_part;
    happened_often(partly, 10);
}

#[test]
fn a_lone_charge_is_told_as_core_decides() {
    drop(run(Calls::Alone, 8_000));
}

#[test]
fn windows_are_told_as_core_decides_by_a_clock_that_steps_back_and_forth() {
    drop(run(Calls::AtBoundaries, 2_000));
}

#[test]
fn windows_of_calendars_are_told_as_core_decides() {
    drop(run(Calls::Calendars, 2_000));
}

/// This crate's client gives back what the form has charged, and the form reads what credits leave.
#[test]
fn buckets_with_credits_are_told_as_core_decides() {
    drop(run(Calls::Settled, 2_000));
}

#[test]
fn bans_are_told_as_core_decides() {
    let gateway = run(Calls::Bans, 6_000);
    let (banned, spared) = (gateway.world.banned, gateway.spared);
    println!("{banned} states of bans in force, {spared} on trial");
    happened_often(banned, 100);
    happened_often(spared, 20);
}

/// A charge on trial strikes for the ban of its policy. The request passes without a wait, and the next one is banned.
#[test]
fn a_request_whose_trial_is_the_last_strike_passes_and_the_next_is_banned() {
    let server = Standalone::start();
    let mut gateway = Gateway::new(&server, Calls::Bans);
    let questions = &gateway.world.questions;
    let (quota, ban) = (questions.families[0][0], questions.families[1][0]);
    let key = Key::global();
    let trial = Charge {
        scope: questions.scopes[0],
        quota: &quota,
        key: &key,
        cost: 2,
        mode: Mode::Shadow,
    };
    let ban = Charge {
        scope: questions.scopes[1],
        quota: &ban,
        cost: 0,
        mode: Mode::Enforce,
        ..trial
    };
    let charges = [trial, ban];
    let names = charges.map(|charge| name(charge.scope, charge.key));
    let words = words(&charges, questions.process_us).unwrap();
    for _ in 0..3 {
        gateway.ask(&charges, &names, &words);
    }
    assert_eq!((gateway.asked, gateway.admitted), (3, 2));
}

#[test]
fn what_warms_up_is_told_as_core_decides() {
    let gateway = run(Calls::Warming, 4_000);
    assert!(gateway.world.lukewarm > 100, "{}", gateway.world.lukewarm);
}

/// Quotas without a wait read the states of those with one, as while a deploy takes the wait away.
#[test]
fn buckets_in_which_others_wait_are_told_as_core_decides() {
    drop(run(Calls::Waiting, 3_000));
}

/// A quota of any size and fraction.
fn any_quota(random: &mut Random) -> Option<Quota> {
    let sizes = [10, 1_000, 1 << 20, 1 << 33, 1 << 40];
    let most = random.of(&sizes);
    // Mostly next to a power of two.
    let limit = match random.below(3) {
        0 => 1 + random.below(most),
        _ => most - random.below(10),
    };
    let periods = [1, 7, 1_000, 1_000_003, 60_000_000, 86_400_000_000];
    let period = Duration::from_micros(random.of(&periods) * (1 + random.below(300)));
    let algorithm = random.of(&[
        Algorithm::Gcra,
        Algorithm::Gcra,
        Algorithm::Gcra,
        Algorithm::SlidingWindow,
    ]);
    let quota = Quota::try_with(limit, period, algorithm).ok()?;
    if algorithm == Algorithm::Gcra && random.below(2) == 0 {
        let most = random.of(&[3, 100, 1 << 30, 1 << 40]);
        let burst = 1 + random.below(most);
        return quota.try_burst(burst).ok();
    }
    Some(quota)
}

/// The units that are left, and the waits, are quotients of numbers whose products no double holds.
#[test]
fn quotas_of_every_size_are_told_to_the_last_unit_and_microsecond() {
    let server = Standalone::start();
    let mut world = World::new(&server, 1, Calls::Alone);
    let script = loaded(&mut world);
    let mut random = Random::of_seed(seed());
    let key = Key::global();
    let (mut asked, mut denied) = (0, 0);
    for _ in 0..cases(4_000) {
        let Some(quota) = any_quota(&mut random) else {
            continue;
        };
        let scope = Scope::of("sizes", 0, &quota);
        let names = [name(scope, &key)];
        let mut model = State::full(&quota);
        let capacity = quota.capacity();
        let mut now_us = 3_500_000_000_000_000 + random.below(1 << 40);
        redis::cmd("DEL")
            .arg(&names[0])
            .exec(&mut world.redis)
            .unwrap();
        for _ in 0..4 {
            let cost = random.of(&[
                1,
                2,
                capacity / 2 + 1,
                capacity / 3 + 1,
                capacity,
                capacity + 1,
            ]);
            // A shadow takes the general path.
            let mode = random.of(&[Mode::Enforce, Mode::Enforce, Mode::Shadow]);
            let charges = [Charge {
                scope,
                quota: &quota,
                key: &key,
                cost,
                mode,
            }];
            redis::cmd("SET")
                .arg("clock")
                .arg(now_us)
                .exec(&mut world.redis)
                .unwrap();
            let reply = call(
                &mut world.redis,
                &script,
                &names,
                &words(&charges, now_us).unwrap(),
            );
            let now = Timestamp::from_micros(now_us);
            let decision = decide(now, Call::of(&charges), std::slice::from_mut(&mut model));
            assert_eq!(
                reply.unwrap(),
                told(&charges, &decision),
                "{cost} of {quota} at {now_us}"
            );
            asked += 1;
            denied += usize::from(decision.verdicts()[0].is_denied());
            let period_us = u64::try_from(quota.period().as_micros()).unwrap();
            let most = random.of(&[1, 1, 2, period_us, 2 * period_us]);
            now_us += random.below(most);
        }
    }
    println!("{asked} asked, {denied} denied");
    happened_often(asked, 100);
    happened_often(denied, 20);
}

/// The short path, and not the general one, decides on the usual states of a lone charge.
#[test]
fn the_usual_lone_charges_take_the_short_path() {
    let server = Standalone::start();
    let mut world = World::new(&server, 1, Calls::Alone);
    let script = Script::decide_form_with_clock("clock").source().to_owned();
    let (short, _) = script
        .split_once("-- Other calls are checked")
        .expect("the end of the short path");
    let script: String = redis::cmd("SCRIPT")
        .arg("LOAD")
        .arg(format!("{short} return 'left'"))
        .query(&mut world.redis)
        .unwrap();
    let start = world.questions.now;
    let key = Key::global();
    for quota in ["10/s burst 5", "7/s burst 3", "999983/day burst 50"] {
        let quota: Quota = quota.parse().unwrap();
        let scope = Scope::of("short", 0, &quota);
        let names = [name(scope, &key)];
        let mut model = State::full(&quota);
        let mut denied = 0;
        redis::cmd("DEL")
            .arg(&names[0])
            .exec(&mut world.redis)
            .unwrap();
        for step in 0..400 {
            let now_us = start + step * 17_000;
            let charges = [Charge {
                scope,
                quota: &quota,
                key: &key,
                cost: 1,
                mode: Mode::Enforce,
            }];
            redis::cmd("SET")
                .arg("clock")
                .arg(now_us)
                .exec(&mut world.redis)
                .unwrap();
            let words = words(&charges, now_us).unwrap();
            let reply = call(&mut world.redis, &script, &names, &words).unwrap();
            let now = Timestamp::from_micros(now_us);
            let decision = decide(now, Call::of(&charges), std::slice::from_mut(&mut model));
            assert_eq!(reply, told(&charges, &decision), "{quota}, step {step}");
            denied += usize::from(!decision.is_admitted());
        }
        assert!(denied > 20, "{denied} of {quota}");
    }
}
