//! Requests for leased budgets, as clients record them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate::{OnFailure, Policy};
use tollgate_core::{Algorithm, Lease, Quota};

/// Requests of one process for one leased budget, one after the other. Times are of the clients' clock, in µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spend {
    /// The number of the process.
    pub process: u32,
    /// The number of the leased policy.
    pub policy: usize,
    /// The caller.
    pub caller: u32,
    /// The time before the first of them.
    pub from_us: u64,
    /// The time after the last.
    pub to_us: u64,
    /// The number of those that passed.
    pub passed: u64,
    /// The number of these that were spent from a block.
    pub leased: u64,
    /// The number of those that were denied.
    pub denied: u64,
    /// The number of those that got no decision.
    pub undecided: u64,
}

/// A policy whose budgets are leased. Each of its requests costs one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeasedPolicy {
    /// The name. No policy of a population has it.
    pub name: &'static str,
    /// The quota.
    pub quota: Quota,
    /// The terms.
    pub lease: Lease,
}

impl LeasedPolicy {
    /// All of them: a bucket, a refill in intervals, and a fixed window.
    #[must_use]
    pub fn all() -> [Self; 3] {
        let offset = Duration::ZERO;
        let in_intervals = Quota::new(40, Duration::from_millis(200));
        let of_windows = Quota::per_second(150);
        [
            Self {
                name: "leased-bucket",
                quota: Quota::per_second(200).burst(60),
                lease: Lease::up_to(40),
            },
            Self {
                name: "leased-intervals",
                quota: in_intervals.using(Algorithm::IntervalRefill { offset }),
                lease: Lease::up_to(30).within(Duration::from_millis(50)),
            },
            Self {
                name: "leased-windows",
                quota: of_windows.using(Algorithm::FixedWindow { offset }),
                lease: Lease::up_to(50).within(Duration::from_millis(300)),
            },
        ]
    }

    /// The policy as a user configures it.
    pub(crate) fn policy(&self) -> Policy {
        Policy::new(self.name, self.quota)
            .lease(self.lease)
            .on_failure(OnFailure::Deny)
    }
}
