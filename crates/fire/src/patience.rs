//! The patience of callers.

use std::time::Duration;

use crate::terms::micros;

/// The patience of a request's caller.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Patience {
    /// The time after which the caller leaves, if it does not stay.
    pub(crate) leaves_after: Option<Duration>,
    /// The longest wait that it states, if it states one.
    pub(crate) waits_at_most: Option<Duration>,
}

impl Patience {
    pub(crate) fn waits_at_most_us(&self) -> Option<u64> {
        self.waits_at_most.map(micros)
    }
}
