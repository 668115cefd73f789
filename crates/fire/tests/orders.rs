//! Tests of the checker on requests with ids: what core does is possible, under faults too, and each way to charge an id wrongly is
//! caught.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use fastrand::Rng;
use tollgate_core::{State, Timestamp, decide};
use tollgate_fire::{
    Disturbance, Effect, History, Identified, OnceFindings, Order, Outcome, Population, check,
};

const START_US: u64 = 1_700_000_000_000_000;
const STEPS: usize = 600;
const SEEDS: std::ops::Range<u64> = 0..20;

/// A defect of a limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    None,
    /// No admission is remembered.
    Forgets,
    /// An admission is forgotten now and then.
    ForgetsSometimes,
    /// Replays are not counted.
    ForEver,
    /// A replay is counted twice.
    CountsTwice,
    /// Another id's memory is read now and then.
    Neighbour,
}

impl Defect {
    const ALL: [Self; 5] = [
        Self::Forgets,
        Self::ForgetsSometimes,
        Self::ForEver,
        Self::CountsTwice,
        Self::Neighbour,
    ];
}

/// One caller with three ids, decided by core in one thread.
fn history(seed: u64, defect: Defect, with_faults: bool) -> History {
    let mut rng = Rng::with_seed(seed);
    let population = Population::of(seed);
    let ids: Vec<_> = (0..3)
        .map(|id| Identified::of(&population, 0, id).unwrap())
        .collect();
    let fresh = || ids[0].charges().map(|charge| State::full(charge.quota));
    let [mut budget, memory] = fresh();
    let mut memories = vec![memory; ids.len()];
    let (mut history, mut now_us) = (History::default(), START_US);
    for _ in 0..STEPS {
        now_us += rng.u64(1..120_000);
        if with_faults && rng.u8(0..60) == 0 {
            let loss = Disturbance::of_all(Effect::Loss, now_us, now_us + 10);
            history.disturbances.push(loss);
            let [full, memory] = fresh();
            (budget, memories) = (full, vec![memory; ids.len()]);
            now_us += 5_000;
        }
        let id = rng.usize(0..ids.len());
        let is_sometimes = rng.u8(0..10) == 0;
        let read = match defect {
            Defect::Neighbour if is_sometimes => (id + 1) % ids.len(),
            _ => id,
        };
        let before = memories[read].clone();
        let mut states = [budget, before.clone()];
        let charges = ids[id].charges();
        let decision = decide(Timestamp::from_micros(now_us), &charges, &mut states[..]);
        if defect == Defect::CountsTwice {
            let _again = decide(Timestamp::from_micros(now_us), &charges, &mut states[..]);
        }
        let [then, memory] = states;
        budget = then;
        let is_replay = decision.is_admitted() && decision.verdicts()[0].taken() == 0;
        memories[read] = match defect {
            Defect::Forgets => before,
            Defect::ForgetsSometimes if is_sometimes => State::full(charges[1].quota),
            Defect::ForEver if is_replay => before,
            _ => memory,
        };
        let is_lost = with_faults && rng.u8(0..40) == 0;
        history.orders.push(Order {
            process: 0,
            caller: 0,
            id: u32::try_from(id).unwrap(),
            sent_us: now_us - 1,
            heard_us: now_us + 1,
            outcome: if is_lost {
                Outcome::Unknown("no answer".to_owned())
            } else {
                Outcome::of(&Ok(decision))
            },
        });
    }
    history
}

fn judged(seed: u64, defect: Defect, with_faults: bool) -> OnceFindings {
    check(&history(seed, defect, with_faults)).once
}

#[test]
fn ids_that_core_keeps_are_possible_and_without_faults_all_is_judged_strictly() {
    for seed in SEEDS {
        let findings = judged(seed, Defect::None, false);
        assert_eq!(findings.wrong, [""; 0], "{seed}");
        assert_eq!((findings.strict, findings.in_doubt), (STEPS as u64, 0));
        assert!(
            findings.charged > 30 && findings.replayed > 60,
            "{findings:?}"
        );
    }
}

#[test]
fn ids_that_core_keeps_are_possible_under_faults() {
    for seed in SEEDS {
        let findings = judged(seed, Defect::None, true);
        assert_eq!(findings.wrong, [""; 0], "{seed}");
        assert!(findings.strict > 100, "{findings:?}");
    }
}

#[test]
fn every_way_to_charge_an_id_wrongly_is_caught() {
    for defect in Defect::ALL {
        for seed in SEEDS {
            let findings = judged(seed, defect, false);
            assert!(!findings.wrong.is_empty(), "{defect:?}, {seed}");
        }
        let mut under_faults = SEEDS.map(|seed| judged(seed, defect, true));
        assert!(under_faults.any(|it| !it.wrong.is_empty()), "{defect:?}");
    }
}

#[test]
fn every_number_that_is_changed_is_caught() {
    for seed in SEEDS {
        let right = history(seed, Defect::None, false);
        for (position, more_us, more_replays) in [(50, 1, 0), (90, 0, 1), (130, 1_000, 0)] {
            let mut wrong = right.clone();
            let admitted = (wrong.orders.iter_mut()).filter_map(|it| match &mut it.outcome {
                Outcome::Decided(decided) if decided.admitted => Some(decided),
                _ => None,
            });
            let decided = { admitted }.nth(position).unwrap();
            decided.verdicts[1].reset_after_us += more_us;
            decided.verdicts[1].remaining += more_replays;
            assert!(!check(&wrong).once.wrong.is_empty(), "{seed}, {position}");
        }
    }
}
