//! The short form of `tests/fire.sh`: a schedule that is the same each time and one that never was before, and limiters that
//! are wrong on purpose.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use tollgate_fire::{Flaw, Forgery};

/// What `fire run` printed, and whether it found nothing wrong.
fn fire(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_fire"))
        .arg("run")
        .args(arguments)
        .output()
        .unwrap();
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (output.status.success(), text.concat())
}

fn nothing_is_wrong(arguments: &[&str]) {
    let (is_well, text) = fire(arguments);

    // With the seed, which stands in the first line, it can be run again.
    assert!(is_well, "{text}");
}

#[test]
fn one_server_under_the_same_faults_as_ever() {
    nothing_is_wrong(&["--topology", "single", "--seconds", "10", "--seed", "7"]);
}

#[test]
fn one_server_under_faults_that_never_were_before() {
    nothing_is_wrong(&["--topology", "single", "--seconds", "8"]);
}

#[test]
fn sentinels_under_faults_that_never_were_before() {
    nothing_is_wrong(&["--topology", "sentinel", "--seconds", "8"]);
}

#[test]
fn a_cluster_under_faults_that_never_were_before() {
    nothing_is_wrong(&["--topology", "cluster", "--seconds", "8"]);
}

/// The whole chain, from clients to checker, would have noticed.
#[test]
fn a_script_that_is_wrong_is_caught() {
    let caught = |forgery: Forgery| {
        let forge = ["--without-clock", "--forge", forgery.name()];
        let run = ["--topology", "single", "--seconds", "1", "--seed", "11"];
        let (is_well, text) = fire(&[&run[..], &forge].concat());

        // By what was decided or what stands there, and not because nothing could be.
        let told = ["WRONG: single: attempt", "keys never expire"];
        let is_told = told.iter().any(|wrong| text.contains(wrong));
        assert!(!is_well && is_told, "{forgery:?}: {text}");
    };
    // A few at a time: each is a server and four processes.
    for some in Forgery::ALL.chunks(4) {
        std::thread::scope(|scope| {
            for &forgery in some {
                scope.spawn(move || caught(forgery));
            }
        });
    }
}

/// The same of what a process does by itself: by what it let through, and not because nothing was decided.
#[test]
fn a_process_that_is_wrong_about_its_share_is_caught() {
    let caught = |flaw: Flaw| {
        // A server that refuses has surely taken nothing, so that whatever else is taken shows.
        // For so many outages that what happens between two of them by chance does not hide it.
        let run = ["--topology", "single", "--seconds", "18", "--without-clock"];
        let (is_well, text) =
            fire(&[&run[..], &["--only", "no memory", "--flaw", flaw.name()]].concat());

        assert!(
            !is_well && text.contains("WRONG: single: attempt"),
            "{flaw:?}: {text}"
        );
    };
    std::thread::scope(|scope| {
        for flaw in Flaw::ALL {
            scope.spawn(move || caught(flaw));
        }
    });
}
