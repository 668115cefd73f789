//! The place of a key: a keyed hash, because clients choose the keys.

use std::array;
use std::hash::{BuildHasher, RandomState};

use crate::{Key, Scope};

/// Two universal hashes, one behind the other, with secrets that are drawn at random.
///
/// - *Folding* (NH) makes two words of a long key: of each block of sixteen bytes the halves, each plus a secret modulo 2^64,
///   are multiplied with each other, and the products summed modulo 2^128. Two keys have one sum with a chance of 2^-64.
/// - *Multilinear*: each of these words, or the only word of a short key, is multiplied by a secret of 128 bits. The products
///   are summed modulo 2^128, and the upper half of the sum counts. It is strongly universal: for different words it is a
///   random function of each two.
///
/// So, for any two keys chosen without knowledge of the secrets, the chance of a shared hash is at most 2^-63. The chance that
/// they share a shard, or a place in its table, is that of a random function. That is proven, takes one multiplication for a
/// block, and is a small part of the work of SipHash, which std's maps use and whose strength is only conjectured. SipHash is
/// also meant to keep its secrets from an observer of its hashes; no observer sees ours. And a shard is small: if an attacker
/// guesses all secrets and crowds one shard, a search goes through four thousand entries that lie in a row, and takes
/// microseconds.
#[derive(Clone)]
pub struct KeyHashing {
    /// Added to every sum, which makes single hashes uniform.
    start: u128,
    short: u128,
    folded: [u128; 2],
    rest: [u64; 2],
    blocks: [[u64; 2]; BLOCKS],
}

/// The number of whole blocks of the longest key.
const BLOCKS: usize = Key::MAX_LEN / size_of::<u128>();
/// Shorter keys are one word, their length included.
const SHORT: usize = size_of::<u64>();

impl KeyHashing {
    /// Random secrets of this process alone, drawn from the SipHash of std's maps.
    #[must_use]
    pub fn random() -> Self {
        Self::from_secrets(&RandomState::new())
    }

    /// Fixed secrets, only for models, which must run the same way each time.
    #[must_use]
    pub fn fixed() -> Self {
        Self::from_secrets(&std::hash::BuildHasherDefault::<std::hash::DefaultHasher>::default())
    }

    fn from_secrets(source: &impl BuildHasher) -> Self {
        let mut drawn = 0_u64;
        let mut secret = || {
            drawn += 1;
            source.hash_one(drawn)
        };
        let mut pair = || [secret(), secret()];
        let mut whole = || {
            let [lower, upper] = pair().map(u128::from);
            upper << 64 | lower
        };
        Self {
            start: whole(),
            short: whole(),
            folded: [whole(), whole()],
            rest: pair(),
            blocks: array::from_fn(|_| pair()),
        }
    }

    /// The hash of a key under a scope.
    #[must_use]
    #[inline]
    pub fn hash_of(&self, scope: Scope, key: &Key) -> u64 {
        let (blocks, rest) = key.blocks();
        self.hash(scope.number(), blocks, rest, key.as_bytes().len())
    }

    /// The hash of a key of `len` bytes under the scope of a number. `blocks` and `rest` are the bytes of the key: see
    /// [`Key::blocks`](tollgate_core::Key::blocks).
    #[inline]
    pub fn hash(&self, scope: u32, blocks: &[[u8; 16]], rest: u128, len: usize) -> u64 {
        // The length is a part of it, so that two keys differ even if one is the other with zeros behind it.
        let sum = if len < SHORT {
            let [word, _] = halves(rest);
            times(self.short, word | (len as u64) << 56)
        } else {
            let [lower, upper] = halves(self.fold(blocks, rest | (len as u128) << 120));
            times(self.folded[0], lower).wrapping_add(times(self.folded[1], upper))
        };
        let [_, upper] = halves(sum.wrapping_add(self.start));
        // A request cannot choose the scope, so the scope needs no secret.
        mix(upper ^ u64::from(scope))
    }

    #[inline]
    fn fold(&self, blocks: &[[u8; 16]], rest: u128) -> u128 {
        let mut sum = product(rest, self.rest);
        for (block, secrets) in blocks.iter().zip(&self.blocks) {
            sum = sum.wrapping_add(product(u128::from_le_bytes(*block), *secrets));
        }
        sum
    }
}

/// The halves of a number, the lower one first.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "each half is all of it")]
const fn halves(number: u128) -> [u64; 2] {
    [number as u64, (number >> 64) as u64]
}

#[inline]
const fn times(secret: u128, word: u64) -> u128 {
    secret.wrapping_mul(word as u128)
}

#[inline]
const fn product(block: u128, secrets: [u64; 2]) -> u128 {
    let [lower, upper] = halves(block);
    lower.wrapping_add(secrets[0]) as u128 * upper.wrapping_add(secrets[1]) as u128
}

/// Shows no secrets.
impl std::fmt::Debug for KeyHashing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyHashing")
    }
}

/// Scrambles a sum. Keys in sequence have sums in sequence, which would fill places as evenly as a comb, or leave most of them
/// out: a universal hash keeps its promise only on average over the secrets. Scrambled sums fill places as random numbers do,
/// and different sums stay different.
#[inline]
const fn mix(mut sum: u64) -> u64 {
    // 2^64 divided by the golden ratio.
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

    sum ^= sum >> 32;
    sum = sum.wrapping_mul(ODD);
    sum ^ sum >> 29
}

/// At most fifteen bytes as a number; the first byte is the lowest.
#[cfg(test)]
fn pack(bytes: &[u8]) -> u128 {
    let bytes = bytes.iter().rev();
    bytes.fold(0, |number, byte| number << 8 | u128::from(*byte))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tollgate_testkit::cases;

    use super::*;

    fn hash(hashing: &KeyHashing, scope: u32, key: &[u8]) -> u64 {
        let (blocks, rest) = key.as_chunks();
        hashing.hash(scope, blocks, pack(rest), key.len())
    }

    #[test]
    fn every_byte_the_length_and_the_scope_count() {
        let hashing = KeyHashing::random();
        let mut hashes = HashSet::new();
        for scope in [0, 1] {
            // Every length; fewer under Miri, which is slow.
            for len in (0..=Key::MAX_LEN).step_by(if cfg!(miri) { 41 } else { 1 }) {
                // Zeros add only their length; one byte in each place is not zero.
                let mut bytes = vec![0; len];
                assert!(hashes.insert(hash(&hashing, scope, &bytes)));
                for at in 0..len {
                    bytes[at] = 1;
                    assert!(
                        hashes.insert(hash(&hashing, scope, &bytes)),
                        "{at} of {len}"
                    );
                    bytes[at] = 0;
                }
            }
        }
    }

    #[test]
    fn keys_in_sequence_spread_as_random_ones_do() {
        // Miri is slow.
        let secrets = if cfg!(miri) { 1 } else { cases(50) };
        const PLACES: usize = if cfg!(miri) { 16 } else { 256 };
        // given dozens of secrets, since some are unluckier than others, and keys as alike as keys can be
        let last = |n: u64| n.to_be_bytes();
        let first = |n: u64| n.to_le_bytes();
        for key in [last, first] {
            for hashing in (0..secrets).map(|_| KeyHashing::random()) {
                // when they fall into 256 shards, and each into one of 256 places by its lowest bits
                let (mut shards, mut places) = ([0_u32; PLACES], [0_u32; PLACES]);
                for n in 0..PLACES as u64 * 256 {
                    let hash = hash(&hashing, 7, &key(n));
                    shards[(hash >> 40 & 255) as usize % PLACES] += 1;
                    places[(hash & 255) as usize % PLACES] += 1;
                }
                // then each gets its 256, give or take eight standard deviations of a random number
                let fair = |keys: &u32| (128..384).contains(keys);
                assert!(shards.iter().chain(&places).all(fair));
            }
        }
    }

    /// An attacker may learn, by timing or by trying, which keys collide in one process. That says nothing about another
    /// process, or about this one after a restart.
    #[test]
    fn pitfall_keys_that_meet_in_one_backend_spread_in_another() {
        // Miri is slow: fewer keys in as many fewer places collide as often.
        const KEYS: usize = if cfg!(miri) { 32 } else { 256 };
        const OTHERS: usize = if cfg!(miri) { 2 } else { 20 };
        // given keys that all meet in one of 4,096 places
        let known = KeyHashing::random();
        let place = |hashing: &KeyHashing, n: u64| {
            hash(hashing, 0, format!("caller-{n}").as_bytes()) % (KEYS as u64 * 16)
        };
        let crafted: Vec<_> = (0..2_000_000)
            .filter(|&n| place(&known, n) == 0)
            .take(KEYS)
            .collect();
        assert_eq!(crafted.len(), KEYS);

        // when others hash them
        for other in [(); OTHERS].map(|()| KeyHashing::random()) {
            let places: HashSet<_> = crafted.iter().map(|&n| place(&other, n)).collect();

            // then they are apart, except a few as with any 256 keys: eight collide on average
            assert!(places.len() > KEYS * 13 / 16, "{} places", places.len());
        }
    }

    #[test]
    fn two_backends_place_the_same_key_differently() {
        let hashes = [(); 2].map(|()| hash(&KeyHashing::random(), 0, b"alice"));
        assert_ne!(hashes[0], hashes[1]);
    }
}
