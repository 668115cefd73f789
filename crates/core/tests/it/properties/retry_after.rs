//! Retry-after is a promise: admitted then, and not a microsecond earlier.

use proptest::prelude::*;
use tollgate_core::{Call, Charge, Key, Mode, Quota, Scope, State, States, Timestamp, decide};

use crate::support::budget::{Budget, micros};
use crate::support::history::History;
use crate::support::quotas;
use crate::support::runner::check;
use crate::support::steps::{amounts, starts, steps};

#[test]
fn a_denied_charge_passes_when_it_was_told_to_come_back_and_not_a_microsecond_earlier() {
    let histories = (quotas::any(), starts(), steps(0..24), amounts());
    check(6_000, &histories, |(quota, start, steps, cost)| {
        let mut history = History::after(quota, start, &steps);
        let now = history.now;
        let cost = cost.units(&history.budget, now);

        let (verdict, _) = history.budget.charge(now, cost);

        if verdict.is_allowed() {
            return Ok(());
        }
        let Some(retry_after) = verdict.retry_after() else {
            prop_assert!(verdict.never_passes());
            prop_assert!(cost > quota.capacity(), "{cost} would pass one day");
            return Ok(());
        };
        let retry_after = micros(retry_after);
        prop_assert!(cost <= quota.capacity() && !verdict.never_passes());
        prop_assert!(retry_after > 0);
        let early = history.budget.if_charged(now + retry_after - 1, cost);
        prop_assert!(early.is_denied(), "{cost} passes before {retry_after} µs");
        prop_assert_eq!(early.retry_after().map(micros), Some(1));
        let then = history.budget.if_charged(now + retry_after, cost);
        prop_assert!(then.is_allowed(), "{cost} is denied after {retry_after} µs");
        Ok(())
    });
}

/// The limit of the promise: other callers that spend from the budget meanwhile may take the units that the caller
/// waited for.
#[test]
fn who_shares_a_budget_may_spoil_anothers_promise() {
    let budget = |charges: &[(u64, u64)]| {
        let mut budget = Budget::full(Quota::per_second(1).burst(2));
        let verdicts = charges.iter().map(|&(at, n)| budget.charge(at, n).0);
        verdicts.reduce(|_, last| last).unwrap()
    };
    let second = 1_000_000;
    let denied = budget(&[(second, 2), (second, 1)]);
    assert_eq!(denied.retry_after().map(micros), Some(second));

    let alone = budget(&[(second, 2), (second, 1), (2 * second, 1)]);
    let beside = budget(&[(second, 2), (second, 1), (2 * second, 1), (2 * second, 1)]);

    assert!(alone.is_allowed());
    assert!(beside.is_denied());
}

/// Repeated calls at any time neither delay nor hasten the promise.
#[test]
fn knocking_in_between_changes_no_promise() {
    let histories = (quotas::any(), starts(), steps(0..24), amounts(), 1_u64..16);
    check(1_000, &histories, |(quota, start, steps, cost, knocks)| {
        let mut history = History::after(quota, start, &steps);
        let now = history.now;
        let cost = cost.units(&history.budget, now);
        let (verdict, _) = history.budget.charge(now, cost);
        let Some(retry_after) = verdict.retry_after().map(micros) else {
            return Ok(());
        };

        for knock in 0..knocks {
            let passed = retry_after * knock / knocks;
            let (verdict, _) = history.budget.charge(now + passed, cost);
            prop_assert_eq!(
                verdict.retry_after().map(micros),
                Some(retry_after - passed)
            );
        }

        prop_assert!(
            history
                .budget
                .charge(now + retry_after, cost)
                .0
                .is_allowed()
        );
        Ok(())
    });
}

#[test]
fn the_longest_wait_of_a_call_is_when_the_whole_call_passes() {
    let budgets = prop::collection::vec((quotas::any(), steps(0..12), amounts()), 1..5);
    check(1_500, &(budgets, starts()), |(budgets, start)| {
        let key = Key::from("alice");
        let histories: Vec<History> = budgets
            .iter()
            .map(|(quota, steps, _)| History::after(*quota, start, steps))
            .collect();
        let now = histories.iter().map(|history| history.now).max().unwrap();
        let quotas: Vec<Quota> = budgets.iter().map(|(quota, ..)| *quota).collect();
        let charges: Vec<Charge<'_>> = (0_u16..)
            .zip(&quotas)
            .zip(histories.iter().zip(&budgets))
            .map(|((slot, quota), (history, (.., cost)))| Charge {
                scope: Scope::of("several", slot, quota),
                quota,
                key: &key,
                cost: cost.units(&history.budget, now),
                mode: Mode::Enforce,
            })
            .collect();
        let states: Vec<State> = histories.into_iter().map(|it| it.budget.state).collect();
        let is_admitted = |at| {
            decide(
                Timestamp::from_micros(at),
                Call::of(&charges),
                &mut states.clone()[..],
            )
            .is_admitted()
        };

        let decision = decide(
            Timestamp::from_micros(now),
            Call::of(&charges),
            &mut states.clone()[..],
        );

        if let Some(retry_after) = decision.retry_after().map(micros) {
            prop_assert!(!decision.is_admitted());
            prop_assert!(!is_admitted(now + retry_after - 1));
            prop_assert!(is_admitted(now + retry_after));
        } else if !decision.is_admitted() {
            prop_assert!(charges.iter().any(|it| it.cost > it.quota.capacity()));
        }
        Ok(())
    });
}

#[test]
fn a_cost_that_passes_a_full_budget_is_never_told_never() {
    check(1_000, &(quotas::any(), starts()), |(quota, start)| {
        let mut budget = Budget::full(quota);
        prop_assert!(budget.charge(start, quota.capacity()).0.is_allowed());

        let (whole, _) = budget.charge(start, quota.capacity());
        let (more, _) = budget.charge(start, quota.capacity() + 1);

        prop_assert!(whole.retry_after().is_some() && !whole.never_passes());
        prop_assert!(more.retry_after().is_none() && more.never_passes());
        Ok(())
    });
}

/// Charges of one budget have one state.
struct One<'a>(&'a mut State);

impl States for One<'_> {
    fn state(&mut self, _: usize) -> &mut State {
        self.0
    }
}

/// A refused enforced charge also waits for the units that the shadow takes from its budget.
#[test]
fn a_wait_is_exact_when_a_call_names_a_key_enforced_and_in_shadow() {
    let modes = || {
        prop::collection::vec(
            (
                amounts(),
                prop::sample::select(vec![Mode::Enforce, Mode::Shadow, Mode::Probe]),
            ),
            2..5,
        )
    };
    let histories = (quotas::any(), starts(), steps(0..24), modes());
    check(3_000, &histories, |(quota, start, steps, asks)| {
        let history = History::after(quota, start, &steps);
        let (now, key) = (history.now, Key::from("alice"));
        let charges: Vec<_> = asks
            .iter()
            .map(|(amount, mode)| Charge {
                scope: Scope::of("wait", 0, &quota),
                quota: &quota,
                key: &key,
                cost: amount.units(&history.budget, now),
                mode: *mode,
            })
            .collect();
        let mut state = history.budget.state.clone();
        let at = |us, state: &State| {
            let mut state = state.clone();
            decide(
                Timestamp::from_micros(us),
                Call::of(&charges),
                &mut One(&mut state),
            )
        };

        let decision = decide(
            Timestamp::from_micros(now),
            Call::of(&charges),
            &mut One(&mut state),
        );

        prop_assert!(decision.retry_after().is_none() || !decision.is_admitted());
        if let Some(retry_after) = decision.retry_after().map(micros) {
            prop_assert!(retry_after > 0);
            prop_assert!(!at(now + retry_after - 1, &state).is_admitted());
            prop_assert!(at(now + retry_after, &state).is_admitted());
        }
        Ok(())
    });
}
