//! Tests of the checker on requests with ids: what core does is possible, under faults too, and each way to charge an id wrongly is
//! caught.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use fastrand::Rng;
use tollgate_core::{Call, Decision, Receipt, State, Timestamp, decide};
use tollgate_fire::{
    Disturbance, Door, Effect, History, Identified, OnceFindings, Order, OrderName, Outcome,
    Population, check,
};

const START_US: u64 = 1_700_000_000_000_000;
const STEPS: usize = 1_200;
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
    /// An id of another cost is the same one.
    OfAnyCost,
    /// An id of another caller is the same one.
    OfAnyCaller,
    /// A replay takes its cost, and says that it took nothing.
    TakesSilently,
    /// A charge takes nothing, and says that it did.
    TakesNothing,
    /// An id whose charge was given back is replayed all the same.
    Kept,
    /// A charge comes back although a replay has passed on it.
    ReturnsReplayed,
    /// A charge that is given back comes back twice.
    ReturnsTwice,
    /// A request that was denied is remembered.
    RemembersDenials,
    /// A charge comes back twice if its answer comes after its caller has gone.
    LateReturnsTwice,
}

impl Defect {
    const ALL: [Self; 13] = [
        Self::Forgets,
        Self::ForgetsSometimes,
        Self::ForEver,
        Self::CountsTwice,
        Self::Neighbour,
        Self::OfAnyCost,
        Self::OfAnyCaller,
        Self::TakesSilently,
        Self::TakesNothing,
        Self::Kept,
        Self::ReturnsReplayed,
        Self::ReturnsTwice,
        Self::RemembersDenials,
    ];

    /// A late answer shows only where there are many.
    fn one_lost_in(self) -> u8 {
        match self {
            Self::LateReturnsTwice => 12,
            _ => 40,
        }
    }

    /// The name by which a limiter remembers a request.
    fn key(self, name: OrderName) -> OrderName {
        match self {
            Self::OfAnyCost => OrderName { cost: 1, ..name },
            Self::OfAnyCaller => OrderName { caller: 0, ..name },
            _ => name,
        }
    }
}

/// Two callers with two ids and two costs, decided by core in one thread.
struct Story {
    rng: Rng,
    population: Population,
    defect: Defect,
    budgets: BTreeMap<u32, State>,
    memories: BTreeMap<OrderName, State>,
    history: History,
    /// The charges that are given back, or whose answers come too late, and the times at which they come back.
    late: Vec<(u64, OrderName, Vec<Receipt>)>,
    now_us: u64,
}

impl Story {
    fn new(seed: u64, defect: Defect) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            population: Population::of(seed),
            defect,
            budgets: BTreeMap::new(),
            memories: BTreeMap::new(),
            history: History::default(),
            late: Vec::new(),
            now_us: START_US,
        }
    }

    fn run(mut self, with_faults: bool) -> History {
        for _ in 0..STEPS {
            self.now_us += self.rng.u64(1..40_000);
            if with_faults && self.rng.u8(0..100) == 0 {
                let loss = Disturbance::of_all(Effect::Loss, self.now_us, self.now_us + 10);
                self.history.disturbances.push(loss);
                self.budgets.clear();
                self.memories.clear();
                self.now_us += 5_000;
            }
            self.undo_late();
            let name = OrderName {
                caller: self.rng.u32(0..2),
                id: self.rng.u32(0..2),
                cost: self.rng.u64(1..=2),
            };
            let is_lost = with_faults && self.rng.u8(0..self.defect.one_lost_in()) == 0;
            if is_lost && self.rng.bool() {
                self.note(name, Outcome::Unknown("lost".to_owned()), None);
                continue;
            }
            let (decision, receipts) = self.decide(name);
            if is_lost {
                if self.rng.bool() && !receipts.is_empty() {
                    let us = self.now_us + self.rng.u64(0..500_000);
                    self.late.push((us, name, receipts));
                }
                self.note(name, Outcome::Unknown("late".to_owned()), None);
                continue;
            }
            let is_returned = !receipts.is_empty() && self.rng.u8(0..6) == 0;
            // At once, or after replays.
            let after_us = self.rng.u64(0..60_000) * u64::from(self.rng.bool());
            let returned_us = is_returned.then_some(self.now_us + 2 + after_us);
            self.note(name, Outcome::of(&Ok(decision)), returned_us);
            if let Some(us) = returned_us {
                self.late.push((us, name, receipts));
            }
        }
        self.history
    }

    fn decide(&mut self, name: OrderName) -> (Decision, Vec<Receipt>) {
        let now = Timestamp::from_micros(self.now_us);
        let is_sometimes = self.rng.u8(0..10) == 0;
        let read = match self.defect {
            Defect::Neighbour if is_sometimes => OrderName {
                id: 1 - name.id,
                ..name
            },
            defect => defect.key(name),
        };
        let identified = Identified::of(&self.population, name).unwrap();
        let charges = identified.charges();
        let fresh = |number: usize| State::full(charges[number].quota);
        let budget = self.budgets.entry(name.caller);
        let budget = budget.or_insert_with(|| fresh(0));
        let memory = self.memories.entry(read).or_insert_with(|| fresh(1));
        let before = [budget.clone(), memory.clone()];
        let mut states = before.clone();
        let decision = decide(now, Call::of(&charges), &mut states[..]);
        let receipts: Vec<_> = decision.receipts(&charges).collect();
        let is_replay = decision.is_admitted() && receipts.is_empty();
        match self.defect {
            Defect::CountsTwice => {
                let _again = decide(now, Call::of(&charges), &mut states[..]);
            }
            Defect::Forgets => states[1] = before[1].clone(),
            Defect::ForgetsSometimes if is_sometimes => states[1] = fresh(1),
            Defect::ForEver if is_replay => states[1] = before[1].clone(),
            Defect::TakesSilently if is_replay => {
                let _taken = decide(now, Call::of(&charges[..1]), &mut states[..1]);
            }
            Defect::TakesNothing => states[0] = before[0].clone(),
            Defect::RemembersDenials if !decision.is_admitted() => {
                let mut remembered = [fresh(0), fresh(1)];
                let _taken = decide(now, Call::of(&charges), &mut remembered[..]);
                let [_, memory] = remembered;
                states[1] = memory;
            }
            _ => {}
        }
        [*budget, *memory] = states;
        (decision, receipts)
    }

    /// Gives back the charges that are due by now.
    fn undo_late(&mut self) {
        let now_us = self.now_us;
        let late = std::mem::take(&mut self.late);
        let (due, later) = late.into_iter().partition(|(us, ..)| *us <= now_us);
        self.late = later;
        let mut due: Vec<_> = due;
        due.sort_by_key(|(us, ..)| *us);
        for (us, name, receipts) in due {
            self.now_us = us;
            if self.defect == Defect::LateReturnsTwice {
                self.give_back(name, &receipts);
            }
            self.give_back(name, &receipts);
        }
        self.now_us = now_us;
    }

    fn give_back(&mut self, name: OrderName, receipts: &[Receipt]) {
        let now = Timestamp::from_micros(self.now_us);
        let [charge] = receipts else {
            return;
        };
        let memory = self.memories.get_mut(&self.defect.key(name));
        let may_come_back = match self.defect {
            Defect::Kept => true,
            Defect::ReturnsReplayed => {
                let _closed = memory.is_some_and(|memory| charge.close(memory, now));
                true
            }
            _ => memory.is_some_and(|memory| charge.close(memory, now)),
        };
        if !may_come_back {
            return;
        }
        if let Some(budget) = self.budgets.get_mut(&name.caller) {
            let times = if self.defect == Defect::ReturnsTwice {
                2
            } else {
                1
            };
            for _ in 0..times {
                charge.credit_to(budget, now, name.cost);
            }
        }
    }

    fn note(&mut self, name: OrderName, outcome: Outcome, returned_us: Option<u64>) {
        self.history.orders.push(Order {
            process: self.rng.u32(0..2),
            door: Door::Backend,
            name,
            sent_us: self.now_us - 1,
            heard_us: self.now_us + 1,
            outcome,
            passed: None,
            returned_us,
        });
    }
}

fn history(seed: u64, defect: Defect, with_faults: bool) -> History {
    Story::new(seed, defect).run(with_faults)
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
        let all = [
            findings.charged,
            findings.charged_again,
            findings.replayed,
            findings.from_another,
            findings.after_returned,
        ];
        assert!(all.iter().all(|&it| it > 10), "{findings:?}");
    }
}

#[test]
fn ids_that_core_keeps_are_possible_under_faults() {
    for seed in SEEDS {
        let findings = judged(seed, Defect::None, true);
        assert_eq!(findings.wrong, [""; 0], "{seed}");
        assert!(findings.strict > 600, "{findings:?}");
        assert!(findings.after_unheard > 20, "{findings:?}");
    }
}

#[test]
fn every_way_to_charge_an_id_wrongly_is_caught() {
    for defect in Defect::ALL {
        for seed in SEEDS {
            let findings = judged(seed, defect, false);
            assert!(!findings.wrong.is_empty(), "{defect:?}, {seed}");
        }
        let under_faults = SEEDS.filter(|&seed| !judged(seed, defect, true).wrong.is_empty());
        assert!(under_faults.count() >= 10, "{defect:?}");
    }
}

/// Such answers are few, and a budget tells of them only while it has no room for the second credit.
#[test]
fn late_answers_that_give_back_their_charges_twice_are_caught() {
    let defect = Defect::LateReturnsTwice;
    let caught = (0..60).filter(|&seed| !judged(seed, defect, true).wrong.is_empty());
    assert!(caught.count() >= 10);
}

#[test]
fn a_limiter_that_rules_otherwise_than_its_backend_is_caught() {
    for seed in SEEDS {
        let mut wrong = history(seed, Defect::None, true);
        for order in &mut wrong.orders {
            order.door = Door::Limiter;
            let passes = matches!(&order.outcome, Outcome::Decided(it) if it.admitted);
            order.passed = Some(passes);
        }
        assert_eq!(check(&wrong).once.wrong, [""; 0], "{seed}");
        for what in [Some(true), Some(false), None] {
            let mut wrong = wrong.clone();
            let mut others = wrong.orders.iter_mut().filter(|it| it.passed != what);
            others.nth(10).unwrap().passed = what;
            assert_eq!(check(&wrong).once.wrong.len(), 1, "{seed}, {what:?}");
        }
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
