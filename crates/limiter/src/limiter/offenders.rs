//! The callers that are denied most, and how many are denied at all, in bounded memory.
//!
//! Each policy has a sketch of its own, which lies with the names of its quotas.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tollgate_core::{Decision, Verdict};

use super::plan::Entries;
use crate::Key;
use crate::policy::Label;
use crate::sketch::Sketch;
use crate::tracked_sketch::{TrackedSketch, TrackerId};

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

/// The policies that are counted at most. Policies beyond are not: their names come from handlers and routes.
const MAX_POLICIES: usize = 1_024;

/// The sketches of one limiter.
pub(super) struct Tracker {
    id: TrackerId,
    policies: Mutex<HashMap<Box<str>, Arc<TrackedSketch>>>,
}

impl Tracker {
    pub(super) fn new() -> Self {
        Self {
            id: TrackerId::next(),
            policies: Mutex::default(),
        }
    }

    /// Counts the callers that a decision denies, once for each policy.
    #[inline]
    pub(super) fn decided(&self, entries: Entries<'_>, decision: &Decision) {
        if decision.verdicts().iter().any(Verdict::is_denied) {
            self.denied(entries, decision);
        }
    }

    #[cold]
    fn denied(&self, entries: Entries<'_>, decision: &Decision) {
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

    /// Counts a denial by this policy.
    #[inline]
    pub(super) fn count(&self, label: &Label, key: &Key) {
        match label.sketch() {
            Some(sketch) if sketch.is_of(self.id) => sketch.sketch().count(key),
            _ => self.find(label, key),
        }
    }

    /// Counts a denial under a label that keeps no sketch yet, or one of another limiter: clones of a policy share their labels.
    #[cold]
    fn find(&self, label: &Label, key: &Key) {
        if let Some(sketch) = self.of(label.policy()) {
            sketch.sketch().count(key);
            label.keep_sketch(sketch);
        }
    }

    /// The sketch of a policy. One of the same name goes on with that of before.
    fn of(&self, policy: &str) -> Option<Arc<TrackedSketch>> {
        let policies = self.policies.lock();
        let mut policies = policies.unwrap_or_else(PoisonError::into_inner);
        if let Some(sketch) = policies.get(policy) {
            return Some(Arc::clone(sketch));
        }
        if policies.len() >= MAX_POLICIES {
            return None;
        }
        let sketch = Arc::new(TrackedSketch::new(self.id));
        policies.insert(policy.into(), Arc::clone(&sketch));
        Some(sketch)
    }

    /// Forgets the sketches of policies that are gone.
    pub(super) fn keep(&self, stays: impl Fn(&str) -> bool) {
        let policies = self.policies.lock();
        let mut policies = policies.unwrap_or_else(PoisonError::into_inner);
        policies.retain(|name, sketch| {
            let stays = stays(name);
            if !stays {
                // A policy may come back with its labels.
                sketch.leave();
            }
            stays
        });
    }

    pub(super) fn read(&self, policy: &str) -> Offenders {
        let policies = self.policies.lock();
        let policies = policies.unwrap_or_else(PoisonError::into_inner);
        let sketch = policies.get(policy).cloned();
        drop(policies);
        sketch
            .map(|sketch| told(sketch.sketch()))
            .unwrap_or_default()
    }
}

fn told(sketch: &Sketch) -> Offenders {
    let offenders = sketch.places().into_iter().map(|place| Offender {
        key: place.key,
        denials: place.count,
        error: place.error,
    });
    let callers: Vec<_> = offenders.collect();
    Offenders {
        denials: callers.iter().map(|caller| caller.denials).sum(),
        distinct: sketch.distinct(),
        callers,
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
    use crate::sketch::{SETS, WAYS};

    /// Denies the callers of these numbers, in this order.
    fn denied(callers: impl Iterator<Item = u64>) -> Offenders {
        let sketch = Sketch::new();
        for caller in callers {
            sketch.count(&Key::from(format!("caller-{caller}")));
        }
        told(&sketch)
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
