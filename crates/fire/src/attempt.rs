//! What one attempt asked and heard, as a client writes it down.

use serde::{Deserialize, Serialize};
use tollgate_core::{BackendError, Decision, FailureKind, Mode, Verdict};

/// One budget: which policy of the population, and whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Budget {
    /// The number of the policy.
    pub policy: usize,
    /// The number of the caller.
    pub caller: u32,
}

/// What a charge asks for: core's [`Mode`], to be written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Manner {
    /// All of them or none.
    Enforce,
    /// On its own.
    Shadow,
    /// Nothing is taken.
    Probe,
}

impl Manner {
    /// The same in core's words.
    #[must_use]
    pub fn mode(self) -> Mode {
        match self {
            Self::Enforce => Mode::Enforce,
            Self::Shadow => Mode::Shadow,
            Self::Probe => Mode::Probe,
        }
    }
}

/// One charge of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// From which budget.
    pub budget: Budget,
    /// How much.
    pub cost: u64,
    /// In which way.
    pub manner: Manner,
}

impl Asked {
    /// Whether both are one charge of what they cost together, in one call.
    pub(crate) fn is_one_with(&self, other: &Self) -> bool {
        self.budget == other.budget && self.manner == other.manner
    }
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verb {
    /// To decide about these charges, as one call.
    Decide(Vec<Asked>),
    /// To give back so much of a charge of which this was said.
    Credit(Budget, Said, u64),
    /// To take so much more, past the capacity if need be.
    Debit(Budget, u64),
    /// To forget what was taken.
    Reset(Budget),
}

impl Verb {
    /// The charges, if it is a question.
    #[must_use]
    pub fn asked(&self) -> &[Asked] {
        match self {
            Self::Decide(asked) => asked,
            _ => &[],
        }
    }

    /// The budgets that it speaks of.
    pub fn budgets(&self) -> impl Iterator<Item = Budget> {
        let only = match self {
            Self::Decide(_) => None,
            Self::Credit(budget, ..) | Self::Debit(budget, _) | Self::Reset(budget) => {
                Some(*budget)
            }
        };
        let asked = self.asked().iter().map(|asked| asked.budget);
        asked.chain(only)
    }
}

/// How a process asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Door {
    /// The backend itself.
    #[default]
    Backend,
    /// A limiter, whose policies give each process a share of their budgets while the backend fails.
    Limiter,
    /// HTTP requests, to a server with the layer around it and the same limiter in it.
    Http,
}

impl Door {
    /// Each.
    pub const ALL: [Self; 3] = [Self::Backend, Self::Limiter, Self::Http];
}

/// Who asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Asker {
    /// The number of the process.
    pub process: u32,
    /// How it asks.
    pub door: Door,
}

/// What the failure rule of a limiter made of a backend's failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fallback {
    /// The process's share decided.
    Decided {
        /// Whether it passed.
        admitted: bool,
        /// What it said is left for each charge, where it said so.
        remaining: Vec<Option<u64>>,
    },
    /// It was refused: a share could not have held what the budget itself might.
    Refused,
}

/// What an HTTP client was told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// The status.
    pub status: u16,
    /// `Retry-After`.
    pub retry_after_s: Option<u64>,
    /// What the RateLimit field says is left for each charge, if it speaks of it.
    pub remaining: Vec<Option<u64>>,
}

/// What was heard of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    /// What came of it at the backend.
    pub outcome: Outcome,
    /// What was made of that, if it failed.
    pub fallback: Option<Fallback>,
    /// What was told of it over HTTP.
    pub told: Option<Told>,
}

impl From<Outcome> for Heard {
    fn from(outcome: Outcome) -> Self {
        Self {
            outcome,
            fallback: None,
            told: None,
        }
    }
}

/// One call, from when it was made to when it was answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Who asked.
    pub asker: Asker,
    /// What was to be done.
    pub verb: Verb,
    /// When it was made, in µs of the client's clock.
    pub sent_us: u64,
    /// When it was answered.
    pub heard_us: u64,
    /// If it is a retry of a denied one that nobody else can have spoilt: when, by the backend's clock, it was promised
    /// to pass.
    pub promised_us: Option<u64>,
    /// What came of it at the backend.
    pub outcome: Outcome,
    /// What a limiter made of that, if it failed.
    pub fallback: Option<Fallback>,
    /// What was told of it over HTTP.
    pub told: Option<Told>,
}

impl Attempt {
    /// The same, as it was heard of at that time.
    #[must_use]
    pub fn heard(self, heard_us: u64, heard: Heard) -> Self {
        Self {
            heard_us,
            outcome: heard.outcome,
            fallback: heard.fallback,
            told: heard.told,
            ..self
        }
    }
}

/// What came of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It was decided.
    Decided(Decided),
    /// What was to be forgotten is.
    Reset,
    /// It is on its way, and nobody is told what comes of it: a credit or a debit.
    Told,
    /// It failed, and the error says that nothing was taken.
    Failed(String),
    /// Nobody knows whether it was decided: no answer came, or the client died before it did.
    Unknown(String),
}

/// A decision, in numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    /// Whether every enforced charge was taken.
    pub admitted: bool,
    /// About each charge.
    pub verdicts: Vec<Said>,
}

/// What was said about one charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// When, by the clock of whoever said it.
    pub at_us: u64,
    /// Whether anybody was asked. On a cluster whoever was to come after a denial may not have been.
    pub known: bool,
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
    /// Why nobody heard of an attempt: its client is no more.
    pub(crate) const KILLED: &str = "the client was killed";

    /// Why nobody heard of an attempt: its client did not wait for an answer.
    pub(crate) const CLOSED: &str = "the client closed the connection";

    /// Whether nobody can have heard of it, however soon it was answered.
    #[must_use]
    pub fn is_unheard(&self) -> bool {
        matches!(self, Self::Unknown(why) if [Self::KILLED, Self::CLOSED].contains(&why.as_str()))
    }

    /// What a backend's answer comes to.
    #[must_use]
    pub fn of(answer: &Result<Decision, BackendError>) -> Self {
        match answer {
            Ok(decision) => Self::Decided(Decided {
                admitted: decision.is_admitted(),
                verdicts: said(decision).collect(),
            }),
            Err(error) => Self::of_error(error),
        }
    }

    /// What a failure comes to.
    #[must_use]
    pub fn of_error(error: &BackendError) -> Self {
        // The only two kinds after which charges may have been taken, as their documentation says.
        match error.kind() {
            FailureKind::TimedOut { .. } | FailureKind::Unreachable => {
                Self::Unknown(error.to_string())
            }
            _ => Self::Failed(error.to_string()),
        }
    }
}

fn said(decision: &Decision) -> impl Iterator<Item = Said> {
    let verdicts = decision.verdicts().iter().enumerate();
    verdicts.map(|(position, verdict)| Said::of(verdict, decision.verdict_at(position).as_micros()))
}

impl Said {
    fn of(verdict: &Verdict, at_us: u64) -> Self {
        let micros =
            |duration: std::time::Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Self {
            at_us,
            known: verdict.is_allowed() || verdict.is_denied(),
            passes: verdict.is_allowed(),
            never: verdict.never_passes(),
            taken: verdict.taken(),
            remaining: verdict.remaining(),
            retry_after_us: verdict.retry_after().map_or(0, micros),
            reset_after_us: micros(verdict.reset_after()),
        }
    }
}
