//! A clock that steps back refills nothing and locks no caller out for ever; one that steps forward drains what it covers.

use proptest::prelude::*;
use tollgate_core::{Algorithm, DEBT_CEILING, Quota};

use crate::support::budget::{Budget, micros};
use crate::support::history::History;
use crate::support::quotas;
use crate::support::runner::check;
use crate::support::steps::{amounts, spans, starts, steps};

#[test]
fn a_clock_that_steps_back_refills_nothing() {
    let histories = (quotas::any(), starts(), steps(0..24), spans());
    check(3_000, &histories, |(quota, start, steps, back)| {
        let history = History::after(quota, start, &steps);
        let before = history.budget.peek(history.now);
        let stepped = history.now.saturating_sub(back.micros(&quota, history.now));

        let after = history.budget.peek(stepped);

        prop_assert!(
            after.remaining() <= before.remaining(),
            "{} left at {}, {} at {stepped}",
            before.remaining(),
            history.now,
            after.remaining()
        );
        Ok(())
    });
}

/// After the step the state drains from where it stood. When as much time has passed, the budget is never fuller than it would
/// have been without the step. For windows this holds after a step of less than a period.
#[test]
fn a_budget_whose_clock_stepped_back_drains_no_sooner_than_time_passes() {
    let histories = (quotas::any(), starts(), steps(0..24), spans(), spans());
    check(4_000, &histories, |(quota, start, steps, back, wait)| {
        let history = History::after(quota, start, &steps);
        let back = back.micros(&quota, history.now).min(history.now);
        let back = match quota.algorithm() {
            Algorithm::Gcra | Algorithm::SlidingLog => back,
            _ => back.min(history.budget.period_us() - 1),
        };
        let wait = wait.micros(&quota, history.now);
        let mut stepped = history.budget.clone();
        stepped.charge(history.now - back, quota.capacity() + 1);

        let after = stepped.peek(history.now - back + wait);

        let unstepped = history.budget.peek(history.now + wait);
        prop_assert!(after.remaining() <= unstepped.remaining());
        prop_assert!(after.reset_after() >= unstepped.reset_after());
        Ok(())
    });
}

/// The start of the newest window or bucket at `now`.
fn newest_start(quota: &Quota, now: u64) -> u64 {
    let period = micros(quota.period());
    match quota.algorithm() {
        Algorithm::FixedWindow { offset } | Algorithm::IntervalRefill { offset } => {
            now.saturating_sub((now + period - micros(offset)) % period)
        }
        Algorithm::SlidingWindow => now - now % period,
        Algorithm::RollingWindow { buckets } => now - now % (period / u64::from(buckets)),
        _ => now,
    }
}

/// A clock may step back and forth any number of times. While it is less than a period behind, a window stays where it was, and
/// decides as if the clock stood at its start. So no window admits more than its limit, and no count fades or ages twice.
#[test]
fn a_window_whose_clock_is_behind_it_waits_for_the_clock() {
    let windows = quotas::any().prop_filter("windows", |quota| {
        !matches!(quota.algorithm(), Algorithm::Gcra | Algorithm::SlidingLog)
    });
    let walks = prop::collection::vec((any::<bool>(), spans(), amounts()), 1..32);
    check(
        4_000,
        &(windows, starts(), walks),
        |(quota, start, walk)| {
            let (mut stepping, mut steady) = (Budget::full(quota), Budget::full(quota));
            let (mut now, mut latest) = (start, start);
            for budget in [&mut stepping, &mut steady] {
                budget.charge(start, 0);
            }
            for (is_back, span, amount) in walk {
                let span = span.micros(&quota, now);
                let earliest = (latest + 1).saturating_sub(stepping.period_us());
                now = if is_back {
                    now.saturating_sub(span).max(earliest)
                } else {
                    now + span
                };
                latest = latest.max(now);
                let waits_for = now.max(newest_start(&quota, latest));
                let cost = amount.units(&steady, waits_for);

                let (verdict, _) = stepping.charge(now, cost);

                let (expected, _) = steady.charge(waits_for, cost);
                prop_assert_eq!(verdict.is_allowed(), expected.is_allowed());
                prop_assert_eq!(verdict.remaining(), expected.remaining());
                prop_assert_eq!(verdict.never_passes(), expected.never_passes());
                let behind = waits_for - now;
                let retry_after = expected.retry_after().map(|it| micros(it) + behind);
                prop_assert_eq!(verdict.retry_after().map(micros), retry_after);
                let reset_after = match micros(expected.reset_after()) {
                    0 => 0,
                    us => us + behind,
                };
                prop_assert_eq!(micros(verdict.reset_after()), reset_after);
            }
            Ok(())
        },
    );
}

#[test]
fn a_microsecond_back_and_forth_over_a_boundary_brings_nothing_back() {
    let offset = std::time::Duration::ZERO;
    for algorithm in [
        Algorithm::FixedWindow { offset },
        Algorithm::SlidingWindow,
        Algorithm::RollingWindow { buckets: 2 },
        Algorithm::IntervalRefill { offset },
    ] {
        let quota = Quota::per_second(10).using(algorithm);
        let boundary = 1_700_000_000_000_000;
        let mut budget = Budget::full(quota);
        assert!(budget.charge(boundary, 10).0.is_allowed());
        let untouched = budget.clone();

        for now in [boundary - 1, boundary, boundary - 1, boundary] {
            let (verdict, _) = budget.charge(now, 1);
            assert!(verdict.is_denied(), "{quota} at {now}");
        }

        for later in [0, 1, 500_000, 999_999, 1_000_000, 1_500_000, 2_000_000] {
            let at = boundary + later;
            assert_eq!(budget.peek(at), untouched.peek(at), "{quota} at {at}");
        }
    }
}

/// Even a step of years is over after the longest debt: the state ahead was rebased, and a denial stored it.
#[test]
fn a_step_back_of_years_locks_nobody_out_for_longer_than_a_debt() {
    let histories = (quotas::any(), steps(0..24), 0_u64..1_000_000_000_000);
    check(2_000, &histories, |(quota, steps, to)| {
        let today = 1_800_000_000_000_000;
        let mut history = History::after(quota, today, &steps);

        // Denied, unless everything is there: then there is nothing to rebase.
        history.budget.charge(to, quota.capacity() + 1);
        let verdict = history.budget.peek(to);

        let period = history.budget.period_us();
        let longest = match quota.algorithm() {
            Algorithm::Gcra => history.budget.longest_debt(),
            Algorithm::SlidingWindow => 2 * period,
            Algorithm::IntervalRefill { .. } => {
                (DEBT_CEILING * quota.capacity()).div_ceil(quota.limit()) * period
            }
            _ => period,
        };
        prop_assert!(micros(verdict.reset_after()) <= longest, "{verdict:?}");
        // The denial stored it: from here on time drains, without first catching up with the old clock.
        let half = history.budget.peek(to + longest / 2);
        let left = micros(verdict.reset_after()).saturating_sub(longest / 2);
        prop_assert_eq!(micros(half.reset_after()), left);
        let full = history.budget.peek(to + longest);
        prop_assert_eq!(full.remaining(), quota.capacity());
        Ok(())
    });
}

#[test]
fn a_promise_made_after_a_step_back_is_kept_by_the_clock_as_it_is() {
    let histories = (quotas::any(), starts(), steps(0..24), spans(), amounts());
    check(2_000, &histories, |(quota, start, steps, back, cost)| {
        let mut history = History::after(quota, start, &steps);
        let now = history.now.saturating_sub(back.micros(&quota, history.now));
        let cost = cost.units(&history.budget, now);

        let (verdict, _) = history.budget.charge(now, cost);

        if let Some(retry_after) = verdict.retry_after().map(micros) {
            prop_assert!(retry_after > 0);
            let early = history.budget.if_charged(now + retry_after - 1, cost);
            let then = history.budget.if_charged(now + retry_after, cost);
            prop_assert!(early.is_denied() && then.is_allowed(), "{early:?} {then:?}");
        }
        Ok(())
    });
}

#[test]
fn a_step_forward_drains_what_it_covers() {
    let histories = (quotas::any(), starts(), steps(0..24), spans());
    check(2_000, &histories, |(quota, start, steps, ahead)| {
        let history = History::after(quota, start, &steps);
        let later = history.now + ahead.micros(&quota, history.now);
        let mut asked_often = history.budget.clone();
        for at in history.later().into_iter().filter(|at| *at <= later) {
            asked_often.charge(at, 0);
        }

        // One step of time and many steps give one result.
        prop_assert_eq!(history.budget.peek(later), asked_often.peek(later));
        let before = history.budget.peek(history.now);
        let after = history.budget.peek(later);
        prop_assert!(after.remaining() >= before.remaining());
        let left = micros(before.reset_after()).saturating_sub(later - history.now);
        prop_assert_eq!(micros(after.reset_after()), left);
        Ok(())
    });
}

/// Three tenths of a second forward and back, sixty times: a log admits its limit in each period by the furthest that its clock
/// has been, and so gains one step.
#[test]
fn a_log_whose_clock_steps_back_and_forth_gains_one_step_and_no_more() {
    const SECOND: u64 = 1_000_000;
    const START: u64 = 1_800_000_000 * SECOND;
    const STEP: u64 = 300_000;
    for quota in [
        Quota::per_second(10).using(Algorithm::SlidingLog),
        Quota::per_second(1).using(Algorithm::SlidingLog),
        Quota::new(50, std::time::Duration::from_millis(700)).using(Algorithm::SlidingLog),
    ] {
        let period = micros(quota.period());
        for (denied, costs) in [
            (false, [1, 1]),
            (true, [0, 1]),
            (true, [1, 0]),
            (true, [1, 1]),
        ] {
            // given a clock that is wrong by one step half of the time
            let mut budget = Budget::full(quota);
            let mut passed = Vec::new();

            // when calls come all the time, in either half or in both, refused ones as well
            for real in (0..11 * SECOND).step_by(1_000) {
                let is_ahead = real / 91_666 % 2 == 1;
                let now = START + real + if is_ahead { STEP } else { 0 };
                if denied {
                    budget.charge(now, quota.capacity());
                }
                let cost = costs[usize::from(is_ahead)];
                if cost > 0 && budget.charge(now, cost).0.is_allowed() {
                    passed.push(real);
                }
            }

            // then no more passed than the limit for each period begun, and the step
            let most = ((11 * SECOND + STEP).div_ceil(period)) * quota.limit();
            let passed = passed.len() as u64;
            assert!(passed <= most, "{quota}: {passed} of {most}");
        }
    }
}

/// A log takes charges meanwhile, and can give them back.
#[test]
fn what_a_log_took_while_its_clock_was_behind_counts_for_a_period_of_the_clock_as_it_was_and_can_be_given_back()
 {
    const START: u64 = 1_800_000_000_000_000;
    let quota = Quota::per_second(3).using(Algorithm::SlidingLog);
    let mut budget = Budget::full(quota);
    budget.charge(START, 1);

    // when the clock is half a period behind, and two more are charged
    let (_, receipt) = budget.charge(START - 500_000, 1);
    budget.charge(START - 400_000, 1);

    // then they count until the first counts no more
    let (verdict, _) = budget.charge(START - 400_000, 1);
    assert_eq!(verdict.retry_after().map(micros), Some(1_400_000));
    assert_eq!(budget.peek(START + 999_999).remaining(), 0);
    assert_eq!(budget.peek(START + 1_000_000).remaining(), 3);
    // And one can be given back.
    budget.refund(START, &receipt.unwrap(), 1);
    assert_eq!(budget.peek(START).remaining(), 1);
}

/// A returning caller may find its state forgotten: backends drop a state that has lost its meaning.
#[test]
fn no_window_admits_more_than_its_limit_to_a_clock_less_than_a_period_behind_though_states_are_forgotten()
 {
    const SECOND: u64 = 1_000_000;
    const START: u64 = 1_800_000_000 * SECOND;
    let offset = std::time::Duration::ZERO;
    for algorithm in [
        Algorithm::FixedWindow { offset },
        Algorithm::SlidingWindow,
        Algorithm::RollingWindow { buckets: 4 },
        Algorithm::SlidingLog,
        Algorithm::IntervalRefill { offset },
    ] {
        // given a window that was spent at its end
        let quota = Quota::per_second(10).using(algorithm);
        let mut budget = Budget::full(quota);
        assert!(budget.charge(START + SECOND - 1, 10).0.is_allowed());
        let mut passed = 10;

        // when the clock goes forward until nothing counts, and back by less than a period, four times
        let over = START + SECOND - 1 + micros(budget.peek(START + SECOND - 1).reset_after());
        for _ in 0..4 {
            for now in [over, over + SECOND - 2, over - 1, over - SECOND / 2] {
                if budget.meaningless_at() <= now {
                    budget = Budget::full(quota);
                }
                // Denied, if it is the end at all.
                if now < over && budget.charge(now, 10).0.is_allowed() {
                    passed += 10;
                }
            }
        }

        // then nothing more has passed
        assert_eq!(passed, 10, "{quota}");
    }
}
