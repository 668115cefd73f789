//! The callers that are denied most, and how many are denied at all, in bounded memory.
//!
//! Each policy has a space-saving sketch in sets of eight places. A caller belongs to one set, by a keyed hash. A caller that has a
//! place is counted there, by one atomic. Another one takes the place with the lowest count of its set, and goes on from that
//! count, which is the error of its own. So a count is never too low, too high by its error at most, and no caller without a place
//! was denied more often than the lowest count of its set: an eighth of the denials of the set at most.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tollgate_core::{Decision, Verdict};

use super::plan::Entries;
use crate::Key;
use crate::policy::Label;

/// The callers that a policy denied most: see [`Limiter::offenders`](crate::Limiter::offenders).
///
/// ```
/// use tollgate::{Limiter, Policy, Quota};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder().policy(Policy::new("api", Quota::per_hour(1))).track_offenders().build()?;
/// for caller in ["alice", "mallory", "mallory", "mallory"] {
///     limiter.check("api", caller).await?;
/// }
///
/// let offenders = limiter.offenders("api")?;
/// let worst = &offenders.callers()[0];
/// assert_eq!((worst.key().text(), worst.denials(), worst.error()), (Some("mallory"), 2, 0));
/// assert_eq!((offenders.denials(), offenders.distinct()), (2, 1));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Offenders {
    callers: Vec<Offender>,
    denials: u64,
    distinct: u64,
}

/// A caller that was denied, and how often: one of [`Offenders::callers`].
///
/// ```
/// use tollgate::Offender;
///
/// /// A line for operators. The identity may be a secret.
/// fn line(offender: &Offender) -> String {
///     let least = offender.denials() - offender.error();
///     format!("{} to {} denials of {:?}", least, offender.denials(), offender.key())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Offender {
    key: Key,
    denials: u64,
    error: u64,
}

impl Offender {
    /// The identity. It may be a secret, such as an API key.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The number of times that it was denied, or more: at most [`error`](Self::error) too many.
    #[must_use]
    pub fn denials(&self) -> u64 {
        self.denials
    }

    /// The part of the count that may belong to callers that had the place before.
    #[must_use]
    pub fn error(&self) -> u64 {
        self.error
    }
}

impl Offenders {
    /// The callers with the highest counts, the highest first: 512 at most.
    ///
    /// ```
    /// use tollgate::Offenders;
    ///
    /// fn worst(offenders: &Offenders) -> Option<u64> {
    ///     offenders.callers().first().map(|caller| caller.denials())
    /// }
    /// ```
    #[must_use]
    pub fn callers(&self) -> &[Offender] {
        &self.callers
    }

    /// The number of denials, of all callers.
    ///
    /// ```
    /// use tollgate::Offenders;
    ///
    /// assert_eq!(Offenders::default().denials(), 0);
    /// ```
    #[must_use]
    pub fn denials(&self) -> u64 {
        self.denials
    }

    /// The number of distinct callers that were denied, estimated: two in three estimates are wrong by less than 3.3 %, 99 in 100
    /// by less than 8.5 %. Few callers are counted nearly exactly.
    ///
    /// ```
    /// use tollgate::Offenders;
    ///
    /// /// One caller that knocks often, or a crowd?
    /// fn is_crowd(offenders: &Offenders) -> bool {
    ///     offenders.distinct() > 1_000
    /// }
    /// ```
    #[must_use]
    pub fn distinct(&self) -> u64 {
        self.distinct
    }
}

const SETS: usize = 64;
const WAYS: usize = 8;

/// The registers of the estimate: its standard error is 1.04 by the root of their number.
const REGISTERS: usize = 1_024;

/// The policies that are counted at most. Policies beyond are not: their names come from handlers and routes.
const MAX_POLICIES: usize = 1_024;

/// The sketches of one limiter.
pub(super) struct Tracker {
    secrets: [u64; 3],
    policies: Mutex<HashMap<Box<str>, Arc<Sketch>>>,
}

/// The sketch of a policy, kept with the names of each of its quotas. Nothing for a policy that is one too many.
struct Tracked(Option<Arc<Sketch>>);

/// The sketch of one policy: some thirty kilobytes.
struct Sketch {
    denials: AtomicU64,
    sets: Box<[Set]>,
    registers: Box<[AtomicU8]>,
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

impl Tracker {
    pub(super) fn new() -> Self {
        let random = RandomState::new();
        Self {
            secrets: [1_u64, 2, 3].map(|n| random.hash_one(n) | 1),
            policies: Mutex::default(),
        }
    }

    /// Counts the callers that a decision denies, once for each policy.
    #[inline]
    pub(super) fn decided(&self, entries: Entries<'_>, decision: &Decision) {
        if let (Some((payer, limit)), [verdict]) = (entries.sole(), decision.verdicts()) {
            if verdict.is_denied() {
                self.count(&limit.label, payer.key);
            }
            return;
        }
        self.decided_together(entries, decision);
    }

    #[inline(never)]
    fn decided_together(&self, entries: Entries<'_>, decision: &Decision) {
        let mut verdicts = decision.verdicts();
        for payer in entries.iter() {
            let limits = payer.limits();
            let (own, rest) = verdicts.split_at(limits.len().min(verdicts.len()));
            verdicts = rest;
            if let (true, Some(limit)) = (own.iter().any(Verdict::is_denied), limits.first()) {
                self.count(&limit.label, payer.key);
            }
        }
    }

    #[inline]
    fn count(&self, label: &Label, key: &Key) {
        let tally = label.tally();
        let tracked = tally.get(|| Tracked(self.of(label.policy())));
        if let Some(sketch) = &tracked.0 {
            sketch.count(self.hash(key.as_bytes()), key);
        }
    }

    /// The sketch of a policy. One of the same name goes on with that of before.
    fn of(&self, policy: &str) -> Option<Arc<Sketch>> {
        let policies = self.policies.lock();
        let mut policies = policies.unwrap_or_else(PoisonError::into_inner);
        if let Some(sketch) = policies.get(policy) {
            return Some(Arc::clone(sketch));
        }
        if policies.len() >= MAX_POLICIES {
            return None;
        }
        let sketch = Arc::new(Sketch::new());
        policies.insert(policy.into(), Arc::clone(&sketch));
        Some(sketch)
    }

    /// Forgets the sketches of policies that are gone.
    pub(super) fn keep(&self, stays: impl Fn(&str) -> bool) {
        let policies = self.policies.lock();
        let mut policies = policies.unwrap_or_else(PoisonError::into_inner);
        policies.retain(|name, _| stays(name));
    }

    pub(super) fn read(&self, policy: &str) -> Offenders {
        let policies = self.policies.lock();
        let policies = policies.unwrap_or_else(PoisonError::into_inner);
        let sketch = policies.get(policy).cloned();
        drop(policies);
        sketch.map(|sketch| sketch.read()).unwrap_or_default()
    }

    /// A keyed hash, because callers choose their keys: one that could choose its set could hide behind another.
    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        let [seed, factor, last] = self.secrets;
        let mut hash = seed ^ key.len() as u64;
        let (words, rest) = key.as_chunks::<8>();
        for word in words {
            hash = folded(hash ^ u64::from_le_bytes(*word), factor);
        }
        let mut end = 0;
        for byte in rest {
            end = end << 8 | u64::from(*byte);
        }
        // A place with the hash 0 is free.
        folded(folded(hash ^ end, factor), last) | 1
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

impl Sketch {
    fn new() -> Self {
        Self {
            denials: AtomicU64::new(0),
            sets: (0..SETS).map(|_| Set::default()).collect(),
            registers: (0..REGISTERS).map(|_| AtomicU8::new(0)).collect(),
            keys: Mutex::new(vec![None; SETS * WAYS]),
        }
    }

    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a part of the hash is as good as all of it"
    )]
    fn count(&self, hash: u64, key: &Key) {
        self.denials.fetch_add(1, Ordering::Relaxed);
        let register = &self.registers[(hash >> 7) as usize % REGISTERS];
        // The upper bits are other ones than those that choose the register and the set.
        let rank = (hash | 1 << 17).leading_zeros() as u8 + 1;
        if rank > register.load(Ordering::Relaxed) {
            register.fetch_max(rank, Ordering::Relaxed);
        }
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

    /// Gives the caller the place with the lowest count of its set.
    #[cold]
    #[inline(never)]
    fn enter(&self, set: usize, hash: u64, key: &Key) {
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
        let before = read(&places.counts[place]);
        places.hashes[place].store(hash, Ordering::Relaxed);
        places.errors[place].store(before, Ordering::Relaxed);
        places.counts[place].store(before + 1, Ordering::Relaxed);
        keys[set * WAYS + place] = Some(key.clone());
    }

    fn read(&self) -> Offenders {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let mut callers = Vec::new();
        for (position, key) in keys.iter().enumerate() {
            let (set, place) = (&self.sets[position / WAYS], position % WAYS);
            if let Some(key) = key {
                callers.push(Offender {
                    key: key.clone(),
                    denials: set.counts[place].load(Ordering::Relaxed),
                    error: set.errors[place].load(Ordering::Relaxed),
                });
            }
        }
        drop(keys);
        callers.sort_by_key(|caller| std::cmp::Reverse(caller.denials));
        Offenders {
            callers,
            denials: self.denials.load(Ordering::Relaxed),
            distinct: self.distinct(),
        }
    }

    /// HyperLogLog, with linear counting while registers are empty.
    #[allow(
        clippy::float_arithmetic,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate for operators; no decision is made by it"
    )]
    fn distinct(&self) -> u64 {
        let (mut sum, mut empty) = (0.0, 0_u32);
        for register in &self.registers {
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

impl fmt::Debug for Tracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tracker")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Denies the callers of these numbers, in this order.
    fn denied(callers: impl Iterator<Item = u64>) -> Offenders {
        let (tracker, sketch) = (Tracker::new(), Sketch::new());
        for caller in callers {
            let key = Key::from(format!("caller-{caller}"));
            sketch.count(tracker.hash(key.as_bytes()), &key);
        }
        sketch.read()
    }

    #[test]
    fn a_count_is_never_too_low_and_never_too_high_by_more_than_its_error() {
        // Caller n is denied so often, among thousands that are denied once or twice.
        let times = |caller: u64| 4_000 / (caller + 1);
        let stream = (0..4_000_u64)
            .flat_map(|round| (0..4_000).filter(move |caller| round < times(*caller)));
        let offenders = denied(stream);

        assert_eq!(offenders.denials(), (0..4_000).map(times).sum::<u64>());
        for offender in offenders.callers() {
            let number = offender
                .key()
                .text()
                .unwrap()
                .trim_start_matches("caller-")
                .to_owned();
            let truth = times(number.parse().unwrap());
            let least = offender.denials() - offender.error();
            assert!(
                (least..=offender.denials()).contains(&truth),
                "{offender:?}: {truth}"
            );
        }
        assert!(offenders.callers().len() <= SETS * WAYS);
        // The heaviest are found whatever their sets are: each has far more than an eighth of what a set has.
        for caller in 0..8 {
            let key = Key::from(format!("caller-{caller}"));
            let found = offenders
                .callers()
                .iter()
                .take(40)
                .any(|one| *one.key() == key);
            assert!(found, "{caller}");
        }
    }

    #[test]
    fn distinct_callers_are_estimated_within_five_standard_errors() {
        for callers in [0, 1, 10, 100, 1_000, 10_000, 100_000] {
            // Each twice, which changes nothing.
            let estimate = denied((0..callers).chain(0..callers)).distinct();
            let wrong = estimate.abs_diff(callers);
            assert!(wrong <= callers * 17 / 100 + 1, "{callers}: {estimate}");
        }
    }
}
