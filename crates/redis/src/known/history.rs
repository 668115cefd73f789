//! A process, its server and other processes in virtual time: random histories, judged against the server's own states.

use std::collections::HashMap;

use tollgate_core::{Algorithm, Call, Quota, decide};
use tollgate_testkit::{cases, seed};

use super::tests::{charge, remembering};
use super::*;

/// A source of random numbers that a seed repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        let product = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = product.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::try_from(self.below(choices.len() as u64)).unwrap()]
    }
}

/// A question under way.
struct Travelling {
    key: u64,
    quota: Quota,
    cost: u64,
    sent: SentCall,
    _turn: Option<Turn>,
}

/// An event that is still to come.
enum Event {
    Executes(Travelling),
    Arrives(Travelling, Decision, State, Timestamp),
    /// The process gives all back, or resets, or lifts a ban.
    Restores(u64, Option<OwnEvent>),
    /// That is answered.
    Ends(Option<OwnEvent>),
}

struct World {
    random: Random,
    start: Instant,
    now_us: u64,
    /// Two limits on one state, as before and after a replacement.
    quotas: [Quota; 2],
    /// The server's clock at the start, and the millionths by which it runs ahead of ours.
    clock_us: u64,
    ahead_ppm: i64,
    states: HashMap<u64, State>,
    known: Arc<KnownDenials>,
    to_come: Vec<(u64, Event)>,
    /// The times at which others gave something back, and of what key; of each key if the clock stepped.
    disturbed: Vec<(u64, Option<u64>)>,
    asked: u64,
    waited: u64,
    denied: u64,
}

const KEYS: u64 = 3;
const MS: u64 = 1_000;

impl World {
    fn of(seed: u64) -> Self {
        let mut random = Random(seed);
        let period = Duration::from_millis(random.one_of(&[20, 100, 400, 3_000]));
        let limit = 1 + random.below(6);
        let offset = Duration::ZERO;
        let algorithm = random.one_of(&[
            Algorithm::Gcra,
            Algorithm::Gcra,
            Algorithm::FixedWindow { offset },
            Algorithm::SlidingWindow,
            Algorithm::RollingWindow { buckets: 4 },
            Algorithm::SlidingLog,
            Algorithm::IntervalRefill { offset },
        ]);
        let quotas = [limit, 2 * limit].map(|limit| Quota::new(limit, period).using(algorithm));
        Self {
            start: Instant::now(),
            now_us: 0,
            quotas,
            clock_us: 1_700_000_000_000_000 + random.below(1_000_000),
            ahead_ppm: random.one_of(&[-1_000, 0, 999]),
            states: HashMap::new(),
            known: remembering(),
            to_come: Vec::new(),
            disturbed: Vec::new(),
            asked: 0,
            waited: 0,
            denied: 0,
            random,
        }
    }

    fn instant(&self) -> Instant {
        self.start + Duration::from_micros(self.now_us)
    }

    fn server_now(&self) -> Timestamp {
        let slewed = i64::try_from(self.now_us).unwrap() * self.ahead_ppm / 1_000_000;
        Timestamp::from_micros(self.clock_us + self.now_us.saturating_add_signed(slewed))
    }

    /// Decides on the server.
    fn decide(&mut self, key: u64, quota: Quota, cost: u64) -> Decision {
        let now = self.server_now();
        let state = self
            .states
            .entry(key)
            .or_insert_with(|| State::full(&quota));
        let key = Key::from(key);
        let charges = [charge(&quota, &key, cost)];
        decide(now, Call::of(&charges), slice::from_mut(state))
    }

    fn within(&mut self, most_us: u64, event: Event) {
        let at_us = self.now_us + self.random.below(most_us);
        self.to_come.push((at_us, event));
    }

    fn run_until(&mut self, until_us: u64) {
        loop {
            let all = self.to_come.iter().enumerate();
            let next = all.min_by_key(|(_, (at_us, _))| *at_us);
            let Some((place, &(at_us, _))) = next.filter(|(_, (at_us, _))| *at_us <= until_us)
            else {
                break;
            };
            self.now_us = self.now_us.max(at_us);
            let (_, event) = self.to_come.swap_remove(place);
            self.happens(event);
        }
        self.now_us = until_us;
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Executes(call) => {
                let decision = self.decide(call.key, call.quota, call.cost);
                let (state, at) = (self.states[&call.key].clone(), self.server_now());
                self.within(3 * MS, Event::Arrives(call, decision, state, at));
            }
            Event::Arrives(call, decision, state, at) => {
                let told = ToldStates {
                    at,
                    received_at: self.instant(),
                    slot: 0,
                };
                let key = Key::from(call.key);
                let charges = [charge(&call.quota, &key, call.cost)];
                let known = &self.known;
                known.learn_from(call.sent, told, charges.iter().copied(), &decision, |_| {
                    Some(&state)
                });
            }
            Event::Restores(key, event) => {
                self.states.remove(&key);
                self.within(3 * MS, Event::Ends(event));
            }
            Event::Ends(event) => drop(event),
        }
    }

    fn step(&mut self) -> Result<(), String> {
        let pause_us = self.random.one_of(&[0, 200, 5 * MS, 40 * MS]) + self.random.below(100);
        self.run_until(self.now_us + pause_us);
        let key = self.random.below(KEYS);
        match self.random.below(96) {
            // Another process charges, which can only deny for longer.
            0..=11 => {
                let _decision = self.decide(key, self.quotas[0], 1);
            }
            // It gives back, resets, lifts a ban.
            12..=14 => {
                self.states.remove(&key);
                self.disturbed.push((self.now_us, Some(key)));
            }
            // A failover, or an operator sets the clock.
            15 => {
                let by_us = self.random.below(4_000) * MS;
                let is_ahead = self.random.below(2) == 0;
                self.clock_us = match is_ahead {
                    true => self.clock_us + by_us,
                    false => self.clock_us - by_us,
                };
                self.disturbed.push((self.now_us, None));
            }
            16..=19 => {
                let scope = Scope::of("model", 0, &self.quotas[0]);
                let event = self.known.begins([(scope, &Key::from(key))].into_iter());
                self.within(30 * MS, Event::Restores(key, event));
            }
            _ => return self.ask(key),
        }
        Ok(())
    }

    fn ask(&mut self, key: u64) -> Result<(), String> {
        let quota = self.quotas[usize::from(self.random.below(4) == 0)];
        let (cost, now) = (1 + self.random.below(3), self.instant());
        let caller = Key::from(key);
        let charges = [charge(&quota, &caller, cost)];
        let judged = self.known.judge_at(|| now, Call::of(&charges));
        if let Judged::Waits(_) = judged {
            // It comes again later, as any other does.
            self.waited += 1;
            return Ok(());
        }
        if let Judged::Asks(turn) = judged {
            self.asked += 1;
            let sent = SentCall {
                sent_at: now,
                ..self.known.departs()
            };
            let call = Travelling {
                key,
                quota,
                cost,
                sent,
                _turn: turn,
            };
            self.within(3 * MS, Event::Executes(call));
            return Ok(());
        }
        let Judged::Denied(denied) = judged else {
            return Ok(());
        };
        self.denied += 1;
        let is_felt = |(at_us, of): &(u64, Option<u64>)| {
            self.now_us - at_us < 100 * MS && of.is_none_or(|of| of == key)
        };
        if self.disturbed.iter().any(is_felt) {
            return Ok(());
        }
        let before = self.states.clone();
        let truth = self.decide(key, quota, cost);
        self.states = before;
        // Our clock may be ahead by a thousandth of a life.
        let most_us = self.server_now().as_micros() + 100;
        match (truth.is_admitted(), denied.at().as_micros() <= most_us) {
            (true, _) => Err(format!("a cost of {cost} passes, at {} µs", self.now_us)),
            (_, false) => Err("the decision's time is to come".to_owned()),
            _ => Ok(()),
        }
    }
}

#[test]
fn no_caller_is_denied_by_what_this_process_did_nor_for_longer_than_a_life_by_what_others_did() {
    let first = seed() >> 1;
    let (mut asked, mut waited, mut denied) = (0, 0, 0);
    for seed in first..first + cases(3_000) {
        let mut world = World::of(seed);
        for _ in 0..150 {
            if let Err(wrong) = world.step() {
                panic!("{wrong}; of seed {seed}, {}", world.quotas[0]);
            }
        }
        asked += world.asked;
        waited += world.waited;
        denied += world.denied;
    }
    // The histories are about something.
    assert!(
        denied > asked / 4 && waited > asked / 100,
        "{denied} known, {asked} asked, {waited} waited"
    );
}
