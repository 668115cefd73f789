//! A caller that moves to another tier, or whose quota is doubled, keeps its spent budget spent.

use proptest::prelude::*;
use tollgate_core::{Algorithm, Quota, Scope};

use crate::support::budget::{Budget, micros};
use crate::support::history::History;
use crate::support::quotas;
use crate::support::runner::check;
use crate::support::steps::{amounts, spans, steps};

#[test]
fn another_tier_reads_the_same_state_and_hands_out_no_fresh_budget() {
    let histories = (quotas::tiny_tiers(), 0_u64..30, steps(0..24));
    check(3_000, &histories, |([tier, other, _], start, steps)| {
        let mut history = History::after(tier, start, &steps);
        let spent = tier.capacity() - history.budget.peek(history.now).remaining();
        let full_in = history.budget.peek(history.now).reset_after();

        history.budget.quota = other;

        prop_assert_eq!(Scope::of("tier", 0, &tier), Scope::of("tier", 0, &other));
        let verdict = history.budget.peek(history.now);
        if other.algorithm() == Algorithm::Gcra {
            // A bucket's state is the time at which it is full, so a move keeps that time. Of a debt it keeps all but a
            // thirty-second of the most that the longer quota may owe. Drains below two microseconds are not told apart.
            let drain = |quota: &Quota| {
                let period = history.budget.period_us();
                quota.capacity() * period / quota.limit()
            };
            let larger = drain(&tier).max(drain(&other));
            let (now_in, full_in) = (micros(verdict.reset_after()), micros(full_in));
            let lost = full_in - now_in.min(full_in);
            prop_assert!(now_in <= full_in);
            if larger >= 2 {
                prop_assert!(lost <= larger / 4 + 1, "{lost} of {full_in}");
            }
            if larger >= 2 && full_in <= drain(&tier) {
                prop_assert_eq!(lost, 0);
            }
        } else if let Algorithm::IntervalRefill { .. } = other.algorithm() {
            // The refills that are owed stay so many, and the part of one is a number of units.
            prop_assert_eq!(verdict.reset_after(), full_in);
            if spent < tier.capacity() {
                let whole = spent.saturating_sub(1) / tier.limit();
                let part = (spent - whole * tier.limit()).min(other.limit());
                let seen = whole * other.limit() + part;
                let left = other.capacity().saturating_sub(seen);
                prop_assert_eq!(verdict.remaining(), left);
            }
        } else {
            let left = other.capacity().saturating_sub(spent);
            prop_assert!(verdict.remaining() <= left);
            // A debt hides how much was spent.
            if spent < tier.capacity() {
                prop_assert_eq!(verdict.remaining(), left);
            }
        }
        Ok(())
    });
}

#[test]
fn the_numbers_stay_true_while_tiers_change() {
    let turn = (0_usize..3, steps(1..6), amounts());
    let histories = (
        quotas::tiny_tiers(),
        0_u64..30,
        prop::collection::vec(turn, 1..8),
        spans(),
    );
    check(3_000, &histories, |(tiers, start, turns, wait)| {
        let mut history = History::of(tiers[0], start);
        for (tier, steps, cost) in turns {
            history.budget.quota = tiers[tier];
            let quota = tiers[tier];
            // Receipts of the tier before are credited in this one, too.
            for step in steps {
                history.step(step);
            }
            let now = history.now;

            // After a real question: a debt too deep for the new tier is cut, and that is stored.
            let (left, _) = history.budget.charge(now, 0);

            let remaining = left.remaining();
            prop_assert_eq!(left.limit(), quota.capacity());
            prop_assert!(remaining <= quota.capacity());
            prop_assert!(history.budget.if_charged(now, remaining).is_allowed());
            prop_assert!(history.budget.if_charged(now, remaining + 1).is_denied());
            let reset_after = micros(left.reset_after());
            let full = history.budget.peek(now + reset_after);
            prop_assert_eq!(full.remaining(), quota.capacity());
            let cost = cost.units(&history.budget, now);
            let denied = history.budget.if_charged(now, cost);
            if let Some(retry_after) = denied.retry_after().map(micros) {
                let early = history.budget.if_charged(now + retry_after - 1, cost);
                let then = history.budget.if_charged(now + retry_after, cost);
                prop_assert!(early.is_denied() && then.is_allowed());
            }
            history.now += wait.micros(&quota, now);
        }
        Ok(())
    });
}

/// Requests that began under the earlier tier are settled under the new one.
#[test]
fn settling_a_receipt_of_another_tier_refills_nothing() {
    let histories = (quotas::tiny_tiers(), 0_u64..30, steps(1..12), steps(0..12));
    check(
        3_000,
        &histories,
        |([tier, other, _], start, before, after)| {
            let mut history = History::after(tier, start, &before);
            let Some((_, receipt)) = history.receipts.pop() else {
                return Ok(());
            };
            history.budget.quota = other;
            for step in after {
                history.step(step);
            }
            let now = history.now;
            // After a real question: the question, and not the settling, cuts a debt too deep for the new tier.
            let (left, _) = history.budget.charge(now, 0);

            history.budget.refund(now, &receipt, 0);
            let settled = history.budget.peek(now);
            // Under another rate a fraction of a microsecond may be lost, to the strict side.
            let lost = micros(settled.reset_after()).checked_sub(micros(left.reset_after()));
            prop_assert!(settled.remaining() <= left.remaining(), "a credit of 0");
            prop_assert!(lost.is_some_and(|us| us <= 1), "a credit of 0");
            history.budget.debit(now, &receipt, 1);
            let settled = history.budget.peek(now).remaining();
            prop_assert!(settled <= left.remaining(), "{settled} after a debit of 1");
            Ok(())
        },
    );
}

/// One unit comes back, without the thousand that were spent since.
#[test]
fn a_credit_from_before_an_upgrade_returns_one_unit_and_not_the_new_budget() {
    const NOW: u64 = 1_000_000;
    let mut budget = Budget::full(Quota::per_second(1));
    let (_, receipt) = budget.charge(NOW, 1);
    budget.quota = Quota::per_second(1).burst(1000);
    assert!(budget.charge(NOW, 999).0.is_allowed());

    budget.refund(NOW, &receipt.unwrap(), 1);

    assert_eq!(budget.peek(NOW).remaining(), 1);
}
