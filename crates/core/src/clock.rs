//! The interface of clocks, and one for tests.
//!
//! Time belongs to the backend: the memory backend owns a [`Clock`], Redis asks its own. The rules never read a clock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::Timestamp;

/// Tells the time to a backend.
///
/// ```
/// use tollgate::{Clock, MemoryBackend, SystemClock, Timestamp};
///
/// /// The machine's clock, a day behind: to replay yesterday's log.
/// #[derive(Debug)]
/// struct Yesterday(SystemClock);
///
/// impl Clock for Yesterday {
///     fn now(&self) -> Timestamp {
///         Timestamp::from_micros(self.0.now().as_micros() - 86_400_000_000)
///     }
/// }
///
/// let backend = MemoryBackend::builder().clock(Yesterday(SystemClock::new())).build();
/// ```
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The present. A clock that steps back never refills a budget.
    fn now(&self) -> Timestamp;
}

/// A clock that stands still until it is told to move: for tests, of this crate and of yours.
///
/// Clones share their hands.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Clock, ManualClock, Timestamp};
///
/// let clock = ManualClock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(3));
/// assert_eq!(clock.now().as_micros() - before.as_micros(), 3_000_000);
///
/// // Midnight, UTC, where a window of a day begins; and back, like a clock that is set.
/// let clock = ManualClock::at(Timestamp::from_micros(1_700_006_400_000_000));
/// clock.set(before);
/// assert_eq!(clock.now(), before);
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
