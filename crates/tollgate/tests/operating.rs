//! The pages for operators name what there is: each alert and each line of the log has its section, and each metric exists.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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
    for word in ["**Means**", "**Look at**", "**Do**"] {
        assert_eq!(
            runbook.matches(word).count(),
            runbook.matches("\n### ").count(),
            "{word}"
        );
    }
}

/// The rules are tried by Prometheus itself, which `tests/install.sh` installs.
#[test]
fn each_alert_fires_and_resolves_by_the_rules_of_prometheus() {
    let mut promtool = Command::new("promtool");
    let promtool = promtool.args(["test", "rules", "alerts_test.yml"]);
    let tested = promtool.current_dir(root().join("docs/operating")).output();
    let tested = tested.expect("promtool is missing: tests/install.sh installs it");
    let said = String::from_utf8_lossy(&tested.stdout) + String::from_utf8_lossy(&tested.stderr);
    assert!(tested.status.success(), "{said}");
}

/// The messages whose words stand elsewhere, and these words.
const COMPOSED: [(&str, &[&str]); 4] = [
    ("{self}", &["cannot be limited, so it is closed"]),
    ("{why}", &["messages of "]),
    ("{change}", &["POLICY: 10/s → 100/s"]),
    (
        "{}",
        &[
            "tiers cannot be asked for",
            "quotas cannot be asked for",
            "tiers can be asked for again",
            "quotas can be asked for again",
        ],
    ),
];

/// The messages of the log that stand in the sources of what ships, up to where a value comes in. A message that begins with a
/// value is whole.
fn logged() -> Vec<String> {
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
    let mut messages = Vec::new();
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
                messages.push(text[..end].trim().to_owned());
            }
        }
    }
    messages.retain(|message| !message.is_empty());
    messages
}

#[test]
fn each_line_of_the_log_stands_in_the_runbook() {
    let runbook = page("runbook.md");
    let lines = runbook.lines().filter_map(|line| line.strip_prefix("| `"));
    let lines: Vec<_> = lines.map(|line| line.split('`').next().unwrap()).collect();
    let messages = logged();
    assert!(messages.len() > 20, "{messages:?}");
    let is_told = |message: &String| {
        let is_meant =
            |line: &&str| message.starts_with(*line) || line.starts_with(message.as_str());
        lines.iter().any(is_meant)
    };
    let (composed, plain): (Vec<_>, Vec<_>) = messages.iter().partition(|it| it.starts_with('{'));
    for message in composed {
        let known = COMPOSED.iter().find(|(text, _)| text == message);
        let (_, words) = known.unwrap_or_else(|| panic!("{message:?}: whose words are these?"));
        for words in *words {
            assert!(lines.iter().any(|line| line.contains(words)), "{words:?}");
        }
    }
    let missing: Vec<_> = plain
        .into_iter()
        .filter(|message| !is_told(message))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
