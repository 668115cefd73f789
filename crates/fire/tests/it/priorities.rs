//! Tests of the checker of shares: limiters that keep to their shares and tell the decision pass, and each other way is caught.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;

use fastrand::Rng;
use tollgate_core::{Algorithm, Call, Charge, Quota, State, Timestamp, decide};
use tollgate_fire::{
    AskedCharge, Asker, Attempt, AttemptAnswer, Budget, DecisionRecord, Door, Fallback, History,
    HttpAnswer, Manner, ONE_IN, Outcome, Population, Verb, VerdictRecord, check,
};

const SEEDS: std::ops::Range<u64> = 0..16;
const STEPS: usize = 4_000;

/// The time before each outage in which nobody asks: more than the ten seconds for which a share may go on to refill.
const QUIET_US: u64 = 20_000_000;

/// A defect of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    None,
    /// Each process has all of a budget.
    WholeShare,
    /// A share is full again whenever the backend has answered.
    FreshShare,
    /// A share refills while the backend is well.
    RefillsBetween,
    /// The charges of a share are taken from the budget as well.
    ChargesBoth,
    /// A share takes twice what it lets through.
    DoubleCharge,
    /// One in ten is denied by a share for no reason.
    Harsh,
    /// A cost that no share can hold is denied, as if it never could pass.
    DeniesTheDear,
    /// A share decides although the backend has.
    Usurps,
    /// A failure has no consequence.
    NoRule,
    /// A failure is answered as a denial.
    FailureIsDenial,
    /// A denial is answered with 200.
    WrongStatus,
    /// `Retry-After` is a second less than it must be.
    Hasty,
    /// `Retry-After` is set although no waiting helps.
    PromisesTheImpossible,
    /// The RateLimit field names another policy's budget.
    NeighbourTold,
    /// The RateLimit field tells what was left before the service settled.
    SettledUntold,
}

impl Mutation {
    const ALL: [Self; 15] = [
        Self::WholeShare,
        Self::FreshShare,
        Self::RefillsBetween,
        Self::ChargesBoth,
        Self::DoubleCharge,
        Self::Harsh,
        Self::DeniesTheDear,
        Self::Usurps,
        Self::NoRule,
        Self::FailureIsDenial,
        Self::WrongStatus,
        Self::Hasty,
        Self::PromisesTheImpossible,
        Self::NeighbourTold,
        Self::SettledUntold,
    ];
}

#[test]
fn processes_that_keep_to_their_shares_and_tell_what_was_decided_are_possible() {
    for seed in SEEDS {
        let findings = check(&simulate(seed, Mutation::None));
        let wrongs: Vec<_> = findings.wrong.iter().map(ToString::to_string).collect();
        assert_eq!(wrongs, [""; 0], "seed {seed}");
        assert!(findings.by_share > 400, "{findings:?}");
        assert!(findings.over_http > 400, "{findings:?}");
    }
}

/// Each defect alone, in most histories: by chance a defect may not show.
#[test]
fn every_way_to_overspend_a_share_or_to_tell_something_else_is_caught() {
    for mutation in Mutation::ALL {
        let caught = SEEDS
            .filter(|&seed| !check(&simulate(seed, mutation)).wrong.is_empty())
            .count();

        assert!(caught >= 14, "{mutation:?}: in {caught} of 16");
    }
}

struct Process {
    asker: Asker,
    shares: HashMap<Budget, State>,
    /// The reading of the clock of its shares.
    shown_us: u64,
    /// The time at which it last began to run, if it runs.
    since_us: Option<u64>,
}

struct Simulation {
    rng: Rng,
    population: Population,
    mutation: Mutation,
    budgets: HashMap<Budget, State>,
    processes: Vec<Process>,
    wall_us: u64,
    is_away: bool,
}

fn simulate(seed: u64, mutation: Mutation) -> History {
    let population = Population::of(seed);
    let wall_us = 1_700_000_000_000_000;
    let doors = [Door::Limiter, Door::Http].into_iter().zip(0..);
    let process = |(door, process)| Process {
        asker: Asker { process, door },
        shares: HashMap::new(),
        shown_us: wall_us,
        since_us: None,
    };
    let mut simulation = Simulation {
        rng: Rng::with_seed(!seed),
        processes: doors.map(process).collect(),
        mutation,
        budgets: HashMap::new(),
        wall_us,
        is_away: false,
        population,
    };
    let quotas = simulation.population.quotas().to_vec();
    let attempts = (0..STEPS).map(|_| simulation.step()).collect();
    History {
        quotas,
        attempts,
        ..History::default()
    }
}

impl Simulation {
    fn step(&mut self) -> Attempt {
        self.wall_us += self.rng.u64(0..3_000);
        if self.rng.u16(0..150) == 0 {
            self.is_away = !self.is_away;
            if self.is_away {
                self.wall_us += QUIET_US;
            }
        }
        let number = self.rng.usize(0..self.processes.len());
        let asker = self.processes[number].asker;
        let caller = self.rng.u32(0..2);
        let asked = self.population.ask(&mut self.rng, caller);
        let asked = fitting(asker.door, asked);
        let sent_us = self.wall_us;
        self.wall_us += self.rng.u64(0..500);
        let mut heard = if self.is_away {
            self.fall_back(number, &asked)
        } else {
            self.answer(number, &asked)
        };
        if asker.door == Door::Http {
            heard.told = Some(self.told(&asked, &heard));
        }
        self.wall_us += self.rng.u64(0..500);
        let attempt = Attempt {
            asker,
            limiter: 0,
            verb: Verb::Decide(asked),
            waits_at_most_us: None,
            sent_us,
            heard_us: 0,
            promised_us: None,
            outcome: Outcome::Reset,
            fallback: None,
            told: None,
            left_us: None,
            asking: None,
            question: None,
        };
        let mut attempt = attempt.heard(self.wall_us, heard);
        // It goes on when its turn comes, while the others are served.
        attempt.heard_us += attempt.wait_us().unwrap_or(0);
        attempt
    }

    /// The backend's answer.
    fn answer(&mut self, number: usize, asked: &[AskedCharge]) -> AttemptAnswer {
        let process = &mut self.processes[number];
        if self.mutation != Mutation::RefillsBetween
            && let Some(since_us) = process.since_us.take()
        {
            process.shown_us += self.wall_us - since_us;
        }
        if self.mutation == Mutation::FreshShare {
            process.shares.clear();
        }
        let quotas = self.population.quotas().to_vec();
        let decided = self.take(None, asked, &quotas, self.wall_us);
        let mut heard = AttemptAnswer::from(Outcome::Decided(decided));
        if self.mutation == Mutation::Usurps && self.rng.u8(0..10) == 0 {
            heard.fallback = Some(self.by_share(number, asked));
        }
        heard
    }

    /// The answer of the failure rule.
    fn fall_back(&mut self, number: usize, asked: &[AskedCharge]) -> AttemptAnswer {
        let mut heard = AttemptAnswer::from(Outcome::Failed("away".to_owned()));
        heard.fallback = match self.mutation {
            Mutation::NoRule if self.rng.u8(0..10) == 0 => None,
            _ => Some(self.by_share(number, asked)),
        };
        heard
    }

    fn by_share(&mut self, number: usize, asked: &[AskedCharge]) -> Fallback {
        let (wall_us, mutation) = (self.wall_us, self.mutation);
        let process = &mut self.processes[number];
        let since_us = *process.since_us.get_or_insert(wall_us);
        let at_us = process.shown_us + (wall_us - since_us);
        let whole = self.population.quotas().to_vec();
        let shares: Vec<_> = match mutation {
            Mutation::WholeShare => whole.clone(),
            _ => whole.iter().map(share_of).collect(),
        };
        let is_too_dear = asked.iter().any(|asked| {
            let policy = asked.budget.policy;
            shares[policy].capacity() < asked.cost && asked.cost <= whole[policy].capacity()
        });
        if is_too_dear && mutation != Mutation::DeniesTheDear {
            return Fallback::Refused;
        }
        let mut decided = self.take(Some(number), asked, &shares, at_us);
        if mutation == Mutation::ChargesBoth && decided.admitted {
            self.take(None, asked, &whole, wall_us);
        }
        if mutation == Mutation::DoubleCharge && decided.admitted {
            self.take(Some(number), asked, &shares, at_us);
        }
        if mutation == Mutation::Harsh && self.rng.u8(0..10) == 0 {
            decided.admitted = false;
        }
        Fallback::Decided {
            admitted: decided.admitted,
            remaining: decided
                .verdicts
                .iter()
                .map(|it| Some(it.remaining))
                .collect(),
            granted: None,
        }
    }

    /// Decides about budgets, or about the shares of a process.
    fn take(
        &mut self,
        process: Option<usize>,
        asked: &[AskedCharge],
        quotas: &[Quota],
        at_us: u64,
    ) -> DecisionRecord {
        let budgets = match process {
            Some(number) => &mut self.processes[number].shares,
            None => &mut self.budgets,
        };
        let quota = |asked: &AskedCharge| &quotas[asked.budget.policy];
        let state = |asked: &AskedCharge| {
            let state = budgets.get(&asked.budget).cloned();
            state.unwrap_or_else(|| State::full(quota(asked)))
        };
        let mut states: Vec<_> = asked.iter().map(state).collect();
        let keys = self.population.keys(asked);
        let charges = self.population.charges(asked, &keys);
        let charges: Vec<_> = charges
            .into_iter()
            .zip(asked)
            .map(|(charge, asked)| Charge {
                quota: quota(asked),
                ..charge
            })
            .collect();
        let decision = decide(
            Timestamp::from_micros(at_us),
            Call::of(&charges),
            &mut states[..],
        );
        budgets.extend(asked.iter().map(|asked| asked.budget).zip(states));
        match Outcome::of(&Ok(decision)) {
            Outcome::Decided(mut decided) => {
                // A check of a probe passes if the probe does.
                decided.admitted &=
                    process.is_none() || decided.verdicts.iter().all(|it| it.passes);
                decided
            }
            other => unreachable!("{other:?}"),
        }
    }

    fn told(&mut self, asked: &[AskedCharge], heard: &AttemptAnswer) -> HttpAnswer {
        let mutation = self.mutation;
        let mut told = match (&heard.outcome, &heard.fallback) {
            (Outcome::Decided(decided), _) => HttpAnswer {
                status: if decided.admitted { 200 } else { 429 },
                retry_after_s: wait(decided),
                remaining: decided.verdicts.iter().map(left).collect(),
                settled: Vec::new(),
            },
            (
                _,
                Some(Fallback::Decided {
                    admitted,
                    remaining,
                    ..
                }),
            ) => HttpAnswer {
                status: if *admitted { 200 } else { 429 },
                retry_after_s: (!admitted && !self.is_impossible(asked)).then_some(3),
                remaining: remaining.clone(),
                settled: Vec::new(),
            },
            _ => HttpAnswer {
                status: if mutation == Mutation::FailureIsDenial {
                    429
                } else {
                    503
                },
                retry_after_s: None,
                remaining: vec![None; asked.len()],
                settled: Vec::new(),
            },
        };
        match mutation {
            Mutation::WrongStatus if told.status == 429 => told.status = 200,
            Mutation::Hasty => told.retry_after_s = told.retry_after_s.map(|s| s - 1),
            Mutation::PromisesTheImpossible if told.status == 429 => {
                told.retry_after_s.get_or_insert(1);
            }
            Mutation::NeighbourTold => told.remaining.rotate_left(1),
            Mutation::SettledUntold if told.status == 200 => {
                told.settled = asked.iter().map(|it| Some(it.cost + 1)).collect();
            }
            _ => {}
        }
        told
    }

    fn is_impossible(&self, asked: &[AskedCharge]) -> bool {
        let quotas = self.population.quotas();
        asked
            .iter()
            .any(|it| it.cost > quotas[it.budget.policy].capacity())
    }
}

fn wait(decided: &DecisionRecord) -> Option<u64> {
    let denied = decided.verdicts.iter().filter(|said| !said.passes);
    let longest = denied.clone().map(|said| said.retry_after_us).max()?;
    let is_never = denied.into_iter().any(|said| said.never);
    (!is_never).then_some(longest.div_ceil(1_000_000).max(1))
}

/// A refused client is told that nothing is left.
fn left(said: &VerdictRecord) -> Option<u64> {
    Some(if said.passes { said.remaining } else { 0 })
}

fn share_of(whole: &Quota) -> Quota {
    let share = Quota::new(whole.limit().div_ceil(ONE_IN), whole.period());
    match whole.algorithm() {
        Algorithm::Gcra => share.burst(whole.capacity().div_ceil(ONE_IN)),
        algorithm @ Algorithm::IntervalRefill { .. } => {
            (share.using(algorithm)).burst(whole.capacity().div_ceil(ONE_IN))
        }
        algorithm => share.using(algorithm),
    }
}

/// One policy for a check, and each once for a request.
fn fitting(door: Door, mut asked: Vec<AskedCharge>) -> Vec<AskedCharge> {
    asked.sort_by_key(|asked| asked.budget.policy);
    asked.dedup_by_key(|asked| asked.budget.policy);
    if door == Door::Limiter {
        asked.truncate(1);
    }
    for asked in &mut asked {
        if door == Door::Http || asked.manner == Manner::Shadow {
            asked.manner = Manner::Enforce;
        }
    }
    asked
}
