//! The short form of `tests/fire.sh`: one fixed schedule and one new one, and limiters with deliberate defects.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use tollgate_fire::{Flaw, Forgery};

/// The output of `fire run`, and true if it found nothing wrong.
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

    // The seed stands in the first line, and repeats the run.
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

/// The number of runs in which a defect may go unseen: the machine decides how many requests and outages meet it in a run.
const TRIES: usize = 6;

/// The whole chain, from clients to checker, would notice.
#[test]
fn a_script_that_is_wrong_is_caught() {
    let caught = |forgery: Forgery| {
        let forge = ["--without-clock", "--forge", forgery.name()];
        let run = ["--topology", "single", "--seconds", "1", "--seed", "11"];
        let run = [&run[..], &forge].concat();
        // By a finding about a decision or a key, and not because the run failed.
        let told = [
            "WRONG: single: attempt",
            "WRONG: single: key",
            "WRONG: single: knock",
            "WRONG: single: order",
            "keys never expire",
        ];
        let is_caught = (0..TRIES).any(|_| {
            let (is_well, text) = fire(&run);
            !is_well && told.iter().any(|wrong| text.contains(wrong))
        });
        assert!(is_caught, "{forgery:?}");
    };
    let soon: Vec<_> = { Forgery::ALL.into_iter() }
        .filter(|forgery| !forgery.takes_a_lease() && !forgery.takes_a_midnight())
        .collect();
    // A few at a time: each is a server and four processes.
    for some in soon.chunks(6) {
        std::thread::scope(|scope| {
            for &forgery in some {
                scope.spawn(move || caught(forgery));
            }
        });
    }
}

/// Leases of twelve seconds, which must run out or be renewed: clients die, and then there are no faults. The rule that a call is
/// void which was given up has no defect here: no fault of ours lets a telling overtake such a call, and all orders of both are
/// tried in `crates/redis/src/wire/differential/held/orders.rs`.
#[test]
fn a_script_that_is_wrong_about_leases_is_caught() {
    let caught = |forgery: Forgery| {
        let forge = ["--without-clock", "--forge", forgery.name()];
        let run = ["--topology", "single", "--seconds", "1", "--seed", "11"];
        let still = ["--only", "client killed", "--still", "27"];
        let run = [&run[..], &forge, &still].concat();
        // It is a matter of chance how many places a client holds that dies.
        let is_caught = (0..TRIES / 2).any(|_| {
            let (is_well, text) = fire(&run);
            !is_well && text.contains("WRONG: single: key")
        });
        assert!(is_caught, "{forgery:?}");
    };
    let late = Forgery::ALL.into_iter();
    std::thread::scope(|scope| {
        for forgery in late.filter(|forgery| forgery.takes_a_lease()) {
            scope.spawn(move || caught(forgery));
        }
    });
}

/// The servers' clock shows a midnight in the middle of the run.
#[test]
fn a_script_that_is_wrong_about_midnight_is_caught() {
    let midnight = |forgery: &Forgery| forgery.takes_a_midnight();
    for forgery in Forgery::ALL.into_iter().filter(midnight) {
        let run = ["--topology", "single", "--seconds", "8", "--seed", "11"];
        let only = ["--only", "SCRIPT FLUSH", "--forge", forgery.name()];
        let run = [&run[..], &only].concat();
        let is_caught = (0..TRIES).any(|_| {
            let (is_well, text) = fire(&run);
            !is_well && text.contains("WRONG: single: attempt")
        });
        assert!(is_caught, "{forgery:?}");
    }
}

/// A process with a defect in its share is caught by the charges that it let through, and not because nothing was decided.
#[test]
fn a_process_that_is_wrong_about_its_share_is_caught() {
    let caught = |flaw: Flaw| {
        // A server that refuses has surely taken nothing, so that any other charge shows.
        let run = ["--topology", "single", "--seconds", "12", "--without-clock"];
        let run = [&run[..], &["--only", "no memory", "--flaw", flaw.name()]].concat();
        let is_caught = (0..TRIES).any(|_| {
            let (is_well, text) = fire(&run);
            !is_well
                && ["attempt", "knock", "order"]
                    .iter()
                    .any(|of| text.contains(&format!("WRONG: single: {of}")))
        });
        assert!(is_caught, "{flaw:?}");
    };
    std::thread::scope(|scope| {
        for flaw in Flaw::ALL.into_iter().filter(|flaw| !flaw.is_of_line()) {
            scope.spawn(move || caught(flaw));
        }
    });
}

/// A process that lets too many or too few wait, or that does not close its line or give turns back, is caught. Nothing else is
/// done to it: a turn is surely lost only if nothing was in the way of its credit.
#[test]
fn a_process_that_is_wrong_about_its_line_is_caught() {
    let caught = |flaw: Flaw| {
        let run = ["--topology", "single", "--seconds", "1", "--still", "10"];
        let only = ["--only", "CLIENT KILL", "--without-clock"];
        let run = [&run[..], &only, &["--flaw", flaw.name()]].concat();
        let is_caught = (0..TRIES).any(|_| {
            let (is_well, text) = fire(&run);
            !is_well && text.contains("WRONG: single: attempt")
        });
        assert!(is_caught, "{flaw:?}");
    };
    std::thread::scope(|scope| {
        for flaw in Flaw::ALL.into_iter().filter(|flaw| flaw.is_of_line()) {
            scope.spawn(move || caught(flaw));
        }
    });
}
