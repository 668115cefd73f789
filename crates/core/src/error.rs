//! The errors of backends that could not decide.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The error of a backend that could not decide. This is never a denial: a denial is a [`crate::Decision`].
///
/// After [`FailureKind::TimedOut`] and [`FailureKind::Unreachable`] the charges may have been taken; they were taken at most
/// once. This holds for [`FailureKind::ScriptFailed`] and [`FailureKind::WrongServer`] too if the answer came from another
/// server than the configured one.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{BackendError, FailureKind};
///
/// let kind = FailureKind::TimedOut { deadline: Duration::from_millis(100) };
/// let cause = std::io::Error::other("connection reset");
/// let error = BackendError::new(kind, "the node fails over").at("node-2:6379").caused_by(cause);
///
/// assert_eq!((error.kind(), error.detail(), error.place()), (kind, "the node fails over", Some("node-2:6379")));
/// assert_eq!(error.to_string(), "no answer from the backend within 100ms: the node fails over");
/// ```
#[derive(Clone, Debug)]
pub struct BackendError {
    kind: FailureKind,
    detail: Box<str>,
    place: Option<Box<str>>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// The reason why a backend could not decide.
///
/// ```
/// use tollgate::{BackendError, FailureKind};
///
/// /// True if an operator has to act; false if the backend comes back by itself.
/// fn needs_an_operator(error: &BackendError) -> bool {
///     matches!(
///         error.kind(),
///         FailureKind::Unauthenticated | FailureKind::Forbidden | FailureKind::WrongServer | FailureKind::ForeignState
///     )
/// }
///
/// assert!(!needs_an_operator(&BackendError::new(FailureKind::Overloaded, "")));
/// ```
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
    /// Too many decisions are waiting already.
    Overloaded,
    /// There is no room for another state, and no state can be evicted, because requests hold places under all of them.
    Full,
    /// The server does not accept our name or password.
    Unauthenticated,
    /// The server's access rules forbid a command or a key that decisions need.
    Forbidden,
    /// The server is a replica, or has been told not to be written to.
    ReadOnly,
    /// The server has no memory left and refuses writes.
    OutOfMemory,
    /// The server is there and cannot decide at present: it loads its data, is busy with another client's script, or misses the
    /// rest of its cluster, its replicas or its disk.
    Unready,
    /// The server failed to run the decision, or sent an answer that cannot be read.
    ScriptFailed,
    /// The server is not of the configured kind: it is not Redis, has no scripts, or is of another kind, such as a node of a
    /// cluster that was named as a single server.
    WrongServer,
    /// A value that Tollgate did not write stands where a state should.
    ForeignState,
    /// The call itself is invalid: it has more charges than [`crate::MAX_CHARGES`], say.
    InvalidCall,
}

impl BackendError {
    /// An error of this kind; `detail` says in half a sentence what happened, without any identity or secret.
    pub fn new(kind: FailureKind, detail: impl Into<Box<str>>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            place: None,
            source: None,
        }
    }

    /// This error with its cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(Arc::from(source.into()));
        self
    }

    /// This error with the server that it is about: `node-2:6379`.
    #[must_use]
    pub fn at(mut self, place: impl Into<Box<str>>) -> Self {
        self.place = Some(place.into());
        self
    }

    /// The server that the error is about, if that is known: a node of a cluster, or with Sentinels the master of that time.
    /// `Display` does not show it.
    #[must_use]
    pub fn place(&self) -> Option<&str> {
        self.place.as_deref()
    }

    /// The kind of this failure.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// The event, in half a sentence; empty if the kind says all.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
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
            FailureKind::Unauthenticated => f.write_str("the backend refused our login")?,
            FailureKind::Forbidden => f.write_str("forbidden by the backend's access rules")?,
            FailureKind::ReadOnly => f.write_str("the backend cannot be written to")?,
            FailureKind::OutOfMemory => f.write_str("the backend is out of memory")?,
            FailureKind::Unready => f.write_str("the backend cannot decide at present")?,
            FailureKind::ScriptFailed => f.write_str("the backend failed to decide")?,
            FailureKind::WrongServer => f.write_str("not a backend of the configured kind")?,
            FailureKind::ForeignState => f.write_str("the key holds a foreign value")?,
            FailureKind::Full => f.write_str("the backend is full")?,
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
