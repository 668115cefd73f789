//! The lines in the log about denials and debts, few enough that an attack does not fill a disk.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tollgate_core::{Algorithm, Decision, Quota, Verdict};

use super::event::Event;
use super::plan::Entries;
use crate::policy::Limit;

/// The age of a log.
#[derive(Debug)]
struct Age(Instant);

impl Default for Age {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Age {
    fn seconds(&self) -> u64 {
        self.0.elapsed().as_secs()
    }
}

/// The lines about denials in the log, at `DEBUG`. Their number in a second is bounded, for all and for each policy, so that an
/// attack does not fill a disk.
#[derive(Debug, Default)]
pub(super) struct DenialLog {
    age: Age,
    /// The second in which the last line was due, and how many were due in it.
    second: AtomicU64,
    due: AtomicU64,
    /// The lines of each policy in this second.
    policies: Mutex<HashMap<Box<str>, u64>>,
}

const LINES_PER_SECOND: u64 = 1_000;

/// One policy under attack leaves room for the others.
const LINES_OF_A_POLICY: u64 = 100;

impl DenialLog {
    fn policies(&self) -> MutexGuard<'_, HashMap<Box<str>, u64>> {
        self.policies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a line of a policy, if this second has room for it.
    fn has_room(&self, policy: &str) -> bool {
        let mut policies = self.policies();
        if policies.values().sum::<u64>() >= LINES_PER_SECOND {
            return false;
        }
        match policies.get_mut(policy) {
            Some(lines) if *lines >= LINES_OF_A_POLICY => return false,
            Some(lines) => *lines += 1,
            None => drop(policies.insert(policy.into(), 1)),
        }
        true
    }

    pub(super) fn write(&self, event: &Event<'_>) {
        let second = self.age.seconds();
        let mut left_out = 0;
        if self.second.swap(second, Ordering::Relaxed) != second {
            let due = self.due.swap(0, Ordering::Relaxed);
            let mut policies = self.policies();
            let written: u64 = policies.drain().map(|(_, lines)| lines).sum();
            left_out = due.saturating_sub(written);
        }
        self.due.fetch_add(1, Ordering::Relaxed);
        if !self.has_room(event.policy) {
            return;
        }
        let Some(verdict) = event.verdict else {
            return;
        };
        // The identity is left out: it may be a secret.
        tracing::debug!(
            policy = event.policy,
            quota = event.quota,
            class = event.class,
            limit = verdict.limit(),
            retry_after = ?verdict.retry_after(),
            enforced = event.is_enforced,
            cause = ?event.cause(),
            left_out,
            "denied"
        );
    }
}

/// The line about a refused caller whose budget owes more than its quota ever charges: an operator who has just deployed another
/// quota is to see why callers wait for longer than the new one says. At most one in a minute.
#[derive(Debug, Default)]
pub(super) struct DebtLog {
    age: Age,
    /// The second before which no other line is due.
    due: AtomicU64,
}

const SECONDS_BETWEEN_DEBTS: u64 = 60;

impl DebtLog {
    #[cold]
    pub(super) fn look(&self, entries: Entries<'_>, decision: &Decision) {
        for ((limit, _, _), verdict) in entries.quotas().zip(decision.verdicts()) {
            self.look_at(limit, verdict);
        }
    }

    pub(super) fn look_at(&self, limit: &Limit, verdict: &Verdict) {
        if verdict.is_denied() && owes_more_than_a_budget(limit.label.whole(), verdict) {
            self.write(limit.label.policy(), limit.label.quota(), verdict);
        }
    }

    #[inline(never)]
    fn write(&self, policy: &str, quota: &str, verdict: &Verdict) {
        let (now, due) = (self.age.seconds(), self.due.load(Ordering::Relaxed));
        let next = now + SECONDS_BETWEEN_DEBTS;
        let is_ours = || {
            let swapped =
                (self.due).compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed);
            swapped.is_ok()
        };
        if now >= due && is_ours() {
            tracing::info!(
                policy,
                quota,
                retry_after = ?verdict.retry_after(),
                full_after = ?verdict.reset_after(),
                "a caller owes more than this quota charges: to another quota of the same name, as while a deploy changes it, or as a \
                 debt; it waits until that has drained"
            );
        }
    }
}

/// True if this budget is full again later than one that is spent now, at the price of a cold one, and with a full line of requests
/// that wait. A rest of a microsecond counts as a whole one.
fn owes_more_than_a_budget(quota: &Quota, verdict: &Verdict) -> bool {
    // Most denials: a full budget of the limit or more takes the period or longer.
    let is_usual = quota.capacity() >= quota.limit() && verdict.reset_after() <= quota.period();
    if is_usual || quota.algorithm() != Algorithm::Gcra {
        return false;
    }
    let owed_us = verdict.reset_after().as_micros().saturating_sub(1);
    let price = u128::from(quota.price_when_cold());
    let full = u128::from(quota.capacity()) * quota.period().as_micros() * price;
    let line = quota.longest_wait().as_micros() * u128::from(quota.limit());
    owed_us * u128::from(quota.limit()) >= full + line
}
