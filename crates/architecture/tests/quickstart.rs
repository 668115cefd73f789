//! The quickstart builds light, so that a new user waits for less than a minute and not for five.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The crates that it may build, itself among them. There were 67 when the bound was set, and `README.md` says so.
const MOST: usize = 75;

#[test]
fn the_quickstart_builds_few_crates() {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--package=quickstart",
            "--prefix=none",
            "--edges=normal,build",
        ])
        .args(["--locked", "--offline", "--format={p}"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");

    let text = String::from_utf8(output.stdout).unwrap();
    let crates: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.split(' ').next())
        .filter(|name| !name.is_empty())
        .collect();
    assert!(crates.contains("axum"), "{crates:?}");
    assert!(crates.len() <= MOST, "{} crates: {crates:?}", crates.len());
}
