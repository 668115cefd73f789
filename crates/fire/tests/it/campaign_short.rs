//! The short form of `tests/fire.sh`: one fixed schedule and one new one, and limiters with deliberate defects.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

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

#[test]
fn one_server_behind_a_real_envoy_under_faults_that_never_were_before() {
    nothing_is_wrong(&["--topology", "single", "--seconds", "10", "--envoy"]);
}

/// Others get its places, and it says so when it goes on.
#[test]
fn a_process_that_holds_places_is_stopped_for_longer_than_its_lease() {
    let only = ["--topology", "single", "--seconds", "1", "--only"];
    let (is_well, text) = fire(&[&only[..], &["holder stopped"]].concat());
    assert!(is_well, "{text}");
    assert!(text.contains("single: holder stopped 1"), "{text}");
}

/// The number of runs in which a defect may go unseen: the machine decides how many requests and outages meet it in a run.
const TRIES: u64 = 10;

/// Runs with a defect until a finding about a decision or a key tells of it. A run that was not done, because there was no disk
/// or no server for it, shows nothing, and the last one is told. Each run is of a seed of its own and longer than the one before,
/// so that a slow machine comes to the cases that matter.
fn is_caught(what: &str, seconds: u64, arguments: &[&str], told: &[&str]) {
    let mut last = String::new();
    for number in 0..TRIES {
        let (seconds, seed) = ((seconds + number).to_string(), (11 + number).to_string());
        let run = [
            "--topology",
            "single",
            "--seconds",
            &seconds,
            "--seed",
            &seed,
        ];
        let (is_well, text) = fire(&[&run[..], arguments].concat());
        let is_told = |of: &&str| {
            let mut wrongs = text
                .lines()
                .filter_map(|line| line.strip_prefix("WRONG: single: "));
            wrongs.any(|wrong| wrong.contains(of))
        };
        if !is_well && told.iter().any(is_told) {
            return;
        }
        last = text;
    }
    panic!("{what} went unseen in {TRIES} runs, the last of which said: {last}");
}

/// The whole chain, from clients to checker, would notice.
#[test]
fn a_script_that_is_wrong_is_caught() {
    let caught = |forgery: Forgery| {
        let forge = ["--without-clock", "--forge", forgery.name()];
        // By a finding about a decision or a key, and not because the run failed.
        let told = ["attempt", "key", "knock", "order", "keys never expire"];
        is_caught(forgery.name(), 1, &forge, &told);
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

/// Leases of twelve seconds, which must run out or be renewed: clients die, and then there are no faults. The rule "a call that
/// was given up is void" has no defect here: no fault of ours lets a telling overtake such a call, and all orders of both are
/// tried in `crates/redis/src/wire/differential/held/orders.rs`.
#[test]
fn a_script_that_is_wrong_about_leases_is_caught() {
    let caught = |forgery: Forgery| {
        let still = [
            "--without-clock",
            "--only",
            "client killed",
            "--still",
            "27",
        ];
        let run = [&still[..], &["--forge", forgery.name()]].concat();
        // Chance decides how many places a dying client holds.
        is_caught(forgery.name(), 1, &run, &["key"]);
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
        let only = ["--only", "SCRIPT FLUSH", "--forge", forgery.name()];
        is_caught(forgery.name(), 8, &only, &["attempt"]);
    }
}

/// A process with a defect in its share is caught by the charges that it let through, and not because nothing was decided.
#[test]
fn a_process_that_is_wrong_about_its_share_is_caught() {
    let caught = |flaw: Flaw| {
        // A server that refuses has surely taken nothing, so that any other charge shows.
        let only = ["--without-clock", "--only", "no memory", "--flaw"];
        let run = [&only[..], &[flaw.name()]].concat();
        is_caught(
            flaw.name(),
            12,
            &run,
            &["attempt", "knock", "order", "leased"],
        );
    };
    std::thread::scope(|scope| {
        let others =
            |flaw: &Flaw| !flaw.is_of_line() && !flaw.is_of_gateway() && !flaw.shows_nothing();
        for flaw in Flaw::ALL.into_iter().filter(others) {
            scope.spawn(move || caught(flaw));
        }
    });
}

/// A process that lets too many or too few wait, or that does not close its line or give turns back, is caught. Nothing else is
/// done to it: a turn is surely lost only if nothing was in the way of its credit.
#[test]
fn a_process_that_is_wrong_about_its_line_is_caught() {
    let caught = |flaw: Flaw| {
        let only = ["--only", "CLIENT KILL", "--without-clock", "--still", "10"];
        let run = [&only[..], &["--flaw", flaw.name()]].concat();
        is_caught(flaw.name(), 1, &run, &["attempt"]);
    };
    std::thread::scope(|scope| {
        for flaw in Flaw::ALL.into_iter().filter(|flaw| flaw.is_of_line()) {
            scope.spawn(move || caught(flaw));
        }
    });
}

/// The only client asks through Envoy, so that nothing else can have noticed.
#[test]
fn what_is_wrong_behind_an_envoy_is_caught_through_it() {
    let through_envoy = |what: &'static str, defect: [&str; 2], told: &[&str]| {
        let only = ["--without-clock", "--envoy", "--clients", "1"];
        is_caught(what, 2, &[&only[..], &defect].concat(), told);
    };
    std::thread::scope(|scope| {
        for forgery in [Forgery::DoubleCharge, Forgery::SkipWrite] {
            let name = forgery.name();
            scope.spawn(move || through_envoy(name, ["--forge", name], &["attempt"]));
        }
        for (flaw, told) in [
            (Flaw::LetsThrough, "told HttpAnswer { status: 200"),
            (Flaw::NeverAnswers, "answered after"),
        ] {
            let name = flaw.name();
            scope.spawn(move || through_envoy(name, ["--flaw", name], &[told]));
        }
    });
}

#[test]
fn a_run_without_a_fault_of_the_wanted_name_fails() {
    let only = [
        "--topology",
        "single",
        "--seconds",
        "1",
        "--only",
        "KILL CLIENT",
    ];
    let (is_well, text) = fire(&only);

    assert!(!is_well, "{text}");
    assert!(
        text.contains("no fault of this run is named KILL CLIENT; these are: "),
        "{text}"
    );
}

/// A trial that cannot fail shows nothing: processes whose ids never come again show nothing about ids, and the run says so.
#[test]
fn a_run_that_shows_nothing_fails() {
    for flaw in Flaw::ALL.into_iter().filter(|flaw| flaw.shows_nothing()) {
        let run = ["--without-clock", "--flaw", flaw.name()];
        is_caught(flaw.name(), 1, &run, &["no id was replayed"]);
    }
}
