//! Calendars as people write them: `"month in Europe/Berlin from 15"`.

use std::fmt;
use std::str::FromStr;

use super::Calendar;
use super::span::Span;
use super::zone::Zone;
use crate::ParseQuotaError;
use crate::words::{Word, Words, syntax, words_of};

const FORM: &str = "day, week, month or year, in and a time zone";
const WEEKDAY: &str = "a weekday, such as sunday";
const DAY_OF_MONTH: &str = "a day that every month has: 1 to 28";
const DAY_OF_YEAR: &str = "a month and a day that every year has, such as 04-06";

/// The windows, each with the plural that may be written as well.
const SPANS: [(Span, [&str; 2]); 4] = [
    (Span::Day, ["day", "days"]),
    (Span::Week { weekday: 1 }, ["week", "weeks"]),
    (Span::Month { day: 1 }, ["month", "months"]),
    (Span::Year { month: 1, day: 1 }, ["year", "years"]),
];

const WEEKDAYS: [&str; 7] = [
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
];

/// Words behind a calendar, in the text of a quota.
const BEHIND: [&str; 4] = ["from", "burst", "wait", "with"];

/// Says whether these words are those of a calendar: one with a zone or a first day.
pub(crate) fn is_calendar(words: &[Word]) -> bool {
    let mut words = Words::new(words);
    words.skip("calendar");
    span(&mut words).is_some() && (words.skip("in") || words.skip("from"))
}

impl Calendar {
    pub(crate) fn read(words: &mut Words<'_>) -> Result<Self, ParseQuotaError> {
        words.skip("calendar");
        let mut span = span(words).ok_or_else(|| syntax(words.next(), FORM))?;
        let mut zone = None;
        let mut is_set = false;
        loop {
            if zone.is_none() && words.skip("in") {
                zone = Some(read_zone(words)?);
            } else if !is_set && words.skip("from") {
                span = starting(span, words)?;
                is_set = true;
            } else {
                break;
            }
        }
        match zone {
            Some(zone) => Ok(Self { span, zone }),
            None => Err(syntax(words.next(), "in and a time zone")),
        }
    }

    /// The text in the names of states: `month1@Europe/Berlin`.
    ///
    /// ```
    /// # #[cfg(feature = "calendar")] {
    /// use tollgate::{Calendar, Zone};
    ///
    /// assert_eq!(Calendar::month(Zone::UTC).to_name(), "month1@UTC");
    /// # }
    /// ```
    #[must_use]
    pub fn to_name(self) -> String {
        let zone = self.zone;
        match self.span {
            Span::Day => format!("day@{zone}"),
            Span::Week { weekday } => format!("week{weekday}@{zone}"),
            Span::Month { day } => format!("month{day}@{zone}"),
            Span::Year { month, day } => format!("year{month}-{day}@{zone}"),
        }
    }

    /// The calendar of a text in the names of states; `None` if there is none.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let (span, zone) = name.split_once('@')?;
        let number = |text: &str| text.parse::<u8>().ok();
        let span = if span == "day" {
            Span::Day
        } else if let Some(weekday) = span.strip_prefix("week") {
            let weekday = number(weekday).filter(|weekday| (1..=7).contains(weekday))?;
            Span::Week { weekday }
        } else if let Some(day) = span.strip_prefix("month") {
            let day = number(day).filter(|day| (1..=28).contains(day))?;
            Span::Month { day }
        } else {
            let (month, day) = span.strip_prefix("year")?.split_once('-')?;
            Span::year_from(number(month)?, number(day)?)?
        };
        let zone = zone.parse().ok()?;
        Some(Self { span, zone })
    }
}

fn span(words: &mut Words<'_>) -> Option<Span> {
    let named =
        |(_, names): &&(Span, [&str; 2])| words.rest().first()?.is_one_of(names).then_some(());
    let (span, names) = SPANS.iter().find(|span| named(span).is_some())?;
    words.skip_one_of(names);
    Some(*span)
}

/// The words of a name stand apart: `Etc/GMT+5`.
fn read_zone(words: &mut Words<'_>) -> Result<Zone, ParseQuotaError> {
    let mut name = String::new();
    while let Some(word) = words.next_if(|word| !word.is_one_of(&BEHIND)) {
        name.push_str(word);
    }
    name.parse()
}

/// The windows from the day that the words name.
fn starting(span: Span, words: &mut Words<'_>) -> Result<Span, ParseQuotaError> {
    let word = words.next();
    let small = |text: &str| text.parse::<u8>().ok();
    let (start, expected) = match span {
        Span::Day => (None, "in and a time zone: a day begins at midnight"),
        Span::Week { .. } => {
            let at = WEEKDAYS.iter().position(|name| *name == word);
            let weekday = at.and_then(|at| u8::try_from(at + 1).ok());
            (weekday.map(|weekday| Span::Week { weekday }), WEEKDAY)
        }
        Span::Month { .. } => {
            let day = small(word).filter(|day| (1..=28).contains(day));
            (day.map(|day| Span::Month { day }), DAY_OF_MONTH)
        }
        Span::Year { .. } => {
            let parts = word.split_once('-');
            let span = parts.and_then(|(month, day)| Span::year_from(small(month)?, small(day)?));
            (span, DAY_OF_YEAR)
        }
    };
    start.ok_or_else(|| syntax(word, expected))
}

impl FromStr for Calendar {
    type Err = ParseQuotaError;

    fn from_str(text: &str) -> Result<Self, ParseQuotaError> {
        let words = words_of(text).ok_or_else(|| syntax(text, FORM))?;
        let mut words = Words::new(&words);
        let calendar = Self::read(&mut words)?;
        match words.next() {
            "" => Ok(calendar),
            more => Err(syntax(more, "the end")),
        }
    }
}

/// The form that [`FromStr`] reads back to an equal calendar.
impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let same_kind = |(span, _): &&(Span, _)| {
            std::mem::discriminant(span) == std::mem::discriminant(&self.span)
        };
        let (usual, [name, _]) = SPANS.iter().find(same_kind).unwrap_or(&SPANS[0]);
        write!(f, "{name} in {}", self.zone)?;
        match self.span {
            span if span == *usual => Ok(()),
            Span::Day => Ok(()),
            Span::Week { weekday } => {
                let name = WEEKDAYS.get(usize::from(weekday).wrapping_sub(1));
                write!(f, " from {}", name.unwrap_or(&"monday"))
            }
            Span::Month { day } => write!(f, " from {day}"),
            Span::Year { month, day } => write!(f, " from {month:02}-{day:02}"),
        }
    }
}

#[cfg(all(test, feature = "calendar"))]
mod tests {
    use crate::{Ban, Calendar, Quota};

    #[test]
    fn calendars_are_read_in_many_forms_and_written_in_one() {
        for (text, written) in [
            ("100/day in UTC", "100/day in UTC"),
            ("1000/MONTH in europe/berlin", "1000/month in Europe/Berlin"),
            (
                "1000 requests per calendar month in Europe/Berlin",
                "1000/month in Europe/Berlin",
            ),
            ("1000/month in UTC from 1", "1000/month in UTC"),
            ("1000/month from 15 in UTC", "1000/month in UTC from 15"),
            (
                "7/week in Asia/Tokyo from Sunday",
                "7/week in Asia/Tokyo from sunday",
            ),
            ("7/week in Asia/Tokyo from monday", "7/week in Asia/Tokyo"),
            (
                "9/year in Europe/London from 4-6",
                "9/year in Europe/London from 04-06",
            ),
            ("9/year in Europe/London", "9/year in Europe/London"),
            ("1/day in Etc/GMT+5", "1/day in Etc/GMT+5"),
            ("1/day in Etc/GMT-14", "1/day in Etc/GMT-14"),
            ("1/day in EST5EDT", "1/day in EST5EDT"),
            (
                "1/day in America/Argentina/Buenos_Aires",
                "1/day in America/Argentina/Buenos_Aires",
            ),
        ] {
            let quota: Quota = text
                .parse()
                .unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(quota.to_string(), written, "{text}");
            assert_eq!(written.parse(), Ok(quota));
            let unit = quota.unit();
            assert_eq!(crate::Unit::read(&unit.to_string()), Some(unit));
        }
    }

    #[test]
    fn a_text_of_256_bytes_is_read_and_no_longer_one() {
        let padded = |text: &str, length: usize| format!("{text:length$}");
        let calendar = |length| padded("day in UTC", length).parse::<Calendar>();
        let quota = |length| padded("1/day in UTC", length).parse::<Quota>();
        let ban = |length| padded("5 in 10min", length).parse::<Ban>();

        assert!(calendar(256).is_ok() && quota(256).is_ok() && ban(256).is_ok());
        for (error, form) in [
            (calendar(257).unwrap_err(), "in and a time zone"),
            (quota(257).unwrap_err(), "LIMIT/PERIOD"),
            (ban(257).unwrap_err(), "STRIKES in PERIOD"),
        ] {
            assert!(error.to_string().contains(form), "{error}");
        }
    }

    #[test]
    fn every_zone_of_the_list_is_read_back() {
        let mut zones = 0;
        for zone in chrono_tz::TZ_VARIANTS {
            let written = format!("1/week in {}", zone.name());
            let quota: Quota = written.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(quota.to_string(), written);
            let unit = quota.unit();
            assert_eq!(crate::Unit::read(&unit.to_string()), Some(unit));
            // None can reach into another part of a state's name.
            assert!(!unit.to_string().contains([':', '{', '}', '*', '?']));
            zones += 1;
        }
        assert!(zones > 500, "{zones}");
    }

    #[test]
    fn what_is_in_no_calendar_is_refused_with_a_sentence() {
        let zone = "expected a time zone of the IANA's list, such as UTC, Europe/Berlin or America/New_York, found ";
        for (text, expected) in [
            ("1/day in Europe/Bern", &*format!("{zone}\"europe/bern\"")),
            ("1/day in", &*format!("{zone}the end")),
            ("1/day in UTC+1", &*format!("{zone}\"utc+1\"")),
            (
                "1/month in UTC from 30",
                "expected a day that every month has: 1 to 28, found \"30\"",
            ),
            ("1/month in UTC from 0", "1 to 28, found \"0\""),
            ("1/month in UTC from", "1 to 28, found the end"),
            (
                "1/year in UTC from 02-30",
                "expected a month and a day that every year has, such as 04-06, found \"02-30\"",
            ),
            (
                "1/year in UTC from 02-29",
                "every year has, such as 04-06, found \"02-29\"",
            ),
            ("1/year in UTC from 13-01", "found \"13-01\""),
            ("1/year in UTC from 04-31", "found \"04-31\""),
            ("1/year in UTC from 7", "found \"7\""),
            (
                "1/week in UTC from 7",
                "expected a weekday, such as sunday, found \"7\"",
            ),
            (
                "1/week in UTC from someday",
                "a weekday, such as sunday, found \"someday\"",
            ),
            (
                "1/day in UTC from 7",
                "a day begins at midnight, found \"7\"",
            ),
            (
                "1/month from 15",
                "expected in and a time zone, found the end",
            ),
            (
                "1/month",
                "expected a period, such as 30days, or one in a time zone, such as month in UTC, found \"month\"",
            ),
            ("1/2months in UTC", "found \"2months\""),
            ("0/month in UTC", "a limit of 0 admits nothing"),
            ("1/month in UTC burst 5", "a burst of 5 has no meaning"),
            ("1/month in UTC wait 5s", "requests cannot wait"),
        ] {
            let error = text.parse::<Quota>().unwrap_err().to_string();
            assert!(
                error.contains(expected),
                "{text:?}: {error:?} does not say {expected:?}"
            );
        }
    }
}
