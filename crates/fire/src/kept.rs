//! Histories with findings, kept to be judged again: no second run is like the first.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::checker::{Findings, check};
use crate::fault::Topology;
use crate::history::History;
use crate::population::Population;

#[derive(Serialize, Deserialize)]
struct KeptHistory {
    seed: u64,
    history: History,
}

/// Writes a history to a file in the machine's temporary folder, named after the run.
pub(crate) fn keep(topology: Topology, seed: u64, history: History) -> Result<PathBuf> {
    let name = format!("tollgate-fire-{}-{seed}.json", topology.name());
    let path = std::env::temp_dir().join(name);
    fs::write(&path, serde_json::to_vec(&KeptHistory { seed, history })?)?;
    Ok(path)
}

/// Judges a kept history.
///
/// # Errors
///
/// If the file holds no history.
pub fn check_again(path: &Path) -> Result<Findings> {
    let KeptHistory { seed, mut history } = serde_json::from_slice(&fs::read(path)?)?;
    let population = Population::of(seed);
    history.quotas = population.quotas().to_vec();
    history.replacements = population.replacements().clone();
    history.others = population.others().clone();
    Ok(check(&history))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::attempt::{Asker, Attempt, Budget, Outcome, Verb};

    #[test]
    fn a_history_that_was_kept_is_judged_as_it_was() {
        let seed = 7;
        let budget = Budget {
            policy: 0,
            caller: 1,
        };
        let (asker, verb) = (Asker::default(), Verb::Reset(budget));
        let attempt = Attempt::plain(asker, verb, 1, 1_000, Outcome::Reset);
        let history = History {
            attempts: vec![attempt],
            // Far too late.
            deadline_us: Some(10),
            ..History::default()
        };
        let mut late = history.clone();
        late.attempts[0].heard_us = 10_000_000;

        for (history, wrongs) in [(history, 0), (late, 1)] {
            let path = keep(Topology::Single, seed, history).unwrap();
            assert_eq!(check_again(&path).unwrap().wrong.len(), wrongs);
            fs::remove_file(path).unwrap();
        }
    }
}
