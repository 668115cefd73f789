//! The days and weeks of UTC are windows of a fixed length: whatever is said of those holds for windows of a calendar.

use std::time::Duration;

use proptest::prelude::*;
use tollgate_core::{Algorithm, Calendar, Quota, Zone};

use crate::support::budget::{Budget, micros};
use crate::support::history::History;
use crate::support::runner::check;
use crate::support::steps::{Span, Step, amounts, spans};

const DAY: Duration = Duration::from_secs(86_400);

/// A quota by the calendar, and a fixed window that is the same. The epoch was a Thursday.
fn twins() -> impl Strategy<Value = [Quota; 2]> {
    let calendars = [
        ("day in UTC", 1, 0),
        ("week in UTC", 7, 4),
        ("week in UTC from sunday", 7, 3),
        ("week in UTC from thursday", 7, 0),
    ];
    let limits = prop_oneof![4 => 1_u64..=6, 1 => 1_u64..=1 << 40];
    (limits, prop::sample::select(calendars.to_vec())).prop_map(|(limit, (text, days, offset))| {
        let calendar = format!("{limit}/{text}").parse().unwrap();
        let offset = offset * DAY;
        let window = Algorithm::FixedWindow { offset };
        [
            calendar,
            Quota::try_with(limit, days * DAY, window).unwrap(),
        ]
    })
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Step(Step),
    Back(Span),
    /// Asks while the clock shows another time for a moment.
    Flicker(Span, bool),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => spans().prop_map(|span| Event::Step(Step::Wait(span))),
        5 => amounts().prop_map(|amount| Event::Step(Step::Charge(amount))),
        3 => (any::<usize>(), amounts()).prop_map(|(n, amount)| Event::Step(Step::Credit(n, amount))),
        1 => amounts().prop_map(|amount| Event::Step(Step::Debit(amount))),
        1 => spans().prop_map(Event::Back),
        1 => (spans(), any::<bool>()).prop_map(|(span, is_ahead)| Event::Flicker(span, is_ahead)),
    ];
    prop::collection::vec(event, 1..40)
}

#[test]
fn a_day_and_a_week_of_utc_are_decided_as_fixed_windows_whatever_the_clock_does() {
    let starts = 1_700_000_000_000_000_u64..1_900_000_000_000_000;
    check(
        4_000,
        &(twins(), starts, events()),
        |(twins, start, events)| {
            let [mut ours, mut theirs] = twins.map(|quota| History::of(quota, start));
            let fixed = twins[1];
            for event in events {
                let now = theirs.now;
                match event {
                    // Its length depends on where the windows of the quota begin.
                    Event::Step(Step::Wait(span)) => ours.now = now + span.micros(&fixed, now),
                    Event::Step(step) => {
                        ours.step(step);
                        theirs.step(step);
                    }
                    Event::Back(span) => ours.now = now - span.micros(&fixed, now),
                    Event::Flicker(span, is_ahead) => {
                        let span = span.micros(&fixed, now);
                        let then = if is_ahead { now + span } else { now - span };
                        let said = [&mut ours, &mut theirs].map(|it| it.budget.charge(then, 1).0);
                        prop_assert_eq!(said[0], said[1], "at {}", then);
                    }
                }
                theirs.now = ours.now;
                for at in theirs.later() {
                    prop_assert_eq!(ours.budget.peek(at), theirs.budget.peek(at), "at {}", at);
                }
                let [ours, theirs] = [&ours, &theirs].map(|it| it.budget.meaningless_at());
                // A state that was asked for and holds nothing ends with its window.
                prop_assert_eq!(ours, theirs);
            }
            Ok(())
        },
    );
}

/// Where a window is shorter than the usual, all of three may meet in the usual length; in the length of the shortest, all of two.
#[test]
fn no_time_as_long_as_the_shortest_window_lets_through_more_than_twice_the_limit() {
    let zones = [
        "Europe/Berlin",
        "America/Havana",
        "Pacific/Apia",
        "Australia/Lord_Howe",
    ];
    let histories = (
        prop::sample::select(zones.to_vec()),
        1_300_000_000_000_000_u64..1_800_000_000_000_000,
        prop::collection::vec((spans(), amounts()), 1..60),
    );
    check(1_000, &histories, |(zone, start, charges)| {
        let zone: Zone = zone.parse().unwrap();
        let quota = Quota::per_calendar(5, Calendar::day(zone));
        let mut budget = Budget::full(quota);
        let (mut now, mut admitted) = (start, Vec::new());
        for (span, amount) in charges {
            now += span.micros(&quota, now) / 3;
            let cost = amount.units(&budget, now);
            if budget.charge(now, cost).0.is_allowed() {
                admitted.push((now, cost));
            }
        }
        let shortest = 23 * 3_600 * 1_000_000;
        for (from, _) in &admitted {
            let inside = admitted
                .iter()
                .filter(|(at, _)| (*from..from + shortest).contains(at));
            prop_assert!(inside.map(|(_, cost)| cost).sum::<u64>() <= 10);
        }
        prop_assert!(micros(quota.period()) > shortest);
        Ok(())
    });
}
