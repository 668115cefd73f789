//! The nearest valid quota to a text that is invalid, as a suggestion.

use strsim::levenshtein;

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

const WHOLE: &str = "whole numbers, such as 1/2s for 0.5/s and 90min for 1.5h";

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
            expected: if found.contains('.') { WHOLE } else { expected },
            instead: meant(text),
            found,
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
    let slips = all.map(|other| (levenshtein(word, other), *other));
    let (slips, other) = slips.min_by_key(|(slips, _)| *slips)?;
    let most = if word.len() < 5 { 1 } else { 2 };
    (slips <= most).then(|| other.to_owned())
}
