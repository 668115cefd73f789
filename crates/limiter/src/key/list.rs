//! Lists of identities that may change while they are in use.

use std::collections::HashSet;
use std::sync::Arc;

use crate::Key;
use crate::sync::ArcSwap;

/// Identities that can be added and removed while requests are being decided: clones are one list.
///
/// A request costs one hash probe, without a lock. A change copies the whole list, so many changes are better made by one
/// [replacement](Self::replace). The list has no bound of its own: the operator bounds its size.
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
/// Its identities are read as those of requests are: under a key such as [`PathParam`](crate::key::PathParam), `00123` and `+123` are the
/// caller `123`. The identity of a client's address is made by [`Limiter::client_key`](crate::Limiter::client_key), and one of several parts
/// by [`Key::tuple`].
///
/// A limiter is not built if an entry can never match. Entries that are added later are not checked: text such as `127.0.0.1` under a key of
/// addresses matches nobody.
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
        let key = key.into();
        self.change(|keys| {
            keys.insert(key.clone());
        });
    }

    /// Removes an identity.
    ///
    /// ```
    /// use tollgate::Key;
    /// use tollgate::key::KeyList;
    ///
    /// let leaked = KeyList::from_iter(["key-4711"]);
    /// leaked.remove("key-4711");
    /// assert!(!leaked.contains(&Key::from("key-4711")));
    /// ```
    pub fn remove(&self, key: impl Into<Key>) {
        let key = key.into();
        self.change(|keys| {
            keys.remove(&key);
        });
    }

    /// Replaces all identities by these.
    ///
    /// ```
    /// use tollgate::Key;
    /// use tollgate::key::KeyList;
    ///
    /// // Read anew from the database, each minute.
    /// let partners = KeyList::new();
    /// partners.replace(["partner-a", "partner-b"]);
    /// assert!(partners.contains(&Key::from("partner-a")));
    /// ```
    pub fn replace<K: Into<Key>>(&self, keys: impl IntoIterator<Item = K>) {
        let keys = keys.into_iter().map(Into::into).collect();
        self.0.store(Arc::new(keys));
    }

    /// True if the identity is in the list now.
    ///
    /// ```
    /// use tollgate::Key;
    /// use tollgate::key::KeyList;
    ///
    /// let partners = KeyList::from_iter(["partner-a"]);
    /// assert!(partners.contains(&Key::from("partner-a")));
    /// ```
    #[must_use]
    pub fn contains(&self, key: &Key) -> bool {
        let keys = self.0.load();
        // Nearly every list is empty nearly always, and hashing costs something.
        !keys.is_empty() && keys.contains(key)
    }

    /// The identities as they are now.
    pub(super) fn now(&self) -> Arc<HashSet<Key>> {
        Arc::clone(&self.0.load())
    }

    /// The first result of `find` in the list as it is now.
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
