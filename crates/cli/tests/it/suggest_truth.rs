//! A log from a stated model, whose truth is known: `suggest` finds it, and `simulate` refuses what the model says.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::traffic;

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
fn by_requests_the_least_burst_refuses_no_more_of_them_and_one_less_does() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = Vec::new();
    traffic::write(20_000, &mut log).unwrap();
    fs::write(folder.path().join("access.log"), log).unwrap();

    let asked = [
        "suggest",
        "access.log",
        "--refuse",
        "5%",
        "--of",
        "requests",
    ];
    let suggested = report(&asked, folder.path());

    for choice in suggested["choices"].as_array().unwrap() {
        let [found, of_found] = numbers(&choice["found"], ["refused", "requests"]);
        let [checked, of_checked] = numbers(&choice["checked"], ["refused", "requests"]);
        assert!(found * 20 <= of_found, "{choice:#}");
        assert_eq!(
            of_found + of_checked,
            suggested["requests"].as_u64().unwrap()
        );
        // The library's limiter counts the same.
        assert_eq!(choice["refused_requests"], found + checked, "{choice:#}");
        // One less would refuse more, of one half or the other.
        let burst = choice["burst"].as_u64().unwrap();
        let rate = choice["quota"].as_str().unwrap().split(' ').next().unwrap();
        let quota = format!("{rate} burst {}", burst - 1);
        let limits = format!("policies = [{{ name = \"less\", quotas = \"{quota}\" }}]");
        fs::write(folder.path().join("limits.toml"), limits).unwrap();
        let replayed = report(&["simulate", "access.log", "limits.toml"], folder.path());
        let refused = replayed["replay"]["refused"].as_u64().unwrap();
        assert!(refused > found + checked, "{quota}: {refused}");
    }
}

#[test]
fn requests_under_way_are_counted_by_their_durations() {
    let folder = tempfile::tempdir().unwrap();
    let limits = "policies = [{ name = \"export\", quotas = \"2 at once\" }]";
    fs::write(folder.path().join("limits.toml"), limits).unwrap();
    let line = |at_ms: u64, duration: &str| {
        let time_us = 1_795_478_400_000_000 + at_ms * 1_000;
        format!("{{\"time_us\":{time_us},\"address\":\"192.0.2.1\",\"target\":\"/\",{duration}}}\n")
    };
    let log = [
        line(0, "\"duration_us\":100000"),
        line(10, "\"duration_ms\":20"),
        // Two are under way.
        line(20, "\"duration_us\":500000"),
        // The second has ended at this very time.
        line(30, "\"duration\":0.05"),
        line(79, "\"request_time\":\"0.001\""),
        // So has the fourth.
        line(80, "\"duration_us\":20001"),
        line(100, "\"duration_us\":1"),
        line(100, "\"duration_us\":1"),
    ];
    fs::write(folder.path().join("app.log"), log.concat()).unwrap();

    let replayed = report(
        &[
            "simulate",
            "app.log",
            "limits.toml",
            "--decisions",
            "decided",
        ],
        folder.path(),
    );

    let decided = fs::read_to_string(folder.path().join("decided")).unwrap();
    let refused = decided.lines().filter(|line| line.contains("refuse"));
    let refused: Vec<_> = refused.map(|line| &line[..1]).collect();
    assert_eq!(refused, ["3", "5", "8"], "{decided}");
    assert_eq!(replayed["replay"]["refused"], 3);
}

#[test]
fn by_costs_the_burst_is_in_units_of_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = String::new();
    for request in 0..60_u64 {
        // Twelve callers ask five times at once, for three units each.
        let time_us = 1_795_478_400_000_000 + request / 5 * 1_000;
        let address = request / 5;
        log += &format!(
            "{{\"time_us\":{time_us},\"address\":\"192.0.2.{address}\",\"method\":\"GET\",\"target\":\"/\",\"cost\":3}}\n"
        );
    }
    fs::write(folder.path().join("app.log"), log).unwrap();
    for (arguments, burst) in [
        (&["suggest", "app.log"][..], 5),
        (&["suggest", "app.log", "--costs"], 15),
    ] {
        let suggested = report(arguments, folder.path());

        assert_eq!(suggested["choices"][0]["burst"], burst, "{suggested:#}");
        assert_eq!(suggested["choices"][0]["refused_requests"], 0);
    }
}

#[test]
fn a_request_without_a_cost_counts_as_one_unit_and_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let line = |address: u64, target: &str, more: &str| {
        let time_us = 1_795_478_400_000_000 + address;
        format!(
            "{{\"time_us\":{time_us},\"address\":\"192.0.2.{address}\",\"target\":\"{target}\"{more}}}\n"
        )
    };
    let log = [
        line(1, "/", ",\"cost\":5000000000"),
        line(2, "/", ""),
        line(3, "/", ""),
        // No policy charges this one.
        line(4, "/free", ""),
    ];
    fs::write(folder.path().join("app.log"), log.concat()).unwrap();
    let limits =
        "policies = [{ name = \"api\", quotas = \"10/s\", cost = \"weight\", routes = [\"/\"] }]";
    fs::write(folder.path().join("limits.toml"), limits).unwrap();

    let replayed = report(&["simulate", "app.log", "limits.toml"], folder.path());
    // The first cost is more than any quota holds.
    let asked = ["suggest", "app.log", "--costs", "--of", "requests"];
    let suggested = report(&asked, folder.path());

    assert_eq!(replayed["without_cost"], 2, "{replayed:#}");
    assert_eq!(replayed["replay"]["refused"], 1, "{replayed:#}");
    assert_eq!(suggested["without_cost"], 3, "{suggested:#}");
    assert_eq!(suggested["choices"][0]["burst"], u32::MAX, "{suggested:#}");
}

#[test]
fn a_pipe_is_read_once_whatever_it_is_called() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = Vec::new();
    traffic::write(2_000, &mut log).unwrap();
    for (more, code, says) in [
        (&[][..], 0, "The log came from a pipe and was read once"),
        (&["--of", "requests"], 2, "a pipe can be read once"),
    ] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        let program = program.args(["suggest", "/dev/stdin"]).args(more);
        let program = program.current_dir(folder.path()).stdin(Stdio::piped());
        let program = program.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = program.spawn().unwrap();
        // It may be over without having read anything.
        let _written = running.stdin.take().unwrap().write_all(&log);
        let ran = running.wait_with_output().unwrap();

        assert_eq!(ran.status.code(), Some(code), "{ran:?}");
        let said = [ran.stdout, ran.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        assert!(said.contains(says), "{said}");
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

#[test]
fn a_quota_that_is_the_best_in_each_respect_is_shown_once() {
    let folder = tempfile::tempdir().unwrap();
    let line = |address: u64| {
        format!(
            "{{\"time_us\":1795478400000000,\"address\":\"192.0.2.{address}\",\"target\":\"/\"}}\n"
        )
    };
    let log = [line(1).repeat(3), line(2).repeat(3)];
    fs::write(folder.path().join("app.log"), log.concat()).unwrap();

    let mut program = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    let program = program.args(["suggest", "app.log"]);
    let output = program.current_dir(folder.path()).output().unwrap();

    let words = String::from_utf8(output.stdout).unwrap();
    let choice = "\none quota is the best in each respect\n  quotas = \"1/h burst 3\"\n    lets a caller do the least in any second and in any minute and in any hour: 3 in";
    assert!(words.contains(choice), "{words}");
    assert_eq!(words.matches("quotas = ").count(), 1, "{words}");
}
