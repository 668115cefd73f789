//! How an entry names its key: in one word.

use crate::hashing::halves;

/// A key of at most [`StoredKey::INLINE`] bytes itself, or where the [arena](crate::arena) has it.
///
/// | bits | short key | long key |
/// | --- | --- | --- |
/// | 0..48 | its bytes | position in the arena (32), some bits of its hash (16) |
/// | 48..56 | its length | its length |
/// | 56 | seen again since it was inserted | the same |
///
/// A key has at least one byte, the one that tells its kind, so that a length of 0 is free to mean that nobody is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredKey(u64);

const LENGTH_AT: u32 = 48;
const TAG_AT: u32 = 32;
const CONTENT: u64 = (1 << LENGTH_AT) - 1;
const POSITION: u64 = u32::MAX as u64;
const SEEN_AGAIN: u64 = 1 << 56;

impl StoredKey {
    /// An IPv4 address is five bytes. They are the commonest keys; comparing one is comparing a word.
    pub(crate) const INLINE: usize = 6;

    /// What an entry of a key of `len` bytes would hold, but for the position of a long one. A short one is all in the
    /// rest of its blocks: see [`Key::blocks`](tollgate_core::Key::blocks).
    #[inline]
    pub(crate) fn of(len: usize, rest: u128, hash: u64) -> Self {
        let content = if len <= Self::INLINE {
            let [content, _] = halves(rest);
            content
        } else {
            // Bits that choose neither the shard nor the place in its index.
            ((hash >> 20) & 0xffff) << TAG_AT
        };
        Self(content | (len as u64) << LENGTH_AT)
    }

    /// The same key, which is to be found at `position` of the arena.
    pub(crate) fn at(self, position: u32) -> Self {
        Self(self.0 & !POSITION | u64::from(position))
    }

    /// Whether a stored key is this one; if it is long, whether it may be.
    #[inline]
    pub(crate) fn may_be(self, stored: Self) -> bool {
        let compared = if self.is_inline() {
            !SEEN_AGAIN
        } else {
            !(SEEN_AGAIN | POSITION)
        };
        (self.0 ^ stored.0) & compared == 0
    }

    #[inline]
    pub(crate) fn is_inline(self) -> bool {
        self.len() <= Self::INLINE
    }

    #[inline]
    pub(crate) fn len(self) -> usize {
        ((self.0 >> LENGTH_AT) & 0xff) as usize
    }

    /// Where in the arena a long key is.
    pub(crate) fn position(self) -> u32 {
        (self.0 & POSITION) as u32
    }

    /// The bytes of a short key as a number, the first the lowest.
    pub(crate) fn content(self) -> u64 {
        self.0 & CONTENT
    }

    #[inline]
    pub(crate) fn mark_seen_again(&mut self) {
        self.0 |= SEEN_AGAIN;
    }

    pub(crate) fn is_seen_again(self) -> bool {
        self.0 & SEEN_AGAIN != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hashing::pack;

    fn stored(key: &[u8]) -> StoredKey {
        StoredKey::of(key.len(), pack(key), u64::MAX)
    }

    #[test]
    fn a_short_key_comes_back_as_it_was() {
        for len in 1..=StoredKey::INLINE {
            let key = &[0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6][..len];
            let stored = stored(key);
            assert!(stored.is_inline());
            assert_eq!(
                (stored.content(), stored.len()),
                (halves(pack(key))[0], len)
            );
        }
    }

    #[test]
    fn being_seen_again_makes_no_other_key() {
        let short = stored(b"ab");
        let mut seen = short;
        seen.mark_seen_again();
        assert!(seen.is_seen_again() && short.may_be(seen) && seen.len() == 2);
    }

    #[test]
    fn short_keys_differ_in_any_byte_and_in_length() {
        let keys: [&[u8]; 6] = [b"\0", b"\0\0", b"a\0", b"a", b"abcdef", b"abcdeg"];
        for (i, a) in keys.iter().enumerate() {
            for (j, b) in keys.iter().enumerate() {
                let same = stored(a).may_be(stored(b));
                assert_eq!(same, i == j, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn a_long_key_keeps_its_length_and_position() {
        let sought = StoredKey::of(128, 0, 0x1234_5678_9abc_def0);
        let stored = sought.at(u32::MAX);
        assert_eq!((stored.len(), stored.position()), (128, u32::MAX));
        assert!(sought.may_be(stored) && !stored.is_inline());
    }
}
