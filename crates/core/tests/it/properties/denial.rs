//! A question that takes nothing leaves no trace: denials, peeks and probes.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use tollgate_core::Mode;

use crate::support::budget::Budget;
use crate::support::history::History;
use crate::support::quotas;
use crate::support::runner::check;
use crate::support::steps::{amounts, starts, steps};

/// Runs one list of steps on two budgets. One is also asked at every turn, and its twin is not.
fn asking_changes_nothing(ask: impl Fn(&mut Budget, u64, u64) -> TestCaseResult) {
    let histories = (
        quotas::any(),
        starts(),
        prop::collection::vec((steps(1..2), amounts()), 1..24),
    );
    check(1_500, &histories, |(quota, start, steps)| {
        let mut asked = History::of(quota, start);
        let mut twin = History::of(quota, start);
        for (step, cost) in steps {
            let now = asked.now;
            let cost = cost.units(&asked.budget, now);
            ask(&mut asked.budget, now, cost)?;
            for at in twin.later() {
                let (ours, theirs) = (asked.budget.peek(at), twin.budget.peek(at));
                prop_assert_eq!(ours, theirs, "at {}, asked for {} at {}", at, cost, now);
            }
            // Credits and debits among the steps would show a difference that the verdicts do not.
            asked.step(step[0]);
            twin.step(step[0]);
        }
        Ok(())
    });
}

#[test]
fn a_denial_changes_no_later_verdict() {
    asking_changes_nothing(|budget, now, cost| {
        let cost = cost.max(budget.peek(now).remaining() + 1);
        prop_assert!(budget.charge(now, cost).0.is_denied());
        prop_assert!(budget.decide(now, cost, Mode::Shadow).1.is_none());
        Ok(())
    });
}

#[test]
fn a_peek_or_probe_changes_no_later_verdict() {
    asking_changes_nothing(|budget, now, cost| {
        let would = budget.if_charged(now, cost);
        for mode in [Mode::Enforce, Mode::Shadow, Mode::Probe] {
            let (peek, receipt) = budget.decide(now, 0, mode);
            prop_assert!(peek.is_admitted() && peek.verdicts()[0].is_allowed());
            prop_assert!(receipt.is_none(), "a peek took something");
        }
        let (probe, receipt) = budget.decide(now, cost, Mode::Probe);
        prop_assert!(probe.is_admitted(), "no call depends on a probe");
        prop_assert!(receipt.is_none(), "a probe took something");
        prop_assert_eq!(probe.verdicts()[0].outcome(), would.outcome());
        prop_assert_eq!(probe.verdicts()[0].taken(), 0);
        Ok(())
    });
}
