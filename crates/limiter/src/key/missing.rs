//! Why there is no key.

use std::fmt;
use std::sync::Arc;

/// Why an extractor found no identity: it is absent, or what is there [cannot be told](Self::ambiguous). What that means, the
/// policy says: see [`OnMissing`](crate::OnMissing).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyMissing {
    what: MissingName,
    ambiguous: Option<&'static str>,
}

// Requests without a key are as frequent as an attacker likes: saying so must not allocate.
#[derive(Clone, Debug, PartialEq, Eq)]
enum MissingName {
    Literal(&'static str),
    Shared(Arc<str>),
}

impl KeyMissing {
    /// The request has none. `what` names the place, not a value: `session`.
    #[must_use]
    pub const fn new(what: &'static str) -> Self {
        Self {
            what: MissingName::Literal(what),
            ambiguous: None,
        }
    }

    /// The same for a name that is known at run time only; make it once and clone it.
    pub fn shared(what: impl Into<Arc<str>>) -> Self {
        Self {
            what: MissingName::Shared(what.into()),
            ambiguous: None,
        }
    }

    /// There is something, but readers could differ about it, or it could not be read: the handler may see an identity where the
    /// limiter sees none. Such a request never passes a policy for nothing. `why` is a sentence about the place, and names no value:
    /// `it has several values`.
    #[must_use]
    pub fn ambiguous(self, why: &'static str) -> Self {
        Self {
            ambiguous: Some(why),
            ..self
        }
    }

    /// Whether there is something that could not be told, rather than nothing.
    #[must_use]
    pub const fn is_ambiguous(&self) -> bool {
        self.ambiguous.is_some()
    }

    /// What was looked for.
    #[must_use]
    pub fn what(&self) -> &str {
        match &self.what {
            MissingName::Literal(what) => what,
            MissingName::Shared(what) => what,
        }
    }
}

impl fmt::Display for KeyMissing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ambiguous {
            None => write!(f, "no {} in the request", self.what()),
            Some(why) => write!(f, "an ambiguous {} in the request: {why}", self.what()),
        }
    }
}

impl std::error::Error for KeyMissing {}
