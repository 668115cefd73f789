//! The numbers of a verdict are true: the rest of the budget passes, and the budget is full when the verdict says so.

use proptest::prelude::*;

use crate::support::budget::{micros, warms_up};
use crate::support::history::History;
use crate::support::quotas;
use crate::support::runner::check;
use crate::support::steps::{amounts, starts, steps};

#[test]
fn what_remains_passes_and_one_more_does_not() {
    let histories = (quotas::any(), starts(), steps(0..24), amounts());
    check(4_000, &histories, |(quota, start, steps, cost)| {
        let mut history = History::after(quota, start, &steps);
        let now = history.now;
        let cost = cost.units(&history.budget, now);

        let (verdict, receipt) = history.budget.charge(now, cost);

        let remaining = verdict.remaining();
        prop_assert_eq!(verdict.limit(), quota.capacity());
        prop_assert!(remaining <= quota.capacity());
        prop_assert!(history.budget.if_charged(now, remaining).is_allowed());
        prop_assert!(history.budget.if_charged(now, remaining + 1).is_denied());
        prop_assert_eq!(verdict.taken(), if verdict.is_allowed() { cost } else { 0 });
        prop_assert_eq!(receipt.map_or(0, |it| it.cost()), verdict.taken());
        Ok(())
    });
}

/// A bucket with a fraction of a unit to drain has all whole units left and is not yet full: the last whole unit comes back
/// exactly when it is, because only then the whole burst passes. So every algorithm means one thing by full: everything
/// remains, and not a microsecond earlier than promised.
#[test]
fn the_budget_is_full_when_it_says_so_and_not_a_microsecond_earlier() {
    let histories = (quotas::any(), starts(), steps(0..24));
    check(4_000, &histories, |(quota, start, steps)| {
        let history = History::after(quota, start, &steps);
        let now = history.now;

        let verdict = history.budget.peek(now);

        let reset_after = micros(verdict.reset_after());
        prop_assert_eq!(reset_after == 0, verdict.remaining() == quota.capacity());
        let then = history.budget.peek(now + reset_after);
        prop_assert_eq!(then.remaining(), quota.capacity());
        prop_assert_eq!(micros(then.reset_after()), 0);
        if reset_after > 0 {
            let early = history.budget.peek(now + reset_after - 1);
            prop_assert!(early.remaining() < quota.capacity());
            prop_assert_eq!(micros(early.reset_after()), 1);
        }
        Ok(())
    });
}

#[test]
fn an_admission_takes_its_cost_from_what_remained() {
    let histories = (quotas::any(), starts(), steps(0..24), amounts());
    check(2_000, &histories, |(quota, start, steps, cost)| {
        let mut history = History::after(quota, start, &steps);
        let now = history.now;
        let before = history.budget.peek(now).remaining();
        let cost = cost.units(&history.budget, now);

        let (verdict, _) = history.budget.charge(now, cost);

        prop_assert_eq!(verdict.is_allowed(), cost <= before);
        let taken = if cost <= before { cost } else { 0 };
        if warms_up(&quota) {
            prop_assert!(verdict.remaining() <= before - taken);
        } else {
            prop_assert_eq!(verdict.remaining(), before - taken);
        }
        Ok(())
    });
}
