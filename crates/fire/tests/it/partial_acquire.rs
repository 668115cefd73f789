//! Tests of the checker on grants of as much as there is: what core grants is possible, under faults too, and each way to grant
//! wrongly is caught.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use fastrand::Rng;
use tollgate_core::{Call, Charge, Decision, State, Timestamp, decide};
use tollgate_fire::{
    AskedCharge, Asker, Attempt, Budget, Disturbance, Door, Effect, Fallback, Findings, History,
    Manner, Outcome, Population, Verb, check,
};

const START_US: u64 = 1_700_000_000_000_000;
const STEPS: usize = 1_500;
const SEEDS: std::ops::Range<u64> = 0..12;

/// A defect of a limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    None,
    /// One more is granted than there is, now and then.
    OneMore,
    /// One fewer is granted than there is.
    OneFewer,
    /// Less than the least is granted.
    BelowLeast,
    /// A grant is all or nothing.
    AllOrNothing,
    /// A grant takes one more than it says.
    TakesMore,
    /// A grant takes nothing.
    TakesNothing,
    /// A grant of nothing is not a denial.
    GrantsNothing,
}

impl Defect {
    const ALL: [Self; 7] = [
        Self::OneMore,
        Self::OneFewer,
        Self::BelowLeast,
        Self::AllOrNothing,
        Self::TakesMore,
        Self::TakesNothing,
        Self::GrantsNothing,
    ];
}

/// The budgets of one caller under the population's policies without a wait, decided by core in one thread.
struct Story {
    rng: Rng,
    population: Population,
    states: Vec<State>,
    history: History,
    now_us: u64,
    defect: Defect,
}

impl Story {
    fn new(seed: u64, defect: Defect) -> Self {
        let population = Population::of(seed);
        Self {
            rng: Rng::with_seed(seed),
            states: population.quotas().iter().map(State::full).collect(),
            history: History {
                quotas: population.quotas().to_vec(),
                ..History::default()
            },
            population,
            now_us: START_US,
            defect,
        }
    }

    fn run(mut self, with_faults: bool) -> History {
        for _ in 0..STEPS {
            self.now_us += self.rng.u64(1..12_000);
            if with_faults && self.rng.u16(0..300) == 0 {
                let loss = Disturbance::of_all(Effect::Loss, self.now_us, self.now_us + 10);
                self.history.disturbances.push(loss);
                let quotas = self.population.quotas();
                self.states = quotas.iter().map(State::full).collect();
                self.now_us += 5_000;
            }
            let verb = self.verb();
            let is_lost = with_faults && self.rng.u8(0..40) == 0;
            let outcome = if is_lost && self.rng.bool() {
                Outcome::Unknown("lost".to_owned())
            } else {
                let decision = self.decide(&verb);
                match is_lost {
                    true => Outcome::Unknown("no answer".to_owned()),
                    false => Outcome::of(&Ok(decision)),
                }
            };
            self.note(verb, outcome);
        }
        self.history
    }

    /// A question about the first eight policies, so that they are soon used up.
    fn verb(&mut self) -> Verb {
        loop {
            let mut asked = self.population.ask(&mut self.rng, 1);
            asked.retain(|it| it.budget.policy < 8);
            asked.retain(|it| it.budget.caller == 1);
            if asked.is_empty() {
                continue;
            }
            return match self.rng.u8(0..3) {
                0 => Verb::Decide(asked),
                _ => self.population.grant(&mut self.rng, asked),
            };
        }
    }

    fn decide(&mut self, verb: &Verb) -> Decision {
        let is_sometimes = self.rng.u8(0..4) == 0;
        let (asked, now) = (verb.asked(), Timestamp::from_micros(self.now_us));
        let places: Vec<_> = asked.iter().map(|it| it.budget.policy).collect();
        let keys = self.population.keys(asked);
        let charges = self.population.charges(asked, &keys);
        let mut states: Vec<_> = places.iter().map(|it| self.states[*it].clone()).collect();
        let decision = match verb.at_least() {
            None => return self.decide_in_turn(asked),
            Some(at_least) => {
                let (defect, states) = (self.defect, &mut states);
                grant(defect, is_sometimes, now, &charges, states, at_least)
            }
        };
        for (place, state) in places.into_iter().zip(states) {
            self.states[place] = state;
        }
        decision
    }

    /// A call that may name a budget twice: only its first charge is asked for here.
    fn decide_in_turn(&mut self, asked: &[AskedCharge]) -> Decision {
        let one = &asked[..1];
        let keys = self.population.keys(one);
        let charges = self.population.charges(one, &keys);
        let state = &mut self.states[one[0].budget.policy];
        let now = Timestamp::from_micros(self.now_us);
        decide(now, Call::of(&charges), std::slice::from_mut(state))
    }

    fn note(&mut self, verb: Verb, outcome: Outcome) {
        let verb = match verb {
            Verb::Decide(asked) => Verb::Decide(asked[..1].to_vec()),
            other => other,
        };
        self.history.attempts.push(Attempt::plain(
            Asker::default(),
            verb,
            self.now_us - 1,
            self.now_us + 1,
            outcome,
        ));
    }
}

fn grant(
    defect: Defect,
    is_sometimes: bool,
    now: Timestamp,
    charges: &[Charge<'_>],
    states: &mut [State],
    at_least: u64,
) -> Decision {
    let with_cost = |cost: u64| -> Vec<Charge<'_>> {
        let charges = charges.iter();
        charges.map(|charge| Charge { cost, ..*charge }).collect()
    };
    let probed = decide(
        now,
        Call::of(charges).at_least(at_least),
        &mut states.to_vec()[..],
    );
    let granted = probed.verdicts()[0].taken();
    match defect {
        Defect::OneMore if granted > 0 && is_sometimes => {
            // The state before has room for one more.
            for (state, charge) in states.iter_mut().zip(charges) {
                *state = State::full(charge.quota);
            }
            decide(now, Call::of(&with_cost(granted + 1)), states)
        }
        Defect::OneFewer if granted > 1 => decide(now, Call::of(&with_cost(granted - 1)), states),
        Defect::BelowLeast => decide(now, Call::of(charges).at_least(1), states),
        Defect::AllOrNothing => decide(now, Call::of(charges), states),
        Defect::TakesMore => {
            let _more = decide(now, Call::of(&with_cost(1)), states);
            let _granted = decide(now, Call::of(charges).at_least(at_least), states);
            probed
        }
        Defect::TakesNothing => probed,
        Defect::GrantsNothing if granted == 0 => decide(now, Call::of(&with_cost(0)), states),
        _ => decide(now, Call::of(charges).at_least(at_least), states),
    }
}

fn judged(seed: u64, defect: Defect, with_faults: bool) -> Findings {
    check(&Story::new(seed, defect).run(with_faults))
}

fn wrongs(findings: &Findings) -> Vec<String> {
    findings.wrong.iter().map(ToString::to_string).collect()
}

#[test]
fn what_core_grants_is_possible_with_faults_and_without() {
    for seed in SEEDS {
        for with_faults in [false, true] {
            let findings = judged(seed, Defect::None, with_faults);
            assert_eq!(wrongs(&findings), [""; 0], "{seed}, faults: {with_faults}");
            let grants = findings.grants;
            let all = [grants.whole, grants.in_part, grants.denied];
            assert!(all.iter().all(|&it| it > 20), "{seed}: {grants:?}");
            assert_eq!(grants.lost > 5, with_faults, "{seed}: {grants:?}");
        }
    }
}

#[test]
fn every_way_to_grant_wrongly_is_caught() {
    for defect in Defect::ALL {
        for seed in SEEDS {
            let findings = judged(seed, defect, false);
            assert!(!findings.wrong.is_empty(), "{defect:?}, {seed}");
        }
        let under_faults = SEEDS.filter(|&seed| !judged(seed, defect, true).wrong.is_empty());
        assert!(under_faults.count() >= 10, "{defect:?}");
    }
}

/// A share of five units, of which a process grants what there is while the backend fails.
#[test]
fn a_share_that_grants_more_or_less_than_it_has_is_caught() {
    let seed = 3;
    let population = Population::of(seed);
    // It hardly refills.
    let policy = population.quotas().len() - 1;
    let share = population.quotas()[policy].capacity().div_ceil(4);
    let budget = Budget { policy, caller: 1 };
    let grant = |number: u64, granted: u64, left: u64| {
        let charge = AskedCharge {
            budget,
            cost: share - 3,
            manner: Manner::Enforce,
        };
        let sent_us = START_US + 1_000 * number;
        Attempt {
            asker: Asker {
                process: 1,
                door: Door::Limiter,
            },
            limiter: 0,
            verb: Verb::Grant(vec![charge], 2),
            waits_at_most_us: None,
            sent_us,
            heard_us: sent_us + 100,
            promised_us: None,
            outcome: Outcome::Failed("no memory".to_owned()),
            fallback: Some(Fallback::Decided {
                admitted: granted > 0,
                remaining: vec![Some(left)],
                granted: Some(granted),
            }),
            told: None,
            left_us: None,
            asking: None,
            question: None,
        }
    };
    let wrongs = |granted: [(u64, u64); 3]| {
        let attempts = (0..).zip(granted);
        let history = History {
            quotas: population.quotas().to_vec(),
            attempts: attempts
                .map(|(number, (granted, left))| grant(number, granted, left))
                .collect(),
            ..History::default()
        };
        let findings = check(&history);
        let told: Vec<_> = findings.wrong.iter().map(ToString::to_string).collect();
        told
    };
    let first = (share - 3, 3);

    assert_eq!(wrongs([first, (3, 0), (0, 0)]), [""; 0]);
    for (wrong, what) in [
        ([first, (4, 0), (0, 0)], "let through a cost of 4"),
        ([first, (2, 1), (0, 1)], "granted 2 when at least 3"),
        ([first, (0, 3), (0, 3)], "denied a cost of 2"),
        ([first, (3, 0), (2, 0)], "let through a cost of 2"),
    ] {
        let told = wrongs(wrong);
        assert!(told.iter().any(|it| it.contains(what)), "{what}: {told:?}");
    }
}
