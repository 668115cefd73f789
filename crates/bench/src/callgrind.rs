//! Counts, with valgrind's callgrind, the instructions of scenarios.

use std::env;
use std::process::Command;

use tollgate_bench::Scenario;

use crate::Result;

/// Rounds of a thousand requests that are counted.
const ROUNDS: u32 = 10;

pub(crate) fn instructions(scenarios: &[Scenario]) -> Result<()> {
    for scenario in scenarios {
        let own = above_baseline(*scenario)?;
        println!("{own:>7}  {:<24} {}", scenario.name(), scenario.about());
    }
    Ok(())
}

/// What a scenario costs above what there would be without a limiter.
pub(crate) fn above_baseline(scenario: Scenario) -> Result<i64> {
    let all = per_request(scenario)?;
    Ok(match scenario.baseline() {
        Some(baseline) => all - per_request(baseline)?,
        None => all,
    })
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
        .map_err(|error| missing(&error))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = text
        .lines()
        .find_map(|line| line.split_once("Collected : "));
    let (_, count) = collected.ok_or_else(|| format!("callgrind failed:\n{text}"))?;
    let count: i64 = count.trim().parse()?;
    Ok(count / (i64::from(ROUNDS) * 1000))
}

/// What to say when valgrind cannot be started.
pub(crate) fn missing(error: &std::io::Error) -> String {
    format!("valgrind cannot be run ({error}); install it with: apt-get install valgrind")
}
