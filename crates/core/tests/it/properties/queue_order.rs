//! Turns, at their edges: what only asks, the moment of the last turn, credits where places are free, and states that are kept
//! elsewhere.

use std::time::Duration;

use proptest::prelude::*;
use tollgate_core::{
    Algorithm, Call, Charge, Concurrent, Key, Mode, Quota, QuotaError, Scope, State, Timestamp,
    decide,
};

use crate::properties::queueing::{Event, Line, events, waiting};
use crate::support::runner::check;

const START: u64 = 1_000_000;
const SECOND: u64 = 1_000_000;

/// One a second, of which so many pass at once.
fn slow(burst: u64) -> Line {
    let quota = Quota::per_second(1).burst(burst);
    Line::of(quota.wait_up_to(Duration::from_secs(9)), START)
}

/// A probe, and a cost of 0, take nothing: neither from the budget nor from the line.
#[test]
fn what_only_asks_leaves_a_line_as_it_is() {
    check(2_000, &(waiting(), events(30)), |(quota, events)| {
        let mut line = Line::of(quota, START);
        for event in events {
            line.step(event);
            // A decision brings back what a clock that stepped back has left, so it is asked twice.
            line.budget.decide(line.now, 0, Mode::Probe);
            let before = line.budget.state.snapshot();
            for cost in 1..=quota.capacity() + 1 {
                let (probe, receipt) = line.budget.decide(line.now, cost, Mode::Probe);
                let charged = line.budget.if_charged(line.now, cost);
                prop_assert_eq!(probe.verdicts()[0].wait(), charged.wait());
                prop_assert!(receipt.is_none());
            }
            for mode in [Mode::Enforce, Mode::Shadow] {
                line.budget.decide(line.now, 0, mode);
            }
            prop_assert_eq!(line.budget.state.snapshot(), before);
        }
        Ok(())
    });
}

/// A state that was written down and read again is the same state.
#[test]
fn a_line_goes_on_from_what_was_written_down_of_it() {
    check(2_000, &(waiting(), events(40)), |(quota, events)| {
        let mut line = Line::of(quota, START);
        for event in events {
            line.step(event);
            let written = line.budget.state.snapshot();
            let read = State::from(written.clone());
            prop_assert_eq!(read.snapshot(), written);
            // The rest of the history is decided on what was read.
            let by_itself = line.budget.if_charged(line.now, 1);
            line.budget.state = read;
            prop_assert_eq!(line.budget.if_charged(line.now, 1), by_itself);
        }
        Ok(())
    });
}

/// Decisions between two steps keep the worst case, whatever line the steps before have left.
#[test]
fn between_two_steps_of_the_clock_the_worst_case_is_kept() {
    let spells = prop::collection::vec((events(20), any::<bool>(), 0_u64..400), 1..4);
    check(5_000, &(waiting(), spells), |(quota, spells)| {
        let mut line = Line::of(quota, 1_000 * 3_600 * SECOND);
        for (events, is_back, sixteenths) in spells {
            let first = line.taken();
            for event in events {
                // A credit of a charge from before a step may free a place in which others stand by now.
                let is_of_before =
                    matches!(event, Event::GiveBack { which, .. } if which >= line.taken() - first);
                if !is_of_before {
                    line.step(event);
                }
            }
            line.is_within_worst_case_since(first)?;
            let by = sixteenths * SECOND / 16;
            line.now = if is_back {
                line.now - by
            } else {
                line.now + by
            };
        }
        Ok(())
    });
}

/// A quota is replaced by one of another burst and wait, and processes of both share a line for a while. If none has left, a
/// request passes no earlier than those that wait by its burst or by a larger one.
#[test]
fn two_bursts_on_one_line_keep_the_worst_case_of_the_larger_one() {
    let histories = (waiting(), 1_u64..=7, any::<bool>(), events(40));
    check(8_000, &histories, |(quota, burst, waits, events)| {
        let other = if waits {
            quota.burst(burst)
        } else {
            quota.burst(burst).waiting_at_most(Duration::ZERO)
        };
        let mut line = Line::of(quota, START);
        let (mut turns, mut has_left): (Vec<(u64, u64)>, _) = (Vec::new(), false);
        for (number, event) in events.into_iter().enumerate() {
            line.budget.quota = if number % 3 == 1 { other } else { quota };
            match event {
                Event::Arrive { cost } if cost > 0 => {
                    let burst = line.budget.capacity();
                    let ahead = turns
                        .iter()
                        .filter(|(of, turn)| *of >= burst && *turn > line.now);
                    let last = ahead.map(|(_, turn)| *turn).max().unwrap_or(0);
                    if let Some(turn) = line.arrive(cost) {
                        prop_assert!(has_left || turn >= last, "{turn} before {last}");
                        turns.push((burst, turn));
                    }
                }
                event => {
                    has_left |= matches!(event, Event::GiveBack { .. });
                    line.step(event);
                }
            }
        }
        line.budget.quota = if burst > quota.capacity() {
            other
        } else {
            quota
        };
        line.is_within_worst_case()
    });
}

/// A request that comes after a step back passes no earlier than without it, if none has left: a free place that was over may
/// be to come once more.
#[test]
fn a_step_back_of_the_clock_lets_nobody_pass_earlier() {
    let histories = (waiting(), events(40), 1_u64..400);
    check(4_000, &histories, |(quota, events, sixteenths)| {
        let mut line = Line::of(quota, 1_000 * 3_600 * SECOND);
        for event in events {
            if !matches!(event, Event::GiveBack { .. }) {
                line.step(event);
            }
        }
        let stepped = line.now - sixteenths * SECOND / 16;
        for cost in 1..=quota.capacity() {
            let before = line.budget.if_charged(line.now, cost);
            let after = line.budget.if_charged(stepped, cost);
            if after.is_allowed() {
                prop_assert!(before.is_allowed() && after.wait() >= before.wait());
            }
        }
        Ok(())
    });
}

#[test]
fn from_the_very_moment_of_the_last_turn_on_credits_count_again() {
    for (before_us, next) in [(1, 2 * SECOND), (0, SECOND)] {
        // given two units that pass at once, and one that passes a second later
        let mut line = slow(2);
        assert_eq!(line.arrive(2), Some(START));
        assert_eq!(line.arrive(1), Some(START + SECOND));

        // when the two are given back at that moment, or a microsecond before it
        line.now = START + SECOND - before_us;
        line.give_back(1, 2);

        // then what was still to drain of them comes back, or nothing
        assert_eq!(line.arrive(1), Some(START + next), "{before_us} before");
    }
}

/// The places of a line move up with what stands behind a credit, and a free one among them would not be where it was.
#[test]
fn a_credit_when_the_last_has_passed_forgets_the_free_places() {
    // given four that pass at once, one that leaves, and one that has passed behind it
    let mut line = slow(4);
    for (cost, turn) in [(4, 0), (1, 1), (1, 2)] {
        assert_eq!(line.arrive(cost), Some(START + turn * SECOND));
    }
    line.now += SECOND / 2;
    assert_eq!(line.give_back(1, 1), Some(true));
    line.now = START + 2 * SECOND;

    // when two of the four come back
    line.give_back(2, 4);

    // then two pass, and no third in the place of the one that left
    let turns = [0, 0, 1].map(|turn| Some(line.now + turn * SECOND));
    assert_eq!([(); 3].map(|()| line.arrive(1)), turns);
}

/// A charge that passes now stands at the end of the queue, and leaves the free places to charges that would have to wait.
#[test]
fn what_fits_at_the_end_takes_no_free_place() {
    // given a free place of two, which is about to drain, and room for one at the end
    let mut line = slow(4);
    for (cost, turn) in [(4, 0), (2, 2), (1, 3)] {
        assert_eq!(line.arrive(cost), Some(START + turn * SECOND));
    }
    line.give_back(1, 2);
    line.now = START + 4 * SECOND;
    assert_eq!(line.budget.peek(line.now).remaining(), 2);

    // then one passes, and two behind it
    for cost in [1, 2] {
        assert_eq!(line.arrive(cost), Some(line.now), "{cost}");
    }
}

#[test]
fn a_cost_of_nothing_waits_for_no_free_place() {
    let mut line = slow(1);
    for turn in 0..5 {
        assert_eq!(line.arrive(1), Some(START + turn * SECOND));
    }
    line.give_back(1, 1);

    let nothing = line.budget.if_charged(line.now, 0);

    assert!(nothing.is_allowed() && nothing.wait().is_zero());
}

/// Also if an interval is not a whole number of microseconds.
#[test]
fn as_many_wait_as_have_their_turn_within_the_wait() {
    let second = [1, 3, 7, 9, 10, 1_000].map(|limit| (limit, SECOND));
    let faster = [(5_000, SECOND / 10), (700_000, 1_000), (1_000_000, 1_000)];
    for (limit, wait_us) in second.into_iter().chain(faster) {
        let quota = Quota::per_second(limit).burst(1);
        let mut line = Line::of(quota.wait_up_to(Duration::from_micros(wait_us)), START);
        for turn in 0..=limit * wait_us / SECOND {
            let at = START + (turn * SECOND).div_ceil(limit);
            assert_eq!(line.arrive(1), Some(at), "{turn} of {limit}");
        }
        assert_eq!(line.arrive(1), None, "{limit}");
    }
}

#[test]
fn a_wait_is_a_microsecond_at_least_and_an_hour_and_a_thousand_intervals_at_most() {
    let us = Duration::from_micros;
    let fast = Quota::per_second(10);
    let slow = Quota::per_minute(1);
    let held = Quota::from(Concurrent::at_most(2));
    for (quota, longest) in [
        (fast, us(100 * SECOND)),
        (slow, us(3_600 * SECOND)),
        (held, us(3_600 * SECOND)),
    ] {
        for none in [Duration::ZERO, Duration::from_nanos(999)] {
            assert_eq!(quota.try_wait_up_to(none), Err(QuotaError::ZeroWait));
        }
        let wait = longest + us(1);
        let too_long = Err(QuotaError::WaitTooLong { wait });
        assert_eq!(quota.try_wait_up_to(wait), too_long);
        assert_eq!((quota.longest_wait(), quota.waits()), (us(0), false));
        for wait in [us(1), us(7), longest] {
            let waits = quota.try_wait_up_to(wait).unwrap();
            assert_eq!((waits.longest_wait(), waits.waits()), (wait, true));
            assert_eq!(waits.waiting_at_most(wait + us(1)), waits);
        }
    }
    let window = fast.using(Algorithm::SlidingWindow);
    assert_eq!(window.try_wait_up_to(us(1)), Err(QuotaError::WaitOfWindow));
    assert_eq!(window.waiting_at_most(us(1)), window);
    assert_eq!((window.longest_wait(), window.waits()), (us(0), false));

    // For one request it may be shorter, down to nothing.
    let waits = fast.wait_up_to(us(9));
    let shorter = [8, 0].map(|most| waits.waiting_at_most(us(most)));
    assert_eq!(shorter.map(|quota| quota.longest_wait()), [us(8), us(0)]);
    assert!(shorter.iter().all(Quota::waits));
    // A quota keeps it when its burst changes, and becomes no window with it.
    assert_eq!(waits.burst(3), fast.burst(3).wait_up_to(us(9)));
    assert_eq!(
        waits.try_using(Algorithm::SlidingWindow),
        Err(QuotaError::WaitOfWindow)
    );
}

/// A request goes on after the longest of its waits. A quota on trial delays no request, and a refused request waits for none.
#[test]
fn a_request_waits_for_the_longest_of_its_turns() {
    let key = Key::from("alice");
    let wait = Duration::from_secs(9);
    let quotas = [1, 2, 4].map(|limit| Quota::per_second(limit).burst(1).wait_up_to(wait));
    for (modes, waits) in [
        (
            [Mode::Enforce, Mode::Enforce, Mode::Enforce],
            [0, 1_000, 2_000],
        ),
        (
            [Mode::Shadow, Mode::Enforce, Mode::Enforce],
            [0, 500, 1_000],
        ),
        ([Mode::Shadow, Mode::Probe, Mode::Enforce], [0, 250, 500]),
    ] {
        let mut states = quotas.map(|quota| State::full(&quota));
        let charges = [0, 1, 2].map(|slot| Charge {
            scope: Scope::of("turns", slot, &quotas[usize::from(slot)]),
            quota: &quotas[usize::from(slot)],
            key: &key,
            cost: 1,
            mode: modes[usize::from(slot)],
        });
        for millis in waits {
            let decision = decide(
                Timestamp::from_micros(START),
                Call::of(&charges),
                &mut states[..],
            );
            assert_eq!(decision.wait(), Duration::from_millis(millis), "{modes:?}");
        }
        // One that can never pass.
        let mut charges = charges;
        charges[2].cost = 2;
        let before = states.each_ref().map(State::snapshot);
        let decision = decide(
            Timestamp::from_micros(START),
            Call::of(&charges),
            &mut states[..],
        );
        assert!(!decision.is_admitted());
        assert_eq!(decision.wait(), Duration::ZERO);
        assert_eq!(states[2].snapshot(), before[2]);
    }
}
