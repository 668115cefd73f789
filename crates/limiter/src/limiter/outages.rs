//! A clock for the budgets of this process.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tollgate_core::{Clock, Timestamp};

use crate::sync::{Mutex, MutexGuard};

/// The longest time that passes on the clock between two failures if the backend has decided something in between. It may be
/// that one server of several has failed all the while, and the others have decided.
pub(crate) const LINGERS: Duration = Duration::from_secs(10);

/// A clock that runs only while the backend fails, so that local budgets refill only then. Otherwise a backend that fails
/// for a moment every minute would hand out a fresh local burst every minute.
#[derive(Clone, Debug)]
pub(crate) struct OutageClock(Arc<Outages>);

#[derive(Debug)]
struct Outages {
    wall: Box<dyn Clock>,
    hands: Mutex<Hands>,
}

#[derive(Debug)]
struct Hands {
    /// The clock starts at the time of day, for windows that depend on it.
    shown: Timestamp,
    /// The last failure, by the wall clock.
    failed_at: Timestamp,
    /// True if the backend has decided since, or has never failed.
    decided: bool,
}

impl OutageClock {
    pub(crate) fn new(wall: impl Clock) -> Self {
        let now = wall.now();
        let hands = Mutex::new(Hands {
            shown: now,
            failed_at: now,
            decided: true,
        });
        let wall = Box::new(wall);
        Self(Arc::new(Outages { wall, hands }))
    }

    /// Moves on to a failure of now.
    pub(crate) fn failed(&self) {
        let mut hands = self.hands();
        let now = self.0.wall.now().max(hands.failed_at);
        let since_us = now.as_micros() - hands.failed_at.as_micros();
        let mut since = Duration::from_micros(since_us);
        if hands.decided {
            since = since.min(LINGERS);
        }
        hands.shown = hands.shown.saturating_add(since);
        (hands.failed_at, hands.decided) = (now, false);
    }

    pub(crate) fn decided(&self) {
        self.hands().decided = true;
    }

    #[cfg(test)]
    pub(crate) fn has_decided(&self) -> bool {
        self.hands().decided
    }

    fn hands(&self) -> MutexGuard<'_, Hands> {
        self.0.hands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for OutageClock {
    fn now(&self) -> Timestamp {
        self.hands().shown
    }
}
