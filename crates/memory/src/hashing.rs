//! Where a key belongs: a keyed hash, because keys come from whoever sends requests.

use std::array;
use std::hash::{BuildHasher, RandomState};

use tollgate_core::Key;

/// Two universal hashes, one behind the other, with secrets that are drawn at random.
///
/// - *Folding* (NH) makes two words of a long key: of each block of sixteen bytes the halves, each plus a secret modulo 2^64,
///   are multiplied with each other, and the products summed modulo 2^128. Two keys have one sum with a chance of 2^-64.
/// - *Multilinear*: each of these words, or the only word of a short key, times a secret of 128 bits, summed modulo 2^128, of
///   which the upper half counts. It is strongly universal: for different words it is a random function of each two.
///
/// So whatever two keys somebody chooses who does not know the secrets, the chance that they share a hash is at most 2^-63,
/// and the chance that they share a shard, or a place in its table, is what it would be for a random function. That is
/// proven, takes one multiplication for a block, and is a small part of the work of SipHash, which std's maps
/// use and which is only believed to be hard. What SipHash is meant to give beyond that is secrecy of the secrets from
/// those who *see* hashes. Nobody sees ours, and a shard is small: should somebody guess all secrets, and crowd one, the
/// search goes through four thousand entries, which lie in a row, and takes microseconds.
#[derive(Clone)]
pub(crate) struct Hashing {
    /// Added to every sum, which makes single hashes uniform.
    start: u128,
    short: u128,
    folded: [u128; 2],
    rest: [u64; 2],
    blocks: [[u64; 2]; BLOCKS],
}

/// The whole blocks of the longest key.
const BLOCKS: usize = Key::MAX_LEN / size_of::<u128>();
/// Shorter keys are one word, their length included.
const SHORT: usize = size_of::<u64>();

impl Hashing {
    /// Secrets that no other process has: those of std's maps, drawn out by SipHash.
    pub(crate) fn random() -> Self {
        Self::from_secrets(&RandomState::new())
    }

    /// Always the same: for models that must run the same way each time.
    #[cfg(loom)]
    pub(crate) fn fixed() -> Self {
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

    /// The hash of a key of `len` bytes, which are these blocks and what is left of them: see
    /// [`Key::blocks`](tollgate_core::Key::blocks); under a scope by its number.
    #[inline]
    pub(crate) fn hash(&self, scope: u32, blocks: &[[u8; 16]], rest: u128, len: usize) -> u64 {
        // With the length in it two keys differ even if one is the other with zeros behind.
        let sum = if len < SHORT {
            let [word, _] = halves(rest);
            times(self.short, word | (len as u64) << 56)
        } else {
            let [lower, upper] = halves(self.fold(blocks, rest | (len as u128) << 120));
            times(self.folded[0], lower).wrapping_add(times(self.folded[1], upper))
        };
        let [_, upper] = halves(sum.wrapping_add(self.start));
        // No request chooses the scope, so it needs no secret.
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

/// The lower half first.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "each half is all of it")]
pub(crate) const fn halves(number: u128) -> [u64; 2] {
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

/// Without the secrets.
impl std::fmt::Debug for Hashing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hashing")
    }
}

/// Keys in sequence have sums in sequence, which would fill places as evenly as a comb, or leave most of them out: what a
/// universal hash promises holds on average over the secrets. After this they fill them as random numbers do. Different
/// sums stay different.
#[inline]
const fn mix(mut sum: u64) -> u64 {
    // 2^64 over the golden ratio.
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

    sum ^= sum >> 32;
    sum = sum.wrapping_mul(ODD);
    sum ^ sum >> 29
}

/// At most fifteen bytes as a number, the first the lowest.
#[cfg(test)]
pub(crate) fn pack(bytes: &[u8]) -> u128 {
    let bytes = bytes.iter().rev();
    bytes.fold(0, |number, byte| number << 8 | u128::from(*byte))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn hash(hashing: &Hashing, scope: u32, key: &[u8]) -> u64 {
        let (blocks, rest) = key.as_chunks();
        hashing.hash(scope, blocks, pack(rest), key.len())
    }

    #[test]
    fn every_byte_the_length_and_the_scope_count() {
        let hashing = Hashing::random();
        let mut hashes = HashSet::new();
        for scope in [0, 1] {
            // Every length, but for Miri, which takes its time.
            for len in (0..=Key::MAX_LEN).step_by(if cfg!(miri) { 41 } else { 1 }) {
                // Zeros, which add nothing but their length, and one byte that is none at each place.
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
        // Miri takes its time.
        const SECRETS: usize = if cfg!(miri) { 1 } else { 50 };
        const PLACES: usize = if cfg!(miri) { 16 } else { 256 };
        // given secrets by the dozen, since some are unluckier than others, and keys as alike as keys can be
        let last = |n: u64| n.to_be_bytes();
        let first = |n: u64| n.to_le_bytes();
        for key in [last, first] {
            for hashing in [(); SECRETS].map(|()| Hashing::random()) {
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

    /// Whoever has found out which keys meet in one process, by what they cost or by trying, has found out nothing about
    /// another, or the same when it is started again.
    #[test]
    fn pitfall_keys_that_meet_in_one_backend_spread_in_another() {
        // Miri takes its time: fewer keys in as many fewer places meet as often.
        const KEYS: usize = if cfg!(miri) { 32 } else { 256 };
        const OTHERS: usize = if cfg!(miri) { 2 } else { 20 };
        // given keys that all meet in one of 4,096 places
        let known = Hashing::random();
        let place = |hashing: &Hashing, n: u64| {
            hash(hashing, 0, format!("caller-{n}").as_bytes()) % (KEYS as u64 * 16)
        };
        let crafted: Vec<_> = (0..2_000_000)
            .filter(|&n| place(&known, n) == 0)
            .take(KEYS)
            .collect();
        assert_eq!(crafted.len(), KEYS);

        // when others hash them
        for other in [(); OTHERS].map(|()| Hashing::random()) {
            let places: HashSet<_> = crafted.iter().map(|&n| place(&other, n)).collect();

            // then they are apart, but for a few as with any 256 keys: eight meet on average
            assert!(places.len() > KEYS * 13 / 16, "{} places", places.len());
        }
    }

    #[test]
    fn two_backends_place_the_same_key_differently() {
        let hashes = [(); 2].map(|()| hash(&Hashing::random(), 0, b"alice"));
        assert_ne!(hashes[0], hashes[1]);
    }
}
