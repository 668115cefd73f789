//! The growth of costs: with keys, policies and charges, and the longest pause while keys come and go.

use std::env;
use std::process::Command;

use serde_json::Value;
use tollgate_bench::{Scenario, with_charges, with_policies};

use super::part;
use super::report::{Growth, Keys, OURS, Pause, Steps};
use crate::Result;
use crate::measure::{median, nanos};

const POLICIES: [u32; 5] = [1, 3, 10, 30, 100];
const CHARGES: [u32; 4] = [1, 2, 4, 8];
const BATCHES: usize = 50;

/// The limiter, and its name on the command line.
const WHO: [(&str, &str); 3] = [
    (OURS, "tollgate"),
    ("governor", "governor"),
    ("governor, version 4 alone", "governor-of-version4"),
];

/// The numbers of keys. A quick run leaves out the last.
const KEYS: [u32; 5] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];

pub(super) fn measure(quick: bool) -> Result<Growth> {
    let growth = Growth {
        keys: keys(quick)?,
        policies: policies(),
        charges: charges(),
        pauses: pauses(quick)?,
    };
    Ok(growth)
}

fn counts(quick: bool) -> &'static [u32] {
    if quick {
        &KEYS[..KEYS.len() - 1]
    } else {
        &KEYS
    }
}

fn keys(quick: bool) -> Result<Vec<Keys>> {
    part("in process: how costs grow with keys");
    let mut points = Vec::new();
    for (who, name) in WHO {
        for &keys in counts(quick) {
            let line = alone(name, "check", keys)?;
            points.push(Keys {
                who: who.to_owned(),
                keys,
                nanos: number(&line, "nanos")?,
                bytes_per_key: number(&line, "bytes_per_key")?,
            });
        }
    }
    Ok(points)
}

fn policies() -> Vec<Steps> {
    part("in process: how costs grow with policies and charges");
    let mut bare = Scenario::BareRoute.prepare();
    let of = |policies: u32| (policies, with_policies(policies));
    in_turns(POLICIES.map(of).into(), &mut *bare)
}

fn charges() -> Vec<Steps> {
    let of = |charges: u32| (charges, with_charges(charges as usize));
    in_turns(CHARGES.map(of).into(), &mut |_| {})
}

type Serve = Box<dyn FnMut(u32)>;

/// Nanoseconds above the baseline; all take turns.
fn in_turns(mut all: Vec<(u32, Serve)>, baseline: &mut dyn FnMut(u32)) -> Vec<Steps> {
    const CALLERS: u32 = 1000;

    let mut costs: Vec<Vec<f64>> = all.iter().map(|_| Vec::new()).collect();
    for batch in 0..=BATCHES {
        let without = nanos(|| baseline(CALLERS));
        for ((_, serve), costs) in all.iter_mut().zip(&mut costs) {
            let cost = (nanos(|| serve(CALLERS)) - without) / f64::from(CALLERS);
            // The first round makes the states.
            if batch > 0 {
                costs.push(cost);
            }
        }
    }
    let counts = all.iter().map(|(count, _)| *count);
    let steps = counts.zip(costs).map(|(count, costs)| Steps {
        count,
        nanos: median(costs),
    });
    steps.collect()
}

/// The limiter, its arguments, and a description; `N` stands for the number.
const PAUSES: &[(&str, &str, &str, &str)] = &[
    (
        OURS,
        "tollgate",
        "flood",
        "N new keys, a million of them remembered (the default)",
    ),
    (
        OURS,
        "tollgate",
        "grow",
        "N new keys, all of them remembered",
    ),
    (
        OURS,
        "tollgate",
        "expire",
        "N new keys after as many have expired",
    ),
    (
        "governor",
        "governor",
        "grow",
        "N new keys, all of them remembered",
    ),
    (
        "governor",
        "governor",
        "expire",
        "`retain_recent` when N keys have expired",
    ),
];

fn pauses(quick: bool) -> Result<Vec<Pause>> {
    part("in process: the longest pauses");
    let (keys, runs) = if quick {
        (2_000_000, 1)
    } else {
        (10_000_000, 2)
    };
    let longest = |name, what| -> Result<f64> {
        // Interruptions differ from run to run, but the limiter's own pauses do not.
        let mut least = f64::INFINITY;
        for _ in 0..runs {
            least = least.min(number(&alone(name, what, keys)?, "longest_us")?);
        }
        Ok(least)
    };
    let nothing_us = longest("nothing", "grow")?;
    let mut pauses = Vec::new();
    for (who, name, what, about) in PAUSES {
        pauses.push(Pause {
            who: (*who).to_owned(),
            what: about.replace('N', &format!("{} million", keys / 1_000_000)),
            longest_us: longest(name, what)?,
            nothing_us,
        });
    }
    Ok(pauses)
}

/// The result that a child process prints in a line of JSON.
fn alone(who: &str, what: &str, keys: u32) -> Result<Value> {
    let output = Command::new(env::current_exe()?)
        .args(["grow", who, what, &keys.to_string()])
        .output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("grow {who} {what} {keys}: {said}").into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn number(line: &Value, name: &str) -> Result<f64> {
    let value = line.get(name).and_then(Value::as_f64);
    value.ok_or_else(|| format!("no {name} in {line}").into())
}
