//! The configuration, and its defaults.

use tollgate_core::{Clock, KeyHashing};

use crate::backend::MemoryBackend;
use crate::clock::SystemClock;
use crate::shards::Shards;

/// Builds a [`MemoryBackend`].
///
/// ```
/// use tollgate::{ManualClock, MemoryBackend};
///
/// let clock = ManualClock::new();
/// let backend = MemoryBackend::builder().max_keys(50_000).clock(clock).build();
/// assert_eq!(backend.stats().keys, 0);
/// ```
#[derive(Debug)]
#[must_use]
pub struct MemoryBackendBuilder {
    max_keys: usize,
    clock: Box<dyn Clock>,
    hashing: KeyHashing,
}

/// A million keys: 50 MB if they are IPv4 addresses, and reached only if so many callers are in debt at once. Most
/// services never see a tenth of that, those that do can afford it, and a flood of made-up identities stops there.
const DEFAULT_MAX_KEYS: usize = 1_000_000;

impl Default for MemoryBackendBuilder {
    fn default() -> Self {
        Self {
            max_keys: DEFAULT_MAX_KEYS,
            clock: Box::new(SystemClock::new()),
            hashing: KeyHashing::random(),
        }
    }
}

impl MemoryBackendBuilder {
    /// At most `n` keys are remembered; a million unless said otherwise. A key with a full budget needs no remembering and does
    /// not count.
    ///
    /// Each shard has an equal share, rounded down, and keys fall into shards at random. So a shard may be full, and forget its
    /// least important key, when the whole is about nine tenths full. Choose `n` with that to spare.
    ///
    /// 0 is taken as 1. A backend that remembers no key limits no caller, and no operator means that by a small number.
    pub fn max_keys(self, n: usize) -> Self {
        Self {
            max_keys: n,
            ..self
        }
    }

    /// The clock; the machine's, [`SystemClock`], unless said otherwise. Tests bring a
    /// [`ManualClock`](tollgate_core::ManualClock).
    ///
    /// It is read once per call, possibly while the call holds its locks, so it must not call the backend.
    pub fn clock(self, clock: impl Clock) -> Self {
        Self {
            clock: Box::new(clock),
            ..self
        }
    }

    /// Takes fixed secrets, so that a model hashes alike in each run.
    #[cfg(loom)]
    pub fn fixed_hashing(self) -> Self {
        Self {
            hashing: KeyHashing::fixed(),
            ..self
        }
    }

    /// Builds the backend, which takes next to no memory until keys come.
    #[must_use]
    pub fn build(self) -> MemoryBackend {
        MemoryBackend::with(self.hashing, Shards::for_keys(self.max_keys), self.clock)
    }
}
