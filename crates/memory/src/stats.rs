//! What a backend tells about itself.

use crate::shards::Shards;

/// What a [`MemoryBackend`](crate::MemoryBackend) holds, and what it has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Keys that are remembered now. Some of them may be full again and merely not found out yet.
    pub keys: usize,
    /// How many there may be: what was configured, rounded down to equal shares.
    pub max_keys: usize,
    /// Keys that were forgotten because they said nothing any more.
    pub expired: u64,
    /// Keys that were forgotten although they did, because there was no room. Each was given a full budget. If this
    /// grows, somebody is flooding, or `max_keys` is too small.
    pub evicted: u64,
    /// The most entries that any one call had to look at to find out whom to forget. At most 16.
    pub longest_scan: usize,
}

impl Stats {
    pub(crate) fn of(shards: &Shards) -> Self {
        let mut stats = Self::default();
        for shard in shards.iter() {
            let counts = shard.counts;
            stats.keys += shard.len();
            stats.max_keys += shard.most_keys();
            stats.expired += counts.expired;
            stats.evicted += counts.evicted;
            stats.longest_scan = stats.longest_scan.max(counts.longest_scan);
        }
        stats
    }
}
