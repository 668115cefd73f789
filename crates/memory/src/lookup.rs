//! A lookup: a key with everything that is needed to find it.

use tollgate_core::{Key, KeyHashing, Scope};

use crate::stored_key::StoredKey;

/// The lookup of a key, worked out before any lock is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lookup<'a> {
    pub(crate) scope: Scope,
    pub(crate) bytes: &'a [u8],
    pub(crate) hash: u64,
    /// The entry form of this key, without the position of a long one.
    pub(crate) key: StoredKey,
}

impl<'a> Lookup<'a> {
    // Inlined always: a call, and moving its result, would cost half as much again.
    #[inline(always)]
    pub(crate) fn new(hashing: &KeyHashing, scope: Scope, key: &'a Key) -> Self {
        let bytes = key.as_bytes();
        let (blocks, rest) = key.blocks();
        let hash = hashing.hash(scope.number(), blocks, rest, bytes.len());
        Self {
            scope,
            bytes,
            hash,
            key: StoredKey::of(scope, bytes.len(), rest, hash),
        }
    }
}

/// Says whether both are one key of one scope.
impl PartialEq for Lookup<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.scope == other.scope && self.bytes == other.bytes
    }
}
