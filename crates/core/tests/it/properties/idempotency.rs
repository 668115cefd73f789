//! Ids: the first admission is charged, a few replays are not, and a constant id is not a way around a
//! budget.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use tollgate_core::{
    Charge, Key, Mode, Once, Quota, Receipt, Scope, State, States, Timestamp, decide,
};

use crate::support::quotas;
use crate::support::runner::check;
use crate::support::steps::starts;

/// A time that passes, and then a request with an id of this number, or the credit of the latest admission.
#[derive(Clone, Copy, Debug)]
enum Step {
    Ask { after: u64, id: u64, cost: u64 },
    Credit,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let ask =
        (0_u64..30, 0_u64..3, 0_u64..4).prop_map(|(after, id, cost)| Step::Ask { after, id, cost });
    prop::collection::vec(prop_oneof![8 => ask, 1 => Just(Step::Credit)], 1..40)
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

/// The opinion of a list of admissions: their times, and the replays since.
#[derive(Default)]
struct Remembered(HashMap<Key, (u64, u64)>);

impl Remembered {
    fn is_replay(&self, id: &Key, now: u64, life: u64, replays: u64) -> bool {
        { self.0.get(id) }.is_some_and(|(at, used)| now < at + life && *used < replays)
    }
}

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
        let (mut alone, mut remembered) = (State::full(&quota), Remembered::default());
        let (mut now, mut latest) = (start, None);
        let (mut passed, mut charged) = (0, 0);
        for step in steps {
            let Step::Ask { after, id, cost } = step else {
                let Some((id, receipts)) = latest.take() else {
                    continue;
                };
                let receipts: Vec<Receipt> = receipts;
                ids.at_hand = id;
                for (index, receipt) in receipts.iter().enumerate() {
                    receipt.credit_to(ids.state(index), Timestamp::from_micros(now), u64::MAX);
                }
                receipts[0].credit_to(&mut alone, Timestamp::from_micros(now), u64::MAX);
                // No later admission was remembered, since this is the latest.
                remembered.0.remove(&ids.at_hand);
                continue;
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

            let decision = decide(at, &[budget, beside], &mut ids);

            let is_replay = cost > 0 && remembered.is_replay(&id, now, life, replays);
            let paid = Charge {
                cost: if is_replay { 0 } else { cost },
                ..budget
            };
            let expected = decide(at, &[paid], std::slice::from_mut(&mut alone));
            prop_assert_eq!(decision.verdicts()[0], expected.verdicts()[0]);
            prop_assert_eq!(decision.is_admitted(), expected.is_admitted());
            prop_assert_eq!(ids.budget.snapshot(), alone.snapshot());
            if cost > 0 && decision.is_admitted() {
                passed += 1;
                if is_replay {
                    remembered.0.get_mut(&id).unwrap().1 += 1;
                    prop_assert_eq!(decision.receipts(&[budget, beside]).count(), 0);
                } else {
                    charged += 1;
                    remembered.0.insert(id.clone(), (now, 0));
                    let receipts = decision.receipts(&[budget, beside]).collect();
                    latest = Some((id.clone(), receipts));
                }
            }
        }
        prop_assert!(passed <= charged * (1 + replays));
        Ok(())
    });
}
