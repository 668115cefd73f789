//! Identities that are treated otherwise.

use std::collections::HashSet;
use std::sync::Arc;

use crate::Key;
use crate::sync::ArcSwap;

/// Identities that can be added and removed while requests are being decided: clones are one list.
///
/// A request costs a look into a table, without a lock. A change costs a copy of the whole list, so that many are better
/// [replaced](Self::replace) at once. The list holds what it is given: its size is the operator's to bound.
///
/// ```
/// use tollgate::key::{Header, KeyList};
/// use tollgate::{Block, Policy, Quota};
///
/// let (partners, leaked) = (KeyList::new(), KeyList::new());
/// let policy = Policy::new("api", Quota::per_second(10))
///     .key(Header::new("x-api-key"))
///     .exempt_keys(&partners)
///     .block_keys(&leaked, Block::Forbidden);
///
/// // Later, from anywhere.
/// leaked.insert("key-4711");
/// ```
///
/// The identity of a client's address is made by [`Limiter::client_key`](crate::Limiter::client_key), and one of several parts
/// by [`Key::tuple`].
#[derive(Clone, Debug, Default)]
pub struct KeyList(Arc<ArcSwap<HashSet<Key>>>);

impl KeyList {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an identity.
    pub fn insert(&self, key: impl Into<Key>) {
        let key = key.into().compact();
        self.change(|keys| {
            keys.insert(key.clone());
        });
    }

    /// Removes an identity.
    pub fn remove(&self, key: impl Into<Key>) {
        let key = key.into();
        self.change(|keys| {
            keys.remove(&key);
        });
    }

    /// From now on these, and no others.
    pub fn replace<K: Into<Key>>(&self, keys: impl IntoIterator<Item = K>) {
        let keys = keys.into_iter().map(|key| key.into().compact()).collect();
        self.0.store(Arc::new(keys));
    }

    /// Whether the identity is in the list now.
    #[must_use]
    pub fn contains(&self, key: &Key) -> bool {
        let keys = self.0.load();
        // Nearly every list is empty nearly always, and hashing costs something.
        !keys.is_empty() && keys.contains(key)
    }

    /// What `find` finds first in the list as it is now.
    pub(crate) fn find_map<T>(&self, find: impl FnMut(&Key) -> Option<T>) -> Option<T> {
        self.0.load().iter().find_map(find)
    }

    fn change(&self, f: impl Fn(&mut HashSet<Key>)) {
        self.0.rcu(|keys| {
            let mut keys = HashSet::clone(keys);
            f(&mut keys);
            keys
        });
    }
}

impl<K: Into<Key>> FromIterator<K> for KeyList {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> Self {
        let list = Self::new();
        list.replace(keys);
        list
    }
}

impl From<&Self> for KeyList {
    fn from(list: &Self) -> Self {
        list.clone()
    }
}
