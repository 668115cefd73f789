//! The scripts against core: random operations in a real server give the states and verdicts that core gives.
//!
//! The shipped script runs with its one `TIME` line replaced, so that time jumps forward and back. The virtual clock
//! stands far in the future, so that no key expires meanwhile.

use std::collections::HashMap;
use std::time::Duration;

use redis::{Client, Connection, Value};
use smallvec::SmallVec;
use tollgate_core::{
    Algorithm, Charge, Decision, Key, Mode, Quota, Receipt, Scope, Snapshot, State, States,
    Timestamp, Unit, decide,
};
use tollgate_testkit::Standalone;

use super::numbers::Reader;
use super::reply::Outcome;
use super::{Plan, Reply, Request, Work, replay, state};
use crate::name::Name;
use crate::script::Script;

/// A fixed sequence of numbers for each seed: SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap()
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }
}

/// Quotas of one scope, of one unit: callers move between them.
fn families() -> Vec<Vec<Quota>> {
    let us = Duration::from_micros;
    let gcra = |limit, period, burst| Quota::new(limit, us(period)).burst(burst);
    let other = |limit, period, algorithm| Quota::new(limit, us(period)).using(algorithm);
    let day = 86_400_000_000;
    let mut families = vec![
        vec![gcra(10, 1_000_000, 10)],
        vec![gcra(7, 1_000_000, 3), gcra(7, 1_000_000, 30)],
        vec![gcra(999_983, day, 50), gcra(1, 100, 5), gcra(13, 1_000, 1)],
        vec![gcra(1_000_000, 1_000_000, 100)],
        // Equal but for their rests, so that each goes on in place where another has been.
        [3, 10, 17, 19].map(|n| gcra(n, 1_000_000, n)).to_vec(),
    ];
    for offset in [0, 6] {
        let algorithm = Algorithm::FixedWindow { offset: us(offset) };
        families.push(vec![
            other(5, 1_000, algorithm),
            other(20, 1_000, algorithm),
        ]);
    }
    for (limits, period) in [
        ([5, 8], 1_000),
        ([1_000_000, 7], day),
        ([864_000_000_000, 3], day),
    ] {
        let quota = |limit| other(limit, period, Algorithm::SlidingWindow);
        families.push(limits.map(quota).to_vec());
    }
    for buckets in [2, 10, 128] {
        let quota = |limit| other(limit, 1_280, Algorithm::RollingWindow { buckets });
        families.push(vec![quota(6), quota(40)]);
    }
    let log = |limit| other(limit, 500, Algorithm::SlidingLog);
    families.push(vec![log(4), log(30)]);
    families
}

/// How many of the families are of GCRA: the first ones.
const GCRA_FAMILIES: usize = 5;

/// A call of enforced GCRA charges: of a caller's own budget, and perhaps of some that are shared.
#[derive(Clone, Copy)]
struct Usual {
    own: usize,
    callers: u64,
    shared: usize,
    charges: usize,
    cost: u64,
    tiers: bool,
}

impl Usual {
    fn any(random: &mut Random) -> Self {
        Self {
            own: random.index(GCRA_FAMILIES),
            callers: random.of(&[1, 2, 40]),
            shared: random.index(GCRA_FAMILIES),
            charges: random.of(&[1, 1, 2, 3]),
            cost: random.of(&[1, 1, 1, 2, 0]),
            tiers: random.below(4) == 0,
        }
    }
}

/// What the calls are like.
#[derive(Clone, Copy, PartialEq)]
enum Calls {
    /// Of every size and shape.
    Any,
    /// One request each, mostly of one GCRA charge.
    Alone,
}

struct World {
    calls: Calls,
    random: Random,
    usual: Option<Usual>,
    redis: Connection,
    script: String,
    families: Vec<Vec<Quota>>,
    scopes: Vec<Scope>,
    model: HashMap<Name, State>,
    receipts: Vec<Receipt>,
    now: u64,
    requests: usize,
    admitted: usize,
    /// By how the script answers a request that is alone: a number, or a text with `+` or `-` in it.
    alone: HashMap<u8, usize>,
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
        let families = families();
        let scopes = families
            .iter()
            .enumerate()
            .map(|(number, quotas)| Scope::of(&format!("differential-{number}"), 0, &quotas[0]))
            .collect();
        Self {
            calls,
            random: Random(seed),
            usual: None,
            redis,
            script,
            families,
            scopes,
            model: HashMap::new(),
            receipts: Vec::new(),
            now: 3_500_000_000_000_000,
            requests: 0,
            admitted: 0,
            alone: HashMap::new(),
        }
    }

    fn name(scope: Scope, key: &Key) -> Name {
        let mut name = format!("{}:", scope.policy()).into_bytes();
        name.extend_from_slice(key.as_bytes());
        name
    }

    fn move_time(&mut self) {
        let most = self.random.of(&[1, 10, 200, 1_500, 500_000, 100_000_000]);
        let by = self.random.below(most);
        match self.random.below(20) {
            0 => self.now -= by,
            1..=12 => self.now += by,
            _ => {}
        }
    }

    fn request(&mut self, usual: Option<Usual>) -> Request {
        let settle = usual.is_none() && !self.receipts.is_empty() && self.random.below(4) == 0;
        if settle {
            let newest = self.receipts.len() as u64;
            let back = self.random.of(&[1, 5, newest]).min(newest);
            let index = usize::try_from(newest - 1 - self.random.below(back)).unwrap();
            let receipt = self.receipts[index].copy();
            let names = SmallVec::from_iter([Self::name(receipt.scope(), receipt.key())]);
            let n = self.random.of(&[1, 2, receipt.cost(), 1 << 50]);
            let work = match self.random.below(8) {
                0..4 => {
                    self.receipts.swap_remove(index);
                    Work::Credit(receipt, n)
                }
                4..7 => Work::Debit(receipt, n),
                _ => Work::Reset(receipt.scope()),
            };
            return Request { work, names };
        }
        let count = match usual {
            Some(usual) => usual.charges,
            None => self.random.of(&[1, 1, 1, 2, 2, 3, 5]),
        };
        let mut keys = Vec::new();
        for number in 0..count {
            keys.push(match usual {
                Some(usual) => self.usual_charge(usual, number),
                None => self.any_charge(),
            });
        }
        let charges: Vec<_> = keys
            .iter()
            .map(|(scope, quota, key, cost, mode)| Charge {
                scope: *scope,
                quota,
                key,
                cost: *cost,
                mode: *mode,
            })
            .collect();
        Request {
            work: Work::decide(&charges),
            names: charges.iter().map(|c| Self::name(c.scope, c.key)).collect(),
        }
    }

    fn any_charge(&mut self) -> (Scope, Quota, Key, u64, Mode) {
        let family = self.random.index(self.families.len());
        let key = Key::from(self.random.below(3));
        let quota = self.random.of(&self.families[family]);
        let cost = self
            .random
            .of(&[0, 1, 1, 1, 2, 3, 7, quota.capacity(), 1 << 60]);
        let modes = [Mode::Enforce, Mode::Enforce, Mode::Shadow, Mode::Probe];
        let mode = self.random.of(&modes);
        (self.scopes[family], quota, key, cost, mode)
    }

    /// The first charge is of a caller's own budget, what follows of one that they share.
    fn usual_charge(&mut self, usual: Usual, number: usize) -> (Scope, Quota, Key, u64, Mode) {
        let family = if number == 0 {
            usual.own
        } else {
            (usual.shared + number) % GCRA_FAMILIES
        };
        let keys = if number == 0 { usual.callers } else { 1 };
        let quota = if usual.tiers {
            self.random.of(&self.families[family])
        } else {
            self.families[family][0]
        };
        let key = Key::from(self.random.below(keys));
        (self.scopes[family], quota, key, usual.cost, Mode::Enforce)
    }

    /// What core says, on the model's own states.
    fn expect(&mut self, request: &Request) -> Option<Decision> {
        let now = Timestamp::from_micros(self.now);
        match &request.work {
            Work::Decide(charges) => {
                let charges: Vec<_> = charges.iter().map(|charge| charge.borrow()).collect();
                for (charge, name) in charges.iter().zip(&request.names) {
                    let full = || State::full(charge.quota);
                    self.model.entry(name.clone()).or_insert_with(full);
                }
                let mut states = Model {
                    names: &request.names,
                    states: &mut self.model,
                };
                let decision = decide(now, &charges, &mut states);
                self.receipts.extend(decision.receipts(&charges));
                Some(decision)
            }
            Work::Credit(receipt, n) => {
                let state = self.model.get_mut(&request.names[0]);
                receipt.credit_to(state.unwrap(), now, *n);
                None
            }
            Work::Debit(receipt, n) => {
                let state = self.model.get_mut(&request.names[0]);
                receipt.debit_from(state.unwrap(), now, *n);
                None
            }
            Work::Reset(scope) => {
                let receipts = &mut self.receipts;
                receipts.retain(|receipt| {
                    Self::name(receipt.scope(), receipt.key()) != request.names[0]
                });
                let quota =
                    self.families[self.scopes.iter().position(|of| of == scope).unwrap()][0];
                self.model
                    .insert(request.names[0].clone(), State::full(&quota));
                None
            }
        }
    }

    /// Half of the calls are as most calls are, for which the script has paths of their own; and often the next one is like
    /// the one before, so that budgets are used up to the last unit.
    fn next_calls(&mut self) -> (usize, Option<Usual>) {
        if self.random.below(4) == 0 {
            let is_usual = match self.calls {
                Calls::Any => self.random.below(2) == 0,
                Calls::Alone => self.random.below(8) > 0,
            };
            self.usual = is_usual.then(|| Usual::any(&mut self.random));
        }
        match self.calls {
            Calls::Any => (self.random.of(&[1, 1, 2, 5, 20, 64]), self.usual),
            Calls::Alone => {
                let usual = self.usual.map(|usual| Usual {
                    charges: 1,
                    ..usual
                });
                (1, usual)
            }
        }
    }

    /// One call, and what it left.
    fn step(&mut self) {
        let (size, usual) = self.next_calls();
        if usual.is_none() || self.random.below(3) == 0 {
            self.move_time();
        }
        let requests: Vec<_> = (0..size).map(|_| self.request(usual)).collect();
        let (plan, call) = Plan::of(&requests);

        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.script).arg(call.keys.len());
        for key in &call.keys {
            command.arg(&key[..]);
        }
        for run in &call.runs {
            command.arg(&run[..]);
        }
        redis::cmd("SET")
            .arg("clock")
            .arg(self.now)
            .exec(&mut self.redis)
            .unwrap();
        let value: Value = command.query(&mut self.redis).unwrap();
        if let Some(kind) = answered_alone(&value) {
            *self.alone.entry(kind).or_default() += 1;
        }
        let reply = Reply::parse(value).unwrap();
        let outcomes = replay(&reply, &plan, call.keys.len(), |position| {
            &requests[position]
        });

        for (position, outcome) in outcomes.unwrap() {
            let expected = self.expect(&requests[position]);
            self.requests += 1;
            self.admitted += usize::from(expected.as_ref().is_some_and(Decision::is_admitted));
            let outcome: Outcome = outcome;
            assert_eq!(outcome.unwrap(), expected, "{:?}", requests[position]);
        }
        for key in &call.keys {
            self.compare(key, &requests);
        }
    }

    fn compare(&mut self, key: &[u8], requests: &[Request]) {
        let found: Option<Vec<u8>> = redis::cmd("GET").arg(key).query(&mut self.redis).unwrap();
        let ends = self.ends_ms(key);
        let policy = key.split(|byte| *byte == b':').next().unwrap();
        let scope = self
            .scopes
            .iter()
            .find(|scope| scope.policy().as_bytes() == policy);
        let unit = scope.unwrap().unit();
        let model = &self.model[key];
        let Some(found) = found else {
            // Nothing is a full budget.
            assert!(
                model.meaningless_at(unit) <= Timestamp::from_micros(self.now),
                "{model:?} is missing after {requests:?}"
            );
            return;
        };
        let state = state::decode(&found, unit).unwrap();
        assert_eq!(
            plain(&state),
            plain(model),
            "after {requests:?} at {}",
            self.now
        );
        // Outlives its meaning.
        let ends = u64::try_from(ends).expect("an expiry") * 1_000;
        assert!(
            ends >= state.meaningless_at(unit).as_micros(),
            "{state:?} ends at {ends}"
        );
        if let Some(stated) = stated_end(&found, unit) {
            assert_eq!(ends, stated, "{state:?}");
        }
    }
}

/// How the path for a request alone has answered; nothing if another path did.
fn answered_alone(reply: &Value) -> Option<u8> {
    match reply {
        Value::Int(_) => Some(b'0'),
        Value::BulkString(text) => {
            let behind = text.iter().find(|byte| !byte.is_ascii_digit());
            behind.copied().filter(|behind| *behind != b' ')
        }
        _ => None,
    }
}

impl World {
    /// When a key ends. Before Redis 7 one can only ask how long that is, and has to do so within one millisecond.
    fn ends_ms(&mut self, key: &[u8]) -> i64 {
        let ask = |redis: &mut Connection, word| redis::cmd(word).arg(key).query::<i64>(redis);
        if let Ok(ends) = ask(&mut self.redis, "PEXPIRETIME") {
            return ends;
        }
        loop {
            let (before, left, after) = (
                self.server_ms(),
                ask(&mut self.redis, "PTTL").unwrap(),
                self.server_ms(),
            );
            if left < 0 {
                return left;
            }
            if before == after {
                return before + left;
            }
        }
    }

    fn server_ms(&mut self) -> i64 {
        let (seconds, micros): (i64, i64) = redis::cmd("TIME").query(&mut self.redis).unwrap();
        seconds * 1_000 + micros / 1_000
    }
}

/// When a GCRA state without credits ends, as the contract says: at the end of its cell, in whole milliseconds.
fn stated_end(found: &[u8], unit: Unit) -> Option<u64> {
    let [tag, at @ ..] = found else { return None };
    let (at, rest) = at.split_first_chunk::<8>()?;
    let is_gcra = matches!(unit, Unit::Gcra) && matches!(rest.len(), 0 | 4);
    let at = Reader(at).whole()? + u64::from(!rest.is_empty());
    let cell = 1 << (tag & 63);
    is_gcra.then(|| ((at / cell + 1) * cell / 1_000 + 1) * 1_000)
}

fn plain(state: &State) -> Snapshot {
    state.snapshot()
}

fn run(calls: Calls, steps: u64) -> HashMap<u8, usize> {
    let number =
        |name: &str, otherwise| std::env::var(name).map_or(otherwise, |text| text.parse().unwrap());
    let seed = number("TOLLGATE_SEED", 1);
    let server = Standalone::start();
    let mut world = World::new(&server, seed, calls);
    println!("seed {seed}");
    for _ in 0..number("TOLLGATE_STEPS", steps) {
        world.step();
    }
    println!("{} requests, {} admitted", world.requests, world.admitted);
    world.alone
}

#[test]
fn the_script_decides_what_core_decides() {
    run(Calls::Any, 2_000);
}

#[test]
fn a_request_alone_is_decided_as_core_decides() {
    let answers = run(Calls::Alone, 10_000);

    // On a full budget, admitted, denied: the path for such requests has been taken, and not left to others.
    for answer in [b'0', b'+', b'-'] {
        let times = answers.get(&answer).copied().unwrap_or(0);
        println!("{times} times {:?}", char::from(answer));
        assert!(times > 0, "{answers:?}");
    }
}
