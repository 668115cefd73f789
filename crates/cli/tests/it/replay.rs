//! Logs and limits from which a replay has to take more than the obvious: each is decided as a running limiter would.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::program::{Ran, tollgate};

const START_US: u64 = 1_795_478_400_000_000;

/// A log and the limits that decide it.
struct Case {
    folder: TempDir,
}

impl Case {
    fn of(limits: &str, log: impl AsRef<[u8]>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("limits.toml"), limits).unwrap();
        fs::write(folder.path().join("app.log"), log).unwrap();
        Self { folder }
    }

    fn run(&self, more: &[&str]) -> Ran {
        let arguments = ["simulate", "app.log", "limits.toml"];
        tollgate(self.folder.path(), &[&arguments, more].concat())
    }

    fn json(&self, more: &[&str]) -> Value {
        let ran = self.run(&[more, &["--json"]].concat());
        serde_json::from_str(ran.words()).unwrap()
    }

    /// The numbers of the refused lines.
    fn refused(&self, more: &[&str]) -> Vec<u64> {
        let ran = self.run(&[more, &["--decisions", "decided"]].concat());
        ran.words();
        let decided = fs::read_to_string(self.folder.path().join("decided")).unwrap();
        let refused = decided.lines().filter(|line| line.contains("refuse"));
        let numbers = refused.map(|line| line.split(' ').next().unwrap().parse().unwrap());
        numbers.collect()
    }
}

/// A line of JSON at a time, with these further fields.
fn line(at_ms: u64, more: &str) -> String {
    let time_us = START_US + at_ms * 1_000;
    format!("{{\"time_us\":{time_us},\"address\":\"192.0.2.1\",\"target\":\"/\"{more}}}\n")
}

#[test]
fn places_of_a_tier_come_back_at_the_end_of_a_request() {
    let limits = r#"
        [[policies]]
        name = "api"
        quotas = "30/min"
        key = { header = "x-api-key" }
        tiers = { by = { gold-key = "gold" }, quotas = { gold = "2 at once" } }
    "#;
    let more = ",\"http_x_api_key\":\"gold-key\",\"duration_us\":1000";
    let log: String = (0..20).map(|request| line(request * 10, more)).collect();

    assert!(Case::of(limits, log).refused(&[]).is_empty());
}

#[test]
fn a_tier_that_waits_is_told_by_its_policy_before_the_log_is_read() {
    let limits = r#"
        [[policies]]
        name = "api"
        quotas = "30/min"
        key = { header = "x-api-key" }
        tiers = { by = { gold-key = "gold" }, quotas = { gold = "10/s burst 1 wait 2s" } }
    "#;
    let ran = Case::of(limits, line(0, "")).run(&[]);

    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.err.contains("policy api: it lets requests wait"),
        "{ran:?}"
    );
}

#[test]
fn places_on_trial_come_back_from_requests_that_another_policy_refuses() {
    let limits = r#"
        [[policies]]
        name = "rate"
        quotas = "1/h burst 1"

        [[policies]]
        name = "places"
        quotas = "2 at once"
        shadow = true
    "#;
    let more = ",\"duration_us\":1000";
    let log: String = (0..10).map(|request| line(request * 10, more)).collect();
    let report = Case::of(limits, log).json(&[]);

    assert_eq!(report["replay"]["refused"], 9);
    let policies = report["replay"]["policies"].as_array().unwrap();
    let places = policies.iter().find(|policy| policy["policy"] == "places");
    assert_eq!(places.unwrap()["would_refuse_on_trial"], 0, "{report:#}");
}

#[test]
fn a_line_without_a_duration_matters_only_where_one_is_needed_and_counts_as_garbled_there() {
    let limits = r#"
        [[policies]]
        name = "export"
        quotas = "1 at once"
        routes = ["/"]

        [[policies]]
        name = "rest"
        quotas = "1/h burst 2"
        routes = ["/rest"]
    "#;
    let elsewhere = line(0, "").replace("\"/\"", "\"/rest\"");
    let log = [
        line(0, ",\"duration\":\"-\""),
        line(0, ",\"duration_us\":1000"),
        line(0, ",\"duration_us\":null"),
        elsewhere.clone(),
        elsewhere.clone(),
        elsewhere,
        line(0, ",\"duration_us\":1000"),
    ];
    let case = Case::of(limits, log.concat());

    assert_eq!(case.refused(&["--garbled", "30%"]), [6, 7]);
    let report = case.json(&["--garbled", "30%"]);
    assert_eq!(report["garbled"]["lines"], 2);
    assert_eq!(report["garbled"]["samples"][0]["line"], 1);
    assert_eq!(report["replay"]["requests"], 5);
    let ran = case.run(&[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.err.contains("line 1: policy export limits how many")
            && ran.err.contains("--without export"),
        "{ran:?}"
    );
    assert_eq!(case.refused(&["--without", "export"]), [6]);
}

#[test]
fn a_caller_in_the_notation_of_a_socket_for_both_families_is_itself() {
    let limits = "policies = [{ name = \"api\", quotas = \"10/s\" }]";
    let addresses = [1, 2, 3].map(|n| format!("::ffff:192.0.2.{n}"));
    let lines = addresses.map(|address| line(0, "").replace("192.0.2.1", &address));
    let ran = Case::of(limits, lines.concat() + &line(0, "")).run(&[]);

    assert!(ran.words().contains("4 requests of 3 addresses"), "{ran:?}");
}

#[test]
fn a_request_whose_end_is_logged_begins_as_much_earlier_as_it_took() {
    let limits = "policies = [{ name = \"export\", quotas = \"1 at once\" }]";
    let ended = |at_ms: u64, took: &str| {
        let whole = format!(
            "{}.{:03}",
            START_US / 1_000_000 + at_ms / 1_000,
            at_ms % 1_000
        );
        format!(
            "{{\"msec\":{whole},\"remote_addr\":\"192.0.2.1\",\"uri\":\"/\",\"request_time\":{took}}}\n"
        )
    };
    // From 0 to 1,000 ms, from 1,500 to 2,000 ms, and from 900 to 2,100 ms, when the first is under way.
    let log = [
        ended(1_000, "1.000"),
        ended(2_000, "0.500"),
        ended(2_100, "1.200"),
    ]
    .concat();
    let case = Case::of(limits, &log);

    assert_eq!(case.refused(&["--reorder", "2s"]), [3]);
    let unsorted = case.run(&[]);
    assert!(
        unsorted.err.contains("such as --reorder 1s"),
        "{unsorted:?}"
    );
    // A rate needs no durations, and no sorting.
    let limits = "policies = [{ name = \"api\", quotas = \"1/h burst 2\" }]";
    assert_eq!(Case::of(limits, &log).refused(&[]), [3]);
}

#[test]
fn durations_beside_the_time_that_envoy_logs_are_milliseconds() {
    let limits = "policies = [{ name = \"export\", quotas = \"1 at once\" }]";
    let log = ["10:00:00.000", "10:00:00.005", "10:00:00.010"].map(|time| {
        format!("{{\"start_time\":\"2026-11-25T{time}Z\",\"ip\":\"192.0.2.1\",\"path\":\"/\",\"duration\":10}}\n")
    });
    let case = Case::of(limits, log.concat());

    assert_eq!(case.refused(&[]), [2]);
    let in_seconds = ["--field", "duration=duration"];
    assert_eq!(case.refused(&in_seconds), [2, 3]);
}

#[test]
fn plain_lines_of_proxies_tell_how_long_their_requests_took() {
    // The third begins while the first is under way; the second and the fourth do not.
    let envoy = |began: &str, took_ms: u32| {
        format!(
            "[2026-11-25T10:00:{began}Z] \"GET / HTTP/1.1\" 200 - 0 5 {took_ms} 1 \"192.0.2.1\" \"curl\" \"id\" \"host\" \"up\""
        )
    };
    // As the balancer writes it, at the end of a request: it knows when that began, or the times of its parts alone.
    let balancer = |ended: &str, parts: &str, behind: &str| {
        format!(
            "http 2026-11-25T10:00:{ended}Z app/web/1 192.0.2.1:4711 10.0.0.1:80 {parts} 200 200 1 2 \"GET http://a.example:80/ HTTP/1.1\" \"curl\"{behind}"
        )
    };
    let created = |began: &str| {
        format!(
            " - - arn:aws:group \"Root=1\" \"-\" \"-\" 0 2026-11-25T10:00:{began}Z \"forward\" \"-\""
        )
    };
    let edge = |ended: &str, took: &str| {
        format!("2026-11-25\t10:00:{ended}\t192.0.2.1\tGET\t/\t200\t{took}")
    };
    let columns = "#Fields: date time c-ip cs-method cs-uri-stem sc-status time-taken";
    for (log, refused) in [
        (
            vec![
                envoy("01.000", 500),
                envoy("01.500", 1_000),
                envoy("02.499", 1),
                envoy("02.500", 1),
            ],
            vec![3],
        ),
        (
            vec![
                balancer("01.500000", "-1 -1 -1", &created("01.000000")),
                balancer("02.500000", "0.000 0.999 0.001", ""),
                // It was refused before a target was found, and began earlier than the one above it ended.
                balancer("02.600000", "-1 -1 -1", &created("02.499999")),
                balancer("02.700000", "0.001 0.198 0.001", ""),
            ],
            vec![3],
        ),
        (
            vec![
                columns.to_owned(),
                edge("01", "0.500"),
                edge("02", "1.000"),
                edge("03", "1.001"),
                edge("03", "0.999"),
            ],
            vec![4],
        ),
    ] {
        let limits = "policies = [{ name = \"export\", quotas = \"1 at once\" }]";
        let case = Case::of(limits, log.join("\n"));
        assert_eq!(case.refused(&["--reorder", "2s"]), refused, "{log:#?}");
    }
    // The line does not tell it: no target answered, and nothing says when the request came.
    let limits = "policies = [{ name = \"export\", quotas = \"1 at once\" }]";
    let ran = Case::of(limits, balancer("01.000000", "-1 -1 -1", "")).run(&[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("does not tell how long"), "{ran:?}");
}

#[test]
fn policies_are_left_out_of_both_files() {
    let policy = |name: &str| {
        format!("[[policies]]\nname = \"{name}\"\nquotas = \"1/h burst 1\"\nroutes = [\"/\"]\n")
    };
    let case = Case::of(&(policy("kept") + &policy("new")), line(0, "").repeat(3));
    let old = policy("old").replace("1/h burst 1", "1 at once");
    fs::write(case.folder.path().join("old.toml"), policy("kept") + &old).unwrap();
    let against = ["--against", "old.toml", "--without", "old"];

    let report = case.json(&[&against[..], &["--without", "new"]].concat());
    let ran = case.run(&[&against[..], &["--without", "none"]].concat());

    assert_eq!(report["against"]["newly_refused"], 0, "{report:#}");
    assert_eq!(report["replay"]["refused"], 2, "{report:#}");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let says = "--without none: neither limits.toml nor old.toml has such a policy";
    assert!(ran.err.contains(says), "{ran:?}");
}

#[test]
fn a_key_that_is_not_ascii_is_a_key() {
    let limits =
        "policies = [{ name = \"api\", quotas = \"1/h burst 1\", key = { header = \"x-user\" } }]";
    let more = |user: &str| format!(",\"http_x_user\":\"{user}\"");
    let log = ["zoë", "zoë", "chloë"].map(|user| line(0, &more(user)));
    let case = Case::of(limits, log.concat());

    assert_eq!(case.refused(&[]), [2]);
    assert_eq!(case.json(&[])["unroutable"], 0);
}

#[test]
fn lines_of_cloudfront_have_the_columns_that_were_named_before_them() {
    let limits = "policies = [{ name = \"api\", quotas = \"1/h burst 1\" }]";
    let log = [
        "#Version: 1.0",
        "#Fields: date time c-ip cs-method cs-uri-stem sc-status",
        "2026-11-25\t10:00:00\t192.0.2.1\tGET\t/\t200",
        "#Fields: c-ip date time cs-method cs-uri-stem sc-status",
        "192.0.2.1\t2026-11-25\t10:00:01\tGET\t/\t200",
        "",
    ];
    let case = Case::of(limits, log.join("\n"));

    for more in [&[][..], &["--reorder", "10s"]] {
        assert_eq!(case.json(more)["replay"]["requests"], 2);
        assert_eq!(case.refused(more), [5]);
    }
}

#[test]
fn a_garbled_line_is_told_with_its_reason_in_every_format() {
    let long = format!("192.0.2.1 - - [{}", "x".repeat(70_000));
    for (format, text, reason) in [
        ("combined", long.as_str(), "longer than 65536 bytes"),
        (
            "cloudfront",
            "2026-11-25\t10:00:00\t192.0.2.1\tGET\t/\t200",
            "no #Fields line stands before it",
        ),
        (
            "cloudfront",
            "#Fields: date time cs-method cs-uri-stem\n2026-11-25\t10:00:00\tGET\t/",
            "no address in c-ip",
        ),
        (
            "envoy",
            "[2026-11-25T10:00:00.000Z] \"GET / HTTP/1.1\" 200 - 0 1 2 1 \"-\" \"curl\" \"id\" \"host\" \"up\"",
            "no address in X-Forwarded-For: set use_remote_address in Envoy",
        ),
        (
            "json",
            "{\"time\":-1,\"ip\":\"192.0.2.1\",\"path\":\"/\"}",
            "no time that can be read",
        ),
        (
            "json",
            "{\"time\":1,\"ip\":{\"v4\":1},\"path\":\"/\"}",
            "no address that can be read",
        ),
        (
            "json",
            "{\"time\":1,\"ip\":[\"192.0.2.1\"],\"path\":\"/\"}",
            "no address that can be read",
        ),
        (
            "json",
            "{\"time\":1,\"ip\":\"192.0.2.1\",\"path\":\"/\",\"status\":true}",
            "invalid status",
        ),
        (
            "json",
            "{\"time\":1,\"ip\":\"192.0.2.1\",\"path\":\"/\",\"cost\":-1}",
            "invalid cost",
        ),
        ("json", "{\"time\":1", "not an object of JSON"),
    ] {
        let limits = "policies = [{ name = \"api\", quotas = \"1/h burst 1\" }]";
        let ran = Case::of(limits, text).run(&["--format", format]);

        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(
            ran.err.contains(&format!(": {reason}: ")),
            "{reason}: {ran:?}"
        );
    }
}

#[test]
fn a_log_that_is_cut_or_corrupt_and_a_file_that_cannot_be_written_are_told() {
    let limits = "policies = [{ name = \"api\", quotas = \"1/h burst 1\" }]";
    let whole = |name: &str| fs::read(format!("tests/cmd/simulate.in/{name}")).unwrap();
    for name in ["access.log.gz", "access.log.zst"] {
        let mut cut = whole(name);
        cut.truncate(cut.len() / 2);
        let mut corrupt = whole(name);
        let middle = corrupt.len() / 2;
        corrupt[middle..middle + 16].fill(0xff);
        for log in [cut, corrupt] {
            // Whatever its lines have become.
            let ran = Case::of(limits, log).run(&["--reorder", "9h", "--garbled", "100%"]);
            assert_eq!(ran.code, Some(1), "{name}: {ran:?}");
            assert!(ran.err.starts_with("error: app.log: "), "{name}: {ran:?}");
            assert!(ran.out.is_empty(), "{name}: {ran:?}");
        }
    }
    let ran = Case::of(limits, line(0, "")).run(&["--decisions", "nowhere/decided"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.starts_with("error: nowhere/decided: "), "{ran:?}");
}

#[test]
fn a_mark_before_the_text_and_other_ends_of_lines_do_not_matter() {
    let limits = "policies = [{ name = \"api\", quotas = \"1/h burst 1\" }]";
    let lines = line(0, "").repeat(2).replace('\n', "\r\n");

    assert_eq!(
        Case::of(limits, format!("\u{feff}{lines}")).refused(&[]),
        [2]
    );
}

#[test]
fn the_page_has_the_tables_of_tiers_costs_and_places() {
    let limits = r#"
        [[policies]]
        name = "api"
        quotas = "30/min; 5 at once"
        key = { header = "x-api-key" }
        tiers = { by = { gold-key = "gold" }, quotas = { gold = "60/min" } }
        cost = "weight"
    "#;
    let more = ",\"http_x_api_key\":\"gold-key\",\"duration_us\":1000,\"cost\":7";
    let case = Case::of(limits, line(0, more));

    case.run(&["--html", "page.html"]).words();

    let page = fs::read_to_string(case.folder.path().join("page.html")).unwrap();
    for says in [
        ">Tiers<",
        ">gold<",
        ">Costs<",
        ">7<",
        ">Requests under way, refused or not<",
        ">gold-key<",
    ] {
        assert!(page.contains(says), "{says}: {page}");
    }
}

#[test]
fn a_target_that_no_server_routes_is_charged_by_no_policy_whatever_it_limits() {
    let by_address = "policies = [{ name = \"api\", quotas = \"2/h\" }]";
    let by_route =
        "policies = [{ name = \"api\", quotas = \"2/h\", exempt_routes = [\"/health\"] }]";
    let target = |target: &str| line(0, "").replace("\"/\"", target);
    let log = [
        target(r#""/a<b>""#),
        target(r#""no/path""#),
        target(r#""/a|b""#),
        target(r#""/\u0001""#),
        target(r#""/~a:b@c;d!""#),
        target(r#""/last""#),
    ];
    for limits in [by_address, by_route] {
        let case = Case::of(limits, log.concat());
        let report = case.json(&[]);
        assert_eq!(report["unroutable"], 3, "{limits}: {report:#}");
        assert_eq!(
            report["replay"]["policies"][0]["covered"], 3,
            "{limits}: {report:#}"
        );
        assert_eq!(case.refused(&[]), [6], "{limits}");
    }
}
