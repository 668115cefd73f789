//! `cargo run --release -p tollgate-bench -- instructions` counts, with valgrind's callgrind, the instructions of every
//! scenario per request, above the same request without a limiter. `-- run SCENARIO ROUNDS` is what callgrind runs.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool"
)]

use std::env;
use std::error::Error;
use std::process::{Command, ExitCode};

use tollgate_bench::Scenario;

/// Rounds of a thousand requests that are counted.
const ROUNDS: u32 = 10;

fn main() -> ExitCode {
    let args: Vec<_> = env::args().skip(1).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let result = match args[..] {
        ["instructions"] => instructions(Scenario::ALL),
        ["instructions", name] => named(name).and_then(|one| instructions(&[one])),
        ["run", name, rounds] => run(name, rounds),
        _ => Err("usage: tollgate-bench instructions [SCENARIO] | run SCENARIO ROUNDS".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tollgate-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn named(name: &str) -> Result<Scenario> {
    Scenario::named(name).ok_or_else(|| format!("no scenario {name:?}").into())
}

fn run(name: &str, rounds: &str) -> Result<()> {
    named(name)?.run(rounds.parse()?);
    Ok(())
}

fn instructions(scenarios: &[Scenario]) -> Result<()> {
    for scenario in scenarios {
        let all = per_request(*scenario)?;
        let own = match scenario.baseline() {
            Some(baseline) => all - per_request(baseline)?,
            None => all,
        };
        println!("{own:>7}  {:<24} {}", scenario.name(), scenario.about());
    }
    Ok(())
}

/// Only what happens within [`Scenario::measured`] is counted: neither starting up nor the first round, in which states
/// are made and tables grow.
fn per_request(scenario: Scenario) -> Result<i64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg("--toggle-collect=*Scenario*measured*")
        .arg(env::current_exe()?)
        .args(["run", scenario.name(), &ROUNDS.to_string()])
        .output()
        .map_err(|error| {
            format!("valgrind cannot be run ({error}); install it with: apt-get install valgrind")
        })?;
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = text
        .lines()
        .find_map(|line| line.split_once("Collected : "));
    let (_, count) = collected.ok_or_else(|| format!("callgrind failed:\n{text}"))?;
    let count: i64 = count.trim().parse()?;
    Ok(count / (i64::from(ROUNDS) * 1000))
}
