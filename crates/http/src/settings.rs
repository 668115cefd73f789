//! The settings of a layer.

use std::fmt;

use tollgate_limiter::Limiter;

use crate::answer::Answers;

/// The settings that the services of one layer share.
#[derive(Clone)]
pub struct Config {
    /// The limiter, which decides.
    pub limiter: Limiter,
    pub(crate) answers: Answers,
    /// True if requests carry a handle.
    pub status: bool,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("limiter", &self.limiter)
            .field("answers", &self.answers)
            .field("status", &self.status)
            .finish()
    }
}
