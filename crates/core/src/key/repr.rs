//! The layout of a key in memory, and how a key is put together there.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::{Key, KeyKind};

const INLINE: usize = 46;
/// The unit of hashing.
const BLOCK: usize = size_of::<u128>();
/// Keys up to this length, as those of addresses, UUIDs and most API keys, are put together in words.
const WORDS: usize = 40;

pub(super) enum Repr {
    Inline {
        len: u8,
        bytes: [u8; INLINE],
    },
    Heap(Arc<[u8]>),
    /// A digest, alone or in a tuple, and its source.
    Digested(Arc<DigestedKey>),
}

/// A key that does not say by itself what it is made of.
pub(super) struct DigestedKey {
    /// The bytes that are compared, hashed and stored.
    key: Key,
    pub(super) source: Source,
}

/// The source of a key in which a digest stands for it.
pub(super) enum Source {
    Bytes(Box<[u8]>),
    Parts(Box<[Key]>),
}

impl Clone for Repr {
    #[inline]
    fn clone(&self) -> Self {
        match self {
            Self::Inline { len, bytes } => Self::Inline {
                len: *len,
                bytes: *bytes,
            },
            Self::Heap(bytes) => Self::Heap(Arc::clone(bytes)),
            Self::Digested(digested) => Self::Digested(Arc::clone(digested)),
        }
    }

    /// Replaces the key in place. Most keys are short, and a short key in the place of another needs no drop.
    #[inline]
    fn clone_from(&mut self, source: &Self) {
        match (&mut *self, source) {
            (
                Self::Inline { len, bytes },
                Self::Inline {
                    len: source_len,
                    bytes: source_bytes,
                },
            ) => {
                *len = *source_len;
                *bytes = *source_bytes;
            }
            _ => *self = source.clone(),
        }
    }
}

// The key keeps this and not its parts: a wrapped part would be moved once more.
impl Key {
    #[inline]
    pub(super) fn encode(kind: KeyKind, content: &[u8]) -> Self {
        let len = content.len() + 1;
        if len > WORDS {
            return Self::encode_long(kind, content);
        }
        let mut bytes = [0; INLINE];
        if let Some(words) = bytes.first_chunk_mut() {
            put(kind, content, words);
        }
        // `len` is at most INLINE.
        Self(Repr::Inline {
            len: u8::try_from(len).unwrap_or(0),
            bytes,
        })
    }

    #[inline(never)]
    fn encode_long(kind: KeyKind, content: &[u8]) -> Self {
        let len = content.len() + 1;
        if len <= INLINE {
            let mut bytes = [0; INLINE];
            bytes[0] = kind as u8;
            bytes[1..len].copy_from_slice(content);
            return Self(Repr::Inline {
                len: u8::try_from(len).unwrap_or(0),
                bytes,
            });
        }
        if len <= Self::MAX_LEN {
            let mut bytes = Vec::with_capacity(len);
            bytes.push(kind as u8);
            bytes.extend_from_slice(content);
            return Self(Repr::Heap(bytes.into()));
        }
        let digest = Sha256::new()
            .chain_update([kind as u8])
            .chain_update(content)
            .finalize();
        let key = Self::encode(KeyKind::Digest, &digest);
        // The parts are the source of a tuple, and are told later.
        match kind {
            KeyKind::Bytes => key.of(Source::Bytes(content.into())),
            _ => key,
        }
    }

    /// This key, with the source that it was made of.
    pub(super) fn of(self, source: Source) -> Self {
        Self(Repr::Digested(Arc::new(DigestedKey { key: self, source })))
    }

    /// The source, if the key does not say it by itself.
    pub(super) fn source(&self) -> Option<&Source> {
        match &self.0 {
            Repr::Digested(digested) => Some(&digested.source),
            Repr::Inline { .. } | Repr::Heap(_) => None,
        }
    }

    /// Drops the source of a digest: the identity stays, in at most [`MAX_LEN`](Self::MAX_LEN) bytes. For keys that are kept
    /// longer than a request. An [incomplete](Self::is_incomplete) identity keeps its parts, each of which is as short, and so
    /// stays known as one.
    #[must_use]
    #[inline]
    pub fn compact(self) -> Self {
        match &self.0 {
            Repr::Digested(_) if self.is_incomplete() => {
                let parts: Vec<_> = self.parts().map(Self::compact).collect();
                Self::tuple(&parts)
            }
            Repr::Digested(digested) => digested.key.clone(),
            Repr::Inline { .. } | Repr::Heap(_) => self,
        }
    }

    /// A clone without the source, made where it stays: a key is large enough that a move costs as much as the clone.
    #[inline]
    pub(crate) fn compact_clone(&self) -> Self {
        let bare = match &self.0 {
            Repr::Digested(digested) => &digested.key,
            Repr::Inline { .. } | Repr::Heap(_) => self,
        };
        bare.clone()
    }
}

impl Repr {
    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Self::Heap(bytes) => bytes,
            Self::Digested(digested) => digested.key.as_bytes(),
        }
    }

    /// See [`Key::blocks`].
    // Inlined always, as there.
    #[inline(always)]
    pub(super) fn blocks(&self) -> (&[[u8; BLOCK]], u128) {
        match self {
            Self::Inline { len, bytes } => {
                let (blocks, last) = bytes.as_chunks();
                let full = usize::from(*len) / BLOCK;
                let rest = match blocks.get(full) {
                    Some(block) => u128::from_le_bytes(*block),
                    None => end(last),
                };
                (&blocks[..full], rest)
            }
            Self::Heap(_) | Self::Digested(_) => blocks_of(self),
        }
    }
}

#[inline(never)]
fn blocks_of(repr: &Repr) -> (&[[u8; BLOCK]], u128) {
    let (blocks, rest) = repr.as_bytes().as_chunks();
    (blocks, number(rest))
}

/// The bytes behind the last block that a key has room for, in the pieces in which they were written: see [`put`].
#[inline]
fn end(bytes: &[u8]) -> u128 {
    const WORD: usize = size_of::<u64>();
    let (word, rest) = bytes.split_at(WORD.min(bytes.len()));
    let (half, rest) = rest.split_at(size_of::<u32>().min(rest.len()));
    let word = word.try_into().map_or(0, u64::from_le_bytes);
    let half = half.try_into().map_or(0, u32::from_le_bytes);
    let rest = rest.try_into().map_or(0, u16::from_le_bytes);
    u128::from(word) | u128::from(u64::from(rest) << 32 | u64::from(half)) << 64
}

/// Puts a key together in the words in which it will be read. A processor stalls on a load that spans several earlier stores
/// (failed store forwarding), for longer than the rest of a call takes.
#[inline]
fn put(kind: KeyKind, content: &[u8], to: &mut [u8; WORDS]) {
    let word = |at: usize| {
        content
            .get(at..)
            .and_then(|from| from.first_chunk().copied())
    };
    let number = |word: Option<[u8; 8]>| word.map_or(0, u64::from_le_bytes);
    let Some(first) = word(0) else {
        let first = self::number(content) << 8 | kind as u128;
        let (start, end) = to.split_at_mut(BLOCK);
        start.copy_from_slice(&first.to_le_bytes());
        end.fill(0);
        return;
    };
    let first = number(Some(first)) << 8 | kind as u64;
    // The last eight bytes, without those that an earlier word has.
    let len = content.len() + 1;
    let last = number(content.last_chunk().copied()) >> ((64 - 8 * (len % 8)) % 64);
    let words = if len > 24 {
        let within = [7, 15].map(|at| number(word(at)));
        if len > 32 {
            [first, within[0], within[1], number(word(23)), last]
        } else {
            [first, within[0], within[1], last, 0]
        }
    } else if len > 16 {
        [first, number(word(7)), last, 0, 0]
    } else {
        [first, last, 0, 0, 0]
    };
    for (to, word) in to.as_chunks_mut().0.iter_mut().zip(words) {
        *to = word.to_le_bytes();
    }
}

/// At most fifteen bytes as a number; the first byte is the lowest.
#[inline]
fn number(bytes: &[u8]) -> u128 {
    // Two loads cover the bytes and agree where they overlap.
    if let (4..8, Some(first), Some(last)) = (bytes.len(), bytes.first_chunk(), bytes.last_chunk())
    {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        return (u64::from(first) | u64::from(last) << (8 * (bytes.len() - 4))).into();
    }
    let bytes = bytes.iter().rev();
    bytes.fold(0, |number, byte| number << 8 | u128::from(*byte))
}
