//! The settings of a layer.

use std::fmt;
use std::sync::Arc;

use tollgate_limiter::Limiter;

use crate::answer::Answers;
use crate::sync::AtomicBool;

/// The settings that the services of one layer share.
#[derive(Clone)]
pub struct Config {
    /// The limiter, which decides.
    pub limiter: Limiter,
    pub(crate) answers: Answers,
    /// True if requests carry a handle.
    pub status: bool,
    /// True once the operator knows that connections go on without a lease.
    pub(crate) warned_of_upgrade: Arc<AtomicBool>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("limiter", &self.limiter)
            .field("answers", &self.answers)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}
