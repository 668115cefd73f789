//! Calendars against the dates of Python's zoneinfo, and quotas by them.
#![cfg(feature = "calendar")]

mod rule;

use std::collections::BTreeSet;

use chrono::{Datelike, Days, NaiveDate};
use tollgate_core::{Calendar, Zone};
use tollgate_testkit::cases;

/// Written by the script beside it.
const BOUNDS: &str = include_str!("calendar/bounds.txt");
const SECOND_US: u64 = 1_000_000;

/// The days of a zone, with their first instants in seconds.
struct ZoneDays {
    zone: Zone,
    starts: Vec<(NaiveDate, u64)>,
}

fn vectors() -> Vec<ZoneDays> {
    let first = NaiveDate::from_ymd_opt(1990, 1, 1).unwrap();
    let count = 18_263;
    let mut zones: Vec<ZoneDays> = Vec::new();
    let mut lines = BOUNDS
        .lines()
        .filter(|line| !line.starts_with('#'))
        .peekable();
    while let Some(name) = lines.next() {
        let mut listed = Vec::new();
        while let Some((day, start)) = lines.peek().and_then(|line| line.split_once(' ')) {
            listed.push((day.parse::<NaiveDate>().unwrap(), start.parse().unwrap()));
            lines.next();
        }
        let mut listed = listed.into_iter().peekable();
        let mut starts: Vec<(NaiveDate, u64)> = Vec::with_capacity(count);
        for day in 0..count as u64 {
            let day = first + Days::new(day);
            let start = match listed.next_if(|(listed, _)| *listed == day) {
                Some((_, start)) => start,
                None => starts.last().unwrap().1 + 86_400,
            };
            starts.push((day, start));
        }
        assert_eq!(listed.next(), None, "{name}");
        zones.push(ZoneDays {
            zone: Zone::named(name),
            starts,
        });
    }
    zones
}

/// Holds a calendar to the starts of its windows, in microseconds. Days that were left out have none.
fn check(calendar: Calendar, starts: impl Iterator<Item = u64>) {
    let starts: BTreeSet<u64> = starts.map(|start| start * SECOND_US).collect();
    let starts: Vec<u64> = starts.into_iter().collect();
    let day_us = 86_400 * SECOND_US;
    // Thousands of days are like the one before.
    let usual_days = usize::try_from(cases(100)).unwrap_or(100).min(100);
    for (number, window) in starts.windows(7).enumerate() {
        let (start, end) = (window[2], window[3]);
        let is_usual = window.windows(2).all(|pair| pair[1] - pair[0] == day_us);
        if is_usual && number % 500 >= usual_days {
            continue;
        }
        for time in [start, start + day_us / 2, end - day_us / 2, end - 1] {
            assert_eq!(calendar.bounds_around(time), window, "{calendar} at {time}");
        }
    }
}

#[test]
fn the_days_weeks_months_and_years_of_a_zone_begin_when_pythons_zoneinfo_says() {
    let zones = vectors();
    assert!(zones.len() >= 20);
    for ZoneDays { zone, starts } in zones {
        let of = |is_first: &dyn Fn(NaiveDate) -> bool| -> Vec<u64> {
            let days = starts.iter().filter(|(day, _)| is_first(*day));
            days.map(|(_, start)| *start).collect()
        };
        let from = |text: &str| -> Calendar { format!("{text} in {zone}").parse().unwrap() };
        let monday = |day: NaiveDate| day.weekday().number_from_monday() == 1;
        check(Calendar::day(zone), of(&|_| true).into_iter());
        check(Calendar::week(zone), of(&monday).into_iter());
        check(Calendar::month(zone), of(&|day| day.day() == 1).into_iter());
        check(
            Calendar::year(zone),
            of(&|day| day.ordinal() == 1).into_iter(),
        );
        check(
            from("week from sunday"),
            of(&|day| day.weekday().number_from_monday() == 7).into_iter(),
        );
        check(
            from("month from 28"),
            of(&|day| day.day() == 28).into_iter(),
        );
        check(
            from("year from 04-06"),
            of(&|day| (day.month(), day.day()) == (4, 6)).into_iter(),
        );
    }
}

#[test]
fn the_vectors_hold_what_clocks_can_do() {
    let lengths = |name: &str| -> BTreeSet<u64> {
        let days = vectors();
        let days = days.iter().find(|days| days.zone.name() == name).unwrap();
        let pairs = days.starts.windows(2);
        pairs.map(|pair| pair[1].1 - pair[0].1).collect()
    };
    let hour = 3_600;
    // Changes of an hour, and of half an hour.
    assert_eq!(
        lengths("Europe/Berlin"),
        [23, 24, 25].map(|h| h * hour).into()
    );
    let half = [47, 48, 49].map(|halves| halves * hour / 2);
    assert_eq!(lengths("Australia/Lord_Howe"), half.into());
    // A day that was left out.
    assert!(lengths("Pacific/Apia").contains(&0));
    assert!(lengths("UTC") == [24 * hour].into());
}
