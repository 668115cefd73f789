//! Where a key belongs: a keyed hash, because keys come from whoever sends requests.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use tollgate_core::Scope;

/// SipHash-1-3 under a key drawn at random: what std's maps use, and for the same reason. Nobody who cannot read our
/// memory can choose identities that crowd one shard, or one chain of its index. Quicker hashes promise less than that:
/// most are broken as soon as somebody can watch how long answers take.
///
/// Not std's own code, because that takes a stream of pieces of any size: it needs twice the instructions for the same
/// result, and they were a quarter of a whole decision.
#[derive(Clone, Debug)]
pub(crate) struct Hashing {
    /// As the key leaves it, before anything is absorbed.
    keyed: Sip13,
}

impl Hashing {
    pub(crate) fn random() -> Self {
        let random = RandomState::new();
        Self {
            keyed: Sip13::new(random.hash_one(0), random.hash_one(1)),
        }
    }

    /// Always the same: for models that must run the same way each time.
    #[cfg(loom)]
    pub(crate) const fn fixed() -> Self {
        Self {
            keyed: Sip13::new(0, 0),
        }
    }

    /// The hash of a key of `len` bytes, which are these words and what is left of them: see
    /// [`Key::words`](tollgate_core::Key::words).
    ///
    /// The scope goes into the hash's key rather than before the bytes. No request chooses it, and it saves a round.
    #[inline]
    pub(crate) fn hash(&self, scope: Scope, words: &[[u8; 8]], rest: u64, len: usize) -> u64 {
        let mut sip = self.keyed.with(address(scope));
        for word in words {
            sip.absorb(u64::from_le_bytes(*word));
        }
        sip.absorb(rest | (len as u64) << 56);
        sip.finish()
    }

    /// The same of bytes that lie anywhere.
    pub(crate) fn hash_bytes(&self, scope: Scope, key: &[u8]) -> u64 {
        let (words, rest) = key.as_chunks();
        self.hash(scope, words, pack(rest), key.len())
    }
}

/// One round per word, three at the end.
#[derive(Clone, Copy, Debug)]
struct Sip13 {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
}

impl Sip13 {
    #[inline]
    const fn new(k0: u64, k1: u64) -> Self {
        Self {
            v0: k0 ^ 0x736f_6d65_7073_6575,
            v1: k1 ^ 0x646f_7261_6e64_6f6d,
            v2: k0 ^ 0x6c79_6765_6e65_7261,
            v3: k1 ^ 0x7465_6462_7974_6573,
        }
    }

    /// Under another key, whose first half differs by this.
    #[inline]
    const fn with(mut self, difference: u64) -> Self {
        self.v0 ^= difference;
        self.v2 ^= difference;
        self
    }

    #[inline]
    const fn absorb(&mut self, word: u64) {
        self.v3 ^= word;
        self.round();
        self.v0 ^= word;
    }

    #[inline]
    const fn finish(mut self) -> u64 {
        self.v2 ^= 0xff;
        self.round();
        self.round();
        self.round();
        self.v0 ^ self.v1 ^ self.v2 ^ self.v3
    }

    #[inline]
    const fn round(&mut self) {
        self.v0 = self.v0.wrapping_add(self.v1);
        self.v2 = self.v2.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(13) ^ self.v0;
        self.v3 = self.v3.rotate_left(16) ^ self.v2;
        self.v0 = self.v0.rotate_left(32);

        self.v2 = self.v2.wrapping_add(self.v1);
        self.v0 = self.v0.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(17) ^ self.v2;
        self.v3 = self.v3.rotate_left(21) ^ self.v0;
        self.v2 = self.v2.rotate_left(32);
    }
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
    use std::hash::DefaultHasher;

    use tollgate_core::{Key, Quota};

    use super::*;

    #[test]
    fn the_hash_is_std_s_siphash_for_keys_of_every_length() {
        let scope = Scope::of("hashing", 0, &Quota::per_second(1));
        // Whose key is then that of std's hasher, which is zero.
        let hashing = Hashing {
            keyed: Sip13::new(address(scope), 0),
        };
        for len in 0..128 {
            let bytes: Vec<u8> = (0..len).map(|byte: u8| byte ^ 0xa5).collect();
            let key = Key::bytes(&bytes);

            let mut reference = DefaultHasher::new();
            reference.write(key.as_bytes());

            let (words, rest) = key.words();
            let hash = hashing.hash(scope, words, rest, key.as_bytes().len());
            assert_eq!(hash, reference.finish());
            assert_eq!(hash, hashing.hash_bytes(scope, key.as_bytes()));
        }
    }

    #[test]
    fn two_backends_place_the_same_key_differently() {
        let scope = Scope::of("hashing", 0, &Quota::per_second(1));
        let hashes = [(); 2].map(|()| Hashing::random().hash_bytes(scope, b"alice"));
        assert_ne!(hashes[0], hashes[1]);
    }
}
