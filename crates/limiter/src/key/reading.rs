//! What several values of one name say together.

use super::KeyMissing;
use crate::Key;

/// Why an identity that stands several times is ambiguous: readers do not agree on which of them counts, and a caller could show
/// one to the limiter and another to the handler.
pub(super) const SEVERAL: &str = "it has several values";

/// What the values of one name say together.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reading<T> {
    /// There is none, or all are empty.
    Nothing,
    /// There is one, however often it is there.
    One(T),
    /// They differ.
    Several,
}

impl<T: AsRef<[u8]>> Reading<T> {
    pub(super) fn by(mut values: impl Iterator<Item = T>) -> Self {
        let Some(first) = values.next() else {
            return Self::Nothing;
        };
        if values.any(|other| other.as_ref() != first.as_ref()) {
            Self::Several
        } else if first.as_ref().is_empty() {
            Self::Nothing
        } else {
            Self::One(first)
        }
    }

    pub(super) fn key(self, missing: &KeyMissing) -> Result<Key, KeyMissing> {
        match self {
            Self::One(value) => Ok(Key::bytes(value.as_ref())),
            Self::Nothing => Err(missing.clone()),
            Self::Several => Err(missing.clone().ambiguous(SEVERAL)),
        }
    }
}
