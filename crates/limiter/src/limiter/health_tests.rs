//! The lines of the log, by times that the tests hand in.

use std::ops::Range;
use std::time::{Duration, Instant};

use tollgate_core::{BackendError, FailureKind};

use super::health::Health;
use tollgate_testkit::Log;

/// The health of a backend over the seconds of a test, and what the log was told.
struct Played {
    health: Health,
    start: Instant,
    log: Log,
}

impl Played {
    fn new() -> Self {
        Self {
            health: Health::default(),
            start: Instant::now(),
            log: Log::default(),
        }
    }

    fn fails_with(&self, second: u64, kind: FailureKind) {
        let _listening = self.log.listen();
        let error = BackendError::new(kind, "").at("node-2:6379");
        let now = self.start + Duration::from_secs(second);
        self.health.failed(now, &error, place);
        self.health.passed();
    }

    /// One request in each of these seconds, which passes undecided.
    fn is_down(&self, seconds: Range<u64>) {
        for second in seconds {
            self.fails_with(second, FailureKind::Unreachable);
        }
    }

    fn decides(&self, second: u64) {
        let _listening = self.log.listen();
        let now = self.start + Duration::from_secs(second);
        self.health.recovered(now, place);
    }

    /// The lines without their times.
    fn lines(&self) -> Vec<String> {
        let text = self.log.text();
        let told = text
            .lines()
            .filter_map(|line| line.split_once("the backend"));
        told.map(|(_, what)| what.trim().to_owned()).collect()
    }
}

fn place() -> Option<String> {
    Some("node-1:6379, database 3".to_owned())
}

/// A field of a line.
fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let (_, behind) = line.split_once(&format!(" {name}=")).unwrap_or_default();
    let end = behind.strip_prefix('"').map_or_else(
        || behind.find(' ').unwrap_or(behind.len()),
        |quoted| quoted.find('"').map_or(behind.len(), |end| end + 2),
    );
    behind[..end].trim_matches('"')
}

#[test]
fn an_outage_that_begins_right_after_another_is_told_when_the_spell_is_over() {
    // given an outage of a second that was told, with its end
    let played = Played::new();
    played.fails_with(0, FailureKind::Unreachable);
    played.decides(1);

    // when the next begins two seconds later and lasts for forty
    played.is_down(3..43);
    let during = played.lines();
    played.decides(43);

    // then the log hears of it ten seconds after its last warning, and of its end
    assert_eq!(during.len(), 3, "{during:#?}");
    assert!(during[2].starts_with("still cannot decide"), "{during:#?}");
    assert_eq!(field(&during[2], "lasts"), "7s");
    let lines = played.lines();
    assert!(lines[3].starts_with("decides again"), "{lines:#?}");
    assert_eq!(field(&lines[3], "lasted"), "40s");
    assert_eq!(
        (field(&lines[3], "undecided"), field(&lines[3], "passed")),
        ("40", "40")
    );
}

#[test]
fn an_outage_that_lasts_is_told_each_minute_with_its_length_and_its_price() {
    let played = Played::new();

    played.is_down(0..200);

    let lines = played.lines();
    let told: Vec<_> = (lines.iter().skip(1))
        .map(|line| ["lasts", "undecided", "passed"].map(|name| field(line, name)))
        .collect();
    // The request that writes the line has not passed yet.
    let expected = [
        ["60s", "61", "60"],
        ["120s", "121", "120"],
        ["180s", "181", "180"],
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_line_names_server_and_database_and_the_error_that_lasts() {
    // given an outage that begins with one error and goes on with another
    let played = Played::new();
    let deadline = Duration::from_millis(100);
    played.fails_with(0, FailureKind::TimedOut { deadline });
    played.is_down(1..30);
    played.decides(30);

    let lines = played.lines();
    assert_eq!(lines.len(), 3, "{lines:#?}");
    for line in &lines {
        assert_eq!(field(line, "backend"), "node-1:6379, database 3", "{line}");
    }
    assert_eq!(field(&lines[0], "node"), "node-2:6379");
    let errors = [field(&lines[0], "error"), field(&lines[1], "error")];
    assert!(errors[0].starts_with("no answer"), "{errors:?}");
    assert_eq!(errors[1], "backend unreachable");
    assert_eq!(field(&lines[1], "lasts"), "10s");
}

#[test]
fn a_backend_that_flaps_for_an_hour_writes_no_line_too_many_and_leaves_nothing_out() {
    let played = Played::new();

    for second in 0..3_600 {
        played.fails_with(second, FailureKind::Unreachable);
        played.fails_with(second, FailureKind::Unreachable);
        played.decides(second);
    }

    let lines = played.lines();
    let ends: Vec<_> = (lines.iter())
        .filter(|line| line.starts_with("decides again"))
        .collect();
    assert_eq!((lines.len(), ends.len()), (720, 360));
    let told: u64 = (ends.iter())
        .map(|line| field(line, "undecided").parse::<u64>().expect("a number"))
        .sum();
    // All, but for what was not told when the hour was over.
    assert_eq!((told, played.health.failures()), (7_200 - 18, 7_200));
}

#[test]
fn nothing_is_told_of_an_outage_while_no_request_hears_of_it() {
    let played = Played::new();
    played.fails_with(0, FailureKind::Unreachable);

    // An hour without requests; then the first is decided.
    played.decides(3_600);

    let lines = played.lines();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    let told = ["lasted", "undecided", "passed"].map(|name| field(&lines[1], name));
    assert_eq!(told, ["3600s", "1", "1"]);
}
