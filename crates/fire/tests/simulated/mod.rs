//! A limiter in one thread, whose faults are known, and mutations of it.

use std::collections::HashMap;

use fastrand::Rng;
use tollgate_core::{Charge, Decision, Mode, Receipt, State, Timestamp, decide};
use tollgate_fire::{
    Asked, Attempt, Budget, Disturbance, Effect, History, Outcome, Population, Said,
};

/// A way in which a limiter can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    None,
    /// What was decided is not stored.
    SkipWrite,
    /// What was decided is stored twice.
    DoubleCharge,
    /// Somebody else's budget is looked at.
    Neighbour,
    /// A state is forgotten before it has lost its meaning.
    ForgetEarly,
    /// A state is not forgotten when a window is over.
    NeverForget,
    /// A call without an answer is sent again, and both are decided.
    SendAgain,
    /// A denied call keeps what it could get.
    TakeInPart,
    /// A denial says a microsecond less than it must.
    Hasty,
    /// One in ten is denied for no reason.
    Harsh,
}

impl Mutation {
    pub(crate) const ALL: [Self; 9] = [
        Self::SkipWrite,
        Self::DoubleCharge,
        Self::Neighbour,
        Self::ForgetEarly,
        Self::NeverForget,
        Self::SendAgain,
        Self::TakeInPart,
        Self::Hasty,
        Self::Harsh,
    ];
}

const STEPS: usize = 3_000;

/// A history with faults.
pub(crate) fn simulate(seed: u64, mutation: Mutation) -> History {
    Simulation::new(seed, mutation).run(true)
}

/// A history in which nothing went wrong, and nothing is unknown.
pub(crate) fn calm(seed: u64) -> History {
    Simulation::new(seed, Mutation::None).run(false)
}

struct Simulation {
    rng: Rng,
    population: Population,
    mutation: Mutation,
    states: HashMap<Budget, State>,
    history: History,
    wall_us: u64,
    ahead_us: i64,
    /// Calls that nobody waits for any more, and when they arrive.
    late: Vec<(u64, Vec<Asked>)>,
    /// What they took, and when it is given back.
    given_back: Vec<(u64, Budget, Receipt)>,
}

impl Simulation {
    fn new(seed: u64, mutation: Mutation) -> Self {
        let population = Population::of(seed);
        Self {
            rng: Rng::with_seed(!seed),
            history: History {
                quotas: population.quotas().to_vec(),
                ..History::default()
            },
            population,
            mutation,
            states: HashMap::new(),
            wall_us: 1_700_000_000_000_000,
            ahead_us: 0,
            late: Vec::new(),
            given_back: Vec::new(),
        }
    }

    fn run(mut self, with_faults: bool) -> History {
        for _ in 0..STEPS {
            self.wall_us += self.rng.u64(0..3_000);
            self.arrive_late();
            if with_faults && self.rng.u16(0..400) == 0 {
                self.disturb();
            }
            let is_lost = with_faults && self.rng.u8(0..50) == 0;
            self.ask(is_lost);
        }
        self.history
    }

    fn ask(&mut self, is_lost: bool) {
        let caller = self.rng.u32(0..2);
        let asked = self.population.ask(&mut self.rng, caller);
        let sent_us = self.wall_us;
        self.wall_us += self.rng.u64(0..500);
        let outcome = if is_lost {
            for _ in 0..=u8::from(self.mutation == Mutation::SendAgain) {
                if self.mutation == Mutation::SendAgain || self.rng.bool() {
                    let arrives_us = self.wall_us + self.rng.u64(0..1_000_000);
                    self.late.push((arrives_us, asked.clone()));
                }
            }
            Outcome::Unknown("lost".to_owned())
        } else {
            let decision = self.decide(&asked);
            let mut outcome = Outcome::of(&Ok(decision));
            if self.mutation == Mutation::Hasty
                && let Outcome::Decided(decided) = &mut outcome
            {
                let hurry = |said: &mut Said| {
                    said.retry_after_us = said.retry_after_us.saturating_sub(1);
                };
                decided.verdicts.iter_mut().for_each(hurry);
            }
            outcome
        };
        self.wall_us += self.rng.u64(0..500);
        self.history.attempts.push(Attempt {
            charges: asked,
            sent_us,
            heard_us: self.wall_us,
            promised_us: None,
            outcome,
        });
    }

    fn arrive_late(&mut self) {
        let (now, later) = self.late.drain(..).partition(|(at, _)| *at <= self.wall_us);
        self.late = later;
        let now: Vec<(u64, Vec<Asked>)> = now;
        for (_, asked) in now {
            let decision = self.decide(&asked);
            let key = self.population.key(asked[0].budget.caller);
            let charges = self.population.charges(&asked, &key);
            let budgets = asked.iter().filter(|asked| asked.cost > 0);
            for (asked, receipt) in budgets.zip(decision.receipts(&charges)) {
                if self.rng.bool() {
                    let due_us = self.wall_us + self.rng.u64(0..1_000_000);
                    self.given_back.push((due_us, asked.budget, receipt));
                }
            }
        }
        let now = Timestamp::from_micros(self.wall_us.saturating_add_signed(self.ahead_us));
        for (due_us, budget, receipt) in std::mem::take(&mut self.given_back) {
            if due_us > self.wall_us {
                self.given_back.push((due_us, budget, receipt));
            } else if let Some(state) = self.states.get_mut(&budget) {
                receipt.credit_to(state, now, receipt.cost());
            }
        }
    }

    fn disturb(&mut self) {
        // What says no more than that a budget is full is forgotten, as a server does with keys that have expired.
        let now = Timestamp::from_micros(self.wall_us.saturating_add_signed(self.ahead_us));
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
        self.history.disturbances.push(Disturbance {
            from_us,
            to_us: self.wall_us,
            effect,
        });
    }

    fn decide(&mut self, asked: &[Asked]) -> Decision {
        let now = Timestamp::from_micros(self.wall_us.saturating_add_signed(self.ahead_us));
        let unlucky = self.rng.u8(0..10) == 0;
        let place = |asked: &Asked| match self.mutation {
            Mutation::Neighbour if unlucky => Budget {
                caller: asked.budget.caller ^ 1,
                ..asked.budget
            },
            _ => asked.budget,
        };
        let places: Vec<_> = asked.iter().map(place).collect();
        let full = |budget: &Budget| State::full(&self.population.quotas()[budget.policy]);
        let mut states: Vec<_> = places
            .iter()
            .map(|place| {
                self.states
                    .get(place)
                    .cloned()
                    .unwrap_or_else(|| full(place))
            })
            .collect();
        if self.mutation == Mutation::ForgetEarly && unlucky {
            states = places.iter().map(full).collect();
        }
        let key = self.population.key(asked[0].budget.caller);
        let mut charges = self.population.charges(asked, &key);
        let decision = match self.mutation {
            Mutation::NeverForget if unlucky => {
                // As if no time had passed since long ago.
                let _stale = decide(now, &heavier(&charges), &mut states[..]);
                decide(now, &charges, &mut states[..])
            }
            Mutation::Harsh if unlucky => {
                charges.iter_mut().for_each(|charge| charge.cost *= 2);
                decide(now, &charges, &mut states[..])
            }
            _ => decide(now, &charges, &mut states[..]),
        };
        if self.mutation == Mutation::DoubleCharge && unlucky {
            let _again = decide(now, &charges, &mut states[..]);
        }
        if self.mutation == Mutation::TakeInPart && !decision.is_admitted() {
            for (charge, state) in charges.iter().zip(&mut states) {
                let _alone = decide(now, &[*charge], std::slice::from_mut(state));
            }
        }
        if !(self.mutation == Mutation::SkipWrite && unlucky) {
            self.states.extend(places.into_iter().zip(states));
        }
        decision
    }
}

/// The same, costing what is left over from before.
fn heavier<'a>(charges: &[Charge<'a>]) -> Vec<Charge<'a>> {
    let one = |charge: &Charge<'a>| Charge {
        cost: 1,
        mode: Mode::Shadow,
        ..*charge
    };
    charges.iter().map(one).collect()
}
