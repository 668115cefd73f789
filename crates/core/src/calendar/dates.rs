//! The dates of calendars: where windows begin and end.

use chrono::{
    DateTime, Datelike, Days, MappedLocalTime, Months, NaiveDate, NaiveTime, Offset, TimeZone,
};
use chrono_tz::{GapInfo, TZ_VARIANTS, Tz};

use super::span::Span;

/// A zone of the list.
pub(super) type Known = Tz;

/// The expectation of a text that should name a zone.
pub(super) const EXPECTED: &str =
    "a time zone of the IANA's list, such as UTC, Europe/Berlin or America/New_York";

const SECOND_US: u64 = 1_000_000;

pub(super) fn find(name: &str) -> Option<Known> {
    let zones = TZ_VARIANTS.iter();
    let mut named = zones.filter(|zone| zone.name().eq_ignore_ascii_case(name));
    named.next().copied()
}

pub(super) fn name(zone: Known) -> &'static str {
    zone.name()
}

/// A window: its first day and that of the next, and their first instants, in seconds since the epoch.
pub(super) struct Window {
    first: NaiveDate,
    start_s: i64,
    next: NaiveDate,
    end_s: i64,
}

impl Window {
    pub(super) fn holding(span: Span, zone: Known, time_us: u64) -> Self {
        let time_s = i64::try_from(time_us / SECOND_US).unwrap_or(i64::MAX);
        let utc = DateTime::from_timestamp(time_s, 0).unwrap_or_default();
        let date = utc.with_timezone(&zone).date_naive();
        let first = first_day(span, date);
        let mut window = Self::starting(span, zone, first, start(zone, first));
        // Clocks that go back over midnight show the evening of a day that is over.
        while window.end_s <= time_s {
            window = window.following(span, zone);
        }
        window
    }

    /// Days that the zone's clocks skip have no window.
    fn starting(span: Span, zone: Known, first: NaiveDate, start_s: i64) -> Self {
        let mut next = next_day(span, first);
        let mut end_s = start(zone, next);
        while end_s <= start_s {
            next = next_day(span, next);
            end_s = start(zone, next);
        }
        Self {
            first,
            start_s,
            next,
            end_s,
        }
    }

    pub(super) fn following(&self, span: Span, zone: Known) -> Self {
        Self::starting(span, zone, self.next, self.end_s)
    }

    pub(super) fn preceding(&self, span: Span, zone: Known) -> Self {
        let mut first = previous_day(span, self.first);
        let mut start_s = start(zone, first);
        while start_s >= self.start_s {
            first = previous_day(span, first);
            start_s = start(zone, first);
        }
        Self {
            first,
            start_s,
            next: self.first,
            end_s: self.start_s,
        }
    }

    pub(super) fn start_us(&self) -> u64 {
        micros(self.start_s)
    }

    pub(super) fn end_us(&self) -> u64 {
        micros(self.end_s)
    }
}

/// 0 before the epoch.
fn micros(seconds: i64) -> u64 {
    u64::try_from(seconds)
        .unwrap_or(0)
        .saturating_mul(SECOND_US)
}

/// The first instant at which the zone's clocks show this day or a later one.
fn start(zone: Tz, day: NaiveDate) -> i64 {
    let midnight = day.and_time(NaiveTime::MIN);
    match zone.from_local_datetime(&midnight) {
        MappedLocalTime::Single(time) | MappedLocalTime::Ambiguous(time, _) => time.timestamp(),
        // The clocks skip midnight: the day begins when they do so.
        MappedLocalTime::None => {
            let gap = GapInfo::new(&midnight, &zone).and_then(|gap| gap.begin);
            let (begin, offset) = gap.map_or((midnight, 0), |(begin, offset)| {
                (begin, offset.fix().local_minus_utc())
            });
            begin.and_utc().timestamp() - i64::from(offset)
        }
    }
}

/// The first day of the window that holds this one.
fn first_day(span: Span, date: NaiveDate) -> NaiveDate {
    let first = match span {
        Span::Day => Some(date),
        Span::Week { weekday } => {
            let days = (date.weekday().number_from_monday() + 7 - u32::from(weekday)) % 7;
            date.checked_sub_days(Days::new(u64::from(days)))
        }
        Span::Month { day } => date.with_day(u32::from(day)),
        Span::Year { month, day } => {
            NaiveDate::from_ymd_opt(date.year(), u32::from(month), u32::from(day))
        }
    };
    match first {
        Some(first) if first > date => previous_day(span, first),
        first => first.unwrap_or(date),
    }
}

// A date that cannot be told is beyond all times.
fn next_day(span: Span, first: NaiveDate) -> NaiveDate {
    let next = match span {
        Span::Day => first.checked_add_days(Days::new(1)),
        Span::Week { .. } => first.checked_add_days(Days::new(7)),
        Span::Month { .. } => first.checked_add_months(Months::new(1)),
        Span::Year { .. } => first.checked_add_months(Months::new(12)),
    };
    next.unwrap_or(NaiveDate::MAX)
}

fn previous_day(span: Span, first: NaiveDate) -> NaiveDate {
    let previous = match span {
        Span::Day => first.checked_sub_days(Days::new(1)),
        Span::Week { .. } => first.checked_sub_days(Days::new(7)),
        Span::Month { .. } => first.checked_sub_months(Months::new(1)),
        Span::Year { .. } => first.checked_sub_months(Months::new(12)),
    };
    previous.unwrap_or(NaiveDate::MIN)
}
