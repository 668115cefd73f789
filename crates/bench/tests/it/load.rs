//! `tollgate-bench load` drives a real server and prints its result.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::collections::BTreeSet;
use std::process::{Command, Output};
use std::thread;
use std::time::Instant;

use serde_json::Value;
use tollgate_testkit::Standalone;

const FIELDS: [&str; 12] = [
    "requests",
    "allowed",
    "denied",
    "failed",
    "seconds",
    "p50_us",
    "p99_us",
    "p999_us",
    "known_denials",
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
            "--ask-every-denial",
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
        assert_eq!(number("known_denials"), 0);
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

/// They ask again at once, as clients without a pause do.
#[test]
fn four_processes_far_above_a_limit_reach_the_server_with_less_than_one_request_in_a_hundred() {
    const REQUESTS: u64 = 500_000;
    let server = Standalone::start();
    let url = server.url();
    let requests = format!("--requests={REQUESTS}");
    let options = ["--keys=1", "--in-flight=4", "--quota=10/s", &requests];
    let started = Instant::now();

    let outputs: Vec<_> = thread::scope(|scope| {
        let processes = [(); 4].map(|()| {
            let options = [options.as_slice(), &["--deadline-ms=60000"]].concat();
            let url = &url;
            scope.spawn(move || load(url, &options))
        });
        processes.map(|process| process.join().unwrap()).into()
    });

    let seconds = started.elapsed().as_secs() + 1;
    let said = outputs.iter().map(|output| {
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON")
    });
    let said: Vec<_> = said.collect();
    let sum = |field: &str| -> u64 { said.iter().map(|said| said[field].as_u64().unwrap()).sum() };
    let all = 4 * REQUESTS;
    assert_eq!(sum("failed"), 0);
    let reached = all - sum("known_denials");
    assert!(reached * 100 <= all, "{reached} of {all}");
    // A burst of ten, and ten a second.
    let admitted = sum("allowed");
    assert!(
        (10..=10 + 10 * seconds).contains(&admitted),
        "{admitted} in {seconds} s"
    );
}
