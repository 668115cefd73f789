//! A process that is wrong on purpose about its own share, so that the whole chain from clients to checker can show that it
//! would have noticed.

use serde::{Deserialize, Serialize};

/// How a process is wrong while the backend fails, or afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Flaw {
    /// It lets through all that a budget holds, and not its share.
    WholeShare,
    /// Its share is full again in each outage.
    FreshShare,
    /// What its share let through is charged to the budget as well, when that can be asked again.
    ChargedAgain,
}

impl Flaw {
    /// Each.
    pub const ALL: [Self; 3] = [Self::WholeShare, Self::FreshShare, Self::ChargedAgain];

    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::WholeShare => "whole-share",
            Self::FreshShare => "fresh-share",
            Self::ChargedAgain => "charged-again",
        }
    }
}
