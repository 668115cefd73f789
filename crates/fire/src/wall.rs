//! The clock of the host, by which all processes of a run record their actions.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, in µs.
#[must_use]
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    })
}
