//! States in whose queue requests wait, made by hand: with points, places and rests at the edges, and more places than a line
//! keeps.

use std::slice;
use std::time::Duration;

use smallvec::smallvec;
use tollgate_core::{
    Call, Charge, FailureKind, Key, Mode, Quota, Receipt, Scope, Timestamp, Unit, decide,
};
use tollgate_testkit::Standalone;

use super::expiry::{ends_ms, stated_end_us};
use super::questions::{Calls, Random, name};
use super::{World, cases, happened_often, seed};
use crate::wire::{Request, Work, state};

const KEY: &[u8] = b"line";
const NOW: u64 = 3_500_000_000_000_000;

/// Quotas whose charges drain in a few microseconds, so that edges are met often.
fn quotas() -> Vec<Quota> {
    let us = Duration::from_micros;
    let mut quotas = Vec::new();
    for (limit, period, burst, wait) in [(1, 3, 2, 9), (3, 10, 2, 20), (3, 10, 5, 4), (7, 4, 9, 3)]
    {
        let quota = Quota::new(limit, us(period)).burst(burst);
        let waits = quota.wait_up_to(us(wait));
        quotas.extend([waits, waits, waits.waiting_at_most(us(wait / 2)), quota]);
    }
    quotas
}

/// A rest of this quota's fractions, or as many of them as no rest is.
fn rest(random: &mut Random, denominator: u64) -> u32 {
    let rest = match random.below(6) {
        0 => denominator + random.below(2),
        1 | 2 => 0,
        _ => random.below(denominator),
    };
    u32::try_from(rest).unwrap()
}

fn put_us(out: &mut Vec<u8>, us: u64, bytes: usize) {
    out.extend_from_slice(&us.to_le_bytes()[..bytes]);
}

fn line(random: &mut Random, quota: &Quota) -> Vec<u8> {
    // Some of them are not states.
    let is_odd = random.below(4) == 0;
    let least = u64::from(!is_odd);
    let (exponent, parts) = quota.reach().unwrap();
    let denominator = [3, 7].into_iter().find(|of| quota.limit() == *of);
    let denominator = denominator.unwrap_or(1);
    let mark = |random: &mut Random| {
        let odd = u16::try_from(random.below(3)).unwrap();
        match random.below(6) {
            0 => odd,
            _ => u16::try_from(denominator).unwrap(),
        }
    };
    let mut line = vec![177, 128 | exponent];
    let drain =
        u128::from(quota.capacity()) * quota.period().as_micros() / u128::from(quota.limit());
    let full = u64::try_from(drain + quota.longest_wait().as_micros()).unwrap();
    let at = NOW - 3 + random.below(full + 8);
    line.extend((at as f64).to_le_bytes());
    line.extend(rest(random, denominator).to_le_bytes());
    line.extend(mark(random).to_le_bytes());
    line.push(if is_odd {
        random.of(&[parts, 31, 32])
    } else {
        parts
    });
    put_us(&mut line, NOW - 5 + random.below(25), 7);
    line.extend(mark(random).to_le_bytes());
    let gaps = random.of(&[0, 1, 1, 2, 3, 3, 5, 31, 32, if is_odd { 33 } else { 4 }]);
    line.push(gaps);
    let mut from = NOW - 4 + random.below(8);
    for _ in 0..gaps {
        put_us(&mut line, from, 7);
        line.extend(rest(random, denominator).to_le_bytes());
        let to = from + least.max(random.of(&[0, 1, 2, 3, 4, 6, 7, 10]));
        put_us(&mut line, to, 7);
        line.extend(rest(random, denominator).to_le_bytes());
        from = to + least.max(random.of(&[0, 1, 1, 2, 5]));
    }
    let credits = random.of(&[0, 0, 0, 1, 2, 32, if is_odd { 33 } else { 3 }]);
    let credits: Vec<_> = (0..4 * credits)
        .map(|_| NOW - 20 + random.below(40))
        .collect();
    // The last end of any stands before them.
    if let Some(last) = credits.iter().skip(3).step_by(4).max() {
        put_us(&mut line, *last, 7);
    }
    credits.iter().for_each(|us| put_us(&mut line, *us, 7));
    line
}

fn request(quota: &Quota, cost: u64) -> (Request, Key) {
    let key = Key::from("anybody");
    let charge = Charge {
        scope: Scope::of("lines", 0, quota),
        quota,
        key: &key,
        cost,
        mode: Mode::Enforce,
    };
    let request = Request {
        work: Work::decide(Call::of(&[charge])),
        names: smallvec![KEY.into()],
        owed: None,
        known: None,
    };
    (request, key)
}

#[test]
fn lines_of_every_form_are_decided_as_core_decides() {
    let server = Standalone::start();
    let seed = seed();
    let mut world = World::new(&server, seed, Calls::Waiting);
    let mut random = Random::of_seed(seed);
    let quotas = quotas();
    let (mut foreign, mut waited) = (0, 0);
    for _ in 0..cases(6_000) {
        let (of, quota) = (random.of(&quotas), random.of(&quotas));
        // Half of them are of the quota that charges.
        let of = if random.below(2) == 0 { quota } else { of };
        let Some((..)) = of.reach() else { continue };
        let bytes = line(&mut random, &of);
        let ends_us = match state::decode(&bytes, Unit::Gcra) {
            Some(_) => stated_end_us(&bytes, Unit::Gcra),
            None => 2 * NOW,
        };
        redis::pipe()
            .cmd("SET")
            .arg("clock")
            .arg(NOW)
            .cmd("SET")
            .arg(KEY)
            .arg(&bytes)
            .arg("PXAT")
            .arg(ends_us / 1_000)
            .exec(&mut world.redis)
            .unwrap();
        let mut model = state::decode(&bytes, Unit::Gcra);
        for _ in 0..3 {
            let cost = 1 + random.below(quota.capacity() + 1);
            let (request, key) = request(&quota, cost);
            let outcomes = world.outcomes(slice::from_ref(&request)).unwrap();
            let (_, outcome) = outcomes.into_iter().next().unwrap();
            let mut get = redis::cmd("GET");
            let found: Vec<u8> = get.arg(KEY).query(&mut world.redis).unwrap();
            let Some(state) = &mut model else {
                foreign += 1;
                assert_eq!(outcome.unwrap_err().kind(), FailureKind::ForeignState);
                assert_eq!(found, bytes);
                continue;
            };
            let charge = Charge {
                scope: Scope::of("lines", 0, &quota),
                quota: &quota,
                key: &key,
                cost,
                mode: Mode::Enforce,
            };
            let before = state.snapshot();
            let now = Timestamp::from_micros(NOW);
            let expected = decide(now, Call::of(&[charge]), slice::from_mut(state));
            waited += usize::from(!expected.wait().is_zero());
            assert_eq!(
                outcome.unwrap().as_ref(),
                Some(&expected),
                "{cost} of {quota} on {before:?}"
            );
            let read = state::decode(&found, Unit::Gcra).unwrap();
            assert_eq!(
                read.snapshot(),
                state.snapshot(),
                "{cost} of {quota} on {before:?}"
            );
            if read.snapshot() != before {
                let ends = u64::try_from(ends_ms(&mut world.redis, KEY)).unwrap();
                assert_eq!(ends * 1_000, stated_end_us(&found, Unit::Gcra));
            }
        }
    }
    println!("{foreign} were foreign, {waited} waited");
    happened_often(foreign, 100);
    happened_often(waited, 100);
}

impl World {
    fn of_line(&self, family: usize, work: Work) -> Request {
        Request {
            work,
            names: smallvec![name(self.questions.scopes[family], &Key::from(0_u64))],
            owed: None,
            known: None,
        }
    }

    /// A charge by the first quota of a family, which passes, be it later.
    fn comes(&mut self, family: usize, cost: u64) -> Receipt {
        let (scope, key) = (self.questions.scopes[family], Key::from(0_u64));
        let charge = Charge {
            scope,
            quota: &self.questions.families[family][0].clone(),
            key: &key,
            cost,
            mode: Mode::Enforce,
        };
        let request = self.of_line(family, Work::decide(Call::of(&[charge])));
        self.play(&[request]);
        self.questions.receipts.pop().unwrap()
    }

    fn leaves(&mut self, family: usize, receipt: Receipt, units: u64) {
        let request = self.of_line(family, Work::Credit(receipt, units));
        self.play(&[request]);
    }
}

/// A line keeps 32 free places, and the earliest makes room for one more.
#[test]
fn more_free_places_than_a_line_keeps_are_forgotten_as_core_forgets_them() {
    let server = Standalone::start();
    for is_first_first in [true, false] {
        let mut world = World::new(&server, seed(), Calls::Waiting);
        let mut receipts: Vec<_> = (0..100).map(|_| world.comes(1, 1)).collect();
        if !is_first_first {
            receipts.reverse();
        }
        // Every other one leaves.
        for receipt in receipts.into_iter().skip(1).step_by(2) {
            world.leaves(1, receipt, 1);
        }
        assert!(world.with_gaps > 40, "{}", world.with_gaps);
    }
}

/// A free place is forgotten with the first microsecond in which it helps no request any more, if another becomes free.
#[test]
fn a_free_place_ends_with_its_last_microsecond() {
    const INTERVAL: u64 = 100_000;

    let server = Standalone::start();
    for before_us in [1, 0] {
        let mut world = World::new(&server, seed(), Calls::Waiting);
        let start = world.questions.now;
        let [_, second, _, fourth, ..] = [(); 6].map(|()| world.comes(0, 1));
        world.questions.now = start + INTERVAL / 2;
        world.leaves(0, second, 1);
        world.questions.now = start + 2 * INTERVAL - before_us;
        world.leaves(0, fourth, 1);
        world.comes(0, 1);
    }
}

/// While any request waits no credit gives anything back, and from the very moment of the last turn on it does.
#[test]
fn credits_count_again_with_the_last_turn() {
    const INTERVAL: u64 = 100_000;

    let server = Standalone::start();
    for before_us in [1, 0] {
        let mut world = World::new(&server, seed(), Calls::Waiting);
        let [first, last] = [(); 2].map(|()| world.comes(0, 1));
        world.questions.now += INTERVAL - before_us;
        world.leaves(0, first, 1);
        world.leaves(0, last, 1);
        world.comes(0, 1);
    }
}

/// When the last of a line has left, credits count again once all has drained that was charged by then: the line may end among
/// charges that have passed, with a free place before the last, or after a wait that was given back in part.
#[test]
fn credits_count_again_soon_after_the_last_has_left() {
    const INTERVAL: u64 = 142_857;

    let server = Standalone::start();
    for (leaves, units) in [
        (vec![3], 1),
        (vec![3, 2], 1),
        (vec![2, 3], 1),
        (vec![1, 2, 3], 1),
        (vec![3, 2, 1], 1),
        (vec![3, 2, 1], 2),
    ] {
        for pause in [0, 1, INTERVAL - 1, INTERVAL, 4 * INTERVAL, 9 * INTERVAL] {
            let mut world = World::new(&server, seed(), Calls::Waiting);
            let mut receipts: Vec<_> = [1, 2, 2, 3, 1]
                .map(|cost| Some(world.comes(1, cost)))
                .into();
            world.questions.now += INTERVAL / 7;
            let last = receipts.pop().flatten().unwrap();
            world.leaves(1, last, 1);
            for at in &leaves {
                let receipt = receipts[*at].take().unwrap();
                world.leaves(1, receipt, units);
            }
            world.questions.now += pause;
            let passed = world.comes(1, 1);
            world.questions.now += 1;
            world.leaves(1, passed, 1);
            let first = receipts[0].take().unwrap();
            world.leaves(1, first, 1);
            world.comes(1, 1);
        }
    }
}

/// A receipt from before a reset names a stretch that others may have now.
#[test]
fn a_place_from_before_a_reset_is_free_only_if_nobody_else_made_it_so() {
    let server = Standalone::start();
    let mut world = World::new(&server, seed(), Calls::Waiting);
    for (costs, newer) in [([1, 2, 2, 2], 1), ([3, 1, 1, 2], 2), ([5, 1, 4, 1], 1)] {
        let older = costs.map(|cost| world.comes(1, cost));
        let forgets = Work::Reset(world.questions.scopes[1]);
        let reset = world.of_line(1, forgets);
        world.play(&[reset]);
        let mut newer: Vec<_> = (0..15).map(|_| world.comes(1, newer)).collect();
        for at in [12, 9, 7] {
            let receipt = newer.swap_remove(at);
            let units = receipt.cost();
            world.leaves(1, receipt, units);
        }
        for receipt in older {
            let units = receipt.cost();
            world.leaves(1, receipt, units);
        }
        for cost in [1, 2, 1, 1] {
            world.comes(1, cost);
        }
        let forgets = Work::Reset(world.questions.scopes[1]);
        let reset = world.of_line(1, forgets);
        world.play(&[reset]);
    }
}

/// Stretches from a part of a microsecond to some, of charges that leave whole or in part.
#[test]
fn places_of_any_length_become_free() {
    let server = Standalone::start();
    let mut world = World::new(&server, seed(), Calls::Waiting);
    let mut receipts: Vec<_> = { [30, 1, 2, 3, 4, 3, 6, 3, 1, 2, 3, 3].into_iter() }
        .map(|cost| world.comes(3, cost))
        .collect();
    for at in [3, 7, 5] {
        let receipt = receipts.remove(at);
        world.leaves(3, receipt, 3);
    }
    for receipt in receipts.into_iter().rev() {
        let units = receipt.cost() / 2;
        world.leaves(3, receipt, units);
    }
}
