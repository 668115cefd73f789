//! Attempts to hold a place under a limit on how many at once, as clients record them.

use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The places of each key.
pub(crate) const PLACES: u64 = 3;

/// The keys whose places all clients want for a short time. Acquires and releases renew what their processes hold there.
pub(crate) const SHORT_KEYS: u32 = 4;

/// The keys whose places are held for longer than a lease. Only heartbeats keep them.
pub(crate) const LONG_KEYS: u32 = 1;

/// The keys for whose places requests wait. The holds are short.
pub(crate) const WAITED_KEYS: u32 = 1;

/// All keys: first those of short holds, then those of long ones, then those for which requests wait.
pub(crate) const KEYS: u32 = SHORT_KEYS + LONG_KEYS + WAITED_KEYS;

/// The longest wait for a place.
pub(crate) const WAIT: Duration = Duration::from_secs(4);

/// The life of a lease: short, so that lost ones come back within a run.
pub(crate) const LEASE: Duration = Duration::from_secs(12);

/// The times for which a client holds a place, on keys of short holds and of long ones.
pub(crate) const SHORT: Range<u64> = 0..1_500_000;
pub(crate) const LONG: Range<u64> = 15_000_000..20_000_000;

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
    /// The time for which the place is held at most, from the answer on.
    #[serde(default = "short_us")]
    pub lasts_us: u64,
    /// The time just before the place was given back; `None` if its process died with it.
    pub until_us: Option<u64>,
}

impl Hold {
    /// True if the places of this key are held for longer than a lease.
    pub(crate) fn is_long(&self) -> bool {
        (SHORT_KEYS..SHORT_KEYS + LONG_KEYS).contains(&self.key)
    }

    /// True if the request waits until a place is free.
    pub(crate) fn may_wait(&self) -> bool {
        self.key >= SHORT_KEYS + LONG_KEYS
    }

    /// A place that was not given back before its process ended, at this time, lasts no longer than that.
    pub(crate) fn ends_with_its_process(mut self, ended_us: u64) -> Self {
        if self.until_us.is_none() {
            self.lasts_us = self.lasts_us.min(ended_us.saturating_sub(self.heard_us));
        }
        self
    }
}

/// All holds were short in histories that do not say.
fn short_us() -> u64 {
    SHORT.end
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
