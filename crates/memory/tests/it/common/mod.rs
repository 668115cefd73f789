//! Helpers of this crate's tests.

use std::time::Duration;

use tollgate_core::{Algorithm, Charge, Key, Mode, Quota, Scope};

/// A charge of one from this key's budget.
pub(crate) fn one<'a>(scope: Scope, quota: &'a Quota, key: &'a Key) -> Charge<'a> {
    Charge {
        scope,
        quota,
        key,
        cost: 1,
        mode: Mode::Enforce,
    }
}

/// `limit` per `period` by each of the algorithms.
#[allow(dead_code, reason = "not every test binary needs it")]
pub(crate) fn every_algorithm(limit: u64, period: Duration) -> [Quota; 6] {
    let quota = Quota::new(limit, period);
    [
        quota,
        quota.using(Algorithm::FixedWindow {
            offset: Duration::ZERO,
        }),
        quota.using(Algorithm::SlidingWindow),
        quota.using(Algorithm::RollingWindow { buckets: 10 }),
        quota.using(Algorithm::SlidingLog),
        quota.using(Algorithm::IntervalRefill {
            offset: Duration::ZERO,
        }),
    ]
}
