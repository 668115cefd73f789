//! Held limits against the model: calls of several processes in random orders, late ones among them, by a clock that steps.

mod orders;
mod shares;

use std::collections::{BTreeSet, HashMap};

use redis::Value;
use smallvec::{SmallVec, smallvec};
use tollgate_core::{
    Call, Charge, Concurrent, Decision, FailureKind, Key, Mode, Quota, Receipt, Scope, Snapshot,
    State, States, Timestamp, decide,
};
use tollgate_testkit::Standalone;

use super::expiry::ends_ms;
use super::questions::{Calls, Random};
use super::{World, cases, happened_often, seed};
use crate::holder::model::{self, Bar, Entry, From, Id};
use crate::holder::{Caller, Report};
use crate::wire::numbers::Reader;
use crate::wire::reply::{Outcome, barred};
use crate::wire::{Plan, Reply, Request, Work, held_by_caller, replay};

const KEYS: [&str; 3] = ["one", "other", "third"];
/// The number of entries that makes a state long.
const CROWD: usize = 48;
const QUOTA: Quota = Quota::per_hour(40);

/// The states that Redis has, and those that it should have.
struct Fleet {
    world: World,
    random: Random,
    now: u64,
    lease_ms: u64,
    keys: HashMap<String, model::Key>,
    /// The rate-limited budget beside what is held.
    budgets: HashMap<String, State>,
    processes: Vec<(Id, u64)>,
    /// The number of processes that call at present.
    busy: usize,
    happened: HashMap<&'static str, usize>,
    /// The places that the script told, of each process.
    places: HashMap<(Id, Vec<u8>), u16>,
}

/// One request in the words of the model.
#[derive(Clone, Debug)]
enum Wish {
    Decide(Vec<(bool, String, Quota, u64, Mode)>),
    Release(String, u64),
    Tell(String, u64),
    Reset(String),
}

impl Wish {
    fn request(&self) -> Request {
        let key = Key::from("anybody");
        let of = |work, name: &str| Request {
            work,
            names: smallvec![name.as_bytes().into()],
            owed: None,
            known: None,
        };
        match self {
            Self::Decide(wanted) => {
                let charges: SmallVec<[Charge<'_>; 2]> = { wanted.iter() }
                    .map(|(_, name, quota, cost, mode)| Charge {
                        // Charges of one name share a state, in core as well.
                        scope: Scope::of(name, 0, quota),
                        quota,
                        key: &key,
                        cost: *cost,
                        mode: *mode,
                    })
                    .collect();
                Request {
                    work: Work::decide(Call::of(&charges)),
                    names: wanted
                        .iter()
                        .map(|(_, name, ..)| name.as_bytes().into())
                        .collect(),
                    owed: None,
                    known: None,
                }
            }
            Self::Release(name, n) => of(Work::Credit(receipt(*n), *n), name),
            Self::Tell(name, units) => of(Work::Tell(Report::of(*units)), name),
            Self::Reset(name) => of(
                Work::Reset(Scope::of(name, 0, &Concurrent::at_most(1).into())),
                name,
            ),
        }
    }
}

fn receipt(n: u64) -> Receipt {
    let quota = Concurrent::at_most(1_000).into();
    let charge = Charge {
        scope: Scope::of("held", 0, &quota),
        quota: &quota,
        key: &Key::from("anybody"),
        cost: n,
        mode: Mode::Enforce,
    };
    let mut state = [State::full(&quota)];
    let decision = decide(
        Timestamp::from_micros(1),
        Call::of(&[charge]),
        &mut state[..],
    );
    let receipt = decision.receipts(&[charge]).next();
    receipt.unwrap()
}

fn held(units: u64) -> State {
    State::from(Snapshot::Held {
        held: units,
        generation_us: 0,
    })
}

type Answer = Result<Option<Decision>, FailureKind>;

struct Both(Vec<(String, State)>, Vec<usize>);

impl States for Both {
    fn state(&mut self, index: usize) -> &mut State {
        let place = self.1[index];
        &mut self.0[place].1
    }
}

impl Fleet {
    fn new(server: &Standalone, seed: u64) -> Self {
        let mut random = Random::of_seed(seed);
        let names = (0..CROWD).map(|_| random.below(u64::MAX).to_le_bytes());
        // A pattern of Lua's, and bytes that also stand in the middle of entries.
        let odd = [*b"%a.-[^*]", [0; 8]];
        let processes = names.collect::<Vec<_>>().into_iter().chain(odd);
        let processes = processes.map(|name| (name, 1)).collect();
        Self {
            world: World::new(server, seed, Calls::Any),
            random,
            now: 3_500_000_000_000_000,
            lease_ms: 400,
            keys: HashMap::new(),
            budgets: HashMap::new(),
            processes,
            busy: 4,
            happened: HashMap::new(),
            places: HashMap::new(),
        }
    }

    fn wish(&mut self) -> Wish {
        let random = &mut self.random;
        let name = random.of(&KEYS).to_owned();
        match random.below(12) {
            0..=5 => {
                let mut wanted = Vec::new();
                for _ in 0..random.of(&[1, 1, 1, 2, 3]) {
                    let name = random.of(&KEYS).to_owned();
                    let limit = random.of(&[1, 3, 5, 20]);
                    let quota = Concurrent::at_most(limit).into();
                    let cost = random.of(&[0, 1, 1, 1, 1, 2, 3, limit, limit + 1, 1 << 50]);
                    let mode = random.of(&[
                        Mode::Enforce,
                        Mode::Enforce,
                        Mode::Enforce,
                        Mode::Shadow,
                        Mode::Probe,
                    ]);
                    wanted.push((true, name, quota, cost, mode));
                }
                if random.below(3) == 0 {
                    let name = format!("budget-{}", random.below(2));
                    wanted.push((false, name, QUOTA, random.of(&[0, 1, 9]), Mode::Enforce));
                }
                Wish::Decide(wanted)
            }
            6..=9 => Wish::Release(name, random.of(&[1, 1, 1, 2, 3])),
            10 => Wish::Tell(name, random.of(&[0, 0, 1, 2, 7])),
            _ if random.below(8) == 0 => Wish::Reset(name),
            _ => Wish::Tell(name, random.of(&[0, 1])),
        }
    }

    /// An acquire or a release of one of so many keys.
    fn usual_wish(&mut self, keys: usize) -> Wish {
        let name = KEYS[self.random.index(keys)].to_owned();
        if self.random.below(5) < 2 {
            return Wish::Release(name, self.random.of(&[1, 1, 1, 2]));
        }
        let quota = Concurrent::at_most(self.random.of(&[3, 20, 20, 20])).into();
        let cost = self.random.of(&[1, 1, 1, 2, 3]);
        Wish::Decide(vec![(true, name, quota, cost, Mode::Enforce)])
    }

    /// Equal wishes, which travel as one: of one key, in numbers on either side of what a byte can count, or of several keys.
    fn equal_wishes(&mut self) -> Vec<Wish> {
        let mut wish = self.usual_wish(1);
        if let Wish::Decide(wanted) = &mut wish {
            let (_, _, quota, cost, _) = &mut wanted[0];
            if self.random.below(2) == 0 {
                *quota = Concurrent::at_most(1_000).into();
            }
            *cost = self.random.of(&[*cost, *cost, *cost, 0]);
        }
        if self.random.below(2) == 0 {
            return vec![wish; self.random.of(&[2, 5, 30, 255, 256, 510, 600])];
        }
        let keys = 2 + self.random.index(2);
        let of = |name: &&str| match wish.clone() {
            Wish::Decide(mut wanted) => {
                (*name).clone_into(&mut wanted[0].1);
                Wish::Decide(wanted)
            }
            Wish::Release(_, n) => Wish::Release((*name).to_owned(), n),
            other => other,
        };
        KEYS[..keys].iter().map(of).collect()
    }

    fn note(&mut self, what: &'static str) {
        *self.happened.entry(what).or_default() += 1;
    }

    /// The outcome of a request by the model. `working` tells the units that each key holds in the course of the call.
    fn expect(&mut self, from: From, wish: &Wish, working: &mut HashMap<String, u64>) -> Outcome {
        let now_ms = self.now / 1_000;
        match wish {
            Wish::Decide(wanted) => {
                for (_, name, ..) in wanted.iter().filter(|(is_held, ..)| *is_held) {
                    match self.keys[name].bar(from) {
                        Some(Bar::Void) => {
                            self.note("void");
                            return Err(barred(FailureKind::Unreachable));
                        }
                        Some(Bar::Full) => {
                            self.note("full");
                            return Err(barred(FailureKind::Full));
                        }
                        None => {}
                    }
                }
                let mut both = Both(Vec::new(), Vec::new());
                for (is_held, name, quota, ..) in wanted {
                    let known = both.0.iter().position(|(of, _)| of == name);
                    both.1.push(known.unwrap_or_else(|| {
                        let state = if *is_held {
                            held(working[name])
                        } else {
                            let full = || State::full(quota);
                            self.budgets
                                .entry(name.clone())
                                .or_insert_with(full)
                                .clone()
                        };
                        both.0.push((name.clone(), state));
                        both.0.len() - 1
                    }));
                }
                let key = Key::from("anybody");
                let charges: Vec<_> = { wanted.iter() }
                    .map(|(_, name, quota, cost, mode)| Charge {
                        scope: Scope::of(name, 0, quota),
                        quota,
                        key: &key,
                        cost: *cost,
                        mode: *mode,
                    })
                    .collect();
                let now = Timestamp::from_micros(self.now);
                let decision = decide(now, Call::of(&charges), &mut both);
                for ((is_held, name, ..), verdict) in wanted.iter().zip(decision.verdicts()) {
                    if *is_held && verdict.taken() > 0 {
                        let units = i64::try_from(verdict.taken()).unwrap();
                        self.keys.get_mut(name).unwrap().count(now_ms, from, units);
                        *working.get_mut(name).unwrap() += verdict.taken();
                    }
                }
                for (name, state) in both
                    .0
                    .into_iter()
                    .filter(|(name, _)| name.starts_with("budget"))
                {
                    self.budgets.insert(name, state);
                }
                self.note(if decision.is_admitted() {
                    "admitted"
                } else {
                    "denied"
                });
                Ok(Some(decision))
            }
            Wish::Release(name, n) => {
                if let Some(bar) = self.keys[name].bar(from) {
                    return Err(barred(match bar {
                        Bar::Full => FailureKind::Full,
                        Bar::Void => FailureKind::Unreachable,
                    }));
                }
                let freed = self.keys.get_mut(name).unwrap().release(now_ms, from, *n);
                *working.get_mut(name).unwrap() -= freed;
                self.note(if freed > 0 {
                    "released"
                } else {
                    "released nothing"
                });
                Ok(None)
            }
            Wish::Tell(name, units) => {
                if let Some(bar) = self.keys[name].bar(from) {
                    return Err(barred(match bar {
                        Bar::Full => FailureKind::Full,
                        Bar::Void => FailureKind::Unreachable,
                    }));
                }
                self.keys.get_mut(name).unwrap().tell(now_ms, from, *units);
                self.note("told");
                Ok(None)
            }
            Wish::Reset(name) => {
                self.keys.insert(name.clone(), model::Key::default());
                working.insert(name.clone(), 0);
                self.note("reset");
                Ok(None)
            }
        }
    }

    fn step(&mut self) {
        let by = self.random.of(&[0, 0, 1_000, 30_000, 120_000, 500_000]);
        let by = by + self.random.below(by + 1);
        if self.random.below(25) == 0 {
            self.now -= by * self.random.of(&[1, 10]);
        } else {
            self.now += by;
        }
        let is_crowded = self.busy == CROWD;
        if !is_crowded && self.random.below(60) == 0 {
            self.lease_ms = self.random.of(&[400, 50, 1_000]);
        }
        if !is_crowded && self.random.below(100) == 0 {
            self.busy = self.random.of(&[2, 4, 13]);
        }
        let process = self.processes.len() - 1 - self.random.index(self.busy);
        if self.random.below(4) == 0 {
            self.processes[process].1 += self.random.of(&[1, 1, 1, 2, 254, 255, 256]);
        }
        let (holder, newest) = self.processes[process];
        let from = From {
            holder,
            // Some calls come late.
            generation: newest - self.random.of(&[0, 0, 0, 1, 2, 3, 300]).min(newest - 1),
            lease_ms: self.lease_ms,
        };
        let size = self.random.of(&[1, 1, 2, 5, 20]);
        // Half of the calls are of the usual kind, for which the script has a path of its own.
        let usual = self.random.of(&[None, Some(1), Some(3)]);
        let mut wishes: Vec<_> = (0..size)
            .map(|_| match usual {
                Some(keys) => self.usual_wish(keys),
                None => self.wish(),
            })
            .collect();
        if self.random.below(8) == 0 {
            wishes = self.equal_wishes();
        }
        wishes.sort_by_key(|wish| matches!(wish, Wish::Tell(..)));
        self.call(from, &wishes);
    }

    /// The outcomes by the script, with the positions of their requests, and the units of others that it made free.
    fn ask(&mut self, from: From, wishes: &[Wish]) -> (Vec<(usize, Outcome)>, u64) {
        let requests: Vec<_> = wishes.iter().map(Wish::request).collect();
        let (plan, mut call) = Plan::of(&requests);
        let keys = call.keys.len();
        let names: Vec<_> = call.keys.iter().map(|key| key.to_vec()).collect();
        let places: Vec<_> = { names.iter() }
            .map(|name| match self.random.below(6) {
                // A wrong one, and none, must do no harm.
                0 => self.random.of(&[1, 2, 13, 40, 1_024, u16::MAX]),
                1 => 0,
                _ => { self.places.get(&(from.holder, name.clone())).copied() }.unwrap_or(0),
            })
            .collect();
        let are_told = places.iter().any(|place| *place > 0);
        let caller = Caller {
            holder: from.holder,
            generation: from.generation,
            lease_ms: from.lease_ms,
        };
        call.is_of(&caller, if are_told { &places } else { &[] });
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.world.script).arg(keys);
        let runs = call.runs.iter().map(|run| &run[..]);
        for part in call.keys.iter().copied().chain(runs) {
            command.arg(part);
        }
        let redis = &mut self.world.redis;
        redis::cmd("SET")
            .arg("clock")
            .arg(self.now)
            .exec(redis)
            .unwrap();
        let value: Value = command.query(redis).unwrap();
        let length = match &value {
            Value::BulkString(text) => text.len(),
            _ => 0,
        };
        assert!(length < 64 + 64 * keys, "{length} bytes for {keys} keys");
        let reply = Reply::parse(value).unwrap();
        let mut reclaimed = 0;
        for (name, held) in names.into_iter().zip(held_by_caller(&reply, keys)) {
            reclaimed += held.map_or(0, |held| held.reclaimed);
            match held.and_then(|held| held.place) {
                Some(place) => _ = self.places.insert((from.holder, name), place),
                None if are_told => self.note("usual with a place"),
                None => {}
            }
        }
        let outcomes = replay(
            &reply,
            &plan,
            keys,
            |position| &requests[position],
            |_, _, _| {},
        )
        .unwrap();
        (outcomes, reclaimed)
    }

    /// The script's answers, which are the model's.
    fn call(&mut self, from: From, wishes: &[Wish]) -> Vec<Answer> {
        let (outcomes, reclaimed) = self.ask(from, wishes);
        let requests: Vec<_> = wishes.iter().map(Wish::request).collect();
        let names: BTreeSet<String> = { requests.iter() }
            .flat_map(|request| &request.names)
            .map(|name| String::from_utf8(name.clone()).unwrap())
            .filter(|name| !name.starts_with("budget"))
            .collect();
        let (mut working, mut free) = (HashMap::new(), 0);
        for name in &names {
            let key = self.keys.entry(name.clone()).or_default();
            free += key.at(self.now / 1_000, from);
            working.insert(name.clone(), key.total());
        }
        assert_eq!(reclaimed, free, "{wishes:?} by {from:?}");
        if free > 0 {
            self.note("reclaimed");
        }
        let mut answers = Vec::new();
        for (position, outcome) in outcomes {
            let expected = self.expect(from, &wishes[position], &mut working);
            let kind = |outcome: Outcome| outcome.map_err(|error| error.kind());
            let answer = kind(outcome);
            assert_eq!(
                answer,
                kind(expected),
                "{:?} by {from:?}",
                requests[position]
            );
            answers.push(answer);
        }
        for name in &names {
            self.keys.get_mut(name).unwrap().tidy(from.holder);
            self.compare(name, from, wishes);
        }
        answers
    }

    fn compare(&mut self, name: &str, from: From, wishes: &[Wish]) {
        let redis = &mut self.world.redis;
        let found: Option<Vec<u8>> = redis::cmd("GET").arg(name).query(redis).unwrap();
        let model = &self.keys[name];
        let Some(found) = found else {
            assert_eq!(
                model.entries,
                [],
                "{name} is missing after {wishes:?} by {from:?}"
            );
            return;
        };
        let stored = Stored::read(&found).unwrap();
        assert_eq!(
            stored.entries, model.entries,
            "{name} after {wishes:?} by {from:?}"
        );
        assert_eq!(stored.total, model.total());
        let expiries = || model.entries.iter().map(|entry| entry.expires_ms);
        assert!(stored.earliest_ms <= expiries().min().unwrap());
        assert!(stored.latest_ms >= expiries().max().unwrap());
        let ends = u64::try_from(ends_ms(redis, name.as_bytes())).unwrap();
        assert_eq!(ends, stored.latest_ms);
    }
}

/// A state, as the head of `lua/held.lua` says.
struct Stored {
    total: u64,
    earliest_ms: u64,
    latest_ms: u64,
    entries: Vec<Entry>,
}

impl Stored {
    fn read(found: &[u8]) -> Option<Self> {
        let mut reader = Reader(found);
        assert_eq!(reader.byte()?, 252);
        let mut stored = Self {
            total: reader.whole()?,
            earliest_ms: reader.u48()?,
            latest_ms: reader.u48()?,
            entries: Vec::new(),
        };
        while !reader.0.is_empty() {
            let holder = reader.0.first_chunk().copied()?;
            reader.0 = &reader.0[8..];
            let (old, new) = (reader.i48()?, reader.i48()?);
            let mark = reader.u48()?;
            stored.entries.push(Entry {
                holder,
                old,
                new,
                generation: mark / 256,
                age: mark % 256,
                expires_ms: reader.u48()?,
            });
        }
        Some(stored)
    }
}

#[test]
fn what_is_held_is_what_the_model_holds() {
    let server = Standalone::start();
    let mut fleet = Fleet::new(&server, seed());
    // Some of what has to happen is rare.
    for _ in 0..cases(4_000).max(2_000) {
        fleet.step();
    }
    println!("{:?}", fleet.happened);
    for what in [
        "admitted",
        "denied",
        "released",
        "released nothing",
        "told",
        "void",
        "reset",
        "reclaimed",
    ] {
        assert!(fleet.happened.contains_key(what), "{what} never happened");
    }
}

/// States of many processes, of which the script reads only the head and the entry of the process that calls. The places come from
/// replies; entries move as others expire and keys are reset, and some places are wrong.
#[test]
fn what_is_held_by_many_is_what_the_model_holds() {
    let server = Standalone::start();
    let mut fleet = Fleet::new(&server, seed());
    (fleet.busy, fleet.lease_ms) = (CROWD, 20_000);
    for _ in 0..cases(4_000) {
        fleet.step();
    }
    println!("{:?}", fleet.happened);
    let times = fleet.happened.get("usual with a place").copied();
    happened_often(times.unwrap_or(0), 100);
}

/// Many processes that call in turn, while expiries move, entries move up because others expire, and the key is emptied.
#[test]
fn an_entry_of_many_is_found_wherever_it_moves() {
    let server = Standalone::start();
    let mut fleet = Fleet::new(&server, seed());
    let quota: Quota = Concurrent::at_most(1_000).into();
    let acquire = Wish::Decide(vec![(true, "one".to_owned(), quota, 1, Mode::Enforce)]);
    let release = Wish::Release("one".to_owned(), 1);
    for round in 0..100 {
        fleet.now += 50_000;
        // In some rounds only half of the processes call, until the others have expired.
        let silent = if round % 30 > 15 { CROWD / 2 } else { 0 };
        for process in silent..CROWD {
            let (holder, generation) = fleet.processes[process];
            let from = From {
                holder,
                generation,
                lease_ms: 400,
            };
            fleet.call(from, std::slice::from_ref(&acquire));
            if round % 2 == 0 {
                fleet.call(from, std::slice::from_ref(&release));
            }
            if round % 17 == 16 && process == CROWD - 5 {
                fleet.call(from, &[Wish::Reset("one".to_owned())]);
            }
        }
    }
    println!("{:?}", fleet.happened);
    let times = fleet.happened.get("usual with a place").copied();
    assert!(times.unwrap_or(0) > 1_000, "{:?}", fleet.happened);
}

/// No state: what has been changed in its head, or is of no length of one.
#[test]
fn what_is_no_state_of_what_is_held_is_left_as_it_is() {
    let server = Standalone::start();
    let mut fleet = Fleet::new(&server, seed());
    let (holder, _) = fleet.processes[0];
    let from = From {
        holder,
        generation: 1,
        lease_ms: 400,
    };
    let quota: Quota = Concurrent::at_most(5).into();
    let wish = |name: &str| Wish::Decide(vec![(true, name.to_owned(), quota, 1, Mode::Enforce)]);
    fleet.call(from, &[wish("one")]);
    let mut get = redis::cmd("GET");
    let state: Vec<u8> = get.arg("one").query(&mut fleet.world.redis).unwrap();
    let head = |head: &[u8]| [head, &state[head.len()..]].concat();
    let foreign = [
        Vec::new(),
        state[..21].to_vec(),
        state[..52].to_vec(),
        [&state[..], &[0]].concat(),
        [&state[..21], &state[21..].repeat(1_025)].concat(),
        head(&[251]),
        head(&[&[252][..], &f64::NAN.to_le_bytes()].concat()),
        head(&[&[252][..], &0.5_f64.to_le_bytes()].concat()),
        head(&[&[252][..], &(-1.0_f64).to_le_bytes()].concat()),
    ];
    for foreign in foreign {
        // By the path for many keys, and by the general one.
        for wishes in [
            vec![wish("one")],
            vec![wish("one"), wish("other")],
            vec![wish("one"), Wish::Tell("other".to_owned(), 0)],
        ] {
            let redis = &mut fleet.world.redis;
            let mut set = redis::cmd("SET");
            set.arg("one").arg(&foreign).exec(redis).unwrap();
            // The place at which the entry of a state would stand, and does in some of these.
            fleet.places.insert((holder, b"one".to_vec()), 1);

            let outcomes = fleet.ask(from, &wishes).0;

            for (position, outcome) in outcomes {
                let kind = outcome.map_err(|error| error.kind());
                let failed = (position == 0).then_some(FailureKind::ForeignState);
                assert_eq!(kind.err(), failed, "{foreign:?}");
            }
            let found: Vec<u8> = get.query(&mut fleet.world.redis).unwrap();
            assert_eq!(found, foreign);
        }
    }
    // A value of another type, alone and beside a state.
    let redis = &mut fleet.world.redis;
    redis::cmd("DEL").arg("one").exec(redis).unwrap();
    let mut push = redis::cmd("RPUSH");
    push.arg("one").arg("entry").exec(redis).unwrap();
    for wishes in (0..9).flat_map(|_| [vec![wish("one")], vec![wish("one"), wish("other")]]) {
        fleet.places.insert((holder, b"one".to_vec()), 1);

        let outcomes = fleet.ask(from, &wishes).0;

        for (position, outcome) in outcomes {
            let kind = outcome.map_err(|error| error.kind()).err();
            let failed = (position == 0).then_some(FailureKind::ForeignState);
            assert_eq!(kind, failed);
        }
    }
}
