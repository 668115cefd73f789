//! Tiers that were asked for a while ago.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Tier;
use crate::Key;

/// What is remembered at most: some megabyte.
const MOST: usize = 10_000;
/// Of a full cache so many are looked at for one whose time is over; if none's is, one of them goes all the same.
const SAMPLE: usize = 16;

/// Which tier an identity was in when it was last asked for, for a while.
pub(super) struct TierCache {
    remember_for: Duration,
    known: Mutex<HashMap<Key, (Tier, Instant)>>,
}

impl TierCache {
    pub(super) fn new(remember_for: Duration) -> Self {
        Self {
            remember_for,
            known: Mutex::default(),
        }
    }

    pub(super) fn get(&self, key: &Key) -> Option<Tier> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (tier, at) = known.get(key)?;
        (at.elapsed() < self.remember_for).then_some(*tier)
    }

    pub(super) fn insert(&self, key: Key, tier: Tier) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST && !known.contains_key(&key) {
            let sample = known.iter().take(SAMPLE);
            let oldest = sample.min_by_key(|(_, (_, at))| *at);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                known.remove(&oldest);
            }
        }
        known.insert(key, (tier, Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_bounded_and_forgotten_in_time() {
        let cache = TierCache::new(Duration::from_secs(60));
        for number in 0..2 * MOST as u64 {
            cache.insert(Key::from(number), Some(1));
            assert_eq!(cache.get(&Key::from(number)), Some(Some(1)));
        }
        assert_eq!(cache.known.lock().unwrap().len(), MOST);

        let short = TierCache::new(Duration::ZERO);
        short.insert(Key::from("alice"), Some(1));
        assert_eq!(short.get(&Key::from("alice")), None);
    }
}
