//! Quotas as people write them: `"100/min burst 20"`.

use std::fmt;
use std::str::{FromStr, SplitWhitespace};
use std::time::Duration;

use super::{ParseQuotaError, Quota};
use crate::Algorithm;

/// The units of a period, the longest first; the first name of each is the one that is written.
const UNITS: [(u64, &[&str]); 7] = [
    (7 * 24 * 60 * 60 * 1_000_000, &["week", "weeks", "w"]),
    (24 * 60 * 60 * 1_000_000, &["day", "days", "d"]),
    (60 * 60 * 1_000_000, &["h", "hour", "hours", "hr"]),
    (60 * 1_000_000, &["min", "minute", "minutes", "m"]),
    (1_000_000, &["s", "sec", "second", "seconds"]),
    (1_000, &["ms", "millisecond", "milliseconds"]),
    (1, &["us", "microsecond", "microseconds", "µs"]),
];

/// Buckets of a rolling window where the text names no number: each a tenth of the period.
const DEFAULT_BUCKETS: u32 = 10;

const WITHOUT_SPACES: &str = "LIMIT/PERIOD without spaces in it, such as 10/s";
// 2^40, as `MAX_LIMIT` is.
const SMALLER_LIMIT: &str = "a limit of at most 1099511627776";
const SMALLER_BURST: &str = "a burst of at most 1099511627776";
const SHORTER_PERIOD: &str = "a period of at most 366 days";

impl FromStr for Quota {
    type Err = ParseQuotaError;

    fn from_str(text: &str) -> Result<Self, ParseQuotaError> {
        let mut words = text.split_whitespace();
        let first = words.next().unwrap_or_default();
        let Some((limit, period)) = first.split_once('/') else {
            return Err(if words.next().is_some_and(|word| word.starts_with('/')) {
                syntax(text, WITHOUT_SPACES)
            } else {
                syntax(first, "LIMIT/PERIOD, such as 10/s")
            });
        };
        if period.is_empty() && words.next().is_some() {
            return Err(syntax(text, WITHOUT_SPACES));
        }
        let limit = number(limit, "a limit")?.ok_or_else(|| syntax(limit, SMALLER_LIMIT))?;
        let period = parse_period(period)?;
        let mut burst = None;
        let mut algorithm = None;
        while let Some(word) = words.next() {
            if word == "burst" && burst.is_none() {
                let word = words.next().unwrap_or_default();
                let number = number(word, "a burst")?;
                burst = Some(number.ok_or_else(|| syntax(word, SMALLER_BURST))?);
            } else if algorithm.is_some() {
                return Err(syntax(word, "the end"));
            } else {
                algorithm = Some(parse_algorithm(word, &mut words)?);
            }
        }
        let quota = Self::try_with(limit, period, algorithm.unwrap_or_default())?;
        Ok(match burst {
            Some(burst) => quota.try_burst(burst)?,
            None => quota,
        })
    }
}

fn parse_algorithm(
    word: &str,
    words: &mut SplitWhitespace<'_>,
) -> Result<Algorithm, ParseQuotaError> {
    let mut rest = words.clone();
    Ok(match word {
        "gcra" => Algorithm::Gcra,
        "sliding-window" => Algorithm::SlidingWindow,
        "sliding-log" => Algorithm::SlidingLog,
        "fixed-window" if rest.next() == Some("offset") => {
            *words = rest;
            Algorithm::FixedWindow {
                offset: parse_period(words.next().unwrap_or_default())?,
            }
        }
        "fixed-window" => Algorithm::FixedWindow {
            offset: Duration::ZERO,
        },
        "rolling-window" => match rest.next() {
            Some(count) if count != "burst" => {
                let buckets = number(count, "a number of buckets")?.unwrap_or(u64::MAX);
                let unit = rest.next().unwrap_or_default();
                if unit != "buckets" {
                    return Err(syntax(unit, "the word buckets"));
                }
                *words = rest;
                // What does not fit is refused a moment later, as too many.
                Algorithm::RollingWindow {
                    buckets: u32::try_from(buckets).unwrap_or(u32::MAX),
                }
            }
            _ => Algorithm::RollingWindow {
                buckets: DEFAULT_BUCKETS,
            },
        },
        _ => {
            return Err(syntax(
                word,
                "burst, gcra, fixed-window, sliding-window, rolling-window or sliding-log",
            ));
        }
    })
}

fn parse_period(text: &str) -> Result<Duration, ParseQuotaError> {
    const EXPECTED: &str = "a period, such as s, 10s, min, h or day";
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '_')
        .unwrap_or(text.len());
    let (count, unit) = text.split_at(digits);
    let count = if count.is_empty() {
        1
    } else {
        number(count, EXPECTED)?.ok_or_else(|| syntax(text, SHORTER_PERIOD))?
    };
    for (micros, names) in UNITS {
        if names.contains(&unit) {
            let micros = count.checked_mul(micros);
            let micros = micros.ok_or_else(|| syntax(text, SHORTER_PERIOD))?;
            return Ok(Duration::from_micros(micros));
        }
    }
    Err(syntax(text, EXPECTED))
}

/// A decimal number, `_` allowed between its digits. No sign, no fraction. Nothing if it is beyond all bounds, and could only
/// be called by another.
fn number(text: &str, expected: &'static str) -> Result<Option<u64>, ParseQuotaError> {
    let plain: String = text.chars().filter(|c| *c != '_').collect();
    if !text.starts_with(|c: char| c.is_ascii_digit()) || text.ends_with('_') {
        return Err(syntax(text, expected));
    }
    if !plain.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(syntax(text, expected));
    }
    Ok(plain.parse().ok())
}

fn syntax(found: &str, expected: &'static str) -> ParseQuotaError {
    ParseQuotaError::Syntax {
        found: found.chars().take(40).collect(),
        expected,
    }
}

/// The form that [`FromStr`] reads back to an equal quota.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.limit(), Period(self.period_us))?;
        match self.algorithm() {
            Algorithm::Gcra if self.capacity() == self.limit() => Ok(()),
            Algorithm::Gcra => write!(f, " burst {}", self.capacity()),
            Algorithm::FixedWindow {
                offset: Duration::ZERO,
            } => f.write_str(" fixed-window"),
            Algorithm::FixedWindow { .. } => {
                let offset_us = self.unit().offset_us();
                write!(f, " fixed-window offset {}", Period(offset_us))
            }
            Algorithm::SlidingWindow => f.write_str(" sliding-window"),
            Algorithm::RollingWindow { buckets } => write!(f, " rolling-window {buckets} buckets"),
            Algorithm::SlidingLog => f.write_str(" sliding-log"),
        }
    }
}

struct Period(u64);

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (micros, names) = UNITS
            .into_iter()
            .find(|(micros, _)| self.0.is_multiple_of(*micros))
            .unwrap_or(UNITS[6]);
        match self.0 / micros {
            1 => f.write_str(names[0]),
            count => write!(f, "{count}{}", names[0]),
        }
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Quota {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Quota {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl serde::de::Visitor<'_> for Text {
            type Value = Quota;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quota, such as \"10/s\" or \"100/min burst 20\"")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Quota, E> {
                text.parse()
                    .map_err(|error| E::custom(format_args!("quota {text:?}: {error}")))
            }
        }

        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_of_the_documentation_are_read() {
        let cases = [
            ("10/s", Quota::per_second(10)),
            ("100/min burst 20", Quota::per_minute(100).burst(20)),
            ("5/10s", Quota::new(5, Duration::from_secs(10))),
            ("1_000_000/day", Quota::per_day(1_000_000)),
            (
                "2/250ms gcra burst 1",
                Quota::new(2, Duration::from_millis(250)).burst(1),
            ),
            (
                "1000/day sliding-window",
                Quota::per_day(1000).using(Algorithm::SlidingWindow),
            ),
            (
                "  7/hour   sliding-log ",
                Quota::per_hour(7).using(Algorithm::SlidingLog),
            ),
            (
                "9/day fixed-window offset 6h",
                Quota::per_day(9).using(Algorithm::FixedWindow {
                    offset: Duration::from_secs(6 * 3600),
                }),
            ),
            (
                "300/h rolling-window 60 buckets",
                Quota::per_hour(300).using(Algorithm::RollingWindow { buckets: 60 }),
            ),
            (
                "300/h rolling-window",
                Quota::per_hour(300).using(Algorithm::RollingWindow { buckets: 10 }),
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(text.parse(), Ok(expected), "{text}");
            assert_eq!(expected.to_string().parse(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn the_written_form_is_the_shortest() {
        for text in [
            "10/s",
            "5/10s",
            "100/min burst 20",
            "3/week",
            "1/500ms",
            "999983/day",
            "8/h rolling-window 4 buckets",
            "8/h fixed-window",
            "8/h fixed-window offset 90s",
        ] {
            assert_eq!(
                text.parse::<Quota>().map(|quota| quota.to_string()),
                Ok(text.to_owned())
            );
        }
    }

    #[test]
    fn what_is_no_quota_says_what_was_expected() {
        let cases = [
            ("", "expected LIMIT/PERIOD, such as 10/s, found the end"),
            ("ten/s", "expected a limit, found \"ten\""),
            ("-1/s", "expected a limit, found \"-1\""),
            ("1.5/s", "expected a limit, found \"1.5\""),
            (
                "1/fortnight",
                "expected a period, such as s, 10s, min, h or day, found \"fortnight\"",
            ),
            (
                "1/",
                "expected a period, such as s, 10s, min, h or day, found the end",
            ),
            ("1/s burst", "expected a burst, found the end"),
            ("1/s burst 2 burst 3", "expected burst, gcra, fixed-window"),
            ("1/s sliding-log gcra", "expected the end, found \"gcra\""),
            (
                "1/s rolling-window 4",
                "expected the word buckets, found the end",
            ),
            ("1/s leaky-bucket", "found \"leaky-bucket\""),
            ("0/s", "a limit of 0 admits nothing"),
            ("1/0s", "a period of 0 has no rate"),
            (
                "10 / s",
                "expected LIMIT/PERIOD without spaces in it, such as 10/s, found \"10 / s\"",
            ),
            ("10 /s", "LIMIT/PERIOD without spaces"),
            ("10/ s burst 2", "LIMIT/PERIOD without spaces"),
            (
                "1099511627777/s",
                "1099511627777 is above the largest limit",
            ),
            (
                "18446744073709551616/s",
                "expected a limit of at most 1099511627776, found \"18446744073709551616\"",
            ),
            (
                "1/s burst 18446744073709551616",
                "expected a burst of at most 1099511627776, found \"18446744073709551616\"",
            ),
            ("1/367days", "is longer than 366 days"),
            (
                "1/99999999999999999999999w",
                "expected a period of at most 366 days, found \"99999999999999999999999w\"",
            ),
            (
                "1/9999999999999999w",
                "expected a period of at most 366 days, found \"9999999999999999w\"",
            ),
            ("5/s sliding-window burst 3", "a burst of 3 has no meaning"),
        ];
        for (text, expected) in cases {
            let message = text.parse::<Quota>().unwrap_err().to_string();
            assert!(
                message.contains(expected),
                "{text:?}: {message:?} does not say {expected:?}"
            );
        }
    }

    #[test]
    fn a_long_text_is_not_repeated_in_full() {
        let message = "x"
            .repeat(if cfg!(miri) { 1 << 10 } else { 1 << 20 })
            .parse::<Quota>()
            .unwrap_err()
            .to_string();
        assert!(message.len() < 200, "{} bytes", message.len());
    }

    #[cfg(feature = "serde")]
    #[test]
    fn serde_reads_and_writes_the_text() {
        let quota: Quota = serde_json::from_str("\"100/min burst 20\"").unwrap();
        assert_eq!(
            serde_json::to_string(&quota).unwrap(),
            "\"100/min burst 20\""
        );
        let error = serde_json::from_str::<Quota>("\"0/s\"")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("quota \"0/s\": a limit of 0 admits nothing"),
            "{error}"
        );
    }
}
