//! The time for which a call holds the server.

use std::time::Duration;

use redis::Connection;
use tollgate_core::{Algorithm, Backend, Call, Charge, Decision, Key, Mode, Quota, Receipt, Scope};
use tollgate_redis::{RedisBackend, StateName};
use tollgate_testkit::Standalone;

use super::common::{Budget, HOUR, PATIENT, Patience};

/// The most instructions that a call may take on the server: a hundred thousand for each of 64 states. That is a millisecond at
/// two instructions in each cycle of 3.2 GHz. Real servers do better: the one on which these mixes were found ran 9 to 13 in a
/// nanosecond.
const MOST: u64 = 6_400_000;

/// The most requests of a call.
const REQUESTS: u64 = 64;

/// The number of random mixes, and the first seed.
const DRAWN: u64 = 12;
const SEED: u64 = 16;

/// A deadline that a server under valgrind keeps.
const LONG: Duration = Duration::from_secs(60);

/// The number of quotas of GCRA.
const OF_GCRA: u64 = 4;

const DAY: Duration = Duration::from_secs(86_400);

/// Quotas of GCRA come first.
const QUOTAS: [Quota; 10] = [
    // With credits that are remembered for long.
    Quota::per_hour(60).burst(1_000),
    // With rests as well.
    Quota::new(997, DAY).burst(1_000),
    // With credits that have lost their meaning, and an expiry that moves with nearly every charge.
    Quota::new(7, Duration::from_micros(20_011)).burst(60),
    // With turns, of which others have left as many as are remembered.
    Quota::per_hour(60)
        .burst(1)
        .wait_up_to(Duration::from_secs(3_540)),
    Quota::new(1_000, HOUR).using(Algorithm::FixedWindow {
        offset: Duration::ZERO,
    }),
    Quota::new(1_000, DAY).using(Algorithm::SlidingWindow),
    Quota::new(1_000, DAY).using(Algorithm::RollingWindow { buckets: 10 }),
    Quota::new(1_000, DAY).using(Algorithm::RollingWindow { buckets: 128 }),
    Quota::new(1_024, DAY).using(Algorithm::SlidingLog),
    // With windows that are over when the next charge comes.
    Quota::new(1_000, Duration::from_micros(5_120))
        .using(Algorithm::RollingWindow { buckets: 128 }),
];

/// The history of a state that a call finds.
#[derive(Clone, Copy, Debug)]
enum Left {
    Missing,
    Charged,
    /// With as many credits as are told apart, or as a log that is nearly full.
    Long,
    /// By a quota of another denominator and another drain.
    Foreign,
}

const LEFT: [Left; 4] = [Left::Missing, Left::Charged, Left::Long, Left::Foreign];

/// A charge of some caller's budget.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// The number of its quota, modulo as many as there are.
    slot: u16,
    /// All requests charge the budget of one caller.
    is_shared: bool,
    mode: Mode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Decide,
    Credit,
    Debit,
    Reset,
}

/// Requests that fill a call, and the states that it finds.
#[derive(Clone, Debug)]
struct Mix {
    /// The callers, in turn. Kinds that are not decided have one part.
    requests: Vec<(Verb, Vec<Part>)>,
    /// The number of callers, in turn.
    left: Vec<Left>,
    /// True if each request has a cost of its own, so that no two travel in one run.
    costs_differ: bool,
}

/// One request of a mix, and the caller of each part.
struct Asked<'a> {
    verb: Verb,
    parts: Vec<(Part, u64)>,
    cost: u64,
    mix: &'a Mix,
}

/// The bytes of a state on the server, and the decision whose credit is the most expensive.
struct Template {
    value: Option<Vec<u8>>,
    oldest: Decision,
}

/// A server and its backend.
struct Side {
    server: Standalone,
    backend: RedisBackend,
    connection: Connection,
}

struct Held {
    /// Makes the states, and measures how much one call carries.
    quick: Side,
    counted: Side,
    /// By quota, and by the history of the state.
    templates: Vec<Vec<Template>>,
    /// The instructions of the latest call.
    around: u64,
}

fn quota_of(slot: u16) -> Quota {
    QUOTAS[usize::from(slot) % QUOTAS.len()]
}

fn key_of(caller: u64) -> Key {
    Key::from(format!("caller-{caller}"))
}

/// A quota of the same kind of state that leaves other ones.
fn foreign_to(quota: Quota) -> Quota {
    match quota.algorithm() {
        Algorithm::Gcra => Quota::new(7_919, DAY * 7).burst(9_001),
        algorithm => Quota::new(77, quota.period()).using(algorithm),
    }
}

impl Part {
    fn scope(self) -> Scope {
        Scope::of("held", self.slot, &quota_of(self.slot))
    }
}

impl Mix {
    fn of(verb: Verb, parts: &[Part], left: &[Left]) -> Self {
        Self {
            requests: vec![(verb, parts.to_vec())],
            left: left.to_vec(),
            costs_differ: false,
        }
    }

    fn asked(&self, count: u64) -> Vec<Asked<'_>> {
        (0..count)
            .zip(self.requests.iter().cycle())
            .map(|(number, (verb, parts))| Asked {
                verb: *verb,
                parts: (parts.iter())
                    .map(|&part| (part, if part.is_shared { 0 } else { number + 1 }))
                    .collect(),
                cost: if self.costs_differ { 1 + number } else { 1 },
                mix: self,
            })
            .collect()
    }

    fn left_of(&self, caller: u64) -> Left {
        self.left[usize::try_from(caller).unwrap() % self.left.len()]
    }
}

impl Side {
    async fn of(server: Standalone) -> Self {
        // One call after the other, so that each carries as much as it may. Each request is to reach the server.
        let builder = RedisBackend::builder(&server.url())
            .patient()
            .ask_every_denial()
            .connections(1);
        let backend = builder.deadline(LONG).connect().await.unwrap();
        let client = redis::Client::open(server.url()).unwrap();
        Self {
            server,
            backend,
            connection: client.get_connection().unwrap(),
        }
    }

    fn states(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let names: Vec<Vec<u8>> = redis::cmd("KEYS")
            .arg("*")
            .query(&mut self.connection)
            .unwrap();
        if names.is_empty() {
            return Vec::new();
        }
        let values: Vec<Vec<u8>> = redis::cmd("MGET")
            .arg(&names)
            .query(&mut self.connection)
            .unwrap();
        names.into_iter().zip(values).collect()
    }

    /// Leaves these states and no others.
    fn put(&mut self, states: &[(Vec<u8>, Option<&Vec<u8>>)]) {
        let mut all = redis::pipe();
        all.cmd("FLUSHALL");
        for (name, value) in states {
            if let Some(value) = value {
                all.cmd("SET").arg(name).arg(*value).arg("EX").arg(3_600);
            }
        }
        all.exec(&mut self.connection).unwrap();
    }

    /// Makes these requests at once. Returns the number of calls.
    async fn make(&self, asked: &[Asked<'_>], templates: &[Vec<Template>]) -> u64 {
        let before = self.backend.stats();
        let (mut decisions, mut resets) = (Vec::new(), Vec::new());
        for Asked {
            verb,
            parts,
            cost,
            mix,
        } in asked
        {
            let quotas: Vec<_> = parts.iter().map(|(part, _)| quota_of(part.slot)).collect();
            let keys: Vec<_> = parts.iter().map(|(_, caller)| key_of(*caller)).collect();
            let charges: Vec<_> = (parts.iter().zip(&quotas).zip(&keys))
                .map(|(((part, _), quota), key)| charge(*part, quota, key, *cost))
                .collect();
            let receipt = || -> Receipt {
                let (part, caller) = parts[0];
                let quota = usize::from(part.slot) % QUOTAS.len();
                let oldest = &templates[quota][mix.left_of(caller) as usize].oldest;
                let charge = [charge(
                    Part {
                        mode: Mode::Enforce,
                        ..part
                    },
                    &quotas[0],
                    &keys[0],
                    1,
                )];
                oldest.receipts(&charge).next().unwrap()
            };
            match verb {
                Verb::Decide => decisions.push(self.backend.decide(Call::of(&charges))),
                Verb::Credit => self.backend.refund(receipt(), 1),
                Verb::Debit => self.backend.debit(&receipt(), *cost),
                Verb::Reset => {
                    resets.push(self.backend.admin().reset(parts[0].0.scope(), &keys[0]));
                }
            }
        }
        for decision in decisions {
            decision.await.unwrap();
        }
        for reset in resets {
            reset.await.unwrap();
        }
        // Credits and debits have left when they are counted, and are done when a later request is answered.
        let all = before.requests + u64::try_from(asked.len()).unwrap();
        while self.backend.stats().requests < all {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let calls = self.backend.stats().calls - before.calls;
        self.backend.decide(Call::of(&[])).await.unwrap();
        calls
    }
}

fn charge<'a>(part: Part, quota: &'a Quota, key: &'a Key, cost: u64) -> Charge<'a> {
    Charge {
        scope: part.scope(),
        quota,
        key,
        cost,
        mode: part.mode,
    }
}

impl Held {
    async fn start() -> Self {
        let mut held = Self {
            quick: Side::of(Standalone::start()).await,
            counted: Side::of(Standalone::start_counted()).await,
            templates: Vec::new(),
            around: 0,
        };
        for quota in QUOTAS {
            let mut templates = Vec::new();
            for left in LEFT {
                templates.push(held.template(quota, left).await);
            }
            held.templates.push(templates);
        }
        // Twice, since the first sends the script.
        held.counted.make(&[], &[]).await;
        let _so_far = held.counted.server.instructions();
        held.counted.make(&[], &[]).await;
        held.around = held.counted.server.instructions();
        held
    }

    async fn template(&mut self, quota: Quota, left: Left) -> Template {
        self.quick.put(&[]);
        let by = if matches!(left, Left::Foreign) {
            foreign_to(quota)
        } else {
            quota
        };
        let budget = Budget::of("template", by);
        let charge = [budget.charge(1)];
        let is_log = by.algorithm() == Algorithm::SlidingLog;
        let count = match left {
            Left::Missing => 1,
            Left::Charged | Left::Foreign => 5,
            Left::Long if is_log => 960,
            Left::Long => 50,
        };
        let backend = &self.quick.backend;
        let mut decisions = Vec::new();
        for _ in 0..count {
            decisions.push(backend.decide(Call::of(&charge)).await.unwrap());
        }
        if matches!(left, Left::Long) && !is_log {
            for decision in &decisions[1..40] {
                let before = backend.stats().requests;
                for receipt in decision.receipts(&charge) {
                    backend.refund(receipt, 1);
                    while backend.stats().requests == before {
                        tokio::time::sleep(Duration::from_micros(100)).await;
                    }
                }
            }
            backend.decide(Call::of(&[])).await.unwrap();
        }
        let value = self.quick.states().pop().map(|(_, value)| value);
        Template {
            value: value.filter(|_| !matches!(left, Left::Missing)),
            oldest: decisions.swap_remove(0),
        }
    }

    /// The instructions of a full call of this mix, and the number of its requests.
    async fn count(&mut self, mix: &Mix) -> (u64, u64) {
        // given the states, by their names
        self.quick.put(&[]);
        let mut all = mix.asked(REQUESTS);
        for asked in &mut all {
            asked.verb = Verb::Decide;
            asked
                .parts
                .iter_mut()
                .for_each(|(part, _)| part.mode = Mode::Enforce);
        }
        self.quick.make(&all, &self.templates).await;
        let names: Vec<_> = self
            .quick
            .states()
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        let states: Vec<_> = (names.into_iter())
            .map(|name| {
                let read = StateName::read(&name).unwrap();
                let caller = (0..=REQUESTS).find(|caller| read.key() == Some(&key_of(*caller)));
                let left = mix.left_of(caller.unwrap());
                let templates = &self.templates[usize::from(read.slot()) % QUOTAS.len()];
                (name, templates[left as usize].value.as_ref())
            })
            .collect();

        // and as many requests as one call takes along
        self.quick.put(&states);
        // Two, if the script of the call's shape leaves it to the general one.
        let calls_of_one = self.quick.make(&mix.asked(1), &self.templates).await;
        let (mut fits, mut fewer_than) = (1, REQUESTS + 1);
        while fits + 1 < fewer_than {
            let middle = (fits + fewer_than) / 2;
            self.quick.put(&states);
            let asked = mix.asked(middle);
            if self.quick.make(&asked, &self.templates).await == calls_of_one {
                fits = middle;
            } else {
                fewer_than = middle;
            }
        }

        // when they are made
        self.counted.put(&states);
        let _so_far = self.counted.server.instructions();
        let calls = self.counted.make(&mix.asked(fits), &self.templates).await;
        let instructions = self.counted.server.instructions();
        assert_eq!(calls, calls_of_one, "{fits} of {mix:?}");
        (instructions.saturating_sub(self.around), fits)
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % bound
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }

    fn mix(&mut self) -> Mix {
        let modes = [Mode::Enforce, Mode::Enforce, Mode::Shadow, Mode::Probe];
        let verbs = [
            Verb::Decide,
            Verb::Decide,
            Verb::Credit,
            Verb::Debit,
            Verb::Reset,
        ];
        // Alone in half of the mixes, since everything else leaves little room beside them.
        let quotas = QUOTAS.len() as u64;
        let kinds = if self.below(2) == 0 { OF_GCRA } else { quotas };
        let requests = (0..1 + self.below(3))
            .map(|_| {
                let verb = self.of(&verbs);
                let parts = if verb == Verb::Decide {
                    1 + self.below(4)
                } else {
                    1
                };
                let parts = (0..parts).map(|_| Part {
                    slot: u16::try_from(self.below(kinds) + quotas * self.below(2)).unwrap(),
                    is_shared: self.below(4) == 0,
                    mode: self.of(&modes),
                });
                (verb, parts.collect())
            })
            .collect();
        Mix {
            requests,
            left: (0..1 + self.below(3)).map(|_| self.of(&LEFT)).collect(),
            costs_differ: self.below(2) == 0,
        }
    }
}

/// The most expensive mix of each quota and each kind of work. A search over all mixes found nothing more expensive.
fn dearest() -> Vec<Mix> {
    let mut mixes = Vec::new();
    let quotas = u16::try_from(QUOTAS.len()).unwrap();
    for slot in 0..quotas {
        let is_shared = false;
        let own = |mode| Part {
            slot,
            is_shared,
            mode,
        };
        let other = |mode| Part {
            slot: slot + quotas,
            ..own(mode)
        };
        let enforced = [own(Mode::Enforce), other(Mode::Enforce)];
        mixes.extend([
            Mix::of(Verb::Decide, &enforced, &[Left::Long]),
            Mix::of(
                Verb::Decide,
                &[own(Mode::Shadow), other(Mode::Probe)],
                &[Left::Long],
            ),
            Mix {
                costs_differ: true,
                ..Mix::of(Verb::Decide, &enforced, &LEFT)
            },
        ]);
        if u64::from(slot) < OF_GCRA {
            mixes.extend([
                Mix::of(Verb::Decide, &enforced, &[Left::Foreign]),
                Mix {
                    costs_differ: true,
                    ..Mix::of(Verb::Decide, &[own(Mode::Shadow)], &[Left::Long])
                },
                Mix::of(Verb::Credit, &enforced[..1], &[Left::Long]),
                Mix::of(Verb::Debit, &enforced[..1], &[Left::Long]),
            ]);
        }
    }
    mixes
}

/// In instructions: the time of a call depends on the machine and its other load.
#[tokio::test]
async fn pitfall_no_call_holds_the_server_for_a_millisecond() {
    let mut held = Held::start().await;
    let drawn = (SEED..SEED + DRAWN).map(|seed| Random(seed << 20).mix());
    let mut too_much = Vec::new();
    for mix in dearest().into_iter().chain(drawn) {
        let (instructions, requests) = held.count(&mix).await;
        let found = format!("{instructions} instructions for {requests} of {mix:?}");
        println!("{found}");
        if instructions > MOST {
            too_much.push(found);
        }
    }
    assert!(too_much.is_empty(), "{too_much:#?}");
}

/// Otherwise a log that is debited again and again, each time in a microsecond of its own, would have eight times as many
/// entries as its limit, and hold the server eight times as long.
#[tokio::test]
async fn a_log_that_is_debited_grows_no_longer_than_one_that_is_charged() {
    let quota = Quota::new(1_024, HOUR * 24).using(Algorithm::SlidingLog);
    let server = Standalone::start();
    let builder = RedisBackend::builder(&server.url()).patient();
    let backend = builder.connect().await.unwrap();
    let budget = Budget::of("debts", quota);
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    let (mut receipts, mut bytes) = (Vec::new(), Vec::new());

    // given a log that is full
    let charge = [budget.charge(1)];
    for _ in 0..1_024 {
        let decision = backend.decide(Call::of(&charge)).await.unwrap();
        assert!(decision.is_admitted());
        receipts.extend(decision.receipts(&charge));
    }

    // when it is debited
    for debits in [0, 1, 50] {
        for _ in 0..debits {
            backend.debit(&receipts[0], 1);
            // After the credits and debits.
            backend.decide(Call::of(&[])).await.unwrap();
        }
        let names: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
        let length = redis::cmd("STRLEN")
            .arg(&names)
            .query::<usize>(&mut connection);
        bytes.push(length.unwrap());
    }

    // then it has one more entry, which holds the whole debt
    assert_eq!(bytes, [1_024, 1_025, 1_025].map(|entries| 5 + 12 * entries));
    for receipt in receipts {
        backend.refund(receipt, 1);
    }
    // A debit may be done after a later request.
    let given_back = async {
        while budget.remaining(&backend).await != 1_024 - 51 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENT, given_back)
        .await
        .expect("all but the debt is given back");
}
