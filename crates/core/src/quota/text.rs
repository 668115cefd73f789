//! Quotas as people write them: `"100/min burst 20"`, `"10 requests per minute"`.

mod nearest;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::Quota;
use super::warm_ups::USUAL_COLD_FACTOR;
use crate::calendar::is_calendar;
use crate::words::{Word, Words, number, syntax, words_of};
use crate::{Algorithm, Calendar, ParseQuotaError};

/// The units of a period, the longest first. The first name of each is the one that is written.
const UNITS: [(u64, &[&str]); 7] = [
    (7 * 24 * 60 * 60 * 1_000_000, &["week", "weeks", "w", "wk"]),
    (24 * 60 * 60 * 1_000_000, &["day", "days", "d"]),
    (60 * 60 * 1_000_000, &["h", "hour", "hours", "hr", "hrs"]),
    (60 * 1_000_000, &["min", "minute", "minutes", "m", "mins"]),
    (1_000_000, &["s", "sec", "second", "seconds", "secs"]),
    (1_000, &["ms", "millisecond", "milliseconds"]),
    (1, &["us", "microsecond", "microseconds", "µs"]),
];

/// Nouns for the counted units, which may stand behind the limit and mean nothing.
const NOUNS: [&str; 16] = [
    "request", "requests", "req", "reqs", "r", "call", "calls", "hit", "hits", "query", "queries",
    "message", "messages", "token", "tokens", "times",
];

/// Words behind a limit on how many at once, which has no period. The first are those that are written.
const AT_ONCE: [&[&str]; 6] = [
    &["at", "once"],
    &["at", "a", "time"],
    &["in", "flight"],
    &["in-flight"],
    &["concurrent"],
    &["concurrently"],
];

/// Words for a slash.
const PER: [&str; 5] = ["per", "a", "an", "each", "every"];

const ALGORITHMS: [&str; 6] = [
    "gcra",
    "fixed-window",
    "sliding-window",
    "rolling-window",
    "sliding-log",
    "interval-refill",
];

/// Words for a warm-up and for its cold factor. The first are those that are written.
const WARM_UP: [&[&str]; 4] = [
    &["warm", "up"],
    &["warm-up"],
    &["warmup"],
    &["warming", "up"],
];
const COLD_FACTOR: [&[&str]; 3] = [&["cold", "factor"], &["cold-factor"], &["cold"]];

/// Words that begin another part of a quota.
const PARTS: [&str; 9] = [
    "burst",
    "wait",
    "with",
    "warm",
    "warm-up",
    "warmup",
    "warming",
    "cold",
    "cold-factor",
];

/// The number of buckets of a rolling window whose text names none: each bucket is a tenth of the period.
const DEFAULT_BUCKETS: u32 = 10;

const FORM: &str = "LIMIT/PERIOD, such as 10/s, or LIMIT at once";
// 2^40, as `MAX_LIMIT` is.
const SMALLER_LIMIT: &str = "a limit of at most 1099511627776";
const SMALLER_BURST: &str = "a burst of at most 1099511627776";
const SMALLER_FACTOR: &str = "a cold factor of at most 100";
const PERIOD: &str = "a period, such as s, 10s, min, h or day";
const IN_ZONE: &str = "a period, such as 30days, or one in a time zone, such as month in UTC";
const SHORTER_PERIOD: &str = "a period of at most 366 days";

impl FromStr for Quota {
    type Err = ParseQuotaError;

    fn from_str(text: &str) -> Result<Self, ParseQuotaError> {
        if several(text).nth(1).is_some() {
            return Err(syntax(text, "one quota"));
        }
        parse(text).map_err(|error| nearest::suggest(text, error))
    }
}

impl Quota {
    /// One quota or several, with `;`, a line's end, or a comma and a blank between them: `10/s burst 50; 1000/day`.
    ///
    /// ```
    /// use tollgate::Quota;
    ///
    /// let quotas = Quota::parse_all("5 per second; 100 requests per hour");
    /// assert_eq!(quotas, Ok(vec![Quota::per_second(5), Quota::per_hour(100)]));
    /// ```
    ///
    /// # Errors
    ///
    /// If one of them is invalid, or the text holds none at all.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, ParseQuotaError> {
        let quotas: Vec<Self> = several(text)
            .map(|part| {
                let quota = part.parse();
                quota.map_err(|error| nearest::suggest_several(part, error))
            })
            .collect::<Result<_, _>>()?;
        if quotas.is_empty() {
            return Err(syntax("", FORM));
        }
        Ok(quotas)
    }
}

/// The texts of several quotas, of which one at the end may be empty. A comma between digits is a part of a number.
fn several(text: &str) -> impl Iterator<Item = &str> {
    let is_end = |(at, c): (usize, char)| match c {
        ';' | '\n' => Some(at),
        ',' => {
            let (before, behind) = (text.get(..at)?, text.get(at + 1..)?);
            let is_apart = behind.starts_with(char::is_whitespace);
            let is_in_number = before.ends_with(|c: char| c.is_ascii_digit());
            (is_apart || !is_in_number).then_some(at)
        }
        _ => None,
    };
    let ends = text.char_indices().filter_map(is_end).chain([text.len()]);
    let mut start = 0;
    let parts = ends.map(move |end| {
        let part = text.get(start..end).unwrap_or_default();
        start = end + 1;
        part.trim()
    });
    parts.filter(|part| !part.is_empty())
}

fn parse(text: &str) -> Result<Quota, ParseQuotaError> {
    let words = words_of(text).ok_or_else(|| syntax(text, FORM))?;
    let mut words = Words::new(&words);
    let first = words.next();
    if let Some(held) = held(first, &mut words)? {
        return Ok(held);
    }
    // A text with nothing before the period is not a quota.
    if !words
        .rest()
        .iter()
        .any(|word| word.is("/") || word.is_one_of(&PER))
    {
        return Err(syntax(first, FORM));
    }
    let limit = number(first, "a limit")?.ok_or_else(|| syntax(first, SMALLER_LIMIT))?;
    words.skip_one_of(&NOUNS);
    if !(words.skip("/") || words.skip_one_of(&PER)) {
        return Err(syntax(words.next(), FORM));
    }
    let (period, mut algorithm) = if is_calendar(words.rest()) {
        let calendar = Calendar::read(&mut words)?;
        (calendar.period(), Some(Algorithm::Calendar(calendar)))
    } else {
        (period(&mut words)?, None)
    };
    let mut burst = None;
    let mut wait = None;
    let mut warm_up = None;
    let mut cold_factor = None;
    while !words.rest().is_empty() {
        words.skip("with");
        if warm_up.is_none() && words.skip_one_form(&WARM_UP) {
            words.skip_one_of(&["in", "over", "of", "for"]);
            warm_up = Some(self::period(&mut words)?);
            continue;
        }
        if cold_factor.is_none() && words.skip_one_form(&COLD_FACTOR) {
            words.skip("of");
            let word = words.next();
            let factor = number(word, "a cold factor")?;
            cold_factor = Some(factor.ok_or_else(|| syntax(word, SMALLER_FACTOR))?);
            continue;
        }
        let word = words.next();
        if word == "burst" && burst.is_none() {
            words.skip("of");
            let word = words.next();
            let number = number(word, "a burst")?;
            burst = Some(number.ok_or_else(|| syntax(word, SMALLER_BURST))?);
        } else if word == "wait" && wait.is_none() {
            let _ = words.skip_all(&["up", "to"]) || words.skip("of");
            wait = Some(self::period(&mut words)?);
        } else if algorithm.is_some() {
            return Err(syntax(word, "the end"));
        } else {
            algorithm = Some(parse_algorithm(word, &mut words)?);
        }
    }
    let algorithm = algorithm.unwrap_or_default();
    let quota = match burst {
        // The written quota is judged as a whole: the rate may be exact with this burst, and not with one of the limit.
        Some(burst) if algorithm == Algorithm::Gcra => Quota::try_with_burst(limit, period, burst)?,
        Some(burst) => Quota::try_with(limit, period, algorithm)?.try_burst(burst)?,
        None => Quota::try_with(limit, period, algorithm)?,
    };
    let quota = match wait {
        Some(wait) => quota.try_wait_up_to(wait)?,
        None => quota,
    };
    Ok(match (warm_up, cold_factor) {
        // Both are judged as a whole, as a rate and its burst are.
        (Some(warm_up), factor) => {
            quota.warming_up(warm_up, factor.unwrap_or(USUAL_COLD_FACTOR))?
        }
        (None, Some(factor)) => quota.try_cold_factor(factor)?,
        (None, None) => quota,
    })
}

/// A limit on how many at once; `None` if the words are not those of one. Then none of them was taken.
fn held(first: &str, words: &mut Words<'_>) -> Result<Option<Quota>, ParseQuotaError> {
    let mut behind = Words::new(words.rest());
    // "5 concurrent requests", "5 requests at once".
    behind.skip_one_of(&NOUNS);
    if !behind.skip_one_form(&AT_ONCE) {
        return Ok(None);
    }
    behind.skip_one_of(&NOUNS);
    let limit = number(first, "a limit")?.ok_or_else(|| syntax(first, SMALLER_LIMIT))?;
    let quota = Quota::held(limit)?;
    let quota = if behind.skip("wait") {
        let _ = behind.skip_all(&["up", "to"]) || behind.skip("of");
        quota.try_wait_up_to(period(&mut behind)?)?
    } else {
        quota
    };
    match behind.next() {
        "" => Ok(Some(quota)),
        more => Err(syntax(more, "the end")),
    }
}

fn parse_algorithm(word: &str, words: &mut Words<'_>) -> Result<Algorithm, ParseQuotaError> {
    Ok(match word {
        "gcra" => Algorithm::Gcra,
        "sliding-window" => Algorithm::SlidingWindow,
        "sliding-log" => Algorithm::SlidingLog,
        "fixed-window" => Algorithm::FixedWindow {
            offset: offset(words)?,
        },
        "interval-refill" => Algorithm::IntervalRefill {
            offset: offset(words)?,
        },
        "rolling-window" => match words.rest().first() {
            Some(count) if !count.is_one_of(&PARTS) => {
                let buckets = number(words.next(), "a number of buckets")?.unwrap_or(u64::MAX);
                if !words.skip("buckets") {
                    return Err(syntax(words.next(), "the word buckets"));
                }
                // A number that does not fit is refused a moment later, as too many.
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
                "burst, wait, warm up, gcra, fixed-window, sliding-window, rolling-window, sliding-log or interval-refill",
            ));
        }
    })
}

fn offset(words: &mut Words<'_>) -> Result<Duration, ParseQuotaError> {
    if words.skip("offset") {
        period(words)
    } else {
        Ok(Duration::ZERO)
    }
}

pub(crate) fn period(words: &mut Words<'_>) -> Result<Duration, ParseQuotaError> {
    let count = words.next_if(Word::is_number).unwrap_or_default();
    let unit = words.next();
    let text = || format!("{count}{unit}");
    let number = match count {
        "" => 1,
        count => number(count, PERIOD)?.ok_or_else(|| syntax(&text(), SHORTER_PERIOD))?,
    };
    for (micros, names) in UNITS {
        if names.contains(&unit) {
            let micros = number.checked_mul(micros);
            let micros = micros.ok_or_else(|| syntax(&text(), SHORTER_PERIOD))?;
            return Ok(Duration::from_micros(micros));
        }
    }
    let is_long = ["month", "months", "year", "years"].contains(&unit);
    Err(syntax(&text(), if is_long { IN_ZONE } else { PERIOD }))
}

/// The form that [`FromStr`] reads back to an equal quota.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(ban) = self.ban() {
            return write!(f, "ban {ban}");
        }
        if let Some(once) = self.once() {
            return once.fmt(f);
        }
        if self.algorithm() == Algorithm::Concurrent {
            write!(f, "{} at once", self.limit())?;
            return write_wait(f, self);
        }
        if let Algorithm::Calendar(calendar) = self.algorithm() {
            return write!(f, "{}/{calendar}", self.limit());
        }
        write!(f, "{}/{}", self.limit(), Period(self.period_us))?;
        match self.algorithm() {
            Algorithm::Gcra => {
                write_burst(f, self)?;
                write_wait(f, self)?;
                write_warm_up(f, self)
            }
            Algorithm::FixedWindow { offset } => {
                f.write_str(" fixed-window")?;
                write_offset(f, offset)
            }
            Algorithm::IntervalRefill { offset } => {
                f.write_str(" interval-refill")?;
                write_offset(f, offset)?;
                write_burst(f, self)
            }
            Algorithm::SlidingWindow => f.write_str(" sliding-window"),
            Algorithm::RollingWindow { buckets } => write!(f, " rolling-window {buckets} buckets"),
            Algorithm::SlidingLog => f.write_str(" sliding-log"),
            Algorithm::Calendar(_) | Algorithm::Concurrent | Algorithm::Ban | Algorithm::Once => {
                Ok(())
            }
        }
    }
}

fn write_burst(f: &mut fmt::Formatter<'_>, quota: &Quota) -> fmt::Result {
    if quota.capacity() == quota.limit() {
        return Ok(());
    }
    write!(f, " burst {}", quota.capacity())
}

fn write_offset(f: &mut fmt::Formatter<'_>, offset: Duration) -> fmt::Result {
    match u64::try_from(offset.as_micros()) {
        Ok(0) => Ok(()),
        offset_us => write!(f, " offset {}", Period(offset_us.unwrap_or(u64::MAX))),
    }
}

fn write_wait(f: &mut fmt::Formatter<'_>, quota: &Quota) -> fmt::Result {
    match u64::try_from(quota.longest_wait().as_micros()) {
        Ok(wait_us @ 1..) => write!(f, " wait {}", Period(wait_us)),
        _ => Ok(()),
    }
}

fn write_warm_up(f: &mut fmt::Formatter<'_>, quota: &Quota) -> fmt::Result {
    match u64::try_from(quota.warm_up_period().as_micros()) {
        Ok(warm_us @ 1..) => write!(f, " warm up {}", Period(warm_us))?,
        _ => return Ok(()),
    }
    match quota.price_when_cold() {
        USUAL_COLD_FACTOR => Ok(()),
        factor => write!(f, " cold factor {factor}"),
    }
}

pub(crate) struct Period(pub(crate) u64);

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
                f.write_str("a quota, such as \"10/s\", \"100/min burst 20\" or \"5 at once\"")
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
    use crate::Concurrent;

    #[test]
    fn the_forms_of_the_documentation_are_read() {
        let refilled = |secs| {
            let offset = Duration::from_secs(secs);
            Quota::per_minute(10).using(Algorithm::IntervalRefill { offset })
        };
        let cases = [
            ("10/s", Quota::per_second(10)),
            ("100/min burst 20", Quota::per_minute(100).burst(20)),
            ("5/10s", Quota::new(5, Duration::from_secs(10))),
            ("5 at once", Concurrent::at_most(5).into()),
            ("5 requests at once", Concurrent::at_most(5).into()),
            ("5 at a time", Concurrent::at_most(5).into()),
            ("5 in flight", Concurrent::at_most(5).into()),
            ("7 IN-FLIGHT", Concurrent::at_most(7).into()),
            ("5 concurrent requests", Concurrent::at_most(5).into()),
            ("1_000_000/day", Quota::per_day(1_000_000)),
            (
                "100/s burst 1 warm up 10s",
                Quota::per_second(100)
                    .burst(1)
                    .warm_up(Duration::from_secs(10)),
            ),
            (
                "100/s warm up 3s cold factor 20",
                Quota::per_second(100)
                    .warm_up(Duration::from_secs(3))
                    .cold_factor(20),
            ),
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
            ("10/min interval-refill", refilled(0)),
            ("10/min interval-refill burst 30", refilled(0).burst(30)),
            ("10/min burst 30 interval-refill", refilled(0).burst(30)),
            (
                "10/min interval-refill offset 20s burst 5",
                refilled(20).burst(5),
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
    fn what_people_write_is_read() {
        let cases = [
            ("10 per minute", "10/min"),
            ("10 per min", "10/min"),
            ("10 requests per minute", "10/min"),
            ("10 req/s", "10/s"),
            ("10r/s", "10/s"),
            ("10 / s", "10/s"),
            ("10 /S", "10/s"),
            ("10/ s burst 2", "10/s burst 2"),
            ("10/s with burst of 2", "10/s burst 2"),
            ("10/s wait 2s", "10/s wait 2s"),
            ("5 at once wait 2s", "5 at once wait 2s"),
            (
                "5 concurrent requests wait up to 500 ms",
                "5 at once wait 500ms",
            ),
            ("10/s wait up to 2000 ms", "10/s wait 2s"),
            ("10/s WAIT 500ms burst 1", "10/s burst 1 wait 500ms"),
            ("10/s gcra wait of 1 minute", "10/s wait min"),
            ("10/s warm-up 10 s", "10/s warm up 10s"),
            ("10/s warmup 10s burst 1", "10/s burst 1 warm up 10s"),
            ("10/s warming up over 1 minute", "10/s warm up min"),
            ("10/s with warm up of 10s", "10/s warm up 10s"),
            ("10/s warm up 10s cold factor 3", "10/s warm up 10s"),
            (
                "10/s cold-factor of 5 warm up in 10s",
                "10/s warm up 10s cold factor 5",
            ),
            ("10/s WARM UP 10s cold 5", "10/s warm up 10s cold factor 5"),
            (
                "10/s warm up 160ms cold 2",
                "10/s warm up 160ms cold factor 2",
            ),
            ("100/1h", "100/h"),
            ("100 / 1 H", "100/h"),
            ("1_000/Day", "1000/day"),
            ("5 every 10 s", "5/10s"),
            ("5 calls every 10 Seconds", "5/10s"),
            ("3 a day", "3/day"),
            ("7 times an hour Sliding-Log", "7/h sliding-log"),
            (
                "9/day Fixed-Window offset 6 h",
                "9/day fixed-window offset 6h",
            ),
            (
                "300/h rolling-window 60 buckets",
                "300/h rolling-window 60 buckets",
            ),
            ("1/500 ms", "1/500ms"),
            ("2/250µs", "2/250us"),
        ];
        for (text, same) in cases {
            let read = text.parse::<Quota>().map(|quota| quota.to_string());
            assert_eq!(read, Ok(same.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_is_refused_names_the_nearest_that_works() {
        let cases = [
            ("10", "10/s"),
            ("10 min", "10/min"),
            ("10rps", "10/s"),
            ("100 rpm", "100/min"),
            ("10 daily", "10/day"),
            ("10/minit", "10/min"),
            ("10 evry minute", "10/min"),
            ("10/month", "10/30days"),
            ("10/fortnight", "10/2weeks"),
            ("ten per minute", "10/min"),
            ("100/day sliding window", "100/day sliding-window"),
            ("5/s leaky-bucket", "5/s"),
            ("5/s interval", "5/s interval-refill"),
            ("5/s interval refill burst 9", "5/s interval-refill burst 9"),
            ("5/s intervally", "5/s interval-refill"),
            ("5/s interval-refil", "5/s interval-refill"),
            ("1,000/day", "1000/day"),
            ("10k/day", "10000/day"),
            ("0.5/s", "1/2s"),
            ("2.5/10s", "5/20s"),
            ("10/s brust 5", "10/s burst 5"),
            ("10/s sliding_window", "10/s sliding-window"),
            ("10:s", "10/s"),
            ("10/", "10/s"),
            ("10 per", "10/s"),
            ("10/1.5h", "10/90m"),
            ("10 requests per 0.5 min burst 2", "10/30s burst 2"),
        ];
        for (text, near) in cases {
            let message = text.parse::<Quota>().unwrap_err().to_string();
            let near: Quota = near.parse().unwrap();
            let end = format!("; did you mean \"{near}\"");
            assert!(message.ends_with(&end), "{text}: {message}");
        }
        for text in ["", "ten", "-1/s", "10/s per address", "unlimited", "a/b/c"] {
            let message = text.parse::<Quota>().unwrap_err().to_string();
            assert!(!message.contains("did you mean"), "{text}: {message}");
        }
    }

    #[test]
    fn several_quotas_with_nothing_between_are_told_apart_in_what_is_near() {
        let refusal = |text| Quota::parse_all(text).unwrap_err().to_string();
        for (text, near) in [
            ("10/h 5/s", "10/h; 5/s"),
            ("10 per hour 5 per second", "10/h; 5/s"),
            ("10 calls/h burst 3 5 calls/s", "10/h burst 3; 5/s"),
        ] {
            let end = format!("; did you mean \"{near}\"");
            assert!(refusal(text).ends_with(&end), "{text}: {}", refusal(text));
            assert!(Quota::parse_all(near).is_ok());
        }
        assert_eq!(refusal("0"), "a limit of 0 admits nothing");
    }

    #[test]
    fn several_quotas_stand_in_one_text() {
        let quotas = vec![Quota::per_hour(10), Quota::per_second(5)];
        for text in [
            "10/h; 5/s",
            "10/h;5/s;",
            "10/h, 5/s",
            "10/h,5/s",
            "10 per hour\n5 per second\n",
        ] {
            assert_eq!(Quota::parse_all(text), Ok(quotas.clone()), "{text:?}");
        }
        assert_eq!(Quota::parse_all("10/h"), Ok(vec![Quota::per_hour(10)]));
        assert!(Quota::parse_all(" ; ").is_err());
        assert!(Quota::parse_all("10/h; 5").is_err());
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
            "8/h interval-refill",
            "8/h interval-refill burst 9",
            "8/h interval-refill offset 90s burst 7",
            "5 at once",
            "100/s warm up 10s",
            "100/s burst 1 warm up 10s cold factor 5",
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
            (
                "",
                "expected LIMIT/PERIOD, such as 10/s, or LIMIT at once, found the end",
            ),
            ("ten/s", "expected a limit, found \"ten\""),
            ("-1/s", "expected a limit, found \"-1\""),
            ("1.5/s", "expected a limit, found \"1.5\""),
            (
                "1/fortnight",
                "expected a period, such as s, 10s, min, h or day, found \"fortnight\"; did you mean \"1/2week\"",
            ),
            (
                "1/",
                "expected a period, such as s, 10s, min, h or day, found the end",
            ),
            ("1/s burst", "expected a burst, found the end"),
            (
                "1/s burst 2 burst 3",
                "expected burst, wait, warm up, gcra, fixed-window",
            ),
            ("1/s warm up", "expected a period"),
            ("1/s warm up 2", "expected a period"),
            ("1/s warm 2s", "expected burst, wait, warm up"),
            ("1/s warm up 9s warm up 9s", "expected burst, wait, warm up"),
            ("1/s warm up 0s", "a warm-up of 0 has no effect"),
            (
                "1/s warm up 2h",
                "a warm-up of 7200s is longer than an hour",
            ),
            (
                "1/s warm up 1s",
                "a warm-up of 1s is over before one request has passed at this rate",
            ),
            (
                "1/s warm up 9s wait 1s",
                "requests cannot wait for their turn",
            ),
            ("1/s sliding-log warm up 9s", "does not warm up: use gcra"),
            (
                "1/s rolling-window warm up 9s",
                "does not warm up: use gcra",
            ),
            (
                "1/s interval-refill warm up 9s",
                "does not warm up: use gcra",
            ),
            (
                "1/s cold factor 3",
                "a cold factor has no meaning without a warm-up",
            ),
            (
                "1/s warm up 9s cold factor",
                "expected a cold factor, found the end",
            ),
            (
                "1/s warm up 9s cold factor 2.5",
                "expected a cold factor, found \"2.5\"",
            ),
            (
                "1/s warm up 9s cold factor 1",
                "a cold factor of 1 is not between 2 and 100",
            ),
            (
                "1/s warm up 9s cold factor 18446744073709551616",
                "expected a cold factor of at most 100, found \"18446744073709551616\"",
            ),
            ("1/s wait", "expected a period"),
            ("1/s wait 2", "expected a period"),
            ("1/s wait 1s wait 2s", "expected burst, wait"),
            ("1/s wait 0s", "a wait of 0"),
            ("1/s sliding-log wait 1s", "requests cannot wait"),
            ("1/s interval-refill wait 1s", "requests cannot wait"),
            ("1/s interval-refill burst 0", "a burst of 0 admits nothing"),
            ("1/s interval-refill offset 1s", "the offset 1s"),
            ("1/s interval-refill offset", "expected a period"),
            ("1/s sliding-log gcra", "expected the end, found \"gcra\""),
            (
                "1/s rolling-window 4",
                "expected the word buckets, found the end",
            ),
            ("1/s leaky-bucket", "found \"leaky-bucket\""),
            ("0/s", "a limit of 0 admits nothing"),
            ("1/0s", "a period of 0 has no rate"),
            (
                "10 s",
                "expected LIMIT/PERIOD, such as 10/s, or LIMIT at once, found \"10\"; did you mean \"10/s\"",
            ),
            ("10/s; 5/h", "expected one quota, found \"10/s; 5/h\""),
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
            ("0 at once", "a limit of 0 admits nothing"),
            (
                "five at once",
                "expected a limit, found \"five\"; did you mean \"5 at once\"",
            ),
            ("5 at once burst 3", "expected the end, found \"burst\""),
            ("5 at once per second", "expected the end, found \"per\""),
            (
                "1099511627777 at once",
                "1099511627777 is above the largest limit",
            ),
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
    fn a_burst_that_is_written_is_the_one_that_is_judged() {
        // given a rate that is not exact with a burst of its limit, but is with a small burst
        let seven = Duration::from_secs(7);
        assert!(matches!(
            Quota::try_new(999_999_937, seven),
            Err(crate::QuotaError::Inexact { .. })
        ));

        // when
        let quota: Quota = "999999937/7s burst 1".parse().unwrap();

        // then
        assert_eq!(Ok(quota), Quota::try_with_burst(999_999_937, seven, 1));
        assert_eq!((quota.limit(), quota.capacity()), (999_999_937, 1));
        assert_eq!(quota.to_string(), "999999937/7s burst 1");
        // And the errors about a burst or a limit are those of before.
        for (text, expected) in [
            ("0/s burst 1", "a limit of 0 admits nothing"),
            ("1/s burst 0", "a burst of 0 admits nothing"),
            ("999999937/7s burst 999999937", "a smaller burst"),
            ("999999937/7s", "a smaller burst"),
        ] {
            let message = text.parse::<Quota>().unwrap_err().to_string();
            assert!(message.contains(expected), "{text:?}: {message:?}");
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
