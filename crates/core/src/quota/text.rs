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
mod tests;
