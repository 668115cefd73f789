//! Where a key belongs: a keyed hash, because keys come from whoever sends requests.

use std::array;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use tollgate_core::{Key, Scope};

/// A multilinear hash: the words of a key, each times a secret of 128 bits drawn at random, summed modulo 2^128, of which the
/// upper half counts.
///
/// It is strongly universal. Whatever two keys somebody chooses who does not know the secrets, the chance that they share
/// a hash is 2^-64, and the chance that they share a shard, or a place in its index, is what it would be for a random
/// function. That is proven, takes two multiplications for a word, and is a fifth of the work of SipHash, which std's maps
/// use and which is only believed to be hard. What SipHash is meant to give beyond that is secrecy of the secrets from
/// those who *see* hashes. Nobody sees ours, and a shard is small: should somebody guess all secrets, and crowd one, the
/// search goes through eight thousand entries, sixteen at a time, and takes microseconds.
#[derive(Clone)]
pub(crate) struct Hashing {
    /// Added to every sum, which makes single hashes uniform.
    start: u128,
    rest: u128,
    words: [u128; WORDS],
}

/// The whole words of the longest key.
const WORDS: usize = Key::MAX_LEN / size_of::<u64>();

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
        let mut half = || {
            drawn += 1;
            u128::from(source.hash_one(drawn))
        };
        let mut secret = || half() << 64 | half();
        Self {
            start: secret(),
            rest: secret(),
            words: array::from_fn(|_| secret()),
        }
    }

    /// The hash of a key of `len` bytes, which are these words and what is left of them: see
    /// [`Key::words`](tollgate_core::Key::words).
    #[inline]
    pub(crate) fn hash(&self, scope: Scope, words: &[[u8; 8]], rest: u64, len: usize) -> u64 {
        // With the length in it two keys differ in some word even if one is the other with zeros behind.
        let rest = rest | (len as u64) << 56;
        let mut sum = self.start;
        sum = sum.wrapping_add(self.rest.wrapping_mul(rest.into()));
        for (word, secret) in words.iter().zip(&self.words) {
            sum = sum.wrapping_add(secret.wrapping_mul(u64::from_le_bytes(*word).into()));
        }
        let upper = (sum >> 64) as u64;
        // No request chooses the scope, so it needs no secret.
        mix(upper ^ address(scope))
    }

    /// The same of bytes that lie anywhere.
    pub(crate) fn hash_bytes(&self, scope: Scope, key: &[u8]) -> u64 {
        let (words, rest) = key.as_chunks();
        self.hash(scope, words, pack(rest), key.len())
    }
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

/// Scopes are equal if their addresses are, which is what they tell a hasher.
#[inline]
fn address(scope: Scope) -> u64 {
    struct Address(u64);

    impl Hasher for Address {
        fn write(&mut self, bytes: &[u8]) {
            for byte in bytes {
                self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
            }
        }

        fn write_usize(&mut self, address: usize) {
            self.0 = address as u64;
        }

        fn finish(&self) -> u64 {
            self.0
        }
    }

    let mut address = Address(0);
    scope.hash(&mut address);
    address.finish()
}

/// At most seven bytes as a number, the first the lowest.
pub(crate) fn pack(bytes: &[u8]) -> u64 {
    let bytes = bytes.iter().rev();
    bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tollgate_core::{Key, Quota};

    use super::*;

    fn scope(name: &str) -> Scope {
        Scope::of(name, 0, &Quota::per_second(1))
    }

    #[test]
    fn a_key_has_one_hash_whether_it_is_sought_or_stored() {
        let (hashing, scope) = (Hashing::random(), scope("hashing"));
        for len in 0..Key::MAX_LEN {
            let key = Key::bytes(&vec![0xa5; len]);
            let (words, rest) = key.words();
            let bytes = key.as_bytes();
            let hash = hashing.hash(scope, words, rest, bytes.len());
            assert_eq!(hash, hashing.hash_bytes(scope, bytes), "{len} bytes");
        }
    }

    #[test]
    fn every_byte_the_length_and_the_scope_count() {
        let hashing = Hashing::random();
        let mut hashes = HashSet::new();
        for scope in [scope("hashing"), scope("hashing-too")] {
            for len in 0..=Key::MAX_LEN {
                // Zeros, which add nothing but their length, and one byte that is none at each place.
                let mut bytes = vec![0; len];
                assert!(hashes.insert(hashing.hash_bytes(scope, &bytes)));
                for at in 0..len {
                    bytes[at] = 1;
                    assert!(
                        hashes.insert(hashing.hash_bytes(scope, &bytes)),
                        "{at} of {len}"
                    );
                    bytes[at] = 0;
                }
            }
        }
    }

    #[test]
    fn keys_in_sequence_spread_as_random_ones_do() {
        // given secrets by the dozen, since some are unluckier than others, and keys as alike as keys can be
        let scope = scope("hashing");
        let last = |n: u64| n.to_be_bytes();
        let first = |n: u64| n.to_le_bytes();
        for key in [last, first] {
            for hashing in [(); 50].map(|()| Hashing::random()) {
                // when they fall into 256 shards, and each into one of 256 places by its lowest bits
                let (mut shards, mut places) = ([0_u32; 256], [0_u32; 256]);
                for n in 0..1 << 16 {
                    let hash = hashing.hash_bytes(scope, &key(n));
                    shards[(hash >> 40 & 255) as usize] += 1;
                    places[(hash & 255) as usize] += 1;
                }
                // then each gets its 256, give or take eight standard deviations of a random number
                let fair = |keys: &u32| (128..384).contains(keys);
                assert!(shards.iter().chain(&places).all(fair));
            }
        }
    }

    #[test]
    fn two_backends_place_the_same_key_differently() {
        let hashes = [(); 2].map(|()| Hashing::random().hash_bytes(scope("hashing"), b"alice"));
        assert_ne!(hashes[0], hashes[1]);
    }
}
