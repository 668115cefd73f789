//! The budgets of requests with ids: a charge is taken from them once, and a replay takes nothing.

use crate::attempt::{
    AskedCharge, Asker, Attempt, Budget, DecisionRecord, Door, Manner, Outcome, Verb,
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

/// A request and the credit of its charge, as if there were no ids.
fn attempts(order: &Order) -> Vec<Attempt> {
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
    let credit = order.returned_us.zip(said).map(|(returned_us, said)| {
        let credit = Verb::Credit(budget, said, said.taken);
        Attempt::plain(asker, credit, returned_us, returned_us, Outcome::Told)
    });
    [question].into_iter().chain(credit).collect()
}
