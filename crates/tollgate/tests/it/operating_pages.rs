//! The pages for operators name what there is: each alert and each line of the log has its section, and each metric exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join("docs/operating").join(name)).unwrap()
}

/// The names of metrics in a text, without what Prometheus adds to those of histograms.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names = words.filter(|word| word.starts_with("rate_limiting_"));
    let plain = names.map(|name| {
        let ends = ["_bucket", "_count", "_sum"].into_iter();
        ends.fold(name, |name, end| name.strip_suffix(end).unwrap_or(name))
    });
    plain.map(str::to_owned).collect()
}

fn documented() -> BTreeSet<String> {
    let page = page("metrics.md");
    let rows = page
        .lines()
        .filter(|line| line.starts_with("| `rate_limiting"));
    rows.flat_map(metrics_in).collect()
}

#[test]
fn alerts_the_dashboard_and_the_runbook_name_metrics_that_exist() {
    let known = documented();
    assert!(known.len() > 20);
    for name in [
        "alerts.yml",
        "alerts_test.yml",
        "dashboard.json",
        "runbook.md",
    ] {
        let named = metrics_in(&page(name));
        assert!(!named.is_empty(), "{name}");
        let unknown: Vec<_> = named.difference(&known).collect();
        assert!(unknown.is_empty(), "{name}: {unknown:?}");
    }
}

#[test]
fn each_metric_has_a_place_on_the_dashboard() {
    let shown = metrics_in(&page("dashboard.json"));
    let missing: Vec<_> = documented()
        .into_iter()
        .filter(|name| !shown.contains(name))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_dashboard_is_json_with_a_question_for_each_panel() {
    let dashboard: serde_json::Value = serde_json::from_str(&page("dashboard.json")).unwrap();
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        assert!(title.ends_with('?'), "{title}");
        let targets = panel["targets"].as_array().unwrap();
        assert!(
            targets.iter().all(|target| target["expr"].is_string()),
            "{title}"
        );
    }
}

#[test]
fn each_alert_has_a_section_of_the_runbook_and_tests() {
    let (alerts, runbook, tests) = (
        page("alerts.yml"),
        page("runbook.md"),
        page("alerts_test.yml"),
    );
    let names = alerts
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    let names: Vec<_> = names.collect();
    assert!(names.len() >= 10);
    let sections = runbook.lines().filter_map(|line| line.strip_prefix("### "));
    assert_eq!(sections.collect::<Vec<_>>(), names);
    for name in names {
        let anchor = format!("runbook.md#{}\"", name.to_lowercase());
        assert!(alerts.contains(&anchor), "{name}");
        // It is silent, fires and is silent again.
        assert_eq!(
            tests.matches(&format!("alertname: {name}\n")).count(),
            3,
            "{name}"
        );
    }
}

/// The parts of a section, in the order in which they are read.
const PARTS: [&str; 4] = ["**Impact**", "**First command**", "**Decide**", "**Undo**"];

#[test]
fn each_alert_has_impact_first_command_decision_and_undo_in_this_order_and_none_is_code() {
    let runbook = page("runbook.md");
    for section in runbook.split("\n### ").skip(1) {
        let section = section.split("\n## ").next().unwrap();
        let (name, _) = section.split_once('\n').unwrap();
        let bold = section.match_indices("**").step_by(2);
        let parts = bold.filter_map(|(at, _)| {
            let part = PARTS.iter().find(|part| section[at..].starts_with(**part));
            part.copied()
        });
        assert_eq!(parts.collect::<Vec<_>>(), PARTS, "{name}");
        let (_, command) = section.split_once(PARTS[1]).unwrap();
        let (command, _) = command.split_once(PARTS[2]).unwrap();
        assert!(
            command.contains("`tollgate ") || command.contains("`curl "),
            "{name}: {command}"
        );
    }
    assert!(!runbook.contains("`limiter."));
}

/// A line of the log: its level, and its words.
#[derive(Clone, Debug)]
struct LogLine {
    level: String,
    words: String,
}

impl LogLine {
    fn new(level: &str, words: &str) -> Self {
        Self {
            level: level.to_owned(),
            words: words.to_owned(),
        }
    }
}

/// The messages whose words stand elsewhere, and these words.
const COMPOSED: [(&str, &[&str]); 7] = [
    (
        "{self}",
        &["HANDLER cannot be limited, so it is closed: REASON"],
    ),
    ("{why}", &["messages of REASON cannot be charged"]),
    ("{change}", &["POLICY: 10/s → 100/s; takes effect at once"]),
    (
        "{fails}",
        &["tiers cannot be asked for", "quotas cannot be asked for"],
    ),
    (
        "{is_flawed}",
        &["an answer is not a quota that the policy could have"],
    ),
    (
        "{is_fresh}",
        &["an identity has a quota of another algorithm or another window"],
    ),
    (
        "{is_back}",
        &[
            "tiers can be asked for again",
            "quotas can be asked for again",
        ],
    ),
];

/// The lines of the log that stand in the sources of what ships, each up to where a value comes in. A message that begins with a
/// value is whole.
fn logged() -> Vec<LogLine> {
    let mut files = Vec::new();
    for room in ["limiter", "http", "grpc", "redis", "memory"] {
        let mut folders = vec![root().join("crates").join(room).join("src")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.push(path);
                }
            }
        }
    }
    let mut lines = Vec::new();
    for file in files {
        let source = fs::read_to_string(file).unwrap();
        for level in ["error", "warn", "info", "debug"] {
            for call in source.split(&format!("tracing::{level}!(")).skip(1) {
                let call = call.split(");\n").next().unwrap();
                // The message is the first text that begins an argument.
                let arguments = call.split(['\n', '(']).chain(call.split(", "));
                let text = arguments
                    .map(str::trim)
                    .find_map(|line| line.strip_prefix('"'));
                let text = text.or_else(|| call.strip_prefix('"'));
                let Some(text) = text else { continue };
                let ends: &[char] = match text.starts_with('{') {
                    true => &['"'],
                    false => &['"', '{', '`', '\\'],
                };
                let end = text.find(ends).unwrap_or(text.len());
                let mut words = text[..end].trim();
                if let ("{}", Some((_, value))) = (words, call.rsplit_once("words.")) {
                    words = value.trim();
                }
                lines.push(LogLine::new(level, words));
            }
        }
    }
    lines.retain(|line| !line.words.is_empty());
    lines
}

#[test]
fn the_runbook_has_each_line_of_the_log_with_its_level_and_no_other() {
    // given
    let runbook = page("runbook.md");
    let rows = runbook.lines().filter_map(|line| line.strip_prefix("| `"));
    let stated = rows.map(|row| {
        let (words, rest) = row.split_once("` | ").unwrap();
        LogLine::new(rest.split(' ').next().unwrap(), words)
    });
    let stated: Vec<_> = stated.collect();
    let lines = logged();
    assert!(lines.len() > 20, "{lines:?}");
    let composed = |line: LogLine| {
        let name = line.words.trim_matches(['{', '}']).to_owned();
        let is_composed = line.words.starts_with('{') || !line.words.contains(' ');
        let known = COMPOSED
            .iter()
            .find(|(text, _)| text.trim_matches(['{', '}']) == name);
        match (is_composed, known) {
            (true, Some((_, words))) => words
                .iter()
                .map(|words| LogLine::new(&line.level, words))
                .collect(),
            (true, None) if line.words.starts_with('{') => {
                panic!("{line:?}: whose words are these?")
            }
            _ => vec![line],
        }
    };
    let logged: Vec<_> = lines.into_iter().flat_map(composed).collect();

    // then
    let are_one = |one: &LogLine, other: &LogLine| {
        one.level == other.level
            && (one.words.starts_with(&other.words) || other.words.starts_with(&one.words))
    };
    let without = |those: &[LogLine], these: &[LogLine]| {
        let has = |one: &LogLine| these.iter().any(|other| are_one(one, other));
        let lone = those.iter().filter(|one| !has(one)).cloned();
        lone.collect::<Vec<_>>()
    };
    let missing = without(&logged, &stated);
    assert!(missing.is_empty(), "the page has no line for {missing:?}");
    let stale = without(&stated, &logged);
    assert!(stale.is_empty(), "nothing logs {stale:?}");
}
