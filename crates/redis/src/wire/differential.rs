//! The scripts against core: random operations on a real server give the states and verdicts that core gives.
//!
//! The shipped script runs with its one `TIME` line replaced, so that time jumps forward and back. The virtual clock
//! stands far in the future, so that no key expires meanwhile.

mod decide_form;
mod expiry;
mod garbled;
mod guarded_paths;
mod held;
mod held_paths;
mod lean_paths;
mod lines;
mod paths;
mod questions;

use std::collections::HashMap;
use std::time::Duration;

use redis::{Client, Connection, RedisResult, Value};
use tollgate_core::{
    Ban, Call, Charge, Decision, Key, Mode, Quota, Snapshot, State, States, Timestamp, Unit, decide,
};
use tollgate_testkit::{Standalone, cases, seed};

use self::expiry::{stated_end_us, stored};
use self::questions::{Calls, Questions, name};
use super::calendars::Calendars;
use super::plan::ScriptCall;
use super::reply::Outcome;
use super::{Plan, Reply, Request, Work, replay, state};
use crate::name::Name;
use crate::script::{Composed, Script, Shape};

struct World {
    questions: Questions,
    redis: Connection,
    script: String,
    composed: Composed,
    /// The calls that the script of their shape has answered, and those that it left to the general one.
    answered: usize,
    left: usize,
    model: HashMap<Name, State>,
    requests: usize,
    admitted: usize,
    /// The states with free places that were compared.
    with_gaps: usize,
    /// The states of quotas that warm up, neither cold nor warm, that were compared.
    lukewarm: usize,
    /// The states of bans in force that were compared.
    banned: usize,
    /// The requests for as much as there is.
    grants: usize,
    /// The states of ids with replays that were compared.
    replayed: usize,
}

/// The model's states of one request, by number of charge.
struct Model<'a> {
    names: &'a [Name],
    states: &'a mut HashMap<Name, State>,
}

impl States for Model<'_> {
    fn state(&mut self, index: usize) -> &mut State {
        self.states.get_mut(&self.names[index]).unwrap()
    }
}

impl World {
    fn new(server: &Standalone, seed: u64, calls: Calls) -> Self {
        let url = format!("redis+unix://{}", server.socket().display());
        let mut redis = Client::open(url).unwrap().get_connection().unwrap();
        redis::cmd("FLUSHALL").exec(&mut redis).unwrap();
        let script = redis::cmd("SCRIPT")
            .arg("LOAD")
            .arg(Script::with_clock("clock").source())
            .query(&mut redis)
            .unwrap();
        Self {
            questions: Questions::new(calls, seed),
            redis,
            script,
            composed: Composed::with_clock("clock"),
            answered: 0,
            left: 0,
            model: HashMap::new(),
            requests: 0,
            admitted: 0,
            with_gaps: 0,
            lukewarm: 0,
            banned: 0,
            grants: 0,
            replayed: 0,
        }
    }

    /// Core's answer, on the model's own states.
    fn expect(&mut self, request: &Request) -> Option<Decision> {
        let now = Timestamp::from_micros(self.questions.now);
        match &request.work {
            Work::Decide(charges, at_least) => {
                let charges: Vec<_> = charges.iter().map(|charge| charge.borrow()).collect();
                for (charge, name) in charges.iter().zip(&request.names) {
                    let full = || State::full(charge.quota);
                    self.model.entry(name.clone()).or_insert_with(full);
                }
                let mut states = Model {
                    names: &request.names,
                    states: &mut self.model,
                };
                self.grants += usize::from(at_least.is_some());
                let call = Call {
                    charges: &charges,
                    at_least: *at_least,
                };
                let decision = decide(now, call, &mut states);
                self.questions.receipts.extend(decision.receipts(&charges));
                Some(decision)
            }
            Work::Credit(receipt, n) => {
                let id = request.names.get(1);
                let id = id.map(|name| self.model.get_mut(name).unwrap());
                if id.is_none_or(|id| receipt.close(id, now)) {
                    let state = self.model.get_mut(&request.names[0]);
                    receipt.credit_to(state.unwrap(), now, *n);
                }
                None
            }
            Work::Debit(receipt, n) => {
                let state = self.model.get_mut(&request.names[0]);
                receipt.debit_from(state.unwrap(), now, *n);
                None
            }
            Work::Reset(scope) => {
                let receipts = &mut self.questions.receipts;
                receipts.retain(|receipt| name(receipt.scope(), receipt.key()) != request.names[0]);
                let quota = self.questions.families[self
                    .questions
                    .scopes
                    .iter()
                    .position(|of| of == scope)
                    .unwrap()][0];
                self.model
                    .insert(request.names[0].clone(), State::full(&quota));
                None
            }
            Work::Tell(_) => None,
        }
    }

    /// The reply of the script of the call's shape, or of the general one if there is none or if that leaves the call to it.
    fn reply_to(&mut self, call: &ScriptCall<'_>) -> RedisResult<Value> {
        if let Some(script) =
            Shape::of(&call.runs, call.keys.len()).and_then(|shape| self.composed.script(shape))
        {
            let load = redis::cmd("SCRIPT")
                .arg("LOAD")
                .arg(script.source())
                .to_owned();
            load.exec(&mut self.redis)?;
            let reply = self.call(script.sha(), call)?;
            if reply != Value::BulkString(Vec::new()) {
                self.answered += 1;
                return Ok(reply);
            }
            self.left += 1;
        }
        let script = self.script.clone();
        self.call(&script, call)
    }

    fn call(&mut self, script: &str, call: &ScriptCall<'_>) -> RedisResult<Value> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(script).arg(call.keys.len());
        let runs = call.runs.iter().map(|run| &run[..]);
        for word in call.keys.iter().copied().chain(runs) {
            command.arg(word);
        }
        command.query(&mut self.redis)
    }

    /// One call and its effects.
    fn step(&mut self) {
        let requests = self.questions.next();
        self.play(&requests);
    }

    fn play(&mut self, requests: &[Request]) {
        let calendars = Calendars::at(self.questions.process_us);
        let (plan, call) = Plan::with(calendars, requests);

        for key in &call.keys {
            self.move_totals(key);
        }
        let mut clock = redis::cmd("SET");
        clock.arg("clock").arg(self.questions.now);
        clock.exec(&mut self.redis).unwrap();
        let value = self.reply_to(&call).unwrap();
        let reply = Reply::parse(value).unwrap();
        let outcomes = replay(
            &reply,
            &plan,
            call.keys.len(),
            |position| &requests[position],
            |_, _, _| {},
        );

        for (position, outcome) in outcomes.unwrap() {
            let expected = self.expect(&requests[position]);
            self.requests += 1;
            self.admitted += usize::from(expected.as_ref().is_some_and(Decision::is_admitted));
            let outcome: Outcome = outcome;
            assert_eq!(outcome.unwrap(), expected, "{:?}", requests[position]);
        }
        for key in &call.keys {
            self.compare(key, requests);
        }
    }

    /// One charge by a quota of this family, at this time. Returns the state that it leaves, which is core's.
    fn charge(
        &mut self,
        family: usize,
        key: &Key,
        quota: &Quota,
        cost: u64,
        at_us: u64,
    ) -> Snapshot {
        self.questions.now = at_us;
        let charge = Charge {
            scope: self.questions.scopes[family],
            quota,
            key,
            cost,
            mode: Mode::Enforce,
        };
        let name = name(charge.scope, charge.key);
        self.play(&[Request {
            work: Work::decide(Call::of(&[charge])),
            names: [name.clone()].into_iter().collect(),
            owed: None,
            known: None,
        }]);
        self.model[&name].snapshot()
    }

    fn family(&self, key: &[u8]) -> usize {
        let policy = key.split(|byte| *byte == b':').next().unwrap();
        let mut scopes = self.questions.scopes.iter();
        let family = scopes.position(|scope| scope.policy().as_bytes() == policy);
        family.unwrap()
    }

    fn unit(&self, key: &[u8]) -> Unit {
        self.questions.scopes[self.family(key)].unit()
    }

    /// Shifts the totals of a log now and then, mostly to just before they leave 31 or 32 bits: only their differences mean
    /// anything.
    fn move_totals(&mut self, key: &[u8]) {
        const HEAD: usize = 5;
        const ENTRY: usize = 12;
        if !matches!(self.unit(key), Unit::SlidingLog { .. }) || !self.questions.flips(4) {
            return;
        }
        let found: Option<Vec<u8>> = redis::cmd("GET").arg(key).query(&mut self.redis).unwrap();
        let Some(mut state) = found else {
            return;
        };
        let newest = state.len() - 4;
        let total = |at: &[u8]| u32::from_le_bytes(at.try_into().unwrap());
        let by = (self.questions.total()).wrapping_sub(total(&state[newest..]));
        let totals = (HEAD + ENTRY - 4..state.len()).step_by(ENTRY);
        for at in std::iter::once(1).chain(totals) {
            let moved = total(&state[at..at + 4]).wrapping_add(by);
            state[at..at + 4].copy_from_slice(&moved.to_le_bytes());
        }
        let mut set = redis::cmd("SETRANGE");
        set.arg(key).arg(0).arg(&state);
        set.exec(&mut self.redis).unwrap();
    }

    fn compare(&mut self, key: &[u8], requests: &[Request]) {
        let found = stored(&mut self.redis, key);
        let unit = self.unit(key);
        let now = Timestamp::from_micros(self.questions.now);
        let absent = State::full(&self.questions.families[self.family(key)][0]);
        let model = self.model.get_mut(key).unwrap();
        let Some((found, ends)) = found else {
            // A missing state is a full budget. Time alone leaves it so, and only core's has moved to the present window.
            let is_absent = counts_nothing(&model.snapshot());
            assert!(
                is_absent || model.meaningless_at(unit) <= now,
                "{model:?} is missing after {requests:?}"
            );
            if is_absent {
                *model = absent;
            }
            return;
        };
        let state = state::decode(&found, unit).unwrap();
        assert_eq!(
            state.snapshot(),
            model.snapshot(),
            "after {requests:?} at {}",
            self.questions.now
        );
        if let Snapshot::Gcra {
            queue, cold_at_us, ..
        } = state.snapshot()
        {
            self.lukewarm += usize::from(cold_at_us > self.questions.now);
            self.with_gaps += usize::from(!queue.gaps.is_empty());
            // Rests of no place have no denominator.
            if found[0] == 177 && queue.gaps.is_empty() {
                assert_eq!(found[24..26], [0, 0]);
            }
        }
        if let Snapshot::Ban { until_us, .. } = state.snapshot() {
            self.banned += usize::from(self.questions.now < until_us);
        }
        if let Snapshot::Once { replays, .. } = state.snapshot() {
            self.replayed += usize::from(replays > 0);
        }
        // The state outlives its meaning.
        let ends = u64::try_from(ends).expect("an expiry") * 1_000;
        assert!(
            ends >= state.meaningless_at(unit).as_micros(),
            "{state:?} ends at {ends}"
        );
        assert_eq!(ends, stated_end_us(&found, unit), "{state:?}");
    }
}

/// True for the state of a window in which nothing is charged.
fn counts_nothing(state: &Snapshot) -> bool {
    match state {
        Snapshot::FixedWindow { count, .. }
        | Snapshot::IntervalRefill { count, .. }
        | Snapshot::Calendar { count, .. } => *count == 0,
        Snapshot::SlidingWindow {
            previous, current, ..
        } => previous + current == 0,
        Snapshot::RollingWindow { counts, .. } => counts.iter().all(|count| *count == 0),
        _ => false,
    }
}

fn run(calls: Calls, steps: u64) -> World {
    let server = Standalone::start();
    let mut world = World::new(&server, seed(), calls);
    for _ in 0..cases(steps) {
        world.step();
    }
    let (requests, admitted, grants) = (world.requests, world.admitted, world.grants);
    println!("{requests} requests, {admitted} admitted; {grants} asked for as much as there was");
    world
}

#[test]
fn the_script_decides_what_core_decides() {
    drop(run(Calls::Any, 2_000));
}

/// Asserts that a run was about something: this happened so often, in proportion to a full run.
#[track_caller]
fn happened_often<N: TryInto<u64, Error: std::fmt::Debug>>(times: N, in_full: u64) {
    let times = times.try_into().unwrap();
    assert!(times >= cases(in_full), "{times} times");
}

/// A clock that steps back and forth while counts belong to a window or bucket, as often as it can within one of them.
#[test]
fn windows_are_decided_as_core_decides_by_a_clock_that_steps_back_and_forth() {
    drop(run(Calls::AtBoundaries, 4_000));
}

#[test]
fn windows_of_calendars_are_decided_as_core_decides_whatever_hours_the_clocks_are_apart() {
    let world = run(Calls::Calendars, 3_000);
    happened_often(world.admitted, 500);
}

/// More credits than are told apart, of charges of all ages.
#[test]
fn what_is_given_back_to_busy_buckets_is_what_core_gives_back() {
    drop(run(Calls::Settled, 3_000));
}

#[test]
fn a_request_alone_is_decided_as_core_decides() {
    let world = run(Calls::Alone, 10_000);

    println!(
        "{} by composed scripts, {} left by them",
        world.answered, world.left
    );
    happened_often(world.answered, 5_000);
}

/// Callers that are denied too often, in one call with others, and operators who ban.
#[test]
fn bans_are_those_of_core() {
    let world = run(Calls::Bans, 8_000);
    println!("{} times a caller was banned", world.banned);
    happened_often(world.banned, 500);
}

/// Moments that random calls rarely meet: those at which a strike expires, a ban ends or a quiet spell is over, and a microsecond
/// before and after each.
#[test]
fn bans_are_those_of_core_at_the_very_microsecond_at_which_something_ends() {
    let server = Standalone::start();
    let mut world = World::new(&server, 1, Calls::Bans);
    let start = world.questions.now;
    let us = Duration::from_micros;
    let ban = Ban::after(2, us(1_000)).lasting(us(2_000));
    let ban = ban.doubling_to(us(8_000)).forgiven_after(us(3_000));
    let by_hand = |length| Quota::from(ban.try_imposed(us(length)).unwrap());
    let (ban, extending) = (Quota::from(ban), Quota::from(ban.extending()));
    let mut callers = 0_u64;
    for around in [0, 1, 2] {
        // The time, the ban that is asked, and its strikes.
        for calls in [
            // A strike as the first one expires, and the one that bans then.
            vec![(0, ban, 1), (999 + around, ban, 1), (1_500, ban, 1)],
            // By hand until the end of a ban in force, which has begun before.
            vec![(0, ban, 2), (1_500, by_hand(499 + around), 1)],
            // A question, a strike and a knock as a ban ends.
            vec![(0, ban, 2), (1_999 + around, ban, 0)],
            vec![(0, ban, 2), (1_999 + around, ban, 2), (4_000, ban, 2)],
            vec![(0, ban, 2), (1_999 + around, extending, 1)],
            // The second ban when a quiet spell of the first is over, and the third.
            vec![(0, ban, 2), (4_999 + around, ban, 2), (20_000, ban, 2)],
            // By hand when that is over, and then by strikes.
            vec![
                (0, ban, 2),
                (4_999 + around, by_hand(1), 1),
                (5_100, ban, 2),
            ],
        ] {
            callers += 1;
            for (after, quota, cost) in calls {
                world.charge(1, &Key::from(callers), &quota, cost, start + after);
            }
        }
    }
    assert!(world.banned > 20, "{}", world.banned);
}

/// A ban leads no amount, not even where nothing else is enforced, and counts as many strikes as it was asked for, whatever amount
/// is granted.
#[test]
fn a_ban_has_no_part_in_an_amount_in_whatever_mode_it_is_asked() {
    let server = Standalone::start();
    let mut world = World::new(&server, 1, Calls::Bans);
    let quota = Quota::per_day(9);
    let ban = Quota::from(Ban::after(20, Duration::from_secs(60)).lasting(Duration::from_secs(5)));
    let modes = [Mode::Enforce, Mode::Shadow, Mode::Probe];
    let both = modes.map(|of_budget| modes.map(|of_ban| (of_budget, of_ban)));
    for (caller, (of_budget, of_ban)) in both.into_iter().flatten().enumerate() {
        let key = Key::from(caller as u64);
        let [budget, ban] = [(&quota, 0, of_budget), (&ban, 1, of_ban)].map(|it| Charge {
            scope: world.questions.scopes[it.1],
            quota: it.0,
            key: &key,
            cost: 4,
            mode: it.2,
        });
        // Of nine units there are four, four, and one at last.
        for strikes in [0, 1, 3] {
            let charges = [
                budget,
                Charge {
                    cost: strikes,
                    ..ban
                },
            ];
            let names = charges.map(|charge| name(charge.scope, charge.key));
            let request = Request {
                work: Work::decide(Call::of(&charges).at_least(1)),
                names: names.into_iter().collect(),
                owed: None,
                known: None,
            };
            world.play(&[request]);
        }
    }
    assert_eq!(world.grants, 27);
}

/// Cold, lukewarm and warm, with credits and debits, beside quotas of another warm-up or of none.
#[test]
fn what_warms_up_is_decided_as_core_decides() {
    let world = run(Calls::Warming, 6_000);
    println!("{} lukewarm states", world.lukewarm);
    happened_often(world.lukewarm, 500);
    happened_often(world.admitted, 2_000);
}

/// Moments that random calls rarely meet: the microseconds around that at which a budget is cold again, as a quota of another
/// process without a warm-up meets it, which drops a store that means nothing any more. Times are whole microseconds or not.
#[test]
fn what_warms_up_is_forgotten_as_core_forgets_it_at_the_very_microsecond_at_which_it_is_cold() {
    let server = Standalone::start();
    let mut world = World::new(&server, 1, Calls::Warming);
    let start_us = world.questions.now;
    let (mut whole, mut forgotten, mut kept) = (0, 0, 0);
    for limit in 1..=12 {
        let plain = Quota::new(limit, Duration::from_secs(60)).burst(2);
        let quota = plain.warm_up(Duration::from_secs(3_600));
        for around_us in 0..6 {
            let key = Key::from(format!("{limit} {around_us}"));
            let state = world.charge(0, &key, &quota, 1, start_us);
            let Snapshot::Gcra {
                cold_at_us,
                cold_at_ticks,
                ..
            } = state
            else {
                panic!("the state of {quota} is not that of a bucket");
            };
            whole += u64::from(cold_at_ticks == 0);
            let state = world.charge(0, &key, &plain, 1, cold_at_us + around_us - 3);
            let Snapshot::Gcra { cold_at_us, .. } = state else {
                panic!("the state of {quota} is not that of a bucket");
            };
            let count = if cold_at_us == 0 {
                &mut forgotten
            } else {
                &mut kept
            };
            *count += 1;
        }
    }
    assert!(
        whole > 0 && forgotten > 0 && kept > 0,
        "{whole} {forgotten} {kept}"
    );
}

/// Requests that come again, beside bans and budgets of their policy and of others, and credits that forget their ids.
#[test]
fn ids_are_those_of_core() {
    let world = run(Calls::Once, 8_000);
    println!("{} times an id was replayed", world.replayed);
    happened_often(world.replayed, 500);
}

/// Requests that wait, requests that leave before their turn, and credits after it.
#[test]
fn turns_and_free_places_are_those_of_core() {
    let world = run(Calls::Waiting, 6_000);
    happened_often(world.with_gaps, 300);
}
