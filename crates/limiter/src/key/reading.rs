//! The combination of several values of one name.

use super::KeyMissing;
use crate::Key;

/// The reason why an identity with several values is ambiguous: readers disagree about which one counts, and a caller could show
/// one to the limiter and another to the handler.
pub(super) const SEVERAL: &str = "it has several values";

/// The reason why an identity is ambiguous that other readers find under another name, or cut elsewhere.
pub(super) const ELSEWHERE: &str = "services read it in different ways";

/// True if some reader takes one name for the other: ASP.NET does not tell capital letters from small ones, and PHP makes
/// underscores of dots, blanks and brackets.
pub(super) fn is_alike(one: &[u8], other: &[u8]) -> bool {
    let folded = |byte: &u8| match byte {
        b'.' | b' ' | b'[' => b'_',
        byte => byte.to_ascii_lowercase(),
    };
    let (one, other) = (one.trim_ascii(), other.trim_ascii());
    one.iter().map(folded).eq(other.iter().map(folded))
}

/// The combination of the values of one name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reading<T> {
    /// There is no value, or all are empty.
    Nothing,
    /// There is one value, perhaps repeated.
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
