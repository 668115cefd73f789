//! `tollgate-bench pace` drives two limiters, and the leased one asks a real server for little but its blocks.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::process::Command;

use serde_json::Value;
use tollgate_testkit::Standalone;

#[test]
fn decisions_out_of_blocks_ask_a_server_for_less_than_one_in_a_hundred() {
    let server = Standalone::start();
    let url = format!("--url={}", server.url());

    let output = Command::new(env!("CARGO_BIN_EXE_tollgate-bench"))
        .args(["pace", &url, "--turns=1"])
        .output()
        .expect("a process");

    assert!(output.status.success(), "{output:?}");
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let number = |field: &str| said[field].as_f64().expect(field);
    assert!(number("decisions") >= 500_000.0, "{said}");
    assert!(number("asked") * 100.0 <= number("decisions"), "{said}");
    for pace in ["memory_per_second", "leased_per_second", "leased_by_memory"] {
        assert!(number(pace) > 0.0, "{said}");
    }
}
