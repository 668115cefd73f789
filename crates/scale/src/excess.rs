//! The bound that users are promised, for requests that passed.

use tollgate_core::Quota;

use crate::outcome::Pass;

/// The units by which the requests that passed in any interval of length *ℓ* exceed `burst + rate × (ℓ + slack)` at most; below
/// zero if they stay within it. `passes` are in the order of their times.
#[must_use]
pub fn excess(quota: &Quota, passes: &[Pass], slack_us: u64) -> f64 {
    let period = i128::try_from(quota.period().as_micros()).unwrap_or(i128::MAX);
    let (limit, burst) = (i128::from(quota.limit()), i128::from(quota.capacity()));
    let (mut level, mut most, mut before_us) = (0_i128, 0_i128, 0);
    for pass in passes {
        let gap = i128::from(pass.at_us - before_us);
        level = (level - gap * limit).max(0) + i128::from(pass.cost) * period;
        most = most.max(level);
        before_us = pass.at_us;
    }
    (most - burst * period - i128::from(slack_us) * limit) as f64 / period as f64
}
