//! The budgets of requests with ids: a charge is taken from them once, and a replay takes nothing.

use std::collections::BTreeMap;

use crate::attempt::{
    AskedCharge, Asker, Attempt, Budget, DecisionRecord, Door, Manner, Outcome, Verb, VerdictRecord,
};
use crate::checker::course::{Courses, Hindrances};
use crate::checker::credit::Credit;
use crate::checker::timeline::Timelines;
use crate::checker::{judge_budget, sort_seen};
use crate::history::History;
use crate::order::{Identified, Order, OrderName};

/// The budget of a request.
pub(super) fn budget_of(name: OrderName) -> Budget {
    Budget {
        policy: 0,
        caller: name.caller,
    }
}

/// The budgets of all callers, with the requests as if they had no ids.
pub(super) struct Budgets(Courses);

impl Budgets {
    pub(super) fn of(history: &History, timelines: &Timelines<'_>) -> Self {
        let mut of_ids: BTreeMap<OrderName, Vec<&Order>> = BTreeMap::new();
        for order in &history.orders {
            of_ids.entry(order.name).or_default().push(order);
        }
        let attempts = |order: &Order| attempts(order, &of_ids[&order.name]);
        let plain = History {
            quotas: vec![Identified::QUOTA],
            attempts: history.orders.iter().flat_map(attempts).collect(),
            disturbances: history.disturbances.clone(),
            homes: history.homes.clone(),
            ..History::default()
        };
        let hindrances = Hindrances::of(history).and(&plain.attempts);
        Self(Courses::among(&plain, timelines, &hindrances))
    }

    pub(super) fn credits(&self, budget: Budget) -> &[Credit] {
        self.0.credits(budget)
    }

    /// Everything impossible in the budgets, which are judged like those of a policy without ids.
    pub(super) fn judge(self, timelines: &Timelines<'_>) -> Vec<String> {
        let wrongs = self
            .0
            .into_budgets()
            .flat_map(|(budget, (mut seen, course))| {
                sort_seen(&mut seen);
                let steps = timelines.of_budget(budget).steps();
                let wrongs = judge_budget(&Identified::QUOTA, &seen, course, &steps);
                let caller = budget.caller;
                let told = wrongs.into_iter();
                told.map(move |(_, what)| format!("order of caller {caller}, its budget: {what}"))
            });
        wrongs.collect()
    }
}

/// Says whether this request was a replay of a charge, as its answer tells. Nobody knows of a request without an answer.
fn replays(other: &Order, charge: &[VerdictRecord]) -> Option<bool> {
    let until_us = |id: &VerdictRecord| id.at_us + id.reset_after_us;
    match (&other.outcome, charge) {
        (Outcome::Decided(decided), [_, charged]) => match decided.verdicts.as_slice() {
            [quota, id] if decided.admitted && quota.taken == 0 => {
                Some(until_us(id) == until_us(charged))
            }
            _ => Some(false),
        },
        (Outcome::Failed(_), _) => Some(false),
        _ => None,
    }
}

/// A request and the credit of its charge, as if there were no ids: with these others of its id.
fn attempts(order: &Order, others: &[&Order]) -> Vec<Attempt> {
    let budget = budget_of(order.name);
    let outcome = match &order.outcome {
        Outcome::Decided(decided) => Outcome::Decided(DecisionRecord {
            admitted: decided.admitted,
            unasked: decided.unasked,
            verdicts: decided.verdicts.first().copied().into_iter().collect(),
        }),
        other => other.clone(),
    };
    let said = match &outcome {
        Outcome::Decided(decided) => decided.verdicts.first().copied(),
        _ => None,
    };
    // A replay costs nothing.
    let cost = match (&outcome, said) {
        (Outcome::Decided(decided), Some(said)) if decided.admitted => said.taken,
        _ => order.name.cost,
    };
    let asked = AskedCharge {
        budget,
        cost,
        manner: Manner::Enforce,
    };
    // Nothing else than the backend is asked, by each door.
    let asker = Asker {
        process: order.process,
        door: Door::Backend,
    };
    let question = Attempt::plain(
        asker,
        Verb::Decide(vec![asked]),
        order.sent_us,
        order.heard_us,
        outcome,
    );
    let charge = match &order.outcome {
        Outcome::Decided(decided) => decided.verdicts.as_slice(),
        _ => &[],
    };
    let others = others.iter().map(|other| replays(other, charge));
    let others: Vec<_> = others.collect();
    let returned = order.returned_us.zip(said);
    let credit = returned.and_then(|(returned_us, said)| {
        let told = match &others {
            // A charge that was replayed stays.
            others if others.contains(&Some(true)) => return None,
            others if others.contains(&None) => Outcome::Unknown(Outcome::CLOSED.to_owned()),
            _ => Outcome::Told,
        };
        let credit = Verb::Credit(budget, said, said.taken);
        Some(Attempt::plain(
            asker,
            credit,
            returned_us,
            returned_us,
            told,
        ))
    });
    [question].into_iter().chain(credit).collect()
}
