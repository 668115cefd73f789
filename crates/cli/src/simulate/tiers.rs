//! Counts by tier: of each policy that has tiers, what it decided about the callers of each and about those in none.

use std::collections::HashSet;
use std::hash::BuildHasher;

use foldhash::fast::{FixedState, RandomState};
use serde::Serialize;

use crate::figures::{grouped, percent};
use crate::replay::{Replay, TierDecision};

/// Counts of all tiers.
#[derive(Debug, Default)]
pub(super) struct ByTier {
    /// By policy, and for each of its tiers; the last counts callers in none.
    policies: Vec<Vec<OfTier>>,
}

/// Counts of one tier.
#[derive(Debug, Default)]
struct OfTier {
    name: Option<String>,
    covered: u64,
    refused: u64,
    on_trial: u64,
    /// Hashes of identities: there may be a million of them.
    callers: HashSet<u64, RandomState>,
    refused_callers: HashSet<u64, RandomState>,
}

impl ByTier {
    pub(super) fn of(replay: &Replay) -> Self {
        let named = |name: Option<String>| OfTier {
            name,
            ..OfTier::default()
        };
        let policies = replay.tiers().map(|tiers| {
            let names = tiers.into_iter().flatten().cloned().map(Some);
            let none = tiers.map(|_| None);
            names.chain(none).map(named).collect()
        });
        Self {
            policies: policies.collect(),
        }
    }

    pub(super) fn count(&mut self, decided: &TierDecision) {
        let tiers = &mut self.policies[decided.policy];
        let in_none = tiers.len() - 1;
        let of = &mut tiers[decided.tier.unwrap_or(in_none)];
        of.covered += 1;
        of.refused += u64::from(decided.is_refused);
        of.on_trial += u64::from(decided.is_on_trial);
        if let Some(caller) = &decided.caller {
            let caller = FixedState::with_seed(0).hash_one(caller);
            of.callers.insert(caller);
            if decided.is_refused {
                of.refused_callers.insert(caller);
            }
        }
    }
}

/// A tier of a policy, and what that decided.
#[derive(Debug, Serialize)]
pub(super) struct TierRow {
    policy: String,
    /// Nothing for callers in no tier.
    tier: Option<String>,
    callers: usize,
    pub(super) covered: u64,
    pub(super) refused: u64,
    refused_callers: usize,
    would_refuse_on_trial: u64,
}

impl TierRow {
    pub(super) const NAMES: [&str; 8] = [
        "policy",
        "tier",
        "callers",
        "requests",
        "refused",
        "share",
        "refused callers",
        "would refuse (on trial)",
    ];

    pub(super) fn all(tiers: &ByTier, names: &[String]) -> Vec<Self> {
        let policies = names.iter().zip(&tiers.policies);
        let rows = policies.flat_map(|(policy, tiers)| {
            tiers.iter().map(|of| Self {
                policy: policy.clone(),
                tier: of.name.clone(),
                callers: of.callers.len(),
                covered: of.covered,
                refused: of.refused,
                refused_callers: of.refused_callers.len(),
                would_refuse_on_trial: of.on_trial,
            })
        });
        rows.collect()
    }

    pub(super) fn cells(&self) -> [String; 8] {
        [
            self.policy.clone(),
            self.tier.clone().unwrap_or_else(|| "(none)".to_owned()),
            grouped(self.callers as u64),
            grouped(self.covered),
            grouped(self.refused),
            percent(self.refused, self.covered),
            grouped(self.refused_callers as u64),
            grouped(self.would_refuse_on_trial),
        ]
    }
}
