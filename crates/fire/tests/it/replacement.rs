//! Tests of the checker on buckets that warm up, and on a policy whose rate, burst and algorithm are replaced: what core does is
//! possible, under faults too, and each way to count wrongly is caught.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use tollgate_core::{
    Algorithm, Call, Charge, Key, Quota, Receipt, Scope, State, Timestamp, decide,
};
use tollgate_fire::{
    AskedCharge, Asker, Attempt, Budget, Disturbance, Effect, Findings, History, Manner, Outcome,
    Replacement, Terms, Verb, VerdictRecord, check,
};

const START_US: u64 = 1_700_000_000_000_000;
const STEPS: usize = 600;
const SEEDS: std::ops::Range<u64> = 0..16;

/// The budget, and the one of the other algorithm in its place.
const BUDGET: Budget = Budget {
    policy: 0,
    caller: 0,
};
const OTHER: Budget = Budget {
    policy: 1,
    caller: 0,
};

/// A defect of a limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    None,
    /// A cold budget costs no more than a warm one.
    NeverCold,
    /// A budget is as cold as a new one, whatever came before.
    AlwaysCold,
    /// Idle time comes to the store twice.
    ColdTooSoon,
    /// A budget is new for each quota.
    Anew,
    /// The quota before goes on.
    Stale,
    /// The count of one algorithm is lost when another takes its place.
    OtherLost,
    /// One algorithm counts the charges of the other as well.
    CountsInBoth,
}

impl Defect {
    fn of_warmth() -> [Self; 3] {
        [Self::NeverCold, Self::AlwaysCold, Self::ColdTooSoon]
    }

    fn of_replacement() -> [Self; 4] {
        [Self::Anew, Self::Stale, Self::OtherLost, Self::CountsInBoth]
    }
}

/// One caller, decided by core in one thread.
struct Story {
    rng: Rng,
    defect: Defect,
    /// The versions of the quota, of which the last may be one of another algorithm.
    quotas: Vec<Quota>,
    version: usize,
    states: BTreeMap<Budget, State>,
    held: Vec<(Budget, VerdictRecord, Receipt)>,
    history: History,
    now_us: u64,
}

impl Story {
    fn warming(seed: u64, defect: Defect) -> Self {
        let mut rng = Rng::with_seed(seed);
        let quota = Quota::per_second(rng.u64(10..=40)).burst(rng.u64(1..=12));
        let quota = quota.warm_up(Duration::from_millis(rng.u64(400..=2_000)));
        Self::of(rng, defect, vec![quota.cold_factor(3)], Vec::new())
    }

    fn replaced(seed: u64, defect: Defect) -> Self {
        let mut rng = Rng::with_seed(seed);
        let bucket = |rng: &mut Rng| Quota::per_second(rng.u64(5..=40)).burst(rng.u64(1..=40));
        let buckets = [bucket(&mut rng), bucket(&mut rng), bucket(&mut rng)];
        let window = Quota::per_second(rng.u64(2..=20)).using(Algorithm::SlidingWindow);
        let mut story = Self::of(rng, defect, buckets.to_vec(), vec![window]);
        let later = [buckets[1], buckets[2], window];
        story.history.replacements = BTreeMap::from([(0, later.to_vec())]);
        story.history.others = BTreeMap::from([(0, 1)]);
        story
    }

    fn of(rng: Rng, defect: Defect, buckets: Vec<Quota>, others: Vec<Quota>) -> Self {
        let quotas: Vec<_> = [&buckets[..1], &others].concat();
        Self {
            rng,
            defect,
            quotas: [buckets, others].concat(),
            version: 0,
            states: BTreeMap::new(),
            held: Vec::new(),
            history: History {
                quotas,
                ..History::default()
            },
            now_us: START_US,
        }
    }

    fn run(mut self, with_faults: bool) -> History {
        for _ in 0..STEPS {
            // Mostly busy, with a pause now and then.
            let longest_us = match self.rng.u8(0..40) {
                0 => 3_000_000,
                _ => 90_000,
            };
            self.now_us += self.rng.u64(10..longest_us);
            if self.quotas.len() > 1 && self.rng.u8(0..10) == 0 {
                self.replace();
            }
            if with_faults && self.rng.u8(0..100) == 0 {
                let loss = Disturbance::of_all(Effect::Loss, self.now_us, self.now_us + 10);
                self.history.disturbances.push(loss);
                self.states.clear();
                self.now_us += 5_000;
            }
            match self.rng.u8(0..60) {
                0 => self.correct(),
                1 if with_faults => {
                    if self.rng.bool() {
                        self.ask();
                    }
                    let outcome = Outcome::Unknown("lost".to_owned());
                    if let Some(last) = self.history.attempts.last_mut() {
                        last.outcome = outcome;
                    }
                }
                _ => self.ask(),
            }
        }
        self.history
    }

    fn replace(&mut self) {
        self.version = self.rng.usize(0..self.quotas.len());
        self.history.replaced.push(Replacement {
            process: 0,
            limiter: 0,
            // The versions of other policies are those below three.
            version: 3 * self.version,
            from_us: self.now_us,
            to_us: self.now_us + 1,
        });
        self.now_us += 10;
        match self.defect {
            Defect::Anew => self.states.clear(),
            Defect::OtherLost => {
                let present = self.budget();
                self.states.retain(|budget, _| *budget == present);
            }
            _ => {}
        }
    }

    fn quota(&self) -> Quota {
        self.quotas[self.version]
    }

    fn budget(&self) -> Budget {
        match self.quota().algorithm() {
            Algorithm::Gcra => BUDGET,
            _ => OTHER,
        }
    }

    fn ask(&mut self) {
        let quota = self.quota();
        let capacity = quota.capacity();
        let asked = AskedCharge {
            budget: BUDGET,
            cost: match self.rng.u8(0..8) {
                0 => capacity,
                _ => self.rng.u64(1..=capacity.min(3)),
            },
            manner: match self.rng.u8(0..10) {
                0 => Manner::Probe,
                _ => Manner::Enforce,
            },
        };
        let by = match self.defect {
            Defect::NeverCold => Quota::per_second(quota.limit()).burst(capacity),
            Defect::Stale if self.budget() == BUDGET => self.quotas[0],
            _ => quota,
        };
        let budget = self.budget();
        let (key, now) = (Key::from("alice"), Timestamp::from_micros(self.now_us));
        let fresh = || State::full(&by);
        let state = self.states.entry(budget).or_insert_with(fresh);
        let charges = [charge(asked, &by, &key)];
        let decision = decide(now, Call::of(&charges), std::slice::from_mut(state));
        match self.defect {
            Defect::AlwaysCold => *state = colder(state, u64::MAX),
            Defect::ColdTooSoon => *state = colder(state, 150_000),
            _ => {}
        }
        if self.defect == Defect::CountsInBoth && decision.is_admitted() {
            let [one, other] = [self.quotas[0], self.quotas[self.quotas.len() - 1]];
            let (other, of) = match budget {
                BUDGET => (OTHER, other),
                _ => (BUDGET, one),
            };
            let state = self.states.entry(other).or_insert_with(|| State::full(&of));
            let _taken = decide(
                now,
                Call::of(&[charge(asked, &of, &key)]),
                std::slice::from_mut(state),
            );
        }
        let outcome = Outcome::of(&Ok(decision.clone()));
        let outcome = outcome.by(&Terms::of_charges(&[charge(asked, &quota, &key)]));
        if let (Outcome::Decided(decided), Some(receipt)) =
            (&outcome, decision.receipts(&charges).next())
        {
            self.held.push((budget, decided.verdicts[0], receipt));
        }
        self.note(Verb::Decide(vec![asked]), outcome);
    }

    fn correct(&mut self) {
        let Some((budget, said, receipt)) = self.held.pop() else {
            return;
        };
        let is_debit = self.rng.bool();
        let verb = match is_debit {
            true => Verb::Debit(budget, 1),
            false => Verb::Credit(budget, said, said.taken),
        };
        self.note(verb, Outcome::Told);
        self.now_us += 50;
        let now = Timestamp::from_micros(self.now_us);
        if let Some(state) = self.states.get_mut(&budget) {
            match is_debit {
                true => receipt.debit_from(state, now, 1),
                false => receipt.credit_to(state, now, said.taken),
            };
        }
    }

    fn note(&mut self, verb: Verb, outcome: Outcome) {
        let asker = Asker::default();
        let attempt = Attempt::plain(asker, verb, self.now_us - 1, self.now_us + 1, outcome);
        self.history.attempts.push(attempt);
    }
}

fn charge<'a>(asked: AskedCharge, quota: &'a Quota, key: &'a Key) -> Charge<'a> {
    Charge {
        scope: Scope::of("told", 0, quota),
        quota,
        key,
        cost: asked.cost,
        mode: asked.manner.mode(),
    }
}

/// A state that will be cold earlier by this much.
fn colder(state: &State, by_us: u64) -> State {
    use tollgate_core::{QueueMark, Snapshot};

    match state.snapshot() {
        Snapshot::Gcra {
            full_at_us,
            rest,
            rest_of,
            exponent,
            thirty_seconds,
            cold_at_us,
            ..
        } => State::from(Snapshot::Gcra {
            full_at_us,
            rest,
            rest_of,
            exponent,
            thirty_seconds,
            credits: Vec::new(),
            queue: QueueMark::default(),
            cold_at_us: cold_at_us.saturating_sub(by_us).max(full_at_us),
            cold_at_ticks: 0,
        }),
        _ => state.clone(),
    }
}

fn wrongs(findings: &Findings) -> Vec<String> {
    findings.wrong.iter().map(ToString::to_string).collect()
}

#[test]
fn buckets_that_warm_up_as_core_says_are_possible() {
    for seed in SEEDS {
        for with_faults in [false, true] {
            let history = Story::warming(seed, Defect::None).run(with_faults);
            let findings = check(&history);
            assert_eq!(wrongs(&findings), [""; 0], "{seed}, {with_faults}");
            let found = findings.warming;
            assert!(found.strict > 100 && found.cold > 5, "{seed}: {found:?}");
        }
    }
}

#[test]
fn a_policy_whose_quota_is_replaced_is_judged_by_the_quota_in_force() {
    for seed in SEEDS {
        for with_faults in [false, true] {
            let history = Story::replaced(seed, Defect::None).run(with_faults);
            let findings = check(&history);
            assert_eq!(wrongs(&findings), [""; 0], "{seed}, {with_faults}");
            let found = findings.replaced;
            assert!(findings.rated.strict > 100, "{seed}: {:?}", findings.rated);
            assert!(
                found.by_another > 20 && found.by_another_algorithm > 20,
                "{found:?}"
            );
        }
    }
}

#[test]
fn every_way_to_warm_up_wrongly_is_caught() {
    for defect in Defect::of_warmth() {
        for seed in SEEDS {
            let history = Story::warming(seed, defect).run(false);
            assert!(!check(&history).wrong.is_empty(), "{defect:?}, {seed}");
        }
        let under_faults = SEEDS.filter(|&seed| {
            let history = Story::warming(seed, defect).run(true);
            !check(&history).wrong.is_empty()
        });
        assert!(under_faults.count() >= 12, "{defect:?}");
    }
}

#[test]
fn every_way_to_replace_wrongly_is_caught() {
    for defect in Defect::of_replacement() {
        for with_faults in [false, true] {
            let caught = SEEDS.filter(|&seed| {
                let history = Story::replaced(seed, defect).run(with_faults);
                !check(&history).wrong.is_empty()
            });
            assert!(caught.count() >= 12, "{defect:?}, {with_faults}");
        }
    }
}

/// A question by a quota that was in force a while ago, or is in force later, is told from the others by the times alone.
#[test]
fn a_question_by_a_quota_that_was_not_in_force_is_caught() {
    for seed in SEEDS {
        let mut history = Story::replaced(seed, Defect::None).run(false);
        for one in &mut history.replaced {
            one.version = (one.version + 3) % 12;
        }
        assert!(!check(&history).wrong.is_empty(), "{seed}");
    }
}
