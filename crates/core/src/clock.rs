//! The clocks that tell the time.
//!
//! Time belongs to the backend: the one in memory owns a [`Clock`], Redis asks its own. The rules never read a clock.

#[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
mod counter;
mod monotonic;
#[cfg(all(test, target_os = "linux", target_arch = "x86_64", not(miri)))]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use self::monotonic::Monotonic;
use crate::Timestamp;

/// Tells the time to a backend.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The present. A clock that steps back never refills a budget: see [`crate::State`].
    fn now(&self) -> Timestamp;
}

/// The machine's clock: wall time when it was made, and monotonic time from then on.
///
/// Windows are anchored to the Unix epoch, so the wall clock is asked, once. From then on only the monotonic clock counts, so
/// that setting the machine's time neither refills a budget nor empties it. If a Linux kernel tells the time by the processor's
/// counter, this clock does so too. It is never ahead of the kernel, and at most three microseconds behind. The first such
/// clock of a process measures the pace of the counter, which takes about two milliseconds, and never more than three tenths of
/// a second.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    /// The wall time at which the monotonic clock was at zero.
    zero_us: u64,
    monotonic: Monotonic,
}

/// The time for which a clock can go on: 35 years. A machine whose wall clock is past 2077 is taken to be at that limit.
const LONGEST_RUN_US: u64 = 1 << 50;

impl SystemClock {
    /// A clock that shows the machine's wall time now, and moves with its monotonic clock.
    #[must_use]
    pub fn new() -> Self {
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        let wall_us = u64::try_from(wall.as_micros()).unwrap_or(u64::MAX);
        let wall_us = wall_us.min(Timestamp::MAX.as_micros() - LONGEST_RUN_US);
        // Wraps, and later wraps back, on a machine whose wall clock starts in 1970 and that has been up for longer than that
        // clock says.
        let monotonic = Monotonic::new();
        let zero_us = wall_us.wrapping_sub(monotonic.micros());
        Self { zero_us, monotonic }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Timestamp {
        Timestamp::within_range(self.zero_us.wrapping_add(self.monotonic.micros()))
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
