//! A log from a stated model, whose truth is known: `suggest` finds it, and `simulate` refuses what the model says.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/traffic.rs"]
mod traffic;

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The report of the program as JSON.
fn report(arguments: &[&str], log: &Path) -> Value {
    let mut program = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    let output = program
        .args(arguments)
        .arg("--json")
        .current_dir(log)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn numbers(value: &Value, names: [&str; 2]) -> [u64; 2] {
    names.map(|name| value[name].as_u64().unwrap())
}

#[test]
fn suggest_finds_the_readers_burst_and_the_callers_that_are_none() {
    // Readers load a page of 8 requests in a second, and never two pages within 10 s. Three callers are not like that.
    let folder = tempfile::tempdir().unwrap();
    let mut log = Vec::new();
    traffic::write(60_000, &mut log).unwrap();
    fs::write(folder.path().join("access.log"), log).unwrap();

    let report = report(&["suggest", "access.log", "--refuse", "1%"], folder.path());

    // At one a second a page has gone before the next one comes: the burst is a page, and only the three are refused.
    let frontier = report["frontier"].as_array().unwrap();
    let at = |rate: &str| frontier.iter().find(|point| point["rate"] == rate).unwrap();
    for rate in ["1/s", "2/s"] {
        let point = at(rate);
        assert_eq!(point["burst"], 8, "{point:#}");
        let [found, of_found] = numbers(&point["found"], ["refused", "callers"]);
        let [checked, of_checked] = numbers(&point["checked"], ["refused", "callers"]);
        assert_eq!(
            (found + checked, of_found + of_checked),
            (3, report["callers"].as_u64().unwrap())
        );
    }
    // The choice for a second is that page, and the three are the callers that need most.
    assert_eq!(report["choices"][0]["burst"], 8);
    let callers = report["top_callers"].as_array().unwrap();
    let mut top: Vec<_> = callers
        .iter()
        .take(3)
        .map(|caller| caller["caller"].as_str().unwrap())
        .collect();
    top.sort_unstable();
    let mut three = [traffic::OFFICE, traffic::SCANNER, traffic::BROKEN];
    three.sort_unstable();
    assert_eq!(top, three);
    // No choice refuses more than a hundredth of the callers from which it was found.
    for choice in report["choices"].as_array().unwrap() {
        let [refused, callers] = numbers(&choice["found"], ["refused", "callers"]);
        assert!(refused * 100 <= callers, "{choice:#}");
    }
}

#[test]
fn a_suggested_quota_refuses_in_a_replay_what_was_suggested() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = Vec::new();
    traffic::write(20_000, &mut log).unwrap();
    fs::write(folder.path().join("access.log"), log).unwrap();

    let suggested = report(&["suggest", "access.log", "--refuse", "3%"], folder.path());

    for choice in suggested["choices"].as_array().unwrap() {
        let limits = format!(
            "policies = [{{ name = \"suggested\", quotas = {} }}]",
            choice["quota"]
        );
        fs::write(folder.path().join("limits.toml"), limits).unwrap();
        let replayed = &report(&["simulate", "access.log", "limits.toml"], folder.path())["replay"];
        assert_eq!(
            replayed["refused"], choice["refused_requests"],
            "{choice:#}"
        );
        let [found, checked] =
            ["found", "checked"].map(|half| choice[half]["refused"].as_u64().unwrap());
        assert_eq!(replayed["refused_callers"], found + checked, "{choice:#}");
    }
}
