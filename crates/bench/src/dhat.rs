//! Counts, with valgrind's dhat, the allocations of scenarios.

use std::env;
use std::process::Command;

use tollgate_bench::Scenario;

use crate::Result;
use crate::callgrind::missing;

/// Rounds of a thousand requests by which the longer of two runs is longer.
const ROUNDS: u32 = 2;

/// What a request allocates above what it would without a limiter.
pub(crate) fn above_baseline(scenario: Scenario) -> Result<i64> {
    let all = per_request(scenario)?;
    Ok(match scenario.baseline() {
        Some(baseline) => all - per_request(baseline)?,
        None => all,
    })
}

/// The difference of two runs: what starting up allocates is in both.
fn per_request(scenario: Scenario) -> Result<i64> {
    let more = blocks(scenario, 2 * ROUNDS)? - blocks(scenario, ROUNDS)?;
    let requests = i64::from(ROUNDS) * 1000;
    Ok((more + requests / 2) / requests)
}

fn blocks(scenario: Scenario, rounds: u32) -> Result<i64> {
    let output = Command::new("valgrind")
        .args(["--tool=dhat", "--dhat-out-file=/dev/null"])
        .arg(env::current_exe()?)
        .args(["run", scenario.name(), &rounds.to_string()])
        .output()
        .map_err(|error| missing(&error))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let total = text.lines().find_map(|line| line.split_once("Total:"));
    let blocks = total
        .and_then(|(_, total)| total.split_once(" in "))
        .and_then(|(_, blocks)| blocks.trim().strip_suffix(" blocks"));
    let blocks = blocks.ok_or_else(|| format!("dhat failed:\n{text}"))?;
    Ok(blocks.replace(',', "").parse()?)
}
