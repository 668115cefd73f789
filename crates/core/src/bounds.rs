//! The largest quotas.

use std::time::Duration;

/// The largest limit and burst: 2^40, a tebibyte if the unit is bytes.
pub const MAX_LIMIT: u64 = 1 << 40;

/// The longest period: 366 days.
pub const MAX_PERIOD: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// The longest time that a burst may take to refill: ten years. Debts of eight budgets then still lie within the times
/// that a double holds exactly.
pub const MAX_DRAIN: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);

/// The largest limit of a [`SlidingLog`](crate::Algorithm::SlidingLog), which keeps an entry for every unit: 1024. Above it a
/// [`RollingWindow`](crate::Algorithm::RollingWindow) of 100 buckets comes within a hundredth, at a fraction of the cost.
pub const MAX_LOG_LIMIT: u64 = 1024;

/// The most buckets of a [`RollingWindow`](crate::Algorithm::RollingWindow): 128.
pub const MAX_BUCKETS: u32 = 128;

/// The longest time that a request may wait for its turn: an hour.
pub const MAX_WAIT: Duration = Duration::from_secs(60 * 60);

/// The longest time that a request may wait for its turn under a rate, in intervals of that rate: 1,000.
pub const MAX_WAIT_INTERVALS: u64 = 1_000;

/// The most strikes that a [`Ban`](crate::Ban) counts, each of which is remembered: 64.
pub const MAX_STRIKES: u64 = 64;

/// The longest time for which the id of a charge is remembered: a day.
pub const MAX_ONCE_LIFE: Duration = Duration::from_secs(24 * 60 * 60);

/// The most replays of an id that pass uncharged: 100.
pub const MAX_REPLAYS: u64 = 100;

/// The longest period of a warm-up: an hour.
pub const MAX_WARM_UP: Duration = Duration::from_secs(60 * 60);

/// The largest cold factor of a warm-up: 100.
pub const MAX_COLD_FACTOR: u64 = 100;
