//! The lists of a policy, read as its requests are.

use std::collections::HashSet;
use std::sync::Arc;

use super::{KeyList, KeyShape};
use crate::Key;
use crate::sync::ArcSwap;

/// A list whose identities are read as requests under a policy have them.
#[derive(Clone, Debug)]
pub(crate) struct ReadList {
    pub(crate) list: KeyList,
    read: Arc<ArcSwap<ReadKeys>>,
}

/// The identities of a list as it was, and as they are read.
#[derive(Debug, Default)]
struct ReadKeys {
    of: Arc<HashSet<Key>>,
    keys: HashSet<Key>,
}

impl ReadList {
    pub(crate) fn of(list: KeyList) -> Self {
        Self {
            list,
            read: Arc::default(),
        }
    }

    /// True if the identity of a request is in the list now.
    pub(crate) fn contains(&self, shape: &KeyShape, key: &Key) -> bool {
        if !shape.has_spellings() {
            return self.list.contains(key);
        }
        let listed = self.list.now();
        if listed.is_empty() {
            return false;
        }
        let read = self.read.load();
        if Arc::ptr_eq(&read.of, &listed) {
            return read.keys.contains(key);
        }
        let keys = read_keys(&listed, shape);
        let contains = keys.contains(key);
        self.read.store(Arc::new(ReadKeys { of: listed, keys }));
        contains
    }

    /// The identities of the list as it is now.
    pub(crate) fn keys(&self, shape: &KeyShape) -> HashSet<Key> {
        read_keys(&self.list.now(), shape)
    }
}

/// The identities as requests have them.
fn read_keys(listed: &HashSet<Key>, shape: &KeyShape) -> HashSet<Key> {
    let read = |key: &Key| shape.respelled(key).unwrap_or_else(|| key.clone());
    listed.iter().map(read).collect()
}
