//! Who says what time it is.
//!
//! Time belongs to the backend: the one in memory owns a [`Clock`], Redis asks its own. The rules never read a clock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::Timestamp;

/// Tells the time to a backend.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The present. A clock that steps back never refills a budget, see [`crate::State`].
    fn now(&self) -> Timestamp;
}

/// The machine's clock: wall time when it was made, and monotonic time from then on.
///
/// Windows are anchored to the Unix epoch, so the wall clock is asked, once. From then on only the monotonic clock
/// counts, so that somebody setting the time does not give anybody a budget, or take it away.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    started_at: Instant,
    offset: Duration,
}

impl SystemClock {
    /// A clock that shows the machine's wall time now, and moves with its monotonic clock.
    #[must_use]
    pub fn new() -> Self {
        Self {
            started_at: Instant::now(),
            offset: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or(Duration::ZERO),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let now = self.offset + self.started_at.elapsed();
        // Not `as_micros`: a division of 128 bits on every request is dearer than two of 64.
        Timestamp::from_micros(now.as_secs() * 1_000_000 + u64::from(now.subsec_micros()))
    }
}

/// A clock that stands still until it is told to move: for tests, of this crate and of yours.
///
/// Clones share their hands.
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::{Clock, ManualClock};
///
/// let clock = ManualClock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(3));
/// assert_eq!(clock.now().as_micros() - before.as_micros(), 3_000_000);
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// A clock that stands at a moment of 2023.
    #[must_use]
    pub fn new() -> Self {
        Self::at(Timestamp::from_micros(1_700_000_000_000_000))
    }

    /// A clock that stands at `time`.
    #[must_use]
    pub fn at(time: Timestamp) -> Self {
        Self(Arc::new(AtomicU64::new(time.as_micros())))
    }

    /// Moves the hands to `time`, forward or back.
    pub fn set(&self, time: Timestamp) {
        self.0.store(time.as_micros(), Ordering::SeqCst);
    }

    /// Moves the hands forward by `duration`, in whole microseconds.
    pub fn advance(&self, duration: Duration) {
        self.set(self.now().saturating_add(duration));
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}
