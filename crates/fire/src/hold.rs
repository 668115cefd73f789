//! Attempts to hold a place under a limit on how many at once, as clients record them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The places of each key.
pub(crate) const PLACES: u64 = 3;

/// The keys whose places all clients want.
pub(crate) const KEYS: u32 = 4;

/// The life of a lease: short, so that lost ones come back within a run.
pub(crate) const LEASE: Duration = Duration::from_secs(12);

/// The longest time for which a client holds a place.
pub(crate) const LONGEST_HOLD: Duration = Duration::from_millis(1_500);

/// One attempt to hold a place. Times are of the clients' clock, in µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The number of the process.
    pub process: u32,
    /// The key.
    pub key: u32,
    /// The time of the question.
    pub sent_us: u64,
    /// The time of the answer.
    pub heard_us: u64,
    /// The answer.
    pub outcome: Grant,
    /// The time just before the place was given back; `None` if its process died with it.
    pub until_us: Option<u64>,
}

/// The answer to an attempt to hold a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Grant {
    /// The place is held.
    Held,
    /// No place was free.
    Denied,
    /// There was no answer.
    Unknown,
}
