//! The name of a key and its scope in an entry, in one word.

use tollgate_core::{KeyHashing, Scope};

/// A key of at most [`StoredKey::INLINE`] bytes itself, or its position in the [arena](crate::arena).
///
/// | bits | short key | long key |
/// | --- | --- | --- |
/// | 0..26 | its bytes (0..40) | position in the arena |
/// | 26..54 | the number of its scope (40..54) | some bits of its hash |
/// | 54..62 | its length | its length |
/// | 62 | 0 | 1 |
/// | 63 | seen again since it was inserted | the same |
///
/// A key has at least one byte, the one that tells its kind, so that a length of 0 can mark a vacancy. The arena has the number
/// of a long key's scope before its bytes. A short key in a scope with a large number is stored like a long one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredKey(u64);

const TAG_AT: u32 = 26;
const SCOPE_AT: u32 = 40;
const LENGTH_AT: u32 = 54;
const CONTENT: u64 = (1 << SCOPE_AT) - 1;
const POSITION: u64 = (1 << TAG_AT) - 1;
const LONG: u64 = 1 << 62;
const SEEN_AGAIN: u64 = 1 << 63;

impl StoredKey {
    /// An IPv4 address takes five bytes. Such keys are the commonest, and comparing one with its scope is comparing a word.
    const INLINE: usize = 5;
    /// Policies are seldom more than a few hundred.
    const SCOPES: u32 = 1 << (LENGTH_AT - SCOPE_AT);

    /// The known part of any key's hash: the bits that find its place in a table.
    pub(crate) const TAG_BITS: u32 = LENGTH_AT - TAG_AT;

    /// A vacancy.
    pub(crate) const VACANT: Self = Self(0);

    /// The entry form of a key of `len` bytes, without the position of a long one. A short key is all in the rest of its
    /// blocks: see [`Key::blocks`](tollgate_core::Key::blocks).
    #[inline]
    pub(crate) fn of(scope: Scope, len: usize, rest: u128, hash: u64) -> Self {
        let scope = scope.number();
        let who = if len <= Self::INLINE && scope < Self::SCOPES {
            #[expect(clippy::cast_possible_truncation, reason = "a short key is all in it")]
            let content = rest as u64;
            content | u64::from(scope) << SCOPE_AT
        } else {
            LONG | Self::tag(hash) << TAG_AT
        };
        Self(who | (len as u64) << LENGTH_AT)
    }

    /// The bits of the hash that are known of any key.
    #[inline]
    pub(crate) const fn tag(hash: u64) -> u64 {
        hash & ((1 << Self::TAG_BITS) - 1)
    }

    /// This key at `position` of the arena.
    pub(crate) fn at(self, position: u32) -> Self {
        Self(self.0 & !POSITION | u64::from(position) & POSITION)
    }

    /// Says whether a stored key is this one, or may be if it is long.
    #[inline]
    pub(crate) fn may_be(self, stored: Self) -> bool {
        let compared = if self.is_long() {
            !(SEEN_AGAIN | POSITION)
        } else {
            !SEEN_AGAIN
        };
        (self.0 ^ stored.0) & compared == 0
    }

    /// A hash with the tag of the key.
    pub(crate) fn hash(self, hashing: &KeyHashing) -> u64 {
        if self.is_long() {
            return self.0 >> TAG_AT;
        }
        let content = self.0 & CONTENT;
        hashing.hash(self.short_scope(), &[], content.into(), self.len())
    }

    #[inline]
    pub(crate) const fn is_vacant(self) -> bool {
        self.0 == Self::VACANT.0
    }

    #[inline]
    pub(crate) const fn is_long(self) -> bool {
        self.0 & LONG != 0
    }

    #[inline]
    pub(crate) const fn len(self) -> usize {
        (self.0 >> LENGTH_AT) as usize & 0xff
    }

    /// The position of a long key in the arena.
    pub(crate) const fn position(self) -> u32 {
        (self.0 & POSITION) as u32
    }

    /// The bytes of a short key, and zeros behind them.
    pub(crate) const fn short_bytes(self) -> [u8; 8] {
        (self.0 & CONTENT).to_le_bytes()
    }

    /// The number of the scope of a short key.
    pub(crate) const fn short_scope(self) -> u32 {
        (self.0 >> SCOPE_AT) as u32 & (Self::SCOPES - 1)
    }

    #[inline]
    pub(crate) const fn mark_seen_again(&mut self) {
        // Written once: a write takes the cache line away from all other processors, and a denial writes nothing else to it.
        if !self.is_seen_again() {
            self.0 |= SEEN_AGAIN;
        }
    }

    pub(crate) const fn is_seen_again(self) -> bool {
        self.0 & SEEN_AGAIN != 0
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::Quota;

    use super::*;

    /// The rest of a short key's blocks.
    fn pack(bytes: &[u8]) -> u128 {
        let bytes = bytes.iter().rev();
        bytes.fold(0, |number, byte| number << 8 | u128::from(*byte))
    }

    fn stored(key: &[u8]) -> StoredKey {
        let scope = Scope::of("stored-key", 0, &Quota::per_second(1));
        StoredKey::of(scope, key.len(), pack(key), u64::MAX)
    }

    #[test]
    fn being_seen_again_makes_no_other_key() {
        let short = stored(b"ab");
        let mut seen = short;
        seen.mark_seen_again();
        assert!(seen.is_seen_again() && short.may_be(seen) && seen.len() == 2);
    }

    #[test]
    fn short_keys_differ_in_any_byte_in_length_and_in_scope() {
        let keys: [&[u8]; 6] = [b"\0", b"\0\0", b"a\0", b"a", b"abcde", b"abcdf"];
        for (i, a) in keys.iter().enumerate() {
            for (j, b) in keys.iter().enumerate() {
                let same = stored(a).may_be(stored(b));
                assert_eq!(same, i == j, "{a:?} {b:?}");
            }
        }
        let elsewhere = Scope::of("stored-key", 1, &Quota::per_second(1));
        assert!(!stored(b"a").may_be(StoredKey::of(elsewhere, 1, pack(b"a"), u64::MAX)));
    }

    #[test]
    fn a_long_key_keeps_its_length_its_position_and_the_bits_of_its_hash() {
        let (hash, hashing) = (0x1234_5678_9abc_def0, KeyHashing::random());
        let scope = Scope::of("stored-key", 0, &Quota::per_second(1));
        let lookup = StoredKey::of(scope, 128, 0, hash);
        let stored = lookup.at((1 << 26) - 1);
        assert_eq!((stored.len(), stored.position()), (128, (1 << 26) - 1));
        assert!(lookup.may_be(stored) && stored.is_long());
        let tag = StoredKey::tag(stored.hash(&hashing));
        assert_eq!(tag, StoredKey::tag(hash));
    }
}
