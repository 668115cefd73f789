//! States and quotients that random calls rarely meet: of other forms, at the ends of cells, and next to a whole number.

use std::slice;
use std::time::Duration;

use tollgate_core::{
    Algorithm, Call, Charge, Decision, Key, Mode, Quota, Scope, State, Timestamp, Unit, decide,
};
use tollgate_testkit::Standalone;

use super::super::expiry::{ends_ms, stated_end_us};
use super::super::questions::{Calls, Random};
use super::super::{World, cases, happened_often, seed};
use super::{call, loaded, told, words};
use crate::wire::state;

const KEY: &[u8] = b"edge";
const NOW_US: u64 = 3_500_000_000_000_000;

/// One key of a server, and the state that core keeps for it.
struct Edge {
    world: World,
    script: String,
}

impl Edge {
    fn new(server: &Standalone) -> Self {
        let mut world = World::new(server, 1, Calls::Alone);
        let script = loaded(&mut world);
        Self { world, script }
    }

    fn put(&mut self, bytes: &[u8], ends_ms: u64) {
        let mut set = redis::cmd("SET");
        set.arg(KEY).arg(bytes).arg("PXAT").arg(ends_ms);
        set.exec(&mut self.world.redis).unwrap();
    }

    fn forget(&mut self) {
        let mut del = redis::cmd("DEL");
        del.arg(KEY).exec(&mut self.world.redis).unwrap();
    }

    fn found(&mut self) -> Option<Vec<u8>> {
        let mut get = redis::cmd("GET");
        get.arg(KEY).query(&mut self.world.redis).unwrap()
    }

    fn reply(&mut self, charge: &Charge<'_>, now_us: u64) -> String {
        let mut set = redis::cmd("SET");
        set.arg("clock").arg(now_us);
        set.exec(&mut self.world.redis).unwrap();
        let words = words(slice::from_ref(charge), now_us).unwrap();
        let names = [KEY.to_vec()];
        call(&mut self.world.redis, &self.script, &names, &words).unwrap()
    }

    /// Asks, and compares with core and its state.
    fn ask(&mut self, charge: &Charge<'_>, now_us: u64, model: &mut State) -> Decision {
        let reply = self.reply(charge, now_us);
        let now = Timestamp::from_micros(now_us);
        let decision = decide(now, Call::of(&[*charge]), slice::from_mut(model));
        assert_eq!(
            reply,
            told(&[*charge], &decision),
            "{charge:?} at {now_us} on {model:?}"
        );
        decision
    }
}

fn charge<'a>(quota: &'a Quota, key: &'a Key, cost: u64, mode: Mode) -> Charge<'a> {
    Charge {
        scope: Scope::of("edges", 0, quota),
        quota,
        key,
        cost,
        mode,
    }
}

/// A state as a bucket may have left it, or as none has.
fn line(random: &mut Random, quota: &Quota) -> Vec<u8> {
    let (exponent, _) = quota.reach().unwrap();
    let own = 128 | exponent;
    let cell = 1_u64 << exponent.max(10);
    let full_us = 1_u64 << exponent;
    let tag = random.of(&[own, own, own, own, own + 1, 127, 128, 176, 177, 178, 0]);
    // Around now, up to ten drains ahead, and next to the end of a cell.
    let around = random.below(8);
    let at = match random.below(4) {
        0 => NOW_US - 4 + around,
        1 => NOW_US + random.below(full_us + 1),
        2 => NOW_US + random.below(20) * full_us / 2 - 4 + around,
        _ => {
            let (us, rest) = drain_of_one(quota);
            let ends = NOW_US + random.below(2) * cell;
            ends - ends % cell + cell - us - u64::from(rest) - 4 + around
        }
    };
    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    let at = match random.below(16) {
        0 => random.of(&[
            -1.0,
            f64::NAN,
            f64::INFINITY,
            f64::from_bits((at as f64).to_bits() | 1),
            9e15,
            2e16,
        ]),
        _ => at as f64,
    };
    let mut line = vec![tag];
    line.extend(at.to_le_bytes());
    let denominator = denominator(quota);
    if random.below(2) == 0 {
        let rest = random.of(&[0, 1, denominator - 1, denominator, denominator / 2]);
        let mark = random.of(&[denominator % 65_521, denominator % 65_521, 2]);
        let parts = random.of(&[0, 0, 0, 0, 1, 31, 32]);
        line.extend(u32::try_from(rest).unwrap().to_le_bytes());
        line.extend(u16::try_from(mark).unwrap().to_le_bytes());
        line.push(parts);
    }
    line
}

fn period_us(quota: &Quota) -> u64 {
    u64::try_from(quota.period().as_micros()).unwrap()
}

fn denominator(quota: &Quota) -> u64 {
    let (mut a, mut b) = (quota.limit(), period_us(quota));
    while b > 0 {
        (a, b) = (b, a % b);
    }
    quota.limit() / a
}

/// Whole microseconds, and true if there is a rest.
fn drain_of_one(quota: &Quota) -> (u64, bool) {
    let (period, limit) = (period_us(quota), quota.limit());
    (period / limit, period % limit > 0)
}

#[test]
fn states_of_every_form_are_told_as_core_decides_or_refused() {
    let server = Standalone::start();
    let mut edge = Edge::new(&server);
    let mut random = Random::of_seed(seed());
    let quotas = [
        "10/s burst 5",
        "7/s burst 3",
        "999983/day burst 50",
        "3000/s burst 2",
    ];
    let quotas = quotas.map(|text| text.parse::<Quota>().unwrap());
    let key = Key::global();
    let (mut foreign, mut changed) = (0, 0);
    for _ in 0..10 * cases(600) {
        let quota = random.of(&quotas);
        let bytes = line(&mut random, &quota);
        let model = state::decode(&bytes, Unit::Gcra);
        let ends_ms_before = match &model {
            Some(_) => stated_end_us(&bytes, Unit::Gcra) / 1_000,
            None => NOW_US / 1_000,
        };
        edge.put(&bytes, ends_ms_before);
        let charge = charge(&quota, &key, 1, Mode::Enforce);
        let Some(mut model) = model else {
            let reply = edge.reply(&charge, NOW_US);
            assert_eq!(reply, format!("0 {NOW_US} 2 1 0 2 0 0 0"), "{bytes:?}");
            assert_eq!(edge.found(), Some(bytes));
            foreign += 1;
            continue;
        };
        let before = model.snapshot();
        edge.ask(&charge, NOW_US, &mut model);
        let found = edge.found().unwrap();
        let read = state::decode(&found, Unit::Gcra).unwrap();
        assert_eq!(read.snapshot(), model.snapshot(), "{quota} on {bytes:?}");
        if read.snapshot() != before {
            changed += 1;
            let ends = u64::try_from(ends_ms(&mut edge.world.redis, KEY)).unwrap();
            assert_eq!(
                ends * 1_000,
                stated_end_us(&found, Unit::Gcra),
                "{quota} on {bytes:?}"
            );
        }
    }
    println!("{foreign} foreign, {changed} changed");
    happened_often(foreign, 100);
    happened_often(changed, 100);
}

/// As many units are left as a double cannot tell from one more, in a bucket whose unit is a fraction of microseconds.
#[test]
fn what_is_left_is_told_right_next_to_a_whole_number_of_units() {
    let server = Standalone::start();
    let mut edge = Edge::new(&server);
    let key = Key::global();
    let quota = Quota::new(1_009, Duration::from_micros(100_907)).burst(1 << 40);
    for mode in [Mode::Enforce, Mode::Shadow] {
        edge.forget();
        let mut model = State::full(&quota);
        edge.ask(&charge(&quota, &key, 40, mode), NOW_US, &mut model);
        for step in 1..700 {
            edge.ask(&charge(&quota, &key, 1, mode), NOW_US + step, &mut model);
        }
    }
}

/// Waits and counts of fading windows whose quotients lie next to a whole number.
#[test]
fn windows_that_fade_are_told_right_next_to_a_whole_number() {
    let server = Standalone::start();
    let mut edge = Edge::new(&server);
    let mut random = Random::of_seed(seed());
    let key = Key::global();
    let mut denied = 0;
    for _ in 0..cases(400) {
        let limit = (1 << 40) - random.below(3);
        let period_us = 31_622_400_000_000 - random.below(3);
        let period = Duration::from_micros(period_us);
        let quota = Quota::try_with(limit, period, Algorithm::SlidingWindow).unwrap();
        edge.forget();
        let mut model = State::full(&quota);
        let start_us = NOW_US - NOW_US % period_us;
        let first = limit - random.below(1_000);
        edge.ask(
            &charge(&quota, &key, first, Mode::Enforce),
            start_us,
            &mut model,
        );
        for _ in 0..4 {
            let at_us = start_us + period_us + random.below(period_us);
            // Nothing but questions: what is left is told, and the cost that does not fit by one.
            let charge = |cost| charge(&quota, &key, cost, Mode::Probe);
            let asked = edge.ask(&charge(1), at_us, &mut model);
            let left = asked.verdicts()[0].remaining();
            for cost in [left, left + 1, left + 2, limit] {
                let cost = cost.clamp(1, limit);
                let asked = edge.ask(&charge(cost), at_us, &mut model);
                denied += usize::from(asked.verdicts()[0].is_denied());
            }
        }
    }
    happened_often(denied, 40);
}
