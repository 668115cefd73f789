//! What a layer was told.

use std::fmt;

use crate::answer::Answers;
use crate::limiter::Limiter;

/// What the services of one layer share.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) limiter: Limiter,
    pub(crate) answers: Answers,
    /// Whether requests carry a handle.
    pub(crate) status: bool,
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
