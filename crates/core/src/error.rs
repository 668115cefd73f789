//! Why a backend could not decide.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// A backend could not decide. This is never a denial: a denial is a [`crate::Decision`].
///
/// After [`FailureKind::TimedOut`] and [`FailureKind::Unreachable`] the charges may have been taken; they were taken at
/// most once.
#[derive(Debug)]
pub struct BackendError {
    kind: FailureKind,
    detail: Box<str>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// What kept a backend from deciding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureKind {
    /// No connection, or it broke before the answer came.
    Unreachable,
    /// No answer within the deadline.
    TimedOut {
        /// The deadline that passed.
        deadline: Duration,
    },
    /// Too many decisions wait already.
    Overloaded,
    /// The server answered that it cannot: read-only, out of memory, loading, refused by its access rules.
    Refused,
    /// Something that Tollgate did not write stands where a state should.
    ForeignState,
    /// The call itself was not one: more charges than [`crate::MAX_CHARGES`], say.
    InvalidCall,
}

impl BackendError {
    /// An error of this kind; `detail` says in half a sentence what happened, without any identity or secret.
    pub fn new(kind: FailureKind, detail: impl Into<Box<str>>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            source: None,
        }
    }

    /// The same error with what caused it.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What kind of failure this is.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        self.kind
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            FailureKind::Unreachable => f.write_str("backend unreachable")?,
            FailureKind::TimedOut { deadline } => {
                write!(f, "no answer from the backend within {deadline:?}")?;
            }
            FailureKind::Overloaded => f.write_str("too many decisions wait for the backend")?,
            FailureKind::Refused => f.write_str("refused by the backend")?,
            FailureKind::ForeignState => f.write_str("not a state of ours")?,
            FailureKind::InvalidCall => f.write_str("invalid call")?,
        }
        if self.detail.is_empty() {
            Ok(())
        } else {
            write!(f, ": {}", self.detail)
        }
    }
}

impl Error for BackendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source
            .as_deref()
            .map(|source| source as &(dyn Error + 'static))
    }
}
