//! The number of locks, and the lock of each key.

use crate::lookup::Lookup;
use crate::shard::Shard;
use crate::sync::{Mutex, MutexGuard};

#[derive(Debug)]
pub(crate) struct Shards(Box<[PaddedShard]>);

/// A shard on cache lines of its own. Two, because they are fetched in pairs: threads at work in neighbouring shards must not
/// slow each other down.
#[derive(Debug)]
#[repr(align(128))]
struct PaddedShard(Mutex<Shard>);

/// The most keys of a shard. A shard that grows, or compacts its long keys, copies all of them, and that is the longest that
/// any call takes: some hundred microseconds. Smaller shards would have to be more, and each takes memory that holds no key.
const KEYS_PER_SHARD: usize = 4096;
/// Enough that a few dozen threads seldom meet in one.
const FEWEST: usize = 64;
/// Few enough that they take 2 MB before the first key comes.
const MOST: usize = 4096;
/// The least share of a shard, unless few keys are allowed. Keys fall into shards at random, and a share of a handful would be
/// full long before the whole is.
const LEAST_KEYS_PER_SHARD: usize = 256;
/// The most keys that positions in the arena have room for, with some to spare.
const MOST_KEYS_PER_SHARD: usize = 1 << 20;

impl Shards {
    /// Shards for at most `max_keys` keys, and at least one.
    pub(crate) fn for_keys(max_keys: usize) -> Self {
        let wanted = max_keys
            .div_ceil(KEYS_PER_SHARD)
            .clamp(FEWEST, MOST)
            .next_power_of_two();
        let sensible = (max_keys / LEAST_KEYS_PER_SHARD).max(1);
        let shards = wanted.min(1 << sensible.ilog2());
        let keys = (max_keys / shards).clamp(1, MOST_KEYS_PER_SHARD);
        Self(
            (0..shards)
                .map(|_| PaddedShard(Mutex::new(Shard::new(keys))))
                .collect(),
        )
    }

    /// The number of a key's shard.
    #[inline]
    pub(crate) fn number(&self, lookup: &Lookup<'_>) -> usize {
        // The lowest bits are left to the table, which finds a key within the shard by them. The number of shards is a power
        // of two.
        (lookup.hash >> 40) as usize & (self.0.len() - 1)
    }

    #[inline]
    pub(crate) fn lock(&self, number: usize) -> MutexGuard<'_, Shard> {
        self.0[number].0.lock()
    }

    #[inline]
    pub(crate) fn lock_for(&self, lookup: &Lookup<'_>) -> MutexGuard<'_, Shard> {
        self.lock(self.number(lookup))
    }

    /// Visits them one after the other, and holds each lock for one visit.
    pub(crate) fn iter(&self) -> impl Iterator<Item = MutexGuard<'_, Shard>> {
        self.0.iter().map(|shard| shard.0.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_takes_256_bytes_before_its_first_key() {
        assert_eq!(size_of::<PaddedShard>(), 256);
    }

    #[test]
    fn there_is_a_power_of_two_of_shards_and_room_for_no_more_than_was_allowed() {
        for max_keys in [0, 1, 2, 255, 511, 512, 100_000, 1_000_000, 50_000_000] {
            let shards = Shards::for_keys(max_keys);
            let room: usize = shards.iter().map(|shard| shard.most_keys()).sum();
            assert!(shards.0.len().is_power_of_two());
            assert!(room <= max_keys.max(1), "{room} of {max_keys}");
            assert!(room + shards.0.len() > max_keys, "{room} of {max_keys}");
        }
    }
}
