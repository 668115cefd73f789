//! A process with a deliberate defect in its own share or line. It shows that the whole chain from clients to checker would
//! notice.

use serde::{Deserialize, Serialize};

/// The defect of a process while the backend fails, or afterwards, or while its requests wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Flaw {
    /// It lets through a whole budget, and not its share.
    WholeShare,
    /// Its share is full again in each outage.
    FreshShare,
    /// The charges of its share are charged to the budget as well, once that answers again.
    ChargedAgain,
    /// Its requests do not wait for their turn.
    PassesEarly,
    /// Its requests wait for longer than their callers stated.
    StatesNoWait,
    /// All of its requests spend the share that is kept for the important ones.
    SpendsKept,
}

impl Flaw {
    /// All defects.
    pub const ALL: [Self; 6] = [
        Self::WholeShare,
        Self::FreshShare,
        Self::ChargedAgain,
        Self::PassesEarly,
        Self::StatesNoWait,
        Self::SpendsKept,
    ];

    /// The name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::WholeShare => "whole-share",
            Self::FreshShare => "fresh-share",
            Self::ChargedAgain => "charged-again",
            Self::PassesEarly => "passes-early",
            Self::StatesNoWait => "states-no-wait",
            Self::SpendsKept => "spends-kept",
        }
    }
}
