//! Ids: the first admission is charged, a few replays are not, and a constant id is not a way around a
//! budget.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use tollgate_core::{
    Call, Charge, Key, Mode, Once, Quota, Receipt, Scope, State, States, Timestamp, decide,
};

use crate::support::quotas;
use crate::support::runner::check;
use crate::support::steps::starts;

/// A time that passes, and then a request with an id of this number, or the credit of a charge.
#[derive(Clone, Copy, Debug)]
enum Step {
    Ask { after: u64, id: u64, cost: u64 },
    Credit { charge: prop::sample::Index },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let ask =
        (0_u64..30, 0_u64..3, 0_u64..4).prop_map(|(after, id, cost)| Step::Ask { after, id, cost });
    let credit = any::<prop::sample::Index>().prop_map(|charge| Step::Credit { charge });
    prop::collection::vec(prop_oneof![4 => ask, 1 => credit], 1..40)
}

/// The budget, and the ids beside it. The second charge of a call is for the id at hand.
struct Ids {
    budget: State,
    ids: HashMap<Key, State>,
    at_hand: Key,
}

impl States for Ids {
    fn state(&mut self, index: usize) -> &mut State {
        match index {
            0 => &mut self.budget,
            _ => self.ids.get_mut(&self.at_hand).unwrap(),
        }
    }
}

/// An admission that was charged, and what became of it.
struct Charged {
    id: Key,
    at: u64,
    replays: u64,
    is_given_back: bool,
    /// Another one with its id had come in the same microsecond.
    is_unclear: bool,
    receipt: Option<Receipt>,
}

/// The opinion of a list of admissions.
#[derive(Default)]
struct Book(Vec<Charged>);

impl Book {
    /// The admission of which a request is a replay.
    fn replayed(&mut self, id: &Key, now: u64, life: u64, replays: u64) -> Option<&mut Charged> {
        let latest = self.0.iter_mut().rfind(|charged| charged.id == *id)?;
        (!latest.is_given_back && now < latest.at + life && latest.replays < replays)
            .then_some(latest)
    }

    fn charge(&mut self, id: Key, at: u64, receipt: Option<Receipt>) {
        let latest = self.0.iter().rfind(|charged| charged.id == id);
        let is_unclear = latest.is_some_and(|it| it.at == at && !it.is_given_back);
        self.0.push(Charged {
            id,
            at,
            replays: 0,
            is_given_back: false,
            is_unclear,
            receipt,
        });
    }

    /// Says whether this charge may come back: it is the latest of its id, which is remembered, and no replay has passed on it.
    fn may_give_back(&self, number: usize, now: u64, life: u64) -> bool {
        let charged = &self.0[number];
        let is_latest = self.0[number + 1..].iter().all(|it| it.id != charged.id);
        is_latest && now < charged.at + life && charged.replays == 0 && !charged.is_unclear
    }
}

/// Whatever the order of first attempts, replays and credits: each charge that stays carries its replays at most, and one that is
/// given back carries none.
#[test]
fn an_admission_is_charged_and_its_replays_are_not_whatever_the_budget() {
    let terms = (1_u64..60, 1_u64..4);
    let asks = (starts(), quotas::any(), terms, steps());
    check(3_000, &asks, |(start, quota, (life, replays), steps)| {
        let once = Once::try_within(Duration::from_micros(life)).unwrap();
        let once = Quota::from(once.try_replays(replays).unwrap());
        let caller = Key::from("alice");
        let mut ids = Ids {
            budget: State::full(&quota),
            ids: HashMap::new(),
            at_hand: Key::global(),
        };
        let (mut alone, mut book) = (State::full(&quota), Book::default());
        let mut now = start;
        for step in steps {
            let (after, id, cost) = match step {
                Step::Ask { after, id, cost } => (after, id, cost),
                Step::Credit { charge } => {
                    let open = book.0.iter().enumerate();
                    let open: Vec<_> = open.filter(|(_, it)| it.receipt.is_some()).collect();
                    if open.is_empty() {
                        continue;
                    }
                    let number = charge.get(&open).0;
                    let may_give_back = book.may_give_back(number, now, life);
                    let receipt = book.0[number].receipt.take().unwrap();
                    let at = Timestamp::from_micros(now);
                    let id = ids.ids.get_mut(&book.0[number].id).unwrap();
                    prop_assert_eq!(receipt.close(id, at), may_give_back);
                    if may_give_back {
                        receipt.credit_to(&mut ids.budget, at, u64::MAX);
                        receipt.credit_to(&mut alone, at, u64::MAX);
                        book.0[number].is_given_back = true;
                    }
                    continue;
                }
            };
            now += after;
            let at = Timestamp::from_micros(now);
            let id = Key::tuple([&caller, &Key::from(id), &Key::from(cost)]);
            ids.at_hand = id.clone();
            { ids.ids.entry(id.clone()) }.or_insert_with(|| State::full(&once));
            let budget = Charge {
                scope: Scope::of("orders", 0, &quota),
                quota: &quota,
                key: &caller,
                cost,
                mode: Mode::Enforce,
            };
            let beside = Charge {
                scope: Scope::of("orders", 0, &once),
                quota: &once,
                key: &id,
                cost: cost.min(1),
                ..budget
            };

            let decision = decide(at, Call::of(&[budget, beside]), &mut ids);

            let replayed = book.replayed(&id, now, life, replays).filter(|_| cost > 0);
            let paid = Charge {
                cost: if replayed.is_some() { 0 } else { cost },
                ..budget
            };
            let expected = decide(at, Call::of(&[paid]), std::slice::from_mut(&mut alone));
            prop_assert_eq!(decision.verdicts()[0], expected.verdicts()[0]);
            prop_assert_eq!(decision.is_admitted(), expected.is_admitted());
            prop_assert_eq!(ids.budget.snapshot(), alone.snapshot());
            if cost > 0 && decision.is_admitted() {
                let charges = [budget, beside];
                let mut receipts = decision.receipts(&charges);
                if let Some(charged) = replayed {
                    charged.replays += 1;
                    prop_assert!(receipts.next().is_none());
                } else {
                    let receipt = receipts.next();
                    prop_assert!(receipt.is_some() && receipts.next().is_none());
                    drop(receipts);
                    book.charge(id, now, receipt);
                }
            }
        }
        let carries = |it: &Charged| if it.is_given_back { 0 } else { replays };
        prop_assert!(book.0.iter().all(|it| it.replays <= carries(it)));
        Ok(())
    });
}
