//! How much a randomised test tries, and by which random numbers.

use std::env;
use std::hash::{BuildHasher, RandomState};

/// The share of the full number of cases that a run tries, in percent, unless `TOLLGATE_EFFORT` is set: enough to notice what a
/// change breaks, in seconds. `tests/run.sh --all` tries 100.
const DEFAULT_PERCENT: u64 = 10;

/// Returns the number of cases to try, of so many in a full run: at least one. `TOLLGATE_EFFORT=2000` tries twenty times the full
/// number.
#[must_use]
pub fn cases(full: u64) -> u64 {
    let percent = number("TOLLGATE_EFFORT").unwrap_or(DEFAULT_PERCENT);
    (full.saturating_mul(percent) / 100).max(1)
}

/// Returns a new seed, or the one in `TOLLGATE_SEED`, and prints it.
#[must_use]
#[expect(
    clippy::print_stdout,
    reason = "the harness shows it if the test fails"
)]
pub fn seed() -> u64 {
    let seed = number("TOLLGATE_SEED").unwrap_or_else(|| RandomState::new().hash_one(0));
    println!("repeat with TOLLGATE_SEED={seed}");
    seed
}

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}
