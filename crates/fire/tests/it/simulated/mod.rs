//! A limiter in one thread with known faults, and mutations of it.

mod call;
mod mutation;

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use tollgate_core::{
    Call, Charge, Decision, Mode, QueueMark, Quota, Receipt, Snapshot, State, States, Timestamp,
    decide,
};
use tollgate_fire::{
    AskedCharge, Asker, Attempt, Budget, Disturbance, Effect, History, Outcome, Population, Terms,
    Verb, VerdictRecord,
};

use self::call::{Places, firsts, heavier, turn_shadows};
pub(crate) use self::mutation::Mutation;

const STEPS: usize = 4_000;

/// The history that shows this mutation best: faults and a few corrections, or many of these and no faults.
pub(crate) fn simulate(seed: u64, mutation: Mutation) -> History {
    let simulation = Simulation::new(seed, mutation);
    if mutation.is_about_corrections() {
        simulation.run(false, 5)
    } else {
        simulation.run(true, 1)
    }
}

/// A history of a correct limiter, with faults and many corrections.
pub(crate) fn corrected(seed: u64) -> History {
    Simulation::new(seed, Mutation::None).run(true, 6)
}

/// Histories of a correct limiter whose callers state how long they wait, and whose quotas are replaced: with few corrections, with
/// many, and where servers take each other's place.
pub(crate) fn by_changing_terms(seed: u64) -> [History; 3] {
    let simulation = || Simulation {
        terms: Some(Rng::with_seed(seed)),
        ..Simulation::new(seed, Mutation::None)
    };
    [
        simulation().run(true, 1),
        simulation().run(true, 6),
        simulation().run_as_fleet(),
    ]
}

/// A history without faults, corrections and unknown outcomes.
pub(crate) fn calm(seed: u64) -> History {
    Simulation::new(seed, Mutation::None).run(false, 0)
}

/// A history of two servers in turn: now and then the other takes over, by its own clock and with the state of the first when
/// that was last heard of. For a while both may have answered.
pub(crate) fn failing_over(seed: u64, mutation: Mutation) -> History {
    Simulation::new(seed, mutation).run_as_fleet()
}

struct Simulation {
    rng: Rng,
    /// Draws the terms of each question, if callers state their waits and quotas are replaced.
    terms: Option<Rng>,
    population: Population,
    mutation: Mutation,
    /// The burst and the longest wait by which each budget was charged last.
    versions: BTreeMap<Budget, (u64, Duration)>,
    /// In a fixed order: their fates are drawn one after the other.
    states: BTreeMap<Budget, State>,
    history: History,
    wall_us: u64,
    ahead_us: i64,
    /// Calls whose clients have gone, with the time at which they arrive.
    late: Vec<(u64, Vec<AskedCharge>)>,
    /// The charges whose clients heard of them.
    held: Vec<(Budget, VerdictRecord, Receipt)>,
    /// The credits and debits to come, with their times.
    settled: Vec<(u64, Settled)>,
}

/// True while one server is cut off from the other.
struct Parting {
    from_us: u64,
    /// Its states.
    states: BTreeMap<Budget, State>,
    /// The number of actions until it takes over.
    steps: u32,
    /// The number of those in which both answer.
    both_from: u32,
}

struct Settled {
    budget: Budget,
    receipt: Receipt,
    n: u64,
    is_debit: bool,
}

impl Simulation {
    fn new(seed: u64, mutation: Mutation) -> Self {
        let population = Population::of(seed);
        Self {
            rng: Rng::with_seed(!seed),
            terms: mutation.is_about_terms().then(|| Rng::with_seed(seed)),
            history: History {
                quotas: population.quotas().to_vec(),
                replacements: population.replacements().clone(),
                ..History::default()
            },
            population,
            mutation,
            versions: BTreeMap::new(),
            states: BTreeMap::new(),
            wall_us: 1_700_000_000_000_000,
            ahead_us: 0,
            late: Vec::new(),
            held: Vec::new(),
            settled: Vec::new(),
        }
    }

    /// Of forty steps this many are corrections.
    fn run(mut self, with_faults: bool, corrections: u8) -> History {
        for _ in 0..STEPS {
            self.wall_us += self.rng.u64(0..3_000);
            self.arrive_late();
            if with_faults && self.rng.u16(0..400) == 0 {
                self.disturb();
            }
            if self.rng.u8(0..40) >= corrections {
                let is_lost = with_faults && self.rng.u8(0..self.one_lost_in()) == 0;
                self.ask(is_lost);
            } else if self.rng.u8(0..6) == 0 {
                self.reset(with_faults);
            } else {
                self.correct(with_faults);
            }
        }
        self.history
    }

    /// As [`run`](Self::run), with failovers for faults.
    fn run_as_fleet(mut self) -> History {
        self.ahead_us = self.rng.i64(0..3_000_000);
        let clock = Disturbance::of_all(Effect::Clock(self.ahead_us), 0, 0);
        self.history.disturbances.push(clock);
        let mut other_ahead_us = self.rng.i64(0..3_000_000);
        let mut parting: Option<Parting> = None;
        for _ in 0..STEPS {
            self.wall_us += self.rng.u64(0..3_000);
            self.arrive_late();
            match &mut parting {
                None if self.rng.u16(0..200) == 0 => {
                    parting = Some(Parting {
                        from_us: self.wall_us,
                        states: self.states.clone(),
                        steps: self.rng.u32(0..200),
                        both_from: self.rng.u32(0..200),
                    });
                }
                None if self.rng.u16(0..400) == 0 => {
                    let from_us = self.wall_us;
                    self.ahead_us += self.rng.i64(-2_000_000..2_000_000);
                    self.wall_us += 10;
                    self.note_clock(from_us);
                }
                None => {}
                Some(over) if over.steps == 0 => {
                    self.take_over(over.from_us, &mut over.states, &mut other_ahead_us);
                    parting = None;
                }
                Some(parting) => parting.steps -= 1,
            }
            let other = parting.as_mut().filter(|it| it.steps < it.both_from);
            let other = other.filter(|_| self.rng.bool());
            if let Some(other) = other {
                std::mem::swap(&mut self.states, &mut other.states);
                std::mem::swap(&mut self.ahead_us, &mut other_ahead_us);
                self.act();
                std::mem::swap(&mut self.states, &mut other.states);
                std::mem::swap(&mut self.ahead_us, &mut other_ahead_us);
            } else {
                self.act();
            }
        }
        if let Some(mut over) = parting {
            self.take_over(over.from_us, &mut over.states, &mut other_ahead_us);
        }
        self.history.disturbances.sort_by_key(|it| it.from_us);
        self.history
    }

    /// A call that is sent again shows only in a loss.
    fn one_lost_in(&self) -> u8 {
        match self.mutation {
            Mutation::SendAgain => 6,
            _ => 50,
        }
    }

    fn act(&mut self) {
        match self.rng.u8(0..40) {
            0 => self.reset(true),
            1..=3 => self.correct(true),
            _ => {
                let is_lost = self.rng.u8(0..self.one_lost_in()) == 0;
                self.ask(is_lost);
            }
        }
    }

    /// The other server decides from now on, and calls on their way to the first may be lost.
    fn take_over(
        &mut self,
        from_us: u64,
        states: &mut BTreeMap<Budget, State>,
        other_ahead_us: &mut i64,
    ) {
        std::mem::swap(&mut self.states, states);
        std::mem::swap(&mut self.ahead_us, other_ahead_us);
        self.late.retain(|_| self.rng.bool());
        self.settled.retain(|_| self.rng.bool());
        let lost = Disturbance::of_all(Effect::MaybeLoss, from_us, self.wall_us);
        self.history.disturbances.push(lost);
        self.note_clock(from_us);
    }

    fn note_clock(&mut self, from_us: u64) {
        let clock = Disturbance::of_all(Effect::Clock(self.ahead_us), from_us, self.wall_us);
        self.history.disturbances.push(clock);
    }

    fn ask(&mut self, is_lost: bool) {
        let caller = self.rng.u32(0..2);
        let asked = self.population.ask(&mut self.rng, caller);
        let sent_us = self.wall_us;
        self.wall_us += self.rng.u64(0..500);
        let mut waits_at_most = None;
        let outcome = if is_lost {
            for _ in 0..=u8::from(self.mutation == Mutation::SendAgain) {
                if self.mutation == Mutation::SendAgain || self.rng.bool() {
                    let arrives_us = self.wall_us + self.rng.u64(0..1_000_000);
                    self.late.push((arrives_us, asked.clone()));
                }
            }
            Outcome::Unknown("lost".to_owned())
        } else {
            let version;
            (waits_at_most, version) = self.terms_of(&asked);
            let quotas = self.versions(&asked, version);
            self.forget_other_versions(&asked, &quotas);
            let limited = |times: u32| {
                let most = waits_at_most.map_or(Duration::MAX, |it| it / times);
                let quotas = quotas.iter().map(|quota| quota.waiting_at_most(most));
                quotas.collect::<Vec<_>>()
            };
            let (decision, receipts) = match self.mutation {
                Mutation::PatienceIgnored => self.decide(&asked, &quotas),
                Mutation::PatienceHalved => self.decide(&asked, &limited(2)),
                _ => self.decide(&asked, &limited(1)),
            };
            let terms: Vec<_> = limited(1).iter().map(|it| Some(Terms::of(it))).collect();
            let mut outcome = Outcome::of(&Ok(decision)).by(&terms);
            if let Outcome::Decided(decided) = &mut outcome {
                if self.mutation == Mutation::Hasty {
                    for said in &mut decided.verdicts {
                        said.retry_after_us = said.retry_after_us.saturating_sub(1);
                    }
                }
                if self.mutation == Mutation::WaitShort {
                    for said in &mut decided.verdicts {
                        said.wait_us = said.wait_us.saturating_sub(1);
                    }
                }
                let taken = asked.iter().zip(&decided.verdicts);
                let taken = taken.filter(|(_, said)| said.taken > 0);
                let held = taken.zip(receipts);
                self.held
                    .extend(held.map(|((asked, said), receipt)| (asked.budget, *said, receipt)));
            }
            outcome
        };
        self.wall_us += self.rng.u64(0..500);
        self.note(Verb::Decide(asked), sent_us, outcome);
        if let (Some(attempt), Some(most)) = (self.history.attempts.last_mut(), waits_at_most) {
            attempt.waits_at_most_us = u64::try_from(most.as_micros()).ok();
        }
    }

    /// The longest wait that the caller states, and the version of the quotas.
    fn terms_of(&mut self, asked: &[AskedCharge]) -> (Option<Duration>, usize) {
        let longest = self.population.longest_wait(asked);
        let Some(rng) = &mut self.terms else {
            return (None, 0);
        };
        let states = !longest.is_zero() && rng.u8(0..3) == 0;
        let waits_at_most = states.then(|| longest.mul_f64(1.25).mul_f64(rng.f64()));
        (waits_at_most, Population::any_version(rng, false))
    }

    /// The quotas of a call in this version.
    fn versions(&self, asked: &[AskedCharge], version: usize) -> Vec<Quota> {
        let policies = asked.iter().map(|asked| asked.budget.policy);
        policies
            .map(|policy| self.population.quota(policy, version))
            .collect()
    }

    fn forget_other_versions(&mut self, asked: &[AskedCharge], quotas: &[Quota]) {
        for (asked, quota) in asked.iter().zip(quotas) {
            let version = (quota.capacity(), quota.longest_wait());
            let before = self.versions.insert(asked.budget, version);
            if self.mutation == Mutation::ReplacedAnew && before.is_some_and(|it| it != version) {
                self.states.remove(&asked.budget);
            }
        }
    }

    fn note(&mut self, verb: Verb, sent_us: u64, outcome: Outcome) {
        self.history.attempts.push(Attempt::plain(
            Asker::default(),
            verb,
            sent_us,
            self.wall_us,
            outcome,
        ));
    }

    /// Gives back or takes more, soon or after a while.
    fn correct(&mut self, with_faults: bool) {
        if self.held.is_empty() {
            return;
        }
        // Mostly a late one, whose turn may not have come.
        let oldest = match self.rng.u8(0..4) {
            0 => 0,
            _ => self.held.len().saturating_sub(12),
        };
        let position = self.rng.usize(oldest..self.held.len());
        let (budget, said, receipt) = self.held.swap_remove(position);
        let is_debit = self.rng.u8(0..4) == 0;
        let n = if is_debit {
            self.rng.u64(1..=(receipt.quota().capacity() / 4).max(1))
        } else {
            self.rng.u64(1..=said.taken)
        };
        let times = match (self.mutation, is_debit) {
            (Mutation::CreditTwice, false) | (Mutation::DebitTwice, true) => 2,
            (Mutation::CreditLost, false) | (Mutation::DebitLost, true) => 0,
            // As a lone connection may be.
            _ if with_faults && self.rng.u8(0..20) == 0 => {
                self.trouble();
                0
            }
            _ => 1,
        };
        for _ in 0..times {
            let due_us = self.wall_us + self.rng.u64(0..1_000_000);
            let settled = Settled {
                budget,
                receipt: receipt.copy(),
                n,
                is_debit,
            };
            self.settled.push((due_us, settled));
        }
        let verb = if is_debit {
            Verb::Debit(budget, n)
        } else {
            Verb::Credit(budget, said, n)
        };
        self.note(verb, self.wall_us, Outcome::Told);
    }

    fn reset(&mut self, with_faults: bool) {
        let budget = Budget {
            policy: self.population.resettable(&mut self.rng),
            caller: self.rng.u32(0..2),
        };
        let sent_us = self.wall_us;
        self.wall_us += self.rng.u64(0..500);
        let forgotten = match self.mutation {
            Mutation::ResetIdle => None,
            Mutation::ResetNeighbour => Some(Budget {
                caller: budget.caller ^ 1,
                ..budget
            }),
            _ => Some(budget),
        };
        let is_lost = with_faults && self.rng.u8(0..8) == 0;
        if let Some(budget) = forgotten
            && !(is_lost && self.rng.bool())
        {
            self.states.remove(&budget);
        }
        self.wall_us += self.rng.u64(0..500);
        let outcome = if is_lost {
            Outcome::Unknown("lost".to_owned())
        } else {
            Outcome::Reset
        };
        self.note(Verb::Reset(budget), sent_us, outcome);
    }

    fn arrive_late(&mut self) {
        let (now, later) = self.late.drain(..).partition(|(at, _)| *at <= self.wall_us);
        self.late = later;
        let now: Vec<(u64, Vec<AskedCharge>)> = now;
        for (_, asked) in now {
            let quotas = self.versions(&asked, 0);
            let (decision, receipts) = self.decide(&asked, &quotas);
            let verdicts = asked.iter().zip(decision.verdicts());
            let taken = verdicts.filter(|(_, verdict)| verdict.taken() > 0);
            for ((asked, _), receipt) in taken.zip(receipts) {
                if self.rng.bool() {
                    let due_us = self.wall_us + self.rng.u64(0..1_000_000);
                    let settled = Settled {
                        budget: asked.budget,
                        n: receipt.cost(),
                        receipt,
                        is_debit: false,
                    };
                    self.settled.push((due_us, settled));
                }
            }
        }
        let now = self.server_time();
        let (due, later) = self
            .settled
            .drain(..)
            .partition(|(due_us, _)| *due_us <= self.wall_us);
        self.settled = later;
        let due: Vec<(u64, Settled)> = due;
        for (_, settled) in due {
            let full = State::full(settled.receipt.quota());
            let state = self.states.entry(settled.budget).or_insert(full);
            if settled.is_debit {
                settled.receipt.debit_from(state, now, settled.n);
            } else if self.mutation == Mutation::LeaverMovesUp
                && !settled.receipt.quota().longest_wait().is_zero()
            {
                *state = moved_up(state, now, &settled);
            } else {
                settled.receipt.credit_to(state, now, settled.n);
            }
        }
    }

    fn server_time(&self) -> Timestamp {
        Timestamp::from_micros(self.wall_us.saturating_add_signed(self.ahead_us))
    }

    /// A disturbance that loses only calls on their way.
    fn trouble(&mut self) {
        let (from_us, to_us) = (self.wall_us, self.wall_us + 10);
        self.wall_us = to_us;
        let trouble = Disturbance::trouble(from_us, to_us);
        self.history.disturbances.push(trouble);
    }

    fn disturb(&mut self) {
        // States that say only that a budget is full are dropped, as a server drops expired keys.
        let now = self.server_time();
        let quotas = self.population.quotas();
        (self.states)
            .retain(|budget, state| state.meaningless_at(quotas[budget.policy].unit()) > now);
        let from_us = self.wall_us;
        let certain = self.rng.bool();
        let effect = match self.rng.u8(0..4) {
            0 => {
                self.ahead_us += self.rng.i64(-800_000..2_000_000);
                Effect::Clock(self.ahead_us)
            }
            _ if certain => {
                self.states.clear();
                Effect::Loss
            }
            _ => {
                let states = self.states.keys().copied().collect::<Vec<_>>();
                for budget in states {
                    if self.rng.bool() {
                        self.states.remove(&budget);
                    }
                }
                Effect::MaybeLoss
            }
        };
        self.wall_us += 10;
        let disturbance = Disturbance::of_all(effect, from_us, self.wall_us);
        self.history.disturbances.push(disturbance);
    }

    fn decide(&mut self, asked: &[AskedCharge], quotas: &[Quota]) -> (Decision, Vec<Receipt>) {
        let now = self.server_time();
        let unlucky = self.rng.u8(0..10) == 0;
        let place = |asked: &AskedCharge| match self.mutation {
            Mutation::Neighbour if unlucky => Budget {
                caller: asked.budget.caller ^ 1,
                ..asked.budget
            },
            _ => asked.budget,
        };
        let places: Vec<_> = asked.iter().map(place).collect();
        let full = |budget: &Budget| State::full(&self.population.quotas()[budget.policy]);
        let is_forgotten = self.mutation == Mutation::ForgetEarly && unlucky;
        let stored = |place: &Budget| {
            let stored = self.states.get(place).filter(|_| !is_forgotten);
            stored.cloned().unwrap_or_else(|| full(place))
        };
        let mut states = Places::of(&places, stored);
        let keys = self.population.keys(asked);
        let mut charges = self.population.charges(asked, &keys);
        for (charge, quota) in charges.iter_mut().zip(quotas) {
            charge.quota = quota;
        }
        let decision = match self.mutation {
            Mutation::ShadowDenies => {
                turn_shadows(&mut charges, Mode::Enforce);
                decide(now, Call::of(&charges), &mut states)
            }
            Mutation::ShadowWaits => {
                let mut tried = states.clone();
                if !decide(now, Call::of(&charges), &mut tried).is_admitted() {
                    turn_shadows(&mut charges, Mode::Probe);
                }
                decide(now, Call::of(&charges), &mut states)
            }
            Mutation::NeverForget if unlucky => {
                // As if no time had passed since long ago.
                let _stale = decide(now, Call::of(&heavier(&charges)), &mut states);
                decide(now, Call::of(&charges), &mut states)
            }
            Mutation::Harsh if unlucky => {
                charges.iter_mut().for_each(|charge| charge.cost *= 2);
                decide(now, Call::of(&charges), &mut states)
            }
            Mutation::TakesOnce => {
                let decision = decide(now, Call::of(&charges), &mut states.clone());
                let _first = decide(now, Call::of(&firsts(&charges)), &mut states);
                decision
            }
            _ => decide(now, Call::of(&charges), &mut states),
        };
        if self.mutation == Mutation::DoubleCharge && unlucky {
            let _again = decide(now, Call::of(&charges), &mut states);
        }
        for (position, charge) in charges.iter().enumerate() {
            let takes = match charge.mode {
                Mode::Enforce => self.mutation == Mutation::TakeInPart && !decision.is_admitted(),
                Mode::Probe => self.mutation == Mutation::ProbeTakes,
                _ => false,
            };
            if takes {
                let charge = Charge {
                    mode: Mode::Enforce,
                    ..*charge
                };
                let _alone = decide(
                    now,
                    Call::of(&[charge]),
                    std::slice::from_mut(states.state(position)),
                );
            }
        }
        let is_unkept = self.mutation == Mutation::TurnUnkept && !decision.wait().is_zero();
        if !(self.mutation == Mutation::SkipWrite && unlucky || is_unkept) {
            self.states.extend(states.into_all());
        }
        let receipts = decision.receipts(&charges).collect();
        (decision, receipts)
    }
}

/// The line that ends earlier by what is given back.
fn moved_up(line: &State, now: Timestamp, settled: &Settled) -> State {
    let quota = settled.receipt.quota();
    let drain = quota.period().as_micros() * u128::from(settled.n) / u128::from(quota.limit());
    match line.snapshot() {
        Snapshot::Gcra {
            full_at_us,
            rest,
            rest_of,
            exponent,
            thirty_seconds,
            ..
        } => State::from(Snapshot::Gcra {
            full_at_us: full_at_us
                .saturating_sub(u64::try_from(drain).unwrap_or(u64::MAX))
                .max(now.as_micros().min(full_at_us)),
            rest,
            rest_of,
            exponent,
            thirty_seconds,
            credits: Vec::new(),
            queue: QueueMark::default(),
            cold_at_us: 0,
            cold_at_ticks: 0,
        }),
        _ => line.clone(),
    }
}
