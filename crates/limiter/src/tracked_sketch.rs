//! A sketch that knows whose it is.
//!
//! The label of a quota keeps the sketch of its policy, so that a denial finds it without a search. But clones of a policy share
//! their labels, and each may be in another limiter, or come back into one that had forgotten it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::sketch::Sketch;

/// The number of a tracker, which no other tracker of this process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrackerId(u64);

/// The number of no tracker.
const NONE: u64 = 0;

impl TrackerId {
    pub(crate) fn next() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(NONE);
        Self(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// The sketch of one policy in one tracker.
#[derive(Debug)]
pub(crate) struct TrackedSketch {
    sketch: Sketch,
    tracker: AtomicU64,
}

impl TrackedSketch {
    pub(crate) fn new(tracker: TrackerId) -> Self {
        Self {
            sketch: Sketch::new(),
            tracker: AtomicU64::new(tracker.0),
        }
    }

    pub(crate) fn sketch(&self) -> &Sketch {
        &self.sketch
    }

    /// True if this tracker counts with it.
    #[inline]
    pub(crate) fn is_of(&self, tracker: TrackerId) -> bool {
        self.tracker.load(Ordering::Relaxed) == tracker.0
    }

    /// Its tracker has forgotten it.
    pub(crate) fn leave(&self) {
        self.tracker.store(NONE, Ordering::Relaxed);
    }
}
