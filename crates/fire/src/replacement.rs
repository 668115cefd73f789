//! Replaced quotas, as clients record them.

use serde::{Deserialize, Serialize};

/// The quotas of a process were replaced, between two points in time of the clients' clock, in µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replacement {
    /// The number of the process.
    pub process: u32,
    /// The number of the limiter among those of its process.
    pub limiter: u32,
    /// The version of all quotas from then on. A limiter begins with version 0.
    pub version: usize,
    /// The time just before.
    pub from_us: u64,
    /// The time just after; the largest number if the process was killed meanwhile.
    pub to_us: u64,
}
