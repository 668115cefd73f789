//! The callers that a policy denies most, in bounded memory: a space-saving sketch, and an estimate of how many they are.
//!
//! The sketch has sets of eight places. A caller belongs to one set, by a keyed hash. A caller that has a place is counted there,
//! by one atomic. A caller without a place takes the place with the lowest count of its set and goes on from that count, which
//! becomes its error. A count is never too low, and is too high by at most its error. No caller without a place was denied more
//! often than the lowest count of its set, which is at most an eighth of the set's denials. All counts together are all denials.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::Key;

pub(crate) const SETS: usize = 64;
pub(crate) const WAYS: usize = 8;

/// The registers of the estimate: its standard error is 1.04 by the root of their number.
const REGISTERS: usize = 1_024;

/// The sketch of one policy: some forty kilobytes.
pub(crate) struct Sketch {
    secrets: [u64; 2],
    sets: Box<[Set; SETS]>,
    registers: Box<[AtomicU8; REGISTERS]>,
    /// The identities of the places.
    keys: Mutex<Vec<Option<Key>>>,
}

#[derive(Default)]
struct Set {
    /// 0 for a place that is free.
    hashes: [AtomicU64; WAYS],
    counts: [AtomicU64; WAYS],
    errors: [AtomicU64; WAYS],
}

/// A caller with a place.
pub(crate) struct Place {
    pub(crate) key: Key,
    pub(crate) count: u64,
    pub(crate) error: u64,
}

impl Sketch {
    pub(crate) fn new() -> Self {
        let random = RandomState::new();
        Self {
            secrets: [1_u64, 2].map(|n| random.hash_one(n) | 1),
            sets: Box::new(std::array::from_fn(|_| Set::default())),
            registers: Box::new([const { AtomicU8::new(0) }; REGISTERS]),
            keys: Mutex::new(vec![None; SETS * WAYS]),
        }
    }

    /// Counts a denial of this caller.
    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a part of the hash is as good as all of it"
    )]
    pub(crate) fn count(&self, key: &Key) {
        let hash = self.hash(key.as_bytes());
        let set = (hash >> 1) as usize % SETS;
        let places = &self.sets[set];
        for (known, count) in places.hashes.iter().zip(&places.counts) {
            if known.load(Ordering::Relaxed) == hash {
                count.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
        self.enter(set, hash, key);
    }

    /// A keyed hash, because callers choose their keys: one that could choose its set could hide behind another.
    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        let [seed, factor] = self.secrets;
        let mut hash = seed ^ key.len() as u64;
        let (words, rest) = key.as_chunks::<8>();
        for word in words {
            hash = folded(hash ^ u64::from_le_bytes(*word), factor);
        }
        // Two reads that may overlap have all bytes of the rest, since the length is in the hash.
        let end = match (rest.first_chunk::<4>(), rest.last_chunk::<4>()) {
            (Some(first), Some(last)) => {
                let [first, last] = [first, last].map(|part| u64::from(u32::from_le_bytes(*part)));
                first << 32 | last
            }
            _ => rest.iter().fold(0, |end, byte| end << 8 | u64::from(*byte)),
        };
        // A place with the hash 0 is free.
        folded(folded(hash ^ end, factor), seed) | 1
    }

    /// Gives the caller the place with the lowest count of its set.
    #[cold]
    #[inline(never)]
    fn enter(&self, set: usize, hash: u64, key: &Key) {
        // A caller that has a place is in the estimate already.
        self.estimate(hash);
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let places = &self.sets[set];
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        // Another thread may have entered it meanwhile.
        if let Some(place) = places.hashes.iter().position(|known| read(known) == hash) {
            places.counts[place].fetch_add(1, Ordering::Relaxed);
            return;
        }
        let lowest = (0..WAYS).min_by_key(|place| read(&places.counts[*place]));
        let place = lowest.unwrap_or(0);
        places.hashes[place].store(hash, Ordering::Relaxed);
        let before = places.counts[place].fetch_add(1, Ordering::Relaxed);
        places.errors[place].store(before, Ordering::Relaxed);
        keys[set * WAYS + place] = Some(key.clone());
    }

    #[allow(
        clippy::cast_possible_truncation,
        reason = "a part of the hash is as good as all of it"
    )]
    fn estimate(&self, hash: u64) {
        let register = &self.registers[(hash >> 7) as usize % REGISTERS];
        // The upper bits are other ones than those that choose the register and the set.
        let rank = (hash | 1 << 17).leading_zeros() as u8 + 1;
        register.fetch_max(rank, Ordering::Relaxed);
    }

    /// The callers with a place, the most denied first.
    pub(crate) fn places(&self) -> Vec<Place> {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let mut callers = Vec::new();
        for (position, key) in keys.iter().enumerate() {
            let (set, place) = (&self.sets[position / WAYS], position % WAYS);
            if let Some(key) = key {
                callers.push(Place {
                    key: key.clone(),
                    count: set.counts[place].load(Ordering::Relaxed),
                    error: set.errors[place].load(Ordering::Relaxed),
                });
            }
        }
        drop(keys);
        callers.sort_by_key(|caller| std::cmp::Reverse(caller.count));
        callers
    }

    /// HyperLogLog, with linear counting while registers are empty.
    #[allow(
        clippy::float_arithmetic,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate for operators; no decision is made by it"
    )]
    pub(crate) fn distinct(&self) -> u64 {
        let (mut sum, mut empty) = (0.0, 0_u32);
        for register in self.registers.iter() {
            let rank = register.load(Ordering::Relaxed);
            empty += u32::from(rank == 0);
            sum += f64::from(-i32::from(rank)).exp2();
        }
        let registers = REGISTERS as f64;
        let raw = 0.7213 / (1.0 + 1.079 / registers) * registers * registers / sum;
        let estimate = if raw <= 2.5 * registers && empty > 0 {
            registers * (registers / f64::from(empty)).ln()
        } else {
            raw
        };
        estimate.round() as u64
    }
}

#[inline]
#[allow(
    clippy::cast_possible_truncation,
    reason = "both halves are taken, and put together"
)]
fn folded(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    (product as u64) ^ (product >> 64) as u64
}

impl fmt::Debug for Sketch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sketch")
    }
}
