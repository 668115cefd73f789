//! The list of the callers that are banned, for operators.

use std::fmt;
use std::time::Duration;

use crate::Key;

/// The callers that are banned under one policy, in no order: at most [`MOST`](Self::MOST) of them.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{BanList, BannedCaller, Key};
///
/// let mallory = BannedCaller::new(Key::from("mallory"), Duration::from_secs(60));
/// let list = BanList::new([mallory], true);
///
/// assert!(list.is_complete() && list.callers().len() == 1);
/// for caller in &list {
///     assert_eq!((caller.identity(), caller.left()), ("=mallory", Duration::from_secs(60)));
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BanList {
    callers: Vec<BannedCaller>,
    is_complete: bool,
}

/// A caller that is banned, and the rest of its ban.
///
/// `Debug` does not show the identity: identities are addresses and API keys, and do not belong into logs.
///
/// ```
/// use std::net::Ipv4Addr;
/// use std::time::Duration;
/// use tollgate::{BannedCaller, Key};
///
/// let minute = Duration::from_secs(60);
/// let pair = Key::from((Ipv4Addr::new(192, 0, 2, 7), "alice b"));
/// let caller = BannedCaller::new(pair.clone(), minute);
/// assert_eq!((caller.identity(), caller.key()), ("(192.0.2.7,=alice%20b)", Some(&pair)));
/// assert_eq!(caller.left(), minute);
///
/// // A backend that hashes identities does not know them.
/// let hashed = BannedCaller::hashed("h60303ae22b998861bce3b28f33eec1be", minute);
/// assert_eq!(hashed.key(), None);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct BannedCaller {
    key: Option<Key>,
    identity: Box<str>,
    left: Duration,
}

impl BanList {
    /// The most callers of a list. An attack bans far more, and no operator reads so many.
    pub const MOST: usize = 10_000;

    /// A list of these callers. Those beyond [`MOST`](Self::MOST) are left out, and the list is not complete then.
    pub fn new(callers: impl IntoIterator<Item = BannedCaller>, is_complete: bool) -> Self {
        let mut callers = callers.into_iter();
        let listed = callers.by_ref().take(Self::MOST).collect();
        Self {
            callers: listed,
            is_complete: is_complete && callers.next().is_none(),
        }
    }

    /// The callers.
    #[must_use]
    pub fn callers(&self) -> &[BannedCaller] {
        &self.callers
    }

    /// True if the list has every caller that was banned from its beginning to its end. False if there are more than
    /// [`MOST`](Self::MOST), or if the backend could not look at all of its states.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }
}

impl IntoIterator for BanList {
    type Item = BannedCaller;
    type IntoIter = std::vec::IntoIter<BannedCaller>;

    fn into_iter(self) -> Self::IntoIter {
        self.callers.into_iter()
    }
}

impl<'a> IntoIterator for &'a BanList {
    type Item = &'a BannedCaller;
    type IntoIter = std::slice::Iter<'a, BannedCaller>;

    fn into_iter(self) -> Self::IntoIter {
        self.callers.iter()
    }
}

impl BannedCaller {
    /// A caller of this identity, banned for so long.
    #[must_use]
    pub fn new(key: Key, left: Duration) -> Self {
        Self {
            identity: key.readable().into(),
            key: Some(key),
            left,
        }
    }

    /// A caller whose identity the backend knows only as this hash.
    #[must_use]
    pub fn hashed(hash: impl Into<Box<str>>, left: Duration) -> Self {
        Self {
            key: None,
            identity: hash.into(),
            left,
        }
    }

    /// The identity, for [`unban`](https://docs.rs/tollgate/latest/tollgate/struct.Limiter.html#method.unban); `None` if the
    /// backend keeps hashes of identities and nothing else. For an identity longer than [`Key::MAX_LEN`] this is the digest.
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// The identity as text, as it stands in names in Redis: `203.0.113.7`, `2001:db8::/64`, `=alice` for a text,
    /// `(203.0.113.7,=alice)` for several identities, `d` and 64 digits for the digest of a long one, and `h` and 32 digits for
    /// the hash of one that the backend does not know.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// The time until the ban ends, as of when the list was made.
    #[must_use]
    pub fn left(&self) -> Duration {
        self.left
    }
}

impl fmt::Debug for BannedCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BannedCaller")
            .field("key", &self.key)
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(n: u64) -> BannedCaller {
        BannedCaller::new(Key::from(n), Duration::from_secs(n + 1))
    }

    #[test]
    fn a_list_is_bounded_and_says_so() {
        let most = BanList::MOST as u64;
        let full = BanList::new((0..most).map(caller), true);
        assert!(full.is_complete() && full.callers().len() == BanList::MOST);
        let cut = BanList::new((0..=most).map(caller), true);
        assert!(!cut.is_complete() && cut.callers() == full.callers());
        assert!(!BanList::new([caller(1)], false).is_complete());
    }

    #[test]
    fn no_identity_stands_in_a_log() {
        let list = BanList::new(
            [
                BannedCaller::new(Key::from("s3cret"), Duration::ZERO),
                BannedCaller::hashed("hs3cret", Duration::ZERO),
            ],
            true,
        );
        assert!(!format!("{list:?}").contains("s3cret"), "{list:?}");
    }
}
