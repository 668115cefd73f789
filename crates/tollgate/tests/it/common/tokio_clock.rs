//! A clock that follows tokio's, so that a runtime whose time is paused moves both.

use tokio::time::Instant;
use tollgate::{Clock, MemoryBackend, Timestamp};

/// Starts at this time, which is not a multiple of anything.
const START_US: u64 = 1_700_000_000_000_007;

/// Tokio's clock as a backend's.
#[derive(Debug)]
struct TokioClock(Instant);

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        let since = u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX);
        Timestamp::from_micros(START_US + since)
    }
}

/// A backend in memory that tells the time by tokio's clock.
pub fn in_tokio_time() -> MemoryBackend {
    MemoryBackend::builder()
        .clock(TokioClock(Instant::now()))
        .build()
}
