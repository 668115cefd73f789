//! Leased budgets: whatever the processes did, no more passed in any interval than the bound of a lease allows.
//!
//! The blocks are not recorded, and not the places of requests in the servers' order. So the budget's course is not followed. A
//! bucket or a refill in intervals lets through at most its burst, and its rate for the interval and the time of a lease; a fixed
//! window its limit for each window that the interval may touch. Each loss in between, and each step of the clock, hands out one
//! budget anew.

use std::cmp;
use std::collections::BTreeMap;

use super::LINGERS_US;
use crate::history::{Effect, History};
use crate::leased::{LeasedPolicy, Spend};
use crate::leased_bound::LeasedBound;
use crate::terms::micros;

/// The findings about leased budgets.
#[derive(Clone, Debug, Default)]
pub struct LeaseFindings {
    /// The impossible.
    pub wrong: Vec<String>,
    /// Requests that passed.
    pub passed: u64,
    /// Those among them that were spent from a block.
    pub leased: u64,
    /// Requests that were denied.
    pub denied: u64,
    /// Requests without a decision.
    pub undecided: u64,
    /// The greatest part of its bound, in percent, that any interval without a loss used, of a hundred milliseconds or more.
    pub fullest_percent: u64,
}

pub(super) fn check_leased(history: &History) -> LeaseFindings {
    let mut findings = LeaseFindings::default();
    let mut by_budget: BTreeMap<(usize, u32), Vec<&Spend>> = BTreeMap::new();
    for spend in &history.spends {
        findings.passed += spend.passed;
        findings.leased += spend.leased;
        findings.denied += spend.denied;
        findings.undecided += spend.undecided;
        let budget = (spend.policy, spend.caller);
        by_budget.entry(budget).or_default().push(spend);
    }
    let policies = LeasedPolicy::all();
    for ((policy, caller), mut spends) in by_budget {
        let Some(policy) = policies.get(policy) else {
            continue;
        };
        spends.sort_by_key(|spend| spend.to_us);
        let home = history.homes.get(&caller).copied();
        let disturbances = history.disturbances.iter();
        let losses: Vec<_> = disturbances
            .filter(|it| it.concerns(home) && it.effect != Effect::Trouble)
            .map(|it| (it.from_us, it.to_us + LINGERS_US))
            .collect();
        let (excess, fullest) = worst_interval(policy, &spends, &losses);
        findings.fullest_percent = findings.fullest_percent.max(fullest);
        let name = policy.name;
        findings
            .wrong
            .extend(excess.map(|what| format!("{name} of caller {caller}: {what}")));
    }
    findings
}

/// The first interval in which more passed than may, and the fullest without a loss.
///
/// `spends` are sorted by their ends. Of those from one to another, all passed between the earliest of their begins and the last of
/// their ends.
fn worst_interval(
    policy: &LeasedPolicy,
    spends: &[&Spend],
    losses: &[(u64, u64)],
) -> (Option<String>, u64) {
    const LONG_US: u64 = 100_000;

    let Some(bound) = LeasedBound::of(&policy.quota, &policy.lease) else {
        return (Some("it cannot be leased".to_owned()), 0);
    };
    let lease_us = micros(policy.lease.time());
    let again = bound.most_in(0);
    let mut fullest = 0;
    for (number, last) in spends.iter().enumerate() {
        let (mut sum, mut from_us) = (0, u64::MAX);
        for first in spends[..=number].iter().rev() {
            sum += first.passed;
            from_us = cmp::min(from_us, first.from_us);
            let length_us = last.to_us - from_us;
            let most = bound.most_in(length_us);
            let is_fuller = length_us >= LONG_US && sum * 100 > most * fullest;
            if sum <= most && !is_fuller {
                continue;
            }
            let lasts = from_us.saturating_sub(lease_us)..=last.to_us;
            let lost = losses
                .iter()
                .filter(|(from, to)| from <= lasts.end() && to >= lasts.start())
                .count() as u64;
            if lost == 0 && is_fuller {
                fullest = sum * 100 / most;
            }
            let most = most + lost * again;
            if sum > most {
                let what = format!(
                    "{sum} passed in the {length_us} µs until {}, and at most {most} may",
                    last.to_us
                );
                return (Some(what), fullest);
            }
        }
    }
    (None, fullest)
}
