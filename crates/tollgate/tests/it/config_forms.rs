//! The forms of quotas, bans and entries that `docs/configuration.md` shows are those that the code reads, and the other way round.

#![cfg(all(feature = "calendar", feature = "serde"))]

#[allow(unreachable_pub, reason = "every file of tests has it for itself")]
use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::reference::{rows, section};
use serde_json::json;
use tollgate::config::{EntryConfig, PolicyConfig, QuotasConfig};
use tollgate::{
    Algorithm, Ban, Calendar, Concurrent, ParseQuotaError, Quota, QuotaError, Unit, Zone,
};

const SECOND: Duration = Duration::from_secs(1);

/// The texts in backticks. A line may end within one.
fn code(text: &str) -> Vec<String> {
    let spans = text.split('`').skip(1).step_by(2);
    spans.map(|span| span.replace('\n', " ")).collect()
}

/// All texts that a form with `[optional parts]` stands for.
fn written_out(form: &str) -> Vec<String> {
    let Some((before, behind)) = form.split_once('[') else {
        return vec![form.to_owned()];
    };
    let mut depth = 1;
    let end = behind.find(|c| {
        depth += match c {
            '[' => 1,
            ']' => -1,
            _ => 0,
        };
        depth == 0
    });
    let end = end.unwrap_or_else(|| panic!("{form} has no end"));
    let (optional, rest) = (&behind[..end], &behind[end + 1..]);
    let mut texts = Vec::new();
    for rest in written_out(rest) {
        texts.push(format!("{before} {rest}"));
        for optional in written_out(optional) {
            texts.push(format!("{before} {optional} {rest}"));
        }
    }
    let one_blank = |text: String| {
        text.split(' ')
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    };
    texts.into_iter().map(one_blank).collect()
}

/// The forms of a quota, each with its own words in place of those in capitals.
fn quotas_on_the_page() -> Vec<String> {
    let section = section("### Quotas");
    let (forms, _) = section.split_once('|').unwrap();
    let (_, behind) = section.split_once("The algorithms are").unwrap();
    let (algorithms, _) = behind.split_once("Only").unwrap();
    let algorithms: Vec<_> = code(algorithms)
        .iter()
        .flat_map(|form| written_out(form))
        .collect();
    let mut texts = Vec::new();
    for form in code(forms).iter().flat_map(|form| written_out(form)) {
        let form = form.replace("LIMIT", "10").replacen("/PERIOD", "/min", 1);
        let form = form
            .replace("burst N", "burst 30")
            .replace("factor N", "factor 5");
        let form = form.replace("PERIOD", "30s").replace("ZONE", "UTC");
        match form.strip_suffix("ALGORITHM …") {
            Some(before) => texts.extend(algorithms.iter().map(|algorithm| {
                let algorithm = algorithm.replace('N', "5").replace("PERIOD", "30s");
                format!("{before}{algorithm}")
            })),
            None if form.contains("WINDOW") => {
                for (window, day) in [("week", "sunday"), ("month", "15"), ("year", "04-06")] {
                    texts.push(form.replace("WINDOW", window).replace("DAY", day));
                }
            }
            None => texts.push(form),
        }
    }
    texts
}

/// The word on the page for a kind of quota. Bans and ids have sections of their own.
fn word_of(unit: Unit) -> Option<&'static str> {
    match unit {
        Unit::Gcra => Some("gcra"),
        Unit::FixedWindow { .. } => Some("fixed-window"),
        Unit::SlidingWindow { .. } => Some("sliding-window"),
        Unit::RollingWindow { .. } => Some("rolling-window"),
        Unit::SlidingLog { .. } => Some("sliding-log"),
        Unit::IntervalRefill { .. } => Some("interval-refill"),
        Unit::Calendar(_) => Some("in"),
        Unit::Held => Some("at once"),
        Unit::Ban | Unit::Once => None,
    }
}

/// A part that a quota cannot have is an error of the quota, and not of its text.
fn is_read(text: &str) -> Option<Quota> {
    match text.parse() {
        Ok(quota) => Some(quota),
        Err(ParseQuotaError::Quota(_)) => None,
        Err(error) => panic!("the page shows {text:?}: {error}"),
    }
}

#[test]
fn each_form_of_a_quota_on_the_page_is_read_and_each_kind_is_on_it() {
    let texts = quotas_on_the_page();
    let read: Vec<_> = texts
        .iter()
        .filter_map(|text| Some((text, is_read(text)?)))
        .collect();

    let kinds: BTreeSet<_> = read
        .iter()
        .filter_map(|(_, quota)| word_of(quota.unit()))
        .collect();
    let all = [
        "gcra",
        "fixed-window",
        "sliding-window",
        "rolling-window",
        "sliding-log",
        "interval-refill",
        "in",
        "at once",
    ];
    assert_eq!(kinds, BTreeSet::from(all));
    // Each part, with a quota that can have it.
    for part in [
        "burst",
        "wait",
        "warm up",
        "cold factor",
        "offset",
        "buckets",
        "from",
    ] {
        assert!(
            read.iter().any(|(text, _)| text.contains(part)),
            "no quota on the page has {part:?}"
        );
    }
    let section = section("### Quotas");
    let (_, sentence) = section.split_once("Words are read\nas well:").unwrap();
    let (sentence, _) = sentence.split_once("\n\n").unwrap();
    for words in code(sentence) {
        assert!(is_read(&words).is_some(), "{words}");
    }
}

/// A long name is read as well, and the units in which quotas are written are the short ones.
#[test]
fn each_unit_of_a_period_is_on_the_page_and_is_read() {
    let section = section("### Quotas");
    let (_, units) = section.split_once("A period\nis a unit").unwrap();
    let (units, _) = units.split_once(')').unwrap();
    let units = code(units);
    for unit in &units {
        assert!(is_read(&format!("1/{unit}")).is_some(), "{unit}");
    }
    let written = [
        1,
        1_000,
        1_000_000,
        60_000_000,
        3_600_000_000,
        86_400_000_000,
        604_800_000_000,
    ];
    for us in written {
        let quota = Quota::new(1, Duration::from_micros(us)).to_string();
        let unit = quota.strip_prefix("1/").unwrap();
        assert!(units.iter().any(|shown| shown == unit), "{unit}");
    }
}

/// The words in which quotas are written, and those that an error offers.
#[test]
fn each_word_of_a_quota_that_the_code_reads_is_on_the_page() {
    let offset = SECOND * 30;
    let minute = Quota::per_minute(10);
    let quotas = [
        minute.burst(30).wait_up_to(SECOND),
        minute.burst(1).warm_up(SECOND * 30).cold_factor(5),
        minute.using(Algorithm::FixedWindow { offset }),
        minute.using(Algorithm::SlidingWindow),
        minute.using(Algorithm::RollingWindow { buckets: 5 }),
        minute.using(Algorithm::SlidingLog),
        minute.using(Algorithm::IntervalRefill { offset }).burst(30),
        Quota::per_calendar(10, "year in UTC from 04-06".parse::<Calendar>().unwrap()),
        Quota::per_calendar(10, Calendar::day(Zone::UTC)),
        Concurrent::at_most(5).wait_up_to(SECOND).into(),
    ];
    let texts = quotas.iter().map(Quota::to_string);
    let ParseQuotaError::Syntax { expected, .. } =
        "10/s no-such-word".parse::<Quota>().unwrap_err()
    else {
        panic!("no such word was read");
    };
    let texts: Vec<_> = texts.chain([expected.replace(',', "")]).collect();

    let shown = section("### Quotas");
    let shown: BTreeSet<_> = shown
        .split(|c: char| !(c.is_alphanumeric() || c == '-'))
        .collect();
    for text in texts {
        let words = text.split(|c: char| !(c.is_alphanumeric() || c == '-'));
        for word in words.filter(|word| !word.contains(|c: char| c.is_ascii_digit())) {
            // `30s` is a number and a unit. A zone is a name, and `or` joins the words of the error.
            let is_name = ["UTC", "or", ""].contains(&word);
            assert!(
                is_name || shown.contains(word),
                "{text:?}: the page does not say {word:?}"
            );
        }
    }
}

fn policy(line: &str) -> PolicyConfig {
    let line = match line.starts_with("quotas") {
        true => line.to_owned(),
        false => format!("quotas = '10/s'\n{line}"),
    };
    toml::from_str(&format!("name = 'p'\n{line}")).unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn shape_of(quotas: &QuotasConfig) -> &'static str {
    match quotas {
        QuotasConfig::One(_) => "text",
        QuotasConfig::Many(_) => "list",
        QuotasConfig::Named(_) => "table",
    }
}

fn parsed(quotas: &QuotasConfig) -> Vec<Quota> {
    let all = |texts: &mut dyn Iterator<Item = &String>| {
        texts
            .flat_map(|text| Quota::parse_all(text).unwrap())
            .collect()
    };
    match quotas {
        QuotasConfig::One(text) => all(&mut [text].into_iter()),
        QuotasConfig::Many(texts) => all(&mut texts.iter()),
        QuotasConfig::Named(texts) => all(&mut texts.values()),
    }
}

#[test]
fn each_line_about_quotas_shows_the_form_that_it_stands_beside() {
    let mut shapes = BTreeSet::new();
    for row in rows("### Quotas") {
        let (form, line) = (row[0].as_str(), &row[2]);
        let quotas = policy(line).quotas;
        let shape = shape_of(&quotas);
        shapes.insert(shape);
        if form == "none" {
            assert_eq!(quotas, QuotasConfig::One("none".into()), "{line}");
            continue;
        }
        let parsed = parsed(&quotas);
        let is_shown = match form {
            "text" => shape == "text" && parsed.len() == 1,
            "text with `;" => shape == "text" && parsed.len() == 2,
            "list" | "table" => shape == form,
            "wait" => parsed.iter().any(|quota| quota.waits() && !quota.is_held()),
            "warm up" => parsed.iter().any(|quota| !quota.warm_up_period().is_zero()),
            kind => parsed
                .iter()
                .any(|quota| word_of(quota.unit()) == Some(kind)),
        };
        assert!(is_shown, "{form}: {line}");
    }
    assert_eq!(shapes, BTreeSet::from(["text", "list", "table"]));
}

#[test]
fn each_form_of_an_entry_that_the_code_reads_is_on_the_page_and_no_other() {
    // A text, and tables with one key each: `{ registered = "partners" }`.
    let error = serde_json::from_value::<EntryConfig>(json!(7))
        .unwrap_err()
        .to_string();
    assert!(error.contains("holds texts"), "{error}");
    let tables = error.split("{ ").skip(1);
    let mut read: BTreeSet<_> = tables
        .map(|table| table.split(" =").next().unwrap().to_owned())
        .collect();
    read.insert("text".to_owned());

    let rows = rows("### Entries of lists");
    let shown: BTreeSet<_> = rows.iter().map(|row| row[0].clone()).collect();
    assert_eq!(shown, read);
    for row in rows {
        let entries = serde_json::to_value(policy(&row[2]).exempt_keys).unwrap();
        match entries[0].as_object() {
            Some(table) => assert!(table.contains_key(&row[0]), "{row:?}"),
            None => assert_eq!((row[0].as_str(), entries[0].is_string()), ("text", true)),
        }
    }
}

#[test]
fn each_form_of_a_ban_on_the_page_is_read_and_each_word_is_on_it() {
    let spans = code(&section("## `[policies.ban]`"));
    let form = spans
        .iter()
        .find(|span| span.starts_with("STRIKES"))
        .unwrap();
    let mut built = Vec::new();
    for text in written_out(form) {
        let mut text = text.replace("STRIKES", "5");
        for (words, period) in [
            ("in", "10min"),
            ("for", "1h"),
            ("to", "1day"),
            ("after", "1week"),
        ] {
            text = text.replace(&format!("{words} PERIOD"), &format!("{words} {period}"));
        }
        match text.parse::<Ban>() {
            Ok(_) => built.push(text),
            Err(ParseQuotaError::Quota(QuotaError::ForgivenAlone)) => {}
            Err(error) => panic!("the page shows {text:?}: {error}"),
        }
    }

    let error = "5 in 10min no-such-word"
        .parse::<Ban>()
        .unwrap_err()
        .to_string();
    let (words, _) = error.split_once(" or the end").unwrap();
    let words = words.strip_prefix("expected ").unwrap().split(", ");
    let words: Vec<_> = words.collect();
    assert_eq!(words.len(), 4, "{error}");
    for word in words {
        assert!(
            form.contains(&format!("[{word}")),
            "the page does not say {word:?}: {form}"
        );
        assert!(
            built.iter().any(|text| text.contains(word)),
            "no ban on the page has {word:?}"
        );
    }
}

#[test]
fn a_form_stands_for_all_texts_with_and_without_its_optional_parts() {
    let texts = written_out("A [b] [c [d]]");
    let expected = ["A", "A b", "A b c", "A b c d", "A c", "A c d"];
    assert_eq!(
        BTreeSet::from_iter(texts.iter().map(String::as_str)),
        BTreeSet::from(expected)
    );
    assert_eq!(code("is `one\ntext` and `two`"), ["one text", "two"]);
}
