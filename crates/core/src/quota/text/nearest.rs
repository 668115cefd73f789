//! The nearest valid quota to a text that is invalid, as a suggestion.

use super::{ALGORITHMS, NOUNS, PER, UNITS, parse};
use crate::words::{Word, words_of};
use crate::{ParseQuotaError, QuotaError};

/// Words outside of the grammar, and the words that say the same.
const OTHERS: [(&str, &str); 30] = [
    ("month", "30 days"),
    ("months", "30 days"),
    ("year", "365 days"),
    ("years", "365 days"),
    ("fortnight", "2 weeks"),
    ("daily", "/ day"),
    ("hourly", "/ hour"),
    ("weekly", "/ week"),
    ("minutely", "/ min"),
    ("rps", "/ s"),
    ("qps", "/ s"),
    ("rpm", "/ min"),
    ("rph", "/ h"),
    ("rpd", "/ day"),
    ("bursts", "burst"),
    ("one", "1"),
    ("two", "2"),
    ("three", "3"),
    ("four", "4"),
    ("five", "5"),
    ("six", "6"),
    ("seven", "7"),
    ("eight", "8"),
    ("nine", "9"),
    ("ten", "10"),
    ("hundred", "100"),
    ("leaky-bucket", "gcra"),
    ("token-bucket", "gcra"),
    ("interval", "interval-refill"),
    ("intervally", "interval-refill"),
];

/// The error, with the nearest quota that works, if one is near.
pub(super) fn suggest(text: &str, error: ParseQuotaError) -> ParseQuotaError {
    match error {
        // A limit of 0 without a period is a quota all the same, and its readers have an error of their own for it.
        ParseQuotaError::Syntax { .. } if is_zero(text) => {
            ParseQuotaError::Quota(QuotaError::ZeroLimit)
        }
        ParseQuotaError::Syntax {
            found, expected, ..
        } => ParseQuotaError::Syntax {
            instead: meant(text),
            found,
            expected,
        },
        error @ ParseQuotaError::Quota(_) => error,
    }
}

/// The error about one of several quotas, with the quotas that it may stand for if nothing separates them: `10/h 5/s`.
pub(super) fn suggest_several(text: &str, error: ParseQuotaError) -> ParseQuotaError {
    match error {
        ParseQuotaError::Syntax {
            found,
            expected,
            instead: None,
        } => ParseQuotaError::Syntax {
            instead: apart(text),
            found,
            expected,
        },
        error => error,
    }
}

fn is_zero(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && text.bytes().all(|byte| byte == b'0')
}

/// The quotas of a text, each of which begins with a limit and a word for a slash.
fn apart(text: &str) -> Option<String> {
    let words = words_of(text)?;
    let begins = |at: usize| {
        let mut behind = words.get(at + 1..).unwrap_or_default().iter();
        let mut next = behind.next();
        if next.is_some_and(|word| word.is_one_of(&NOUNS)) {
            next = behind.next();
        }
        words.get(at).is_some_and(Word::is_number)
            && next.is_some_and(|word| word.is("/") || word.is_one_of(&PER))
    };
    let starts: Vec<usize> = (0..words.len()).filter(|at| begins(*at)).collect();
    if starts.first() != Some(&0) || starts.len() < 2 {
        return None;
    }
    let ends = starts.iter().skip(1).copied().chain([words.len()]);
    let quotas = starts.iter().zip(ends).map(|(start, end)| {
        let words = words.get(*start..end)?.iter();
        let words: Vec<&str> = words.map(|Word(word)| word.as_str()).collect();
        parse(&words.join(" ")).ok().map(|quota| quota.to_string())
    });
    Some(quotas.collect::<Option<Vec<_>>>()?.join("; "))
}

/// Repairs one slip at a time, and then all known slips at once.
fn meant(text: &str) -> Option<String> {
    let words: Vec<String> = words_of(text)?.into_iter().map(|Word(word)| word).collect();
    let with = |change: &dyn Fn(&str) -> Option<String>| -> String {
        let changed = words
            .iter()
            .map(|word| change(word).unwrap_or_else(|| word.clone()));
        changed.collect::<Vec<_>>().join(" ")
    };
    let plain = words.join(" ");
    let number = |word: &str| without_commas(word);
    let sign = |word: &str| {
        [":", "@", "|", "=", "\\"]
            .contains(&word)
            .then(|| "/".to_owned())
    };
    let known = |word: &str| {
        let other = OTHERS.iter().find(|(other, _)| *other == word);
        other.map(|(_, same)| (*same).to_owned())
    };
    let typo = |word: &str| known(word).or_else(|| nearest(word));
    let all = |word: &str| number(word).or_else(|| sign(word)).or_else(|| typo(word));
    let candidates = [
        with(&number),
        with(&sign),
        with(&known),
        with(&typo),
        with(&all),
        // A limit without a period, or with a slash and nothing behind it, or with nothing between the two.
        format!("{plain} / s"),
        format!("{plain} s"),
        plain.replacen(' ', " / ", 1),
        // An algorithm in two words.
        plain
            .replace(" window", "-window")
            .replace(" log", "-log")
            .replace(" refill", "-refill"),
        // Ten thousand.
        plain.replacen(" k ", "000 ", 1),
        without_fraction(&words).unwrap_or_default(),
        in_smaller_units(&words).unwrap_or_default(),
    ];
    candidates
        .iter()
        .find_map(|candidate| parse(candidate).ok())
        .map(|quota| quota.to_string())
}

/// `1,000` is a thousand in some countries, and in others one.
fn without_commas(word: &str) -> Option<String> {
    let mut groups = word.split(',');
    let first = groups.next()?;
    let is_group = |group: &str| group.len() == 3 && group.bytes().all(|b| b.is_ascii_digit());
    let is_number = word.contains(',') && !first.is_empty() && groups.all(is_group);
    is_number.then(|| word.replace(',', ""))
}

/// Half a request in a second is one in two seconds.
fn without_fraction(words: &[String]) -> Option<String> {
    let (first, rest) = words.split_first()?;
    let (whole, part) = first.split_once('.')?;
    let scale = 10_u64.checked_pow(u32::try_from(part.len()).ok()?)?;
    let limit: u64 = format!("{whole}{part}").parse().ok()?;
    let divisor = gcd(limit, scale);
    let (limit, times) = (limit.checked_div(divisor)?, scale.checked_div(divisor)?);
    let is_slash = |word: &String| word == "/" || PER.contains(&word.as_str());
    let at = rest.iter().position(is_slash)?;
    let (before, period) = rest.split_at_checked(at + 1)?;
    let (first, others) = period.split_first()?;
    let (count, unit) = match first.parse::<u64>() {
        Ok(count) => (count, others),
        Err(_) => (1, period),
    };
    let count = count.checked_mul(times)?;
    Some(format!(
        "{limit} {} {count} {}",
        before.join(" "),
        unit.join(" ")
    ))
}

/// An hour and a half is ninety minutes.
fn in_smaller_units(words: &[String]) -> Option<String> {
    let at = words
        .iter()
        .position(|word| word == "/" || PER.contains(&word.as_str()))?;
    let (before, period) = words.split_at_checked(at + 1)?;
    let [count, unit, rest @ ..] = period else {
        return None;
    };
    let (whole, part) = count.split_once('.')?;
    let scale = 10_u64.checked_pow(u32::try_from(part.len()).ok()?)?;
    let count: u64 = format!("{whole}{part}").parse().ok()?;
    let (unit_us, _) = UNITS
        .iter()
        .find(|(_, names)| names.contains(&unit.as_str()))?;
    let scaled_us = count.checked_mul(*unit_us)?;
    scaled_us.is_multiple_of(scale).then(|| {
        format!(
            "{} {} us {}",
            before.join(" "),
            scaled_us / scale,
            rest.join(" ")
        )
    })
}

fn gcd(one: u64, other: u64) -> u64 {
    if other == 0 {
        one
    } else {
        gcd(other, one % other)
    }
}

/// The word of a quota that is a slip or two away, and not a different word altogether.
fn nearest(word: &str) -> Option<String> {
    let units = UNITS.iter().flat_map(|(_, names)| names.iter());
    let others = ["burst", "offset", "buckets", "with"];
    let all = units
        .chain(&NOUNS)
        .chain(&PER)
        .chain(&ALGORITHMS)
        .chain(&others);
    let is_known = |other: &&&str| **other == word;
    if word.len() < 3 || word.len() > 20 || !word.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return None;
    }
    if all.clone().any(|other| is_known(&other)) {
        return None;
    }
    let slips = all.map(|other| (distance(word, other), *other));
    let (slips, other) = slips.min_by_key(|(slips, _)| *slips)?;
    let most = if word.len() < 5 { 1 } else { 2 };
    (slips <= most).then(|| other.to_owned())
}

/// The number of letters to add, remove or exchange.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut before = i;
        let mut left = i + 1;
        for (b, cell) in other.iter().zip(row.iter_mut().skip(1)) {
            let above = *cell;
            left = (above + 1).min(left + 1).min(before + usize::from(a != *b));
            (before, *cell) = (above, left);
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}
