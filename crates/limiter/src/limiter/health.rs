//! The health of the backend, and what the log hears of it.
//!
//! Lines are rare, outages are not kept quiet: between two warnings are ten seconds at least, and an outage that begins sooner
//! after the last one is told as soon as they are over. An outage that lasts is told each minute, with its length, its present
//! error and its price; an error that has changed is told after ten seconds.
//!
//! Each line is written by a request that the backend did not decide, or by the first that it decided again. There is no task
//! in the background: an outage during which no request comes costs no decision, and is not told.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tollgate_core::BackendError;

use crate::sync::{AtomicBool, AtomicU64, Mutex};

/// The knowledge of the backend that its answers give.
#[derive(Debug)]
pub(super) struct Health {
    failing: AtomicBool,
    failures: AtomicU64,
    passed: AtomicU64,
    /// Times are counted from here.
    made_at: Instant,
    /// No line is due before, in milliseconds. Read by each failure, so that most of them take no lock.
    due_ms: AtomicU64,
    told: Mutex<LogState>,
}

/// The state of the log.
#[derive(Debug, Default)]
struct LogState {
    warned_at: Option<Instant>,
    /// The counts when the log last heard of an end: the next line includes what short outages cost that were not logged.
    counted: Counts,
    /// The present outage, if there is one.
    outage: Option<Outage>,
}

#[derive(Debug)]
struct Outage {
    since: Instant,
    /// The error that the log heard of. The end of an outage is told only if its beginning was.
    error: Option<String>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    undecided: u64,
    passed: u64,
}

/// A backend that fails every other decision would otherwise fill the log.
const BETWEEN_WARNINGS: Duration = Duration::from_secs(10);

/// An outage that is known is repeated this often: a reader of the last page of a log sees that it lasts.
const BETWEEN_REMINDERS: Duration = Duration::from_secs(60);

impl Default for Health {
    fn default() -> Self {
        Self {
            failing: AtomicBool::new(false),
            failures: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            made_at: Instant::now(),
            due_ms: AtomicU64::new(0),
            told: Mutex::default(),
        }
    }
}

impl Health {
    /// The number of decisions that the backend failed to make.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }

    /// A request passes although the backend did not decide about it.
    pub(super) fn passed(&self) {
        self.passed.fetch_add(1, Ordering::Relaxed);
    }

    /// The backend did not decide about a request. `place` says where the backend is.
    #[cold]
    pub(super) fn failed(
        &self,
        now: Instant,
        error: &BackendError,
        place: impl FnOnce() -> Option<String>,
    ) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        if self.is_failing() && now < self.made_at + self.due() {
            return;
        }
        // The state changes together with what is told, or the last line of the log could be about the state before.
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        self.failing.store(true, Ordering::Relaxed);
        let due_at = told.of_failure(now, error, self.counts(), place);
        let due = due_at.saturating_duration_since(self.made_at).as_millis();
        let due_ms = u64::try_from(due).unwrap_or(u64::MAX);
        self.due_ms.store(due_ms, Ordering::Relaxed);
    }

    /// The backend decided.
    #[cold]
    pub(super) fn recovered(&self, now: Instant, place: impl FnOnce() -> Option<String>) {
        if !self.is_failing() {
            return;
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if self.failing.swap(false, Ordering::Relaxed) {
            told.of_recovery(now, self.counts(), place);
        }
    }

    fn due(&self) -> Duration {
        Duration::from_millis(self.due_ms.load(Ordering::Relaxed))
    }

    fn counts(&self) -> Counts {
        Counts {
            undecided: self.failures.load(Ordering::Relaxed),
            passed: self.passed.load(Ordering::Relaxed),
        }
    }
}

impl LogState {
    /// Tells of a failure if a line is due, and gives the time at which the next failure has to ask.
    fn of_failure(
        &mut self,
        now: Instant,
        error: &BackendError,
        counts: Counts,
        place: impl FnOnce() -> Option<String>,
    ) -> Instant {
        let outage = self.outage.get_or_insert(Outage {
            since: now,
            error: None,
        });
        let text = error.to_string();
        let wait = match &outage.error {
            Some(known) if *known == text => BETWEEN_REMINDERS,
            _ => BETWEEN_WARNINGS,
        };
        let is_due = |at: &Instant| now.saturating_duration_since(*at) >= wait;
        if self.warned_at.as_ref().is_none_or(is_due) {
            let (backend, node) = (place(), error.place());
            let lasts = now.saturating_duration_since(outage.since);
            let Counts { undecided, passed } = counts.since(self.counted);
            if lasts.is_zero() {
                tracing::warn!(
                    error = text,
                    backend,
                    node,
                    "the backend cannot decide: each policy's failure rule acts"
                );
            } else {
                tracing::warn!(
                    error = text,
                    backend,
                    node,
                    ?lasts,
                    undecided,
                    passed,
                    "the backend still cannot decide: each policy's failure rule acts"
                );
            }
            outage.error = Some(text);
            self.warned_at = Some(now);
        }
        let warned_at = self.warned_at.unwrap_or(now);
        (now + BETWEEN_WARNINGS).min(warned_at + wait)
    }

    fn of_recovery(
        &mut self,
        now: Instant,
        counts: Counts,
        place: impl FnOnce() -> Option<String>,
    ) {
        let Some(Outage {
            since,
            error: Some(_),
        }) = self.outage.take()
        else {
            return;
        };
        let lasted = now.saturating_duration_since(since);
        let Counts { undecided, passed } = counts.since(self.counted);
        self.counted = counts;
        let backend = place();
        tracing::info!(
            backend,
            ?lasted,
            undecided,
            passed,
            "the backend decides again"
        );
    }
}

impl Counts {
    fn since(self, before: Self) -> Self {
        Self {
            undecided: self.undecided.saturating_sub(before.undecided),
            passed: self.passed.saturating_sub(before.passed),
        }
    }
}
