//! The reasons for a missing key.

use std::fmt;
use std::sync::Arc;

use crate::Key;

/// The reason why an extractor found no identity: it is absent, or it is [ambiguous](Self::ambiguous). The policy's
/// [`OnMissing`](crate::OnMissing) is the rule for both.
///
/// ```
/// use tollgate::key::KeyMissing;
///
/// let absent = KeyMissing::new("session");
/// assert_eq!((absent.what(), absent.is_ambiguous()), ("session", false));
///
/// let twice = KeyMissing::new("session").ambiguous("it has several values");
/// assert!(twice.is_ambiguous());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyMissing {
    what: MissingName,
    ambiguous: Option<&'static str>,
    /// The known parts of a compound key.
    known: Option<Box<Key>>,
}

// Requests without a key are as frequent as an attacker likes: saying so must not allocate.
#[derive(Clone, Debug, PartialEq, Eq)]
enum MissingName {
    Literal(&'static str),
    Shared(Arc<str>),
}

impl KeyMissing {
    /// The request has no identity. `what` names the place, not a value: `session`.
    #[must_use]
    pub const fn new(what: &'static str) -> Self {
        Self {
            what: MissingName::Literal(what),
            ambiguous: None,
            known: None,
        }
    }

    /// An absent identity whose place is known only at run time. Make it once and clone it.
    ///
    /// ```
    /// use tollgate::key::KeyMissing;
    ///
    /// # let name = "x-tenant";
    /// let missing = KeyMissing::shared(format!("header {name}"));
    /// assert_eq!(missing.clone().what(), "header x-tenant");
    /// ```
    pub fn shared(what: impl Into<Arc<str>>) -> Self {
        Self {
            what: MissingName::Shared(what.into()),
            ambiguous: None,
            known: None,
        }
    }

    /// Marks the identity as present but unclear: readers could differ about it, or it could not be read. The handler may see an
    /// identity where the limiter sees none, so no policy lets such a request pass uncharged. `why` is a sentence about the place
    /// that names no value: `it has several values`.
    #[must_use]
    pub fn ambiguous(self, why: &'static str) -> Self {
        Self {
            ambiguous: Some(why),
            ..self
        }
    }

    /// Keeps the known parts of a compound key, so that a request that lacks a part shares a budget only with requests that agree
    /// in these.
    pub(crate) fn beside(mut self, known: Key) -> Self {
        self.known = Some(Box::new(known));
        self
    }

    /// True if it is of a compound key, and some parts of this are known.
    pub(crate) const fn has_known_parts(&self) -> bool {
        self.known.is_some()
    }

    /// The key of all requests that share a budget because they lack the same identity.
    pub(crate) fn shared_key(&self) -> Key {
        self.known.as_deref().cloned().unwrap_or_else(Key::missing)
    }

    /// True if an identity is present but unclear, rather than absent.
    #[must_use]
    pub const fn is_ambiguous(&self) -> bool {
        self.ambiguous.is_some()
    }

    /// The name of the place.
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
