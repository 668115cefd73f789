//! `tollgate-bench load` drives a real server and prints its result.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::collections::BTreeSet;
use std::process::{Command, Output};

use serde_json::Value;
use tollgate_testkit::Standalone;

const FIELDS: [&str; 11] = [
    "requests",
    "allowed",
    "denied",
    "failed",
    "seconds",
    "p50_us",
    "p99_us",
    "p999_us",
    "script_calls",
    "bytes_out",
    "bytes_in",
];

fn load(url: &str, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate-bench"));
    command.args(["load", "--url", url]).args(options);
    command.output().expect("a process")
}

#[test]
fn one_line_of_json_says_what_was_decided_and_what_it_took() {
    for algorithm in [
        "gcra",
        "fixed-window",
        "sliding-window",
        "rolling-window",
        "sliding-log",
        "interval-refill",
    ] {
        let server = Standalone::start();
        // Nothing drains meanwhile.
        let options = [
            "--keys=3",
            "--in-flight=16",
            "--requests=300",
            "--quota=10/300day",
            "--deadline-ms=60000",
            &format!("--algorithm={algorithm}"),
        ];

        let output = load(&server.url(), &options);

        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stdout).expect("text");
        assert_eq!(said.lines().count(), 1, "{said}");
        let said: Value = serde_json::from_str(&said).expect("JSON");
        let fields: BTreeSet<_> = said.as_object().expect("an object").keys().collect();
        assert!(fields.iter().eq(&BTreeSet::from(FIELDS)), "{said}");
        let number = |field: &str| said[field].as_u64().expect(field);
        let decided = ["requests", "allowed", "denied", "failed"].map(number);
        assert_eq!(decided, [300, 30, 270, 0], "{algorithm}");
        assert!(number("p50_us") <= number("p99_us") && number("p99_us") <= number("p999_us"));
        // Sixteen are under way at any time, and travel together.
        assert!((1..300).contains(&number("script_calls")), "{said}");
        assert!(
            number("bytes_out") > 300 && number("bytes_in") > 300,
            "{said}"
        );
    }
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let output = load("redis://127.0.0.1:1/", &["--quota=10/s"]);

    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(said.contains("127.0.0.1:1"), "{said}");
    assert!(output.stdout.is_empty());
}
