//! Decisions as they are made: how many had which result, and the budgets that have the least left.
//!
//! The memory is bounded: 1,024 policies, and 128 callers of each. Of those that have the least left, 64 of each policy are always
//! among them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use tollgate::{Event, Key, Outcome, Quota, Verdict};

/// The policies that are counted at most: names come from the configuration, and may change with it.
const MOST_POLICIES: usize = 1_024;

/// The callers of a policy whose budgets are remembered at most.
const MOST_CALLERS: usize = 128;

/// The results of decisions for which no backend is asked.
const UNASKED: [&str; 9] = [
    "blocked",
    "exempt",
    "left",
    "off",
    "passed_unidentified",
    "shed",
    "tier_unknown",
    "unasked",
    "unidentified",
];

/// The decisions of one limiter.
#[derive(Debug)]
pub(super) struct DecisionWatch {
    policies: RwLock<HashMap<Box<str>, Arc<PolicyWatch>>>,
    begun_at: Instant,
    /// The milliseconds from the begin to the latest decision for which the backend was asked, and one more; 0 before the first.
    asked_ms: AtomicU64,
}

impl Default for DecisionWatch {
    fn default() -> Self {
        Self {
            policies: RwLock::default(),
            begun_at: Instant::now(),
            asked_ms: AtomicU64::new(0),
        }
    }
}

/// The decisions of one policy.
#[derive(Debug, Default)]
struct PolicyWatch {
    counts: Mutex<Vec<ResultCount>>,
    callers: Mutex<HashMap<Key, Vec<SeenBudget>>>,
}

/// The number of decisions that had one result.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResultCount {
    pub(super) is_enforced: bool,
    pub(super) result: &'static str,
    pub(super) decisions: u64,
}

/// A budget as the last decision about it found it.
#[derive(Clone, Debug)]
pub(super) struct SeenBudget {
    name: Box<str>,
    pub(super) quota: Quota,
    pub(super) limit: u64,
    pub(super) remaining: u64,
    pub(super) seen_at: Instant,
    /// The time at which it is full again, if nothing is charged until then.
    pub(super) full_at: Instant,
}

/// A budget of a caller.
#[derive(Clone, Debug)]
pub(super) struct TightBudget {
    pub(super) policy: Box<str>,
    pub(super) key: Key,
    pub(super) budget: SeenBudget,
}

impl DecisionWatch {
    /// A decision was made.
    pub(super) fn observe(&self, event: &Event<'_>) {
        let result = event.result();
        let budget = event.rule().filter(|quota| !quota.is_ban());
        if result.is_none() && budget.is_none() {
            return;
        }
        let Some(policy) = self.of(event.policy()) else {
            return;
        };
        if let Some(result) = result {
            policy.count(event.is_enforced(), result);
            if !UNASKED.contains(&result) {
                self.asked(Instant::now());
            }
        }
        if let (Some(quota), Some(name), Some(key), Some(verdict)) =
            (budget, event.quota(), event.key(), event.verdict())
            && verdict.outcome() != Outcome::Unknown
        {
            policy.see(key, name, quota, verdict, Instant::now());
        }
    }

    fn of(&self, policy: &str) -> Option<Arc<PolicyWatch>> {
        let known = self.policies.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(policy) {
            return Some(Arc::clone(found));
        }
        drop(known);
        let known = self.policies.write();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_POLICIES && !known.contains_key(policy) {
            return None;
        }
        let found = known.entry(policy.into()).or_default();
        Some(Arc::clone(found))
    }

    /// Forgets the callers of policies that are gone. Their counts stay, since a policy may come back with the next configuration,
    /// until they take half of the places.
    pub(super) fn keep(&self, stays: impl Fn(&str) -> bool) {
        let known = self.policies.write();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        let is_crowded = known.len() > MOST_POLICIES / 2;
        known.retain(|name, policy| {
            let stays = stays(name);
            if !stays {
                lock(&policy.callers).clear();
            }
            stays || !is_crowded
        });
    }

    fn asked(&self, now: Instant) {
        let ms = now.saturating_duration_since(self.begun_at).as_millis();
        let ms = u64::try_from(ms).unwrap_or(u64::MAX).saturating_add(1);
        self.asked_ms.fetch_max(ms, Ordering::Relaxed);
    }

    /// The time since the latest decision for which the backend was asked, if there was one.
    pub(super) fn since_asked(&self, now: Instant) -> Option<Duration> {
        let ms = self.asked_ms.load(Ordering::Relaxed).checked_sub(1)?;
        let asked_at = self.begun_at.checked_add(Duration::from_millis(ms))?;
        Some(now.saturating_duration_since(asked_at))
    }

    /// The counts of a policy.
    pub(super) fn counts(&self, policy: &str) -> Vec<ResultCount> {
        let known = self.policies.read().unwrap_or_else(PoisonError::into_inner);
        let found = known.get(policy).cloned();
        drop(known);
        found.map_or_else(Vec::new, |found| lock(&found.counts).clone())
    }

    /// The budgets with the least left, the least first. Those that are full again by now are not among them.
    pub(super) fn tightest(&self, most: usize, now: Instant) -> Vec<TightBudget> {
        let known = self.policies.read().unwrap_or_else(PoisonError::into_inner);
        let policies: Vec<_> = known
            .iter()
            .map(|(name, policy)| (name.clone(), Arc::clone(policy)))
            .collect();
        drop(known);
        let mut budgets = Vec::new();
        for (name, policy) in policies {
            let callers = lock(&policy.callers);
            for (key, seen) in &*callers {
                let tight = seen.iter().filter(|budget| !budget.is_full(now));
                budgets.extend(tight.map(|budget| TightBudget {
                    policy: name.clone(),
                    key: key.clone(),
                    budget: budget.clone(),
                }));
            }
        }
        budgets.sort_by(|one, other| {
            let by_rest = one.budget.by_rest(&other.budget);
            by_rest
                .then_with(|| one.policy.cmp(&other.policy))
                .then_with(|| one.key.as_bytes().cmp(other.key.as_bytes()))
        });
        budgets.truncate(most);
        budgets
    }
}

impl PolicyWatch {
    fn count(&self, is_enforced: bool, result: &'static str) {
        let mut counts = lock(&self.counts);
        let known = counts
            .iter_mut()
            .find(|count| count.is_enforced == is_enforced && count.result == result);
        match known {
            Some(count) => count.decisions += 1,
            // As many as there are results.
            None => counts.push(ResultCount {
                is_enforced,
                result,
                decisions: 1,
            }),
        }
    }

    fn see(&self, key: &Key, name: &str, quota: &Quota, verdict: &Verdict, now: Instant) {
        let mut callers = lock(&self.callers);
        let seen = match callers.get_mut(key) {
            Some(seen) => seen,
            None => {
                if callers.len() >= MOST_CALLERS {
                    make_room(&mut callers, now);
                }
                callers.entry(key.clone()).or_default()
            }
        };
        let full_at = now.checked_add(verdict.reset_after()).unwrap_or(now);
        let budget = SeenBudget {
            name: name.into(),
            quota: *quota,
            limit: verdict.limit(),
            remaining: verdict.remaining(),
            seen_at: now,
            full_at,
        };
        match seen.iter_mut().find(|known| *known.name == *name) {
            Some(known) => *known = budget,
            // As many as the policy has quotas.
            None => seen.push(budget),
        }
    }
}

/// Forgets the callers whose budgets are full again, and then those that have the most left, until half of the places are free.
fn make_room(callers: &mut HashMap<Key, Vec<SeenBudget>>, now: Instant) {
    callers.retain(|_, seen| seen.iter().any(|budget| !budget.is_full(now)));
    if callers.len() <= MOST_CALLERS / 2 {
        return;
    }
    let mut all: Vec<_> = callers.drain().collect();
    let tightest = |seen: &[SeenBudget]| seen.iter().min_by(|a, b| a.by_rest(b)).cloned();
    all.sort_by_cached_key(|(_, seen)| tightest(seen).map(ByRest));
    all.truncate(MOST_CALLERS / 2);
    callers.extend(all);
}

impl SeenBudget {
    fn is_full(&self, now: Instant) -> bool {
        self.remaining >= self.limit || self.full_at <= now
    }

    /// Those first of which the least share is left.
    fn by_rest(&self, other: &Self) -> std::cmp::Ordering {
        // Quotients, compared without dividing.
        let rest = |one: &Self, other: &Self| u128::from(one.remaining) * u128::from(other.limit);
        rest(self, other).cmp(&rest(other, self))
    }

    /// The time until it is full again.
    pub(super) fn full_in(&self, now: Instant) -> Duration {
        self.full_at.saturating_duration_since(now)
    }
}

/// A budget in the order of what is left.
struct ByRest(SeenBudget);

impl PartialEq for ByRest {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for ByRest {}

impl PartialOrd for ByRest {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByRest {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.by_rest(&other.0)
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A verdict after which so much is left of 1,000, and the budget is full again in that many seconds.
    fn verdict(quota: &Quota, key: &Key, remaining: u64, full_in_s: u64) -> Verdict {
        let charge = tollgate::Charge {
            scope: tollgate::Scope::of("api", 0, quota),
            quota,
            key,
            cost: 1,
            mode: tollgate::Mode::Enforce,
        };
        let verdict = Verdict::allowed(&charge, 1, remaining);
        verdict.resetting_after(Duration::from_secs(full_in_s))
    }

    #[test]
    fn the_tightest_stay_whatever_comes_after_them_and_the_memory_is_bounded() {
        let watch = DecisionWatch::default();
        let policy = watch.of("api").unwrap();
        let quota = Quota::per_hour(1_000);
        let now = Instant::now();
        let see = |key: &Key, remaining, full_in_s| {
            let verdict = verdict(&quota, key, remaining, full_in_s);
            policy.see(key, "api", &quota, &verdict, now);
        };
        let tight = |n: u64| Key::from(format!("tight-{n}"));
        for n in 0..50 {
            see(&tight(n), n, 3_600);
        }
        for n in 0..10_000 {
            see(&Key::from(format!("passing-{n}")), 999, 4);
        }

        assert!(lock(&policy.callers).len() <= MOST_CALLERS);
        let found = watch.tightest(50, now);
        let found: Vec<_> = found.iter().map(|one| one.key.clone()).collect();
        assert_eq!(found, (0..50).map(tight).collect::<Vec<_>>());
        // Those that are full again are gone.
        let later = now + Duration::from_secs(5);
        assert_eq!(watch.tightest(1_000, later).len(), 50);
        assert!(
            watch
                .tightest(1_000, now + Duration::from_secs(3_600))
                .is_empty()
        );
        // A budget is there once, as it was found last.
        see(&tight(49), 0, 3_600);
        let first: Vec<_> = watch
            .tightest(2, now)
            .iter()
            .map(|one| one.key.clone())
            .collect();
        assert_eq!(first, [tight(0), tight(49)]);
    }

    #[test]
    fn policies_that_are_gone_are_forgotten() {
        let watch = DecisionWatch::default();
        for n in 0..2_000 {
            if let Some(policy) = watch.of(&format!("p{n}")) {
                policy.count(true, "allowed");
            }
        }
        assert_eq!(watch.policies.read().unwrap().len(), MOST_POLICIES);
        watch.keep(|name| name == "p7");
        assert_eq!(watch.counts("p7")[0].decisions, 1);
        assert!(watch.counts("p8").is_empty());
        assert!(watch.of("p1999").is_some());
    }

    #[test]
    fn a_policy_that_comes_back_has_its_counts_and_until_then_no_callers() {
        let watch = DecisionWatch::default();
        let policy = watch.of("api").unwrap();
        let (quota, now) = (Quota::per_hour(10), Instant::now());
        let key = Key::from("alice");
        policy.count(true, "allowed");
        policy.see(&key, "api", &quota, &verdict(&quota, &key, 9, 360), now);

        watch.keep(|_| false);
        assert!(watch.tightest(10, now).is_empty());
        watch.keep(|_| true);
        assert_eq!(watch.counts("api")[0].decisions, 1);
    }

    #[test]
    fn the_latest_decision_is_known_to_the_millisecond() {
        let watch = DecisionWatch::default();
        let at = |ms| watch.begun_at + Duration::from_millis(ms);
        assert_eq!(watch.since_asked(at(9)), None);
        watch.asked(at(0));
        assert_eq!(watch.since_asked(at(9)), Some(Duration::from_millis(9)));
        watch.asked(at(7));
        // One that was slower to tell.
        watch.asked(at(5));
        assert_eq!(watch.since_asked(at(9)), Some(Duration::from_millis(2)));
    }
}
