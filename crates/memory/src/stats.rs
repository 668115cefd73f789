//! The figures of a backend.

use crate::shards::Shards;

/// The keys that a [`MemoryBackend`](crate::MemoryBackend) holds, and its work so far.
///
/// ```
/// use tollgate::{MemoryBackend, Stats};
///
/// /// A line for the metrics page.
/// fn line(stats: Stats) -> String {
///     format!("{} of {} keys, {} evicted", stats.keys, stats.max_keys, stats.evicted)
/// }
///
/// let backend = MemoryBackend::builder().max_keys(1_024).build();
/// println!("{}", line(backend.stats()));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Keys that are remembered now. Some of them may be full again and merely not noticed yet.
    pub keys: usize,
    /// The most keys that may be remembered: the configured number, rounded down to equal shares.
    pub max_keys: usize,
    /// Keys that were forgotten because their budget was full again.
    pub expired: u64,
    /// Keys that were evicted although their budget was not full, because there was no room. Each started from a full budget.
    /// If this grows, a client floods the limiter, or `max_keys` is too small.
    pub evicted: u64,
    /// The most entries that any one call had to examine to choose the one to evict. At most 16, without those of which
    /// something is held and bans in force: they are passed by.
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
