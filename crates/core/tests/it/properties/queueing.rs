//! Turns: a waiting request passes at its promised time, whichever others leave, and all that passes is within the quota's worst
//! case.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use tollgate_core::{
    Call, Charge, Key, Mode, Quota, Receipt, Scope, State, States, Timestamp, Verdict, decide,
};

use crate::support::budget::{Budget, micros, receipt_of};
use crate::support::quotas;
use crate::support::runner::{check, rng};
use tollgate_testkit::{cases, seed};

/// One event of a history.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// Time passes, in sixteenths of the interval.
    Pause(u64),
    Arrive {
        cost: u64,
    },
    /// A charge gives back a part, whether its turn has come or not. Counted from the latest.
    GiveBack {
        which: usize,
        cost: u64,
    },
    Debit {
        cost: u64,
    },
}

/// A charge that was taken.
#[derive(Debug)]
pub(crate) struct Charged {
    /// The time at which it passes.
    pub(crate) turn: u64,
    cost: u64,
    receipt: Option<Receipt>,
}

/// A bucket with a queue, and what was charged to it.
pub(crate) struct Line {
    pub(crate) budget: Budget,
    pub(crate) now: u64,
    charged: Vec<Charged>,
}

impl Line {
    pub(crate) fn of(quota: Quota, start: u64) -> Self {
        Self {
            budget: Budget::full(quota),
            now: start,
            charged: Vec::new(),
        }
    }

    /// The latest turn of the waiting requests; `None` if there are none.
    fn waits_until(&self) -> Option<u64> {
        let waiting = self.charged.iter().filter(|it| it.cost > 0);
        let turns = waiting.map(|it| it.turn);
        turns.filter(|turn| *turn > self.now).max()
    }

    /// The turn, if the charge passes.
    pub(crate) fn arrive(&mut self, cost: u64) -> Option<u64> {
        let (verdict, receipt) = self.budget.charge(self.now, cost);
        let turn = self.now + micros(verdict.wait());
        if !verdict.is_allowed() {
            return None;
        }
        self.charged.push(Charged {
            turn,
            cost,
            receipt,
        });
        Some(turn)
    }

    /// Gives back, and says if that was before the turn had come.
    pub(crate) fn give_back(&mut self, which: usize, cost: u64) -> Option<bool> {
        let at = self.charged.len().checked_sub(1 + which)?;
        let charged = &mut self.charged[at];
        let receipt = charged.receipt.as_mut()?.split_off(cost);
        let cost = receipt.cost();
        charged.cost -= cost;
        let is_early = charged.turn > self.now;
        self.budget.refund(self.now, &receipt, cost);
        Some(is_early && cost > 0)
    }

    fn debit(&mut self, cost: u64) {
        let receipt = receipt_of(self.budget.quota);
        self.budget.debit(self.now, &receipt, cost);
    }

    pub(crate) fn step(&mut self, event: Event) {
        match event {
            Event::Pause(sixteenths) => self.pause(sixteenths),
            Event::Arrive { cost } => {
                self.arrive(cost);
            }
            Event::GiveBack { which, cost } => {
                self.give_back(which, cost);
            }
            Event::Debit { cost } => self.debit(cost),
        }
    }

    fn pause(&mut self, sixteenths: u64) {
        let quota = self.budget.quota;
        self.now += sixteenths * micros(quota.period()) / (16 * quota.limit());
    }

    /// In no stretch of time does more pass than a burst and what the rate gives in it and in a microsecond.
    pub(crate) fn is_within_worst_case(&self) -> TestCaseResult {
        self.is_within_worst_case_since(0)
    }

    /// The number of charges that were taken.
    pub(crate) const fn taken(&self) -> usize {
        self.charged.len()
    }

    /// The worst case holds also without the earliest charges, whose number this is.
    pub(crate) fn is_within_worst_case_since(&self, first: usize) -> TestCaseResult {
        let quota = self.budget.quota;
        let period = u128::from(micros(quota.period()));
        let (limit, burst) = (u128::from(quota.limit()), u128::from(quota.capacity()));
        let mut passed: Vec<_> = self.charged[first..]
            .iter()
            .map(|it| (it.turn, it.cost))
            .collect();
        passed.sort_unstable();
        for (first, (from, _)) in passed.iter().enumerate() {
            let mut sum = 0;
            for (until, cost) in &passed[first..] {
                sum += u128::from(*cost);
                // A turn is rounded up to a microsecond, so the first may pass up to that much late.
                let most = burst * period + u128::from(until - from + 1) * limit;
                prop_assert!(
                    sum * period < most,
                    "{sum} units pass between {from} and {until}: {:?}",
                    self.charged
                );
            }
        }
        Ok(())
    }
}

pub(crate) fn events(most: usize) -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        3 => prop_oneof![0_u64..40, 0_u64..4].prop_map(Event::Pause),
        6 => costs().prop_map(|cost| Event::Arrive { cost }),
        3 => (0_usize..12, costs()).prop_map(|(which, cost)| Event::GiveBack { which, cost }),
        1 => costs().prop_map(|cost| Event::Debit { cost }),
    ];
    prop::collection::vec(event, 1..most)
}

fn costs() -> impl Strategy<Value = u64> {
    prop_oneof![3 => Just(1), 1 => 0_u64..6]
}

/// A small bucket whose charges may wait for some intervals.
pub(crate) fn waiting() -> impl Strategy<Value = Quota> {
    let buckets = prop_oneof![
        1 => quotas::tiny_gcra(),
        2 => (1_u64..=9, 1_u64..=7).prop_map(|(limit, burst)| Quota::per_second(limit).burst(burst)),
    ];
    (buckets, 1_u64..=16).prop_filter_map("no such wait", |(quota, sixteenths)| {
        let interval = quota.period() / u32::try_from(quota.limit()).ok()?;
        let wait = interval * u32::try_from(sixteenths * sixteenths).ok()? / 16;
        quota.try_wait_up_to(wait).ok()
    })
}

fn nothing_passes_beyond_the_worst_case(
    quota: Quota,
    start: u64,
    events: &[Event],
) -> TestCaseResult {
    let mut line = Line::of(quota, start);
    for event in events {
        line.step(*event);
    }
    line.is_within_worst_case()
}

#[test]
fn whoever_leaves_and_whatever_is_credited_no_stretch_of_time_sees_too_much() {
    check(
        10_000,
        &(waiting(), 1_000_u64..2_000, events(40)),
        |(quota, start, events)| nothing_passes_beyond_the_worst_case(quota, start, &events),
    );
}

/// Requests pass in the order of their arrival if none before them leaves.
#[test]
fn without_departures_nobody_overtakes() {
    check(4_000, &(waiting(), events(40)), |(quota, events)| {
        let mut line = Line::of(quota, 1_000);
        for event in events {
            match event {
                Event::Pause(sixteenths) => line.pause(sixteenths),
                Event::Arrive { cost: 0 } | Event::Debit { .. } => {}
                Event::Arrive { cost } => {
                    let last = line.waits_until().unwrap_or(line.now);
                    if let Some(turn) = line.arrive(cost) {
                        prop_assert!(turn >= last, "{turn} before {last}");
                    }
                }
                Event::GiveBack { which, cost } => {
                    let count = line.charged.len();
                    let passed = line.charged.iter().rev().nth(which);
                    if passed.is_some_and(|it| it.turn <= line.now) && count > which {
                        line.give_back(which, cost);
                    }
                }
            }
        }
        Ok(())
    });
}

/// While a request waits, a credit of a charge that has passed lets no request pass earlier, whichever requests have left and in
/// which parts. In the second half of the histories, two quotas share the line, as in a deploy.
#[test]
fn a_credit_lets_nobody_pass_earlier_while_anybody_waits() {
    let quotas = (waiting(), prop::option::of(waiting()));
    check(8_000, &(quotas, events(40)), |((quota, other), events)| {
        let mut line = Line::of(quota, 1_000);
        for (number, event) in events.into_iter().enumerate() {
            line.budget.quota = other.filter(|_| number % 3 == 1).unwrap_or(quota);
            let quota = line.budget.quota;
            match event {
                Event::GiveBack { which, cost } => {
                    let before = line.budget.clone();
                    let is_early = line.give_back(which, cost);
                    if is_early == Some(false) && line.waits_until().is_some() {
                        for cost in 1..=quota.capacity() {
                            let (with, _) = line.budget.clone().charge(line.now, cost);
                            let (without, _) = before.clone().charge(line.now, cost);
                            let passes = |it: &Verdict| (it.is_allowed(), it.wait());
                            prop_assert_eq!(passes(&with), passes(&without));
                        }
                    }
                }
                event => line.step(event),
            }
        }
        Ok(())
    });
}

/// Once all that waited have left, credits count as without a line as soon as everything charged by then has drained.
#[test]
fn credits_count_again_soon_after_the_last_who_waited_has_left() {
    let long = Quota::per_second(1)
        .burst(3)
        .wait_up_to(Duration::from_secs(900));
    let quotas = prop_oneof![3 => waiting(), 1 => Just(long)];
    check(
        4_000,
        &(quotas, events(40), 0_u64..3),
        |(quota, events, later)| {
            // given a history without debts, all of whose charges that still wait leave, the last one first
            let mut line = Line::of(quota, 1_000);
            for event in events {
                if !matches!(event, Event::Debit { .. }) {
                    line.step(event);
                }
            }
            let by_turn = |line: &Line| {
                let charged = line.charged.iter().rev().enumerate();
                let waiting = charged.filter(|(_, it)| it.cost > 0 && it.turn > line.now);
                waiting
                    .max_by_key(|(_, it)| it.receipt.as_ref().map(Receipt::full_at))
                    .map(|(which, _)| which)
            };
            let mut is_broken = false;
            while let Some(which) = by_turn(&line) {
                let left = line.budget.peek(line.now).reset_after();
                line.give_back(which, u64::MAX);
                is_broken |= line.budget.peek(line.now).reset_after() == left;
            }
            // The places of those that left in parts, or past 32 others, may be lost.
            prop_assume!(!is_broken);

            // when all has drained, and a microsecond later, since credits of one microsecond are not told apart
            let drained = line.now + micros(line.budget.peek(line.now).reset_after());
            line.now = drained + 1 + later;

            // then a charge that passes comes back whole
            let before = line.budget.peek(line.now).remaining();
            prop_assert_eq!(before, quota.capacity());
            line.arrive(quota.capacity()).expect("it fits");
            line.give_back(0, u64::MAX);
            prop_assert_eq!(line.budget.peek(line.now).remaining(), before);
            Ok(())
        },
    );
}

/// A thousand intervals are promised and given back: the credits of others count again after one.
#[test]
fn who_leaves_at_once_keeps_no_credit_of_others_from_counting() {
    let quota = Quota::per_second(1).wait_up_to(Duration::from_secs(1_000));
    let mut line = Line::of(quota, 1_000_000);
    for _ in 0..=1_000 {
        line.arrive(1).unwrap();
    }
    for _ in 0..1_000 {
        line.give_back(0, 1);
        line.charged.pop();
    }
    // The first has passed, and drains for a second.
    line.now += 1_000_000;
    let turn = line.arrive(1).unwrap();
    assert_eq!(turn, line.now);

    line.now += 1;
    line.give_back(0, 1);

    assert_eq!(line.arrive(1), Some(line.now));
}

/// A denial says when the charge may wait, to the microsecond.
#[test]
fn a_refused_charge_may_wait_when_it_was_said_and_not_earlier() {
    check(4_000, &(waiting(), events(40)), |(quota, events)| {
        let mut line = Line::of(quota, 1_000);
        for event in events {
            match event {
                Event::Arrive { cost } => {
                    let before = line.budget.clone();
                    let (verdict, _) = before.clone().charge(line.now, cost);
                    if let Some(retry_after) = verdict.retry_after() {
                        let at = line.now + micros(retry_after);
                        let (then, _) = before.clone().charge(at, cost);
                        prop_assert!(then.is_allowed(), "refused after {retry_after:?}");
                        prop_assert!(then.wait() <= quota.longest_wait());
                        let (earlier, _) = before.clone().charge(at - 1, cost);
                        prop_assert!(earlier.is_denied(), "passes before {retry_after:?}");
                    }
                    let remaining = before.peek(line.now).remaining();
                    for cost in 1..=quota.capacity() {
                        let (verdict, _) = before.clone().charge(line.now, cost);
                        let passes_now = verdict.is_allowed() && verdict.wait().is_zero();
                        prop_assert_eq!(passes_now, cost <= remaining, "{} of {}", cost, remaining);
                    }
                    line.arrive(cost);
                }
                event => line.step(event),
            }
        }
        Ok(())
    });
}

/// The example of the specification: a burst of one, one a second.
#[test]
fn a_credit_of_the_first_does_not_let_the_fifth_pass_early() {
    let quota = Quota::per_second(1).wait_up_to(Duration::from_secs(9));
    let mut line = Line::of(quota, 1_000_000);
    let turns: Vec<_> = (0..4).map(|_| line.arrive(1)).collect();
    assert_eq!(turns, [0, 1, 2, 3].map(|s| Some(1_000_000 + s * 1_000_000)));

    line.now += 500_000;
    line.give_back(3, 1);

    assert_eq!(line.arrive(1), Some(5_000_000));
}

/// A place in the middle goes to the next request that fits, and those behind it pass at their promised times.
#[test]
fn a_place_that_became_free_goes_to_the_next_who_fits() {
    let quota = Quota::per_second(1)
        .burst(2)
        .wait_up_to(Duration::from_secs(9));
    let mut line = Line::of(quota, 1_000_000);
    for _ in 0..6 {
        line.arrive(1).unwrap();
    }
    line.now += 500_000;
    // The fourth, whose turn would come two seconds after the start.
    line.give_back(2, 1);

    // A heavier request does not fit into its place.
    assert_eq!(line.arrive(2), Some(7_000_000));
    assert_eq!(line.arrive(1), Some(3_000_000));
    assert_eq!(line.arrive(1), Some(8_000_000));
}

#[test]
fn the_last_gives_its_turn_back_with_the_places_before_it() {
    let quota = Quota::per_second(1).wait_up_to(Duration::from_secs(9));
    let mut line = Line::of(quota, 1_000_000);
    for _ in 0..5 {
        line.arrive(1).unwrap();
    }
    line.give_back(1, 1);
    line.give_back(2, 1);
    line.give_back(0, 1);
    // Only the second still waits.
    assert_eq!(line.arrive(1), Some(3_000_000));
}

/// A charge passes at once in a place that became free. No turn was promised to it, and so a credit counts after its time has come
/// again by a clock that stepped back.
#[test]
fn a_charge_that_passes_at_once_promises_no_turn() {
    let quota = Quota::per_second(1)
        .burst(3)
        .wait_up_to(Duration::from_secs(9));
    let mut line = Line::of(quota, 10_000_000);
    let turns: Vec<_> = (0..5).filter_map(|_| line.arrive(1)).collect();
    assert_eq!(turns, [10, 10, 10, 11, 12].map(|s| s * 1_000_000));
    line.now += 500_000;
    assert_eq!(line.give_back(1, 1), Some(true));
    line.now = 12_500_000;
    assert_eq!(line.arrive(1), Some(12_500_000));

    // The third still shows for 0.8 seconds.
    line.now = 12_200_000;
    assert_eq!(line.give_back(3, 1), Some(false));

    assert_eq!(line.arrive(2), Some(13_200_000));
}

/// More than a debt may reach: a thousand intervals beside a burst of one.
#[test]
fn a_long_queue_is_no_clock_that_stepped_back() {
    let quota = Quota::per_second(1).wait_up_to(Duration::from_secs(1_000));
    let mut line = Line::of(quota, 1_000_000);
    for turn in 0..=1_000 {
        assert_eq!(line.arrive(1), Some((turn + 1) * 1_000_000));
    }
    assert_eq!(line.arrive(1), None);
    // A quota without a wait, as of a deploy, leaves it alone.
    let plain = Quota::per_second(1);
    let mut other = Budget {
        quota: plain,
        ..line.budget.clone()
    };
    let (verdict, _) = other.charge(line.now, 1);
    assert_eq!(verdict.retry_after(), Some(Duration::from_secs(1_001)));
    let mut line = Line {
        budget: Budget { quota, ..other },
        ..line
    };
    line.now += 1_000_000;
    assert_eq!(line.arrive(1), Some(1_002_000_000));
}

/// Twice as many come as the rate lets through, all may wait for sixteen intervals, and a quarter of them leave at some moment
/// before their turn. At most a twenty-fifth of the rate is lost. If only the last could give a turn back, 24 of 100 would be.
#[test]
fn little_of_the_rate_is_lost_to_those_who_leave() {
    const INTERVAL: u64 = 10_000;
    const ARRIVALS: u64 = 20_000;

    let mut random = rng(seed());
    let mut below = |most: u64| random.next_u64() % most;
    for burst in [1, 3, 10] {
        let quota = Quota::per_second(100)
            .burst(burst)
            .wait_up_to(Duration::from_micros(16 * INTERVAL));
        let mut line = Line::of(quota, 1_000_000);
        // The times at which callers leave, and their charges.
        let mut leaves: Vec<(u64, usize)> = Vec::new();
        let start = line.now;
        for _ in 0..cases(ARRIVALS) {
            let next = line.now + below(INTERVAL);
            while let Some(at) = leaves.iter().position(|(at, _)| *at <= next) {
                let (at, charge) = leaves.remove(at);
                line.now = line.now.max(at);
                let latest = line.charged.len() - 1 - charge;
                line.give_back(latest, 1);
            }
            line.now = next;
            if let Some(turn) = line.arrive(1)
                && turn > next
                && below(4) == 0
            {
                leaves.push((next + below(turn - next), line.charged.len() - 1));
                leaves.sort_unstable();
            }
        }
        let passed = line.charged.iter().filter(|it| it.turn <= line.now);
        let passed: u64 = passed.map(|it| it.cost).sum();
        let possible = (line.now - start) / INTERVAL + burst;
        let lost = (possible - passed) * 1_000 / possible;
        assert!(
            lost <= 40,
            "with a burst of {burst} {lost} of 1000 are lost"
        );
        println!("with a burst of {burst}, {lost} of 1000 are lost to those who leave");
    }
}

/// A thousand stand in line, and some of them leave at one moment, once for each thousand intervals. Of the places that become free
/// in the middle a line keeps 32, and so loses nothing of a burst of so few. Of one of more it loses a part of what was given back.
#[test]
fn a_burst_of_departures_from_a_long_line_loses_no_more_than_it_gave_back_beyond_32_places() {
    const INTERVAL: u64 = 10_000;
    const LINE: u64 = 1_000;
    const BURSTS: u64 = 10;

    let mut random = rng(seed());
    let mut below = |most: u64| random.next_u64() % most;
    for (leaving, most_lost) in [(32, 5), (64, 40), (125, 105), (250, 230), (500, 485)] {
        let quota = Quota::per_second(100)
            .burst(1)
            .wait_up_to(Duration::from_micros(LINE * INTERVAL));
        let mut line = Line::of(quota, 1_000_000);
        while line.arrive(1).is_some() {}
        let start = line.now;
        for _ in 0..cases(BURSTS) {
            let end = line.now + LINE * INTERVAL;
            let charged = line.charged.iter().enumerate();
            let waiting = charged.filter(|(_, it)| it.cost > 0 && it.turn > line.now);
            let mut waiting: Vec<_> = waiting.map(|(number, _)| number).collect();
            for _ in 0..leaving {
                let at = usize::try_from(below(waiting.len() as u64)).unwrap();
                let which = line.charged.len() - 1 - waiting.swap_remove(at);
                assert_eq!(line.give_back(which, 1), Some(true));
            }
            while line.now < end {
                line.now += below(INTERVAL);
                line.arrive(1);
            }
        }
        let passed = line.charged.iter().filter(|it| it.turn <= line.now);
        let passed: u64 = passed.map(|it| it.cost).sum();
        let possible = (line.now - start) / INTERVAL + 1;
        let lost = (possible - passed) * 1_000 / possible;
        println!("of 1000 that wait {leaving} leave at one moment: {lost} of 1000 are lost");
        assert!(
            lost <= most_lost,
            "{leaving} leave: {lost} of 1000 are lost"
        );
    }
}

#[test]
fn two_parts_of_a_charge_free_two_stretches() {
    let quota = Quota::per_second(1)
        .burst(4)
        .wait_up_to(Duration::from_secs(9));
    let mut line = Line::of(quota, 1_000_000);
    for cost in [4, 4, 1] {
        line.arrive(cost).unwrap();
    }
    line.give_back(1, 2);
    line.give_back(1, 2);
    // The four seconds of the second are free, once.
    for turn in [2, 3, 4, 5, 7] {
        assert_eq!(line.arrive(1), Some(turn * 1_000_000));
    }
}

/// The state of one key, which all charges of a call name.
struct OneKey<'a>(&'a mut State);

impl States for OneKey<'_> {
    fn state(&mut self, _: usize) -> &mut State {
        self.0
    }
}

/// An event of a history with larger budgets, heavier costs, and callers that wait for less than others.
#[derive(Clone, Debug)]
enum CallEvent {
    Pause(u64),
    Call { costs: Vec<u64>, patience: u64 },
    GiveBack { which: usize, cost: u64 },
    Debit(u64),
    Shadow(u64),
}

fn call_events(most: usize) -> impl Strategy<Value = Vec<CallEvent>> {
    let cost = || prop_oneof![3 => 1_u64..4, 2 => 0_u64..26];
    let event = prop_oneof![
        3 => prop_oneof![0_u64..400, 0_u64..20].prop_map(CallEvent::Pause),
        6 => (prop::collection::vec(cost(), 1..4), prop_oneof![2 => Just(100_000_000_u64), 1 => 0_u64..4_000_000])
            .prop_map(|(costs, patience)| CallEvent::Call { costs, patience }),
        4 => (0_usize..16, cost()).prop_map(|(which, cost)| CallEvent::GiveBack { which, cost }),
        1 => cost().prop_map(CallEvent::Debit),
        1 => cost().prop_map(CallEvent::Shadow),
    ];
    prop::collection::vec(event, 1..most)
}

#[test]
fn calls_of_several_charges_and_callers_of_any_patience_keep_the_worst_case() {
    let quotas = (1_u64..=40, 1_u64..=25, 1_u64..=900).prop_filter_map(
        "no",
        |(limit, burst, sixteenths)| {
            let quota = Quota::per_second(limit).burst(burst);
            let interval = quota.period() / u32::try_from(quota.limit()).ok()?;
            quota
                .try_wait_up_to(interval * u32::try_from(sixteenths).ok()? / 16)
                .ok()
        },
    );
    check(
        10_000,
        &(quotas, 1_000_u64..2_000, call_events(60)),
        |(quota, start, events)| {
            let mut line = Line::of(quota, start);
            let key = Key::from("alice");
            for event in events {
                match event {
                    CallEvent::Pause(n) => line.pause(n),
                    CallEvent::Call { costs, patience } => {
                        let limited = quota.waiting_at_most(Duration::from_micros(patience));
                        let scope = Scope::of("proof", 0, &quota);
                        let charges: Vec<_> = costs
                            .iter()
                            .map(|cost| Charge {
                                scope,
                                quota: &limited,
                                key: &key,
                                cost: *cost,
                                mode: Mode::Enforce,
                            })
                            .collect();
                        let decision = decide(
                            Timestamp::from_micros(line.now),
                            Call::of(&charges),
                            &mut OneKey(&mut line.budget.state),
                        );
                        if !decision.is_admitted() {
                            continue;
                        }
                        let turn = line.now + micros(decision.wait());
                        for ((at, charge), verdict) in
                            charges.iter().enumerate().zip(decision.verdicts())
                        {
                            let full = Charge {
                                quota: &quota,
                                ..*charge
                            };
                            let receipt = Receipt::of(&full, verdict, decision.verdict_at(at));
                            line.charged.push(Charged {
                                turn,
                                cost: charge.cost,
                                receipt,
                            });
                        }
                    }
                    CallEvent::GiveBack { which, cost } => {
                        line.give_back(which, cost);
                    }
                    CallEvent::Debit(cost) => line.debit(cost),
                    CallEvent::Shadow(cost) => {
                        line.budget.decide(line.now, cost, Mode::Shadow);
                    }
                }
            }
            line.is_within_worst_case()
        },
    );
}
