//! A clock for the budgets of this process.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use tollgate_core::{Clock, Timestamp};

use crate::sync::{AtomicBool, Mutex, MutexGuard};

/// A clock that runs only while the backend fails, so that local budgets refill only then. Otherwise a backend that fails
/// for a moment every minute would hand out a fresh local burst every minute.
#[derive(Clone, Debug)]
pub(crate) struct OutageClock(Arc<Outages>);

#[derive(Debug)]
struct Outages {
    running: AtomicBool,
    wall: Box<dyn Clock>,
    hands: Mutex<Hands>,
}

#[derive(Debug)]
struct Hands {
    /// The time on the clock when the last outage ended. The clock starts at the time of day, for windows that depend on it.
    shown: Timestamp,
    /// The beginning of the present outage, by the wall clock.
    since: Option<Timestamp>,
}

impl OutageClock {
    pub(crate) fn new(wall: impl Clock) -> Self {
        let hands = Mutex::new(Hands {
            shown: wall.now(),
            since: None,
        });
        Self(Arc::new(Outages {
            running: AtomicBool::new(false),
            wall: Box::new(wall),
            hands,
        }))
    }

    pub(crate) fn run(&self) {
        let mut hands = self.hands();
        if hands.since.is_none() {
            hands.since = Some(self.0.wall.now());
            self.0.running.store(true, Ordering::Release);
        }
    }

    pub(crate) fn stop(&self) {
        if !self.0.running.load(Ordering::Acquire) {
            return;
        }
        let mut hands = self.hands();
        hands.shown = hands.show(self.0.wall.now());
        hands.since = None;
        self.0.running.store(false, Ordering::Release);
    }

    #[cfg(test)]
    pub(crate) fn is_running(&self) -> bool {
        self.0.running.load(Ordering::Acquire)
    }

    fn hands(&self) -> MutexGuard<'_, Hands> {
        self.0.hands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hands {
    fn show(&self, now: Timestamp) -> Timestamp {
        let ran_us = self
            .since
            .map_or(0, |since| now.as_micros().saturating_sub(since.as_micros()));
        Timestamp::from_micros(self.shown.as_micros() + ran_us)
    }
}

impl Clock for OutageClock {
    fn now(&self) -> Timestamp {
        self.hands().show(self.0.wall.now())
    }
}
