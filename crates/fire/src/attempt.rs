//! What one attempt asked and heard, as a client writes it down.

use serde::{Deserialize, Serialize};
use tollgate_core::{BackendError, Decision, FailureKind, Verdict};

/// One budget: which policy of the population, and whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Budget {
    /// The number of the policy.
    pub policy: usize,
    /// The number of the caller.
    pub caller: u32,
}

/// One charge of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// From which budget.
    pub budget: Budget,
    /// How much.
    pub cost: u64,
}

/// One call, from when it was made to when it was answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// What was asked.
    pub charges: Vec<Asked>,
    /// When it was made, in µs of the client's clock.
    pub sent_us: u64,
    /// When it was answered.
    pub heard_us: u64,
    /// If it is a retry of a denied one that nobody else can have spoilt: when, by the backend's clock, it was promised
    /// to pass.
    pub promised_us: Option<u64>,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It was decided.
    Decided(Decided),
    /// It failed, and the error says that nothing was taken.
    Failed(String),
    /// Nobody knows whether it was decided: no answer came, or the client died before it did.
    Unknown(String),
}

/// A decision, in numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    /// When, by the backend's clock.
    pub at_us: u64,
    /// Whether all of it was taken.
    pub admitted: bool,
    /// About each charge.
    pub verdicts: Vec<Said>,
}

/// What was said about one charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// Whether it passes by itself.
    pub passes: bool,
    /// Whether it never can.
    pub never: bool,
    /// What was taken for it.
    pub taken: u64,
    /// What is left.
    pub remaining: u64,
    /// Until it would pass; 0 if it does, or never can.
    pub retry_after_us: u64,
    /// Until the budget is full again.
    pub reset_after_us: u64,
}

impl Outcome {
    /// What a backend's answer comes to.
    #[must_use]
    pub fn of(answer: &Result<Decision, BackendError>) -> Self {
        match answer {
            Ok(decision) => Self::Decided(Decided {
                at_us: decision.at().as_micros(),
                admitted: decision.is_admitted(),
                verdicts: decision.verdicts().iter().map(Said::of).collect(),
            }),
            // The only two kinds after which charges may have been taken, as their documentation says.
            Err(error) => match error.kind() {
                FailureKind::TimedOut { .. } | FailureKind::Unreachable => {
                    Self::Unknown(error.to_string())
                }
                _ => Self::Failed(error.to_string()),
            },
        }
    }
}

impl Said {
    fn of(verdict: &Verdict) -> Self {
        let micros =
            |duration: std::time::Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Self {
            passes: verdict.is_allowed(),
            never: verdict.never_passes(),
            taken: verdict.taken(),
            remaining: verdict.remaining(),
            retry_after_us: verdict.retry_after().map_or(0, micros),
            reset_after_us: micros(verdict.reset_after()),
        }
    }
}
