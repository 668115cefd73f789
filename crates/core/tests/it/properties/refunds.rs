//! A credit returns only what would still count: what remains is a history that could have happened.
//!
//! The measure is the *net history*: the same charges and debits at the same times, each less what was credited of it,
//! on a budget that never saw a credit. Nothing passes under a quota that warms up that would not pass without that, so its measure
//! is the quota without a warm-up.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestCaseResult};
use tollgate_core::{Algorithm, Quota, Receipt, Snapshot};

use crate::support::budget::{Budget, is_even_bucket, receipt_of, warms_up, without_warm_up};
use crate::support::history::History;
use crate::support::quotas;
use crate::support::runner::check;
use crate::support::steps::{Amount, Span, Step, amounts, charges, spans, starts, steps};

/// The budget as it would be if the credited amount had never been charged.
fn net(history: &History) -> Result<Budget, TestCaseError> {
    let mut budget = Budget::full(without_warm_up(history.budget.quota));
    for taken in &history.taken {
        if taken.is_debit {
            budget.debit(taken.at, &receipt_of(budget.quota), taken.net);
        } else {
            let (verdict, _) = budget.charge(taken.at, taken.net);
            prop_assert!(verdict.is_allowed(), "{:?} could not have happened", taken);
        }
    }
    Ok(budget)
}

/// At no later time is there more than in the net history.
fn is_covered_by_net(history: &History) -> TestCaseResult {
    let net = net(history)?;
    for at in history.later() {
        let (real, net) = (history.budget.peek(at), net.peek(at));
        let (left, full) = (real.remaining(), real.reset_after());
        let (net_left, net_full) = (net.remaining(), net.reset_after());
        prop_assert!(
            left <= net_left && full >= net_full,
            "at {at}: {left} left, full in {full:?}, is more than {net_left}, {net_full:?}"
        );
        // Windows and logs take back exactly what was charged. A bucket may give back less than it could, and what is refilled in
        // intervals gives back nothing once a refill has come: see Receipt.
        if !matches!(
            history.budget.quota.algorithm(),
            Algorithm::Gcra | Algorithm::IntervalRefill { .. }
        ) {
            prop_assert_eq!((left, full), (net_left, net_full), "at {}", at);
        }
    }
    Ok(())
}

fn no_credit_beats_the_net_history(quota: Quota, start: u64, steps: &[Step]) -> TestCaseResult {
    let mut history = History::of(quota, start);

    for &step in steps {
        history.step(step);
        is_covered_by_net(&history)?;
    }
    Ok(())
}

#[test]
fn no_credits_make_possible_what_the_net_history_does_not() {
    let histories = (quotas::any(), starts(), steps(1..40));
    check(2_000, &histories, |(quota, start, steps)| {
        no_credit_beats_the_net_history(quota, start, &steps)
    });
}

#[test]
fn no_credits_to_a_small_bucket_make_possible_what_the_net_history_does_not() {
    let histories = (quotas::tiny_gcra(), 0_u64..3, steps(1..32));
    check(4_000, &histories, |(quota, start, steps)| {
        no_credit_beats_the_net_history(quota, start, &steps)
    });
}

/// Credits of all ages, of budgets with room for several refills, with debits between them.
#[test]
fn no_credits_to_a_bucket_that_warms_up_make_possible_what_the_net_history_does_not() {
    let histories = (quotas::tiny_warming(), 0_u64..3, steps(1..32));
    check(3_000, &histories, |(quota, start, steps)| {
        no_credit_beats_the_net_history(quota, start, &steps)
    });
}

/// A cold charge comes back first, and its idle time goes into the store. The warm charge behind it must not come back at the price
/// of the cold one.
#[test]
fn a_warm_charge_does_not_come_back_at_the_price_of_a_cold_one() {
    let wait = |us| Step::Wait(Span::Micros(us));
    let credit = |n| Step::Credit(0, Amount::Units(n));
    // A part of the cold charge has drained, and stays spent.
    let drained = [
        Step::charge(3),
        wait(16),
        Step::charge(2),
        credit(3),
        credit(1),
    ];
    // Less of it has drained than its surcharge.
    let undrained = [
        Step::charge(3),
        wait(17),
        Step::charge(5),
        credit(3),
        credit(3),
    ];
    let (narrow, wide) = (
        Quota::new(4, Duration::from_micros(9))
            .burst(3)
            .warm_up(Duration::from_micros(22)),
        Quota::new(2, Duration::from_micros(9))
            .burst(10)
            .warm_up(Duration::from_micros(46)),
    );
    no_credit_beats_the_net_history(narrow, 0, &drained).unwrap();
    no_credit_beats_the_net_history(wide, 1, &undrained).unwrap();
}

#[test]
fn no_credits_to_a_budget_refilled_in_intervals_make_possible_what_the_net_history_does_not() {
    let histories = (quotas::tiny_refills(), 0_u64..30, steps(1..40));
    check(4_000, &histories, |(quota, start, steps)| {
        no_credit_beats_the_net_history(quota, start, &steps)
    });
}

/// Until the next refill everything comes back, and nothing afterwards.
#[test]
fn a_credit_to_a_budget_refilled_in_intervals_is_exact_until_the_next_refill_and_nothing_after_it()
{
    let histories = (quotas::tiny_refills(), 0_u64..30, steps(1..40));
    check(4_000, &histories, |(quota, start, steps)| {
        let Algorithm::IntervalRefill { offset } = quota.algorithm() else {
            unreachable!("all are");
        };
        let (period, offset) = (micros(quota.period()), micros(offset));
        let number = |at: u64| (at + period - offset) / period;
        let mut history = History::of(quota, start);
        for step in steps {
            if let Step::Credit(..) = step {
                let now = history.now;
                let is_late = |at| number(at) < number(now);
                for (_, receipt) in &history.receipts {
                    if is_late(receipt.at().as_micros()) {
                        let mut credited = history.budget.clone();
                        credited.refund(now, receipt, u64::MAX);
                        for at in history.later() {
                            prop_assert_eq!(credited.peek(at), history.budget.peek(at));
                        }
                    }
                }
                (history.receipts).retain(|(_, receipt)| !is_late(receipt.at().as_micros()));
            }
            history.step(step);
            let net = net(&history)?;
            for at in history.later() {
                prop_assert_eq!(history.budget.peek(at), net.peek(at), "at {}", at);
            }
        }
        Ok(())
    });
}

/// A roomy bucket that stays well filled while many requests are under way at once and are settled later. Here more credits
/// affect one another than can be told apart.
#[test]
fn no_credits_to_a_busy_bucket_make_possible_what_the_net_history_does_not() {
    let step = prop_oneof![
        2 => (1_u64..=2).prop_map(|us| Step::Wait(Span::Micros(us))),
        1 => (0_u64..=1).prop_map(|n| Step::Wait(Span::Units(n, 0))),
        4 => (1_u64..=6).prop_map(|n| Step::Charge(Amount::Units(n))),
        3 => (any::<usize>(), 1_u64..=6).prop_map(|(n, units)| Step::Credit(n, Amount::Units(units))),
    ];
    let quotas = (1_u64..=3, 1_u64..=6, 12_u64..=60).prop_map(|(limit, period, burst)| {
        Quota::new(limit, Duration::from_micros(period)).burst(burst)
    });
    let histories = (quotas, 0_u64..3, prop::collection::vec(step, 20..80));
    check(8_000, &histories, |(quota, start, steps)| {
        let mut history = History::of(quota, start);

        for step in steps {
            history.step(step);
            if matches!(step, Step::Credit(..)) {
                is_covered_by_net(&history)?;
            }
        }
        Ok(())
    });
}

/// Four are charged in one instant; two of them give back at once and two a second later. Of the latter only one unit still
/// counts, because one has drained of the two units that remained after the first credits.
/// In whatever order charges and credits of one microsecond come, each credit returns all of its charge. One call of many requests has
/// one time for all of them.
#[test]
fn while_time_stands_still_every_credit_returns_all_of_its_charge() {
    let steps = prop::collection::vec(
        (any::<bool>(), 1_u64..4, any::<prop::sample::Index>()),
        1..200,
    );
    let quotas = quotas::any().prop_filter("cold units cost more", |quota| !warms_up(quota));
    let all = (quotas, starts(), 0_u64..5, steps);
    check(2_000, &all, |(quota, now, before, steps)| {
        let (mut budget, mut open) = (Budget::full(quota), Vec::new());
        let first = budget.charge(now, before.min(budget.capacity())).0;
        let (left, mut taken) = (first.remaining(), 0);
        for (is_charge, cost, which) in steps {
            if is_charge || open.is_empty() {
                let (_, receipt) = budget.charge(now, cost);
                taken += receipt.as_ref().map_or(0, Receipt::cost);
                open.extend(receipt);
            } else {
                let receipt: Receipt = open.swap_remove(which.index(open.len()));
                taken -= receipt.cost();
                budget.refund(now, &receipt, receipt.cost());
            }
            prop_assert_eq!(budget.peek(now).remaining(), left - taken);
        }
        Ok(())
    });
}

/// A charge behind a credit of its own microsecond returns, later on, what has not drained of it by then.
#[test]
fn a_charge_behind_a_credit_of_its_microsecond_returns_what_still_drains() {
    let all = (
        quotas::tiny_gcra(),
        starts(),
        1_u64..6,
        1_u64..6,
        0_u64..200,
    );
    check(2_000, &all, |(quota, now, gone, stays, after)| {
        let (mut budget, mut bare) = (Budget::full(quota), Budget::full(quota));
        let (Some(first), Some(_)) = (budget.charge(now, gone).1, bare.charge(now, stays).1) else {
            return Ok(());
        };
        budget.refund(now, &first, gone);
        let (_, second) = budget.charge(now, stays);
        let second = second.expect("it has room, as the bare one has");

        budget.refund(now + after, &second, stays);

        // All that has drained of it stays taken, and no more.
        let left = budget.peek(now + after);
        prop_assert_eq!(left.remaining(), budget.capacity());
        prop_assert_eq!(left.reset_after(), Duration::ZERO);
        Ok(())
    });
}

#[test]
fn credits_of_one_instant_return_no_more_together_than_is_left_of_it() {
    const SECOND: u64 = 1_000_000;
    let mut budget = Budget::full(Quota::per_second(1).burst(4));
    let receipts = [(); 4].map(|()| budget.charge(SECOND, 1).1.unwrap());

    budget.refund(SECOND, &receipts[0], 1);
    budget.refund(SECOND, &receipts[1], 1);
    assert!(budget.charge(2 * SECOND, 3).0.is_allowed());
    budget.refund(2 * SECOND, &receipts[2], 1);
    budget.refund(2 * SECOND, &receipts[3], 1);

    // Without the four: a burst of 4 less the 3 of the others.
    assert!(budget.charge(2 * SECOND, 2).0.is_denied());
}

/// The rule of a bucket in plain words: a credit returns at most the charge, and at most the time that is left until the budget
/// would have been full again. It holds as long as no other credit came between.
#[test]
fn the_only_credit_to_a_bucket_returns_the_lesser_of_its_cost_and_what_still_drains() {
    let histories = (
        quotas::any().prop_filter("a bucket", is_even_bucket),
        starts(),
        charges(0..12),
        amounts(),
        charges(0..6),
        amounts(),
    );
    check(
        2_000,
        &histories,
        |(quota, start, before, cost, between, n)| {
            let mut history = History::after(quota, start, &before);
            let at = history.now;
            let cost = cost.units(&history.budget, at);
            let (charged, Some(receipt)) = history.budget.charge(at, cost) else {
                return Ok(());
            };
            // In units of 1/limit µs all figures are whole.
            let limit = u128::from(quota.limit());
            let drain = |units: u64| u128::from(units) * u128::from(micros(quota.period()));
            for step in between {
                history.step(step);
            }
            let now = history.now;
            let n = n.units(&history.budget, now).min(cost);
            let full_before = history.budget.peek(now).reset_after();

            history.budget.refund(now, &receipt, n);

            // Verdicts round up to a microsecond, so they show a figure to within one.
            let full_at = limit * u128::from(at + micros(charged.reset_after()));
            let expected = drain(n).min(full_at.saturating_sub(limit * u128::from(now)));
            let full_after = history.budget.peek(now).reset_after();
            let returned = limit * u128::from(micros(full_before) - micros(full_after));
            prop_assert!(
                returned.abs_diff(expected) <= 2 * limit,
                "{returned} came back, not {expected}, of {n}"
            );
            Ok(())
        },
    );
}

#[test]
fn a_charge_that_is_credited_at_once_leaves_no_trace() {
    let histories = (quotas::any(), starts(), charges(0..12), amounts());
    check(1_000, &histories, |(quota, start, steps, cost)| {
        let mut history = History::after(quota, start, &steps);
        let untouched = history.budget.clone();
        let cost = cost.units(&history.budget, history.now);

        let (_, receipt) = history.budget.charge(history.now, cost);
        if let Some(receipt) = receipt {
            history.budget.refund(history.now, &receipt, u64::MAX);
        }

        for at in history.later() {
            let (left, before) = (history.budget.peek(at), untouched.peek(at));
            if warms_up(&quota) {
                // A charge that emptied the store gets no surcharge back.
                prop_assert!(left.remaining() <= before.remaining(), "at {}", at);
            } else {
                prop_assert_eq!(left, before, "at {}", at);
            }
        }
        Ok(())
    });
}

#[test]
fn a_credit_never_returns_more_than_was_charged_and_never_takes() {
    let histories = (quotas::any(), starts(), steps(0..16), spans(), amounts());
    check(1_000, &histories, |(quota, start, steps, wait, n)| {
        let mut history = History::after(quota, start, &steps);
        let Some((_, receipt)) = history.receipts.pop() else {
            return Ok(());
        };
        let now = history.now + wait.micros(&quota, history.now);
        let n = n.units(&history.budget, now);
        let mut all = history.budget.clone();
        let mut some = history.budget.clone();
        let mut none = history.budget.clone();

        all.refund(now, &receipt, u64::MAX);
        some.refund(now, &receipt, n);
        none.refund(now, &receipt, 0);

        let mut bound = history.budget.clone();
        bound.refund(now, &receipt, receipt.cost());
        let before = history.budget.peek(now);
        prop_assert_eq!(all.peek(now), bound.peek(now));
        prop_assert_eq!(none.peek(now), before);
        let after = some.peek(now);
        prop_assert!(after.remaining() >= before.remaining());
        let most = most_returned(&quota, n.min(receipt.cost()));
        prop_assert!(after.remaining() - before.remaining() <= most);
        Ok(())
    });
}

/// The most units of room that a credit of `n` makes. A cold unit takes the room of several warm ones, and gives it back.
///
/// The surcharge in it is the difference of two figures in whole microseconds, each of which is rounded down twice. So it is
/// above Guava's by less than two microseconds.
fn most_returned(quota: &Quota, n: u64) -> u64 {
    let units = n.saturating_mul(quota.price_when_cold());
    if !warms_up(quota) {
        return units;
    }
    // In 1/limit µs, in which the time of a unit is whole and a microsecond is `limit`.
    let limit = u128::from(quota.limit());
    let unit = u128::from(micros(quota.period()));
    let surcharge = u128::from(units - n) * unit + 2 * limit - 1;
    let most = u128::from(n) * unit + surcharge / limit * limit;
    u64::try_from(most.div_ceil(unit)).unwrap_or(u64::MAX)
}

/// A unit drains in 1.75 µs and costs three times as much while it is cold. Of the surcharge, 3.5 µs, it gives back 5, so that
/// four units fit and not three.
#[test]
fn a_cold_unit_gives_its_surcharge_back_in_whole_microseconds() {
    let quota = "4/7us burst 6 warm up 60us".parse().unwrap();
    let mut budget = Budget::full(quota);
    let (_, first) = budget.charge(0, 5);
    budget.refund(0, &first.unwrap(), 4);
    let (_, second) = budget.charge(1, 1);
    let before = budget.peek(4).remaining();

    budget.refund(4, &second.unwrap(), 1);

    assert_eq!(budget.peek(4).remaining() - before, 4);
    assert_eq!(most_returned(&quota, 1), 4);
}

#[test]
fn a_credit_returns_nothing_once_the_charge_counts_no_more() {
    let histories = (
        quotas::any(),
        starts(),
        steps(0..16),
        charges(0..6),
        0_u64..3,
    );
    check(1_000, &histories, |(quota, start, steps, others, late)| {
        let mut history = History::after(quota, start, &steps);
        // When every charge has drained, and some more time has passed.
        history.now = history.now.max(history.budget.meaningless_at()) + late;
        let receipts: Vec<_> = history
            .receipts
            .iter()
            .map(|(_, receipt)| receipt.copy())
            .collect();
        for step in others {
            history.step(step);
        }
        let untouched = history.budget.clone();

        for receipt in &receipts {
            history.budget.refund(history.now, receipt, u64::MAX);
        }

        for at in history.later() {
            prop_assert_eq!(history.budget.peek(at), untouched.peek(at), "at {}", at);
        }
        Ok(())
    });
}

fn micros(duration: Duration) -> u64 {
    crate::support::budget::micros(duration)
}

/// A limit on failures charges every request, and gives the charge back if the request succeeds, while others are under way.
#[test]
fn what_is_given_back_comes_back_while_many_are_under_way() {
    for (limit, under_way) in [(5, 3), (100, 10), (1000, 100)] {
        // given a budget that hardly refills, and requests that end in any order
        let mut budget = Budget::full(Quota::per_day(limit));
        let (mut now, mut random) = (1_700_000_000_000_000, 1_u64);
        let mut receipts = Vec::new();
        for request in 0..20_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            now += 200 + (random >> 40) % 1000;

            // when each is charged, and gets its charge back in the end
            let (verdict, receipt) = budget.charge(now, 1);
            assert!(verdict.is_allowed(), "{limit}, request {request}");
            receipts.extend(receipt);
            if receipts.len() == under_way {
                now += 10;
                // One that has been in flight for about as long as the others.
                let next = (random >> 33) as usize % (under_way / 3).max(1);
                budget.refund(now, &receipts.remove(next), 1);
            }
        }
        // then none was ever refused
    }
}

/// The number of credits that a bucket's state carries.
fn credits_of(budget: &Budget) -> usize {
    match budget.state.snapshot() {
        Snapshot::Gcra { credits, .. } => credits.len(),
        other => panic!("no bucket: {other:?}"),
    }
}

/// After a stall many requests were given back at once. The key stays in use, and no more credits come.
#[test]
fn credits_that_have_lost_their_meaning_are_dropped_by_a_key_that_stays_in_use() {
    const SECOND: u64 = 1_000_000;
    const START: u64 = 1_800_000_000 * SECOND;
    // given a bucket with thirty credits, the last of which gave back a charge that was to have drained three seconds later
    let quota = Quota::per_second(10).burst(40);
    let mut budget = Budget::full(quota);
    let receipts: Vec<_> = (0..30)
        .map(|_| budget.charge(START, 1).1.unwrap())
        .collect();
    for receipt in &receipts {
        budget.refund(START, receipt, 1);
    }
    assert_eq!(credits_of(&budget), 30);
    let mut forgetful = budget.clone();

    // when it is charged while a receipt could still be open, and then
    let verdicts = [3 * SECOND - 1, 3 * SECOND].map(|later| {
        let (verdict, _) = budget.charge(START + later, 1);
        (credits_of(&budget), verdict)
    });

    // then it carries them as long and no longer, and decides as if it still carried them
    assert_eq!(verdicts.map(|(credits, _)| credits), [30, 0]);
    for (later, (_, verdict)) in [3 * SECOND - 1, 3 * SECOND].into_iter().zip(verdicts) {
        assert_eq!(forgetful.charge(START + later, 1).0, verdict);
    }
    for receipt in &receipts {
        budget.refund(START + 3 * SECOND, receipt, 1);
    }
    assert_eq!(
        budget.peek(START + 3 * SECOND),
        forgetful.peek(START + 3 * SECOND)
    );
}

/// In the microsecond of the charge it returns all of it.
#[test]
fn a_credit_whose_clock_is_behind_the_charge_returns_nothing() {
    let start = 1_800_000_000_000_000;
    for algorithm in [
        Algorithm::Gcra,
        Algorithm::FixedWindow {
            offset: Duration::ZERO,
        },
        Algorithm::SlidingWindow,
        Algorithm::RollingWindow { buckets: 4 },
        Algorithm::SlidingLog,
        Algorithm::IntervalRefill {
            offset: Duration::ZERO,
        },
    ] {
        for (behind, returned) in [(0, 3), (1, 0), (1_000, 0)] {
            // given a charge within a window, after another charge
            let now = start + 5_000;
            let mut budget = Budget::full(Quota::per_second(10).using(algorithm));
            assert!(budget.charge(now - 2_000, 2).0.is_allowed());
            let (charged, receipt) = budget.charge(now, 3);
            assert_eq!(charged.remaining(), 5, "{algorithm:?}");

            // when it is given back by a clock that stepped back meanwhile
            budget.refund(now - behind, &receipt.unwrap(), 3);

            // then nothing is certain, and nothing comes back
            let left = budget.peek(now).remaining();
            assert_eq!(left, 5 + returned, "{algorithm:?}, {behind} µs behind");
        }
    }
}
