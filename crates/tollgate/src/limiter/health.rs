//! Whether the backend decides, and who is told when it stops.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tollgate_core::BackendError;

use crate::sync::{AtomicBool, AtomicU64, Mutex};

/// What is known of the backend from its answers.
#[derive(Debug, Default)]
pub(super) struct Health {
    failing: AtomicBool,
    failures: AtomicU64,
    /// When the log last heard of an outage; the end of one is told only if its beginning was.
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    last: Option<Instant>,
    of_this_outage: bool,
}

/// A backend that fails every other decision would otherwise fill the log.
const BETWEEN_WARNINGS: Duration = Duration::from_secs(10);

impl Health {
    /// How many decisions the backend failed to make.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }

    #[cold]
    pub(super) fn failed(&self, error: &BackendError) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        if self.is_failing() {
            return;
        }
        // It changes together with what is told, or the last that the log says could be what was before.
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if self.failing.swap(true, Ordering::Relaxed) {
            return;
        }
        if told
            .last
            .is_none_or(|last| last.elapsed() >= BETWEEN_WARNINGS)
        {
            tracing::warn!(%error, "the backend cannot decide: each policy's failure rule acts");
            told.last = Some(Instant::now());
            told.of_this_outage = true;
        }
    }

    #[cold]
    pub(super) fn fails_still(&self) {
        self.failing.store(true, Ordering::Relaxed);
    }

    #[cold]
    pub(super) fn recovered(&self) {
        if !self.is_failing() {
            return;
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.failing.swap(false, Ordering::Relaxed) {
            return;
        }
        if std::mem::take(&mut told.of_this_outage) {
            tracing::info!(failures = self.failures(), "the backend decides again");
        }
    }
}
