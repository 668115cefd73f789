//! What a request will be charged: which policies, whose budgets, how much.

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::{Charge, Mode};

use crate::policy::{Grant, Limit};
use crate::{Key, Policy};

/// The policies that cover a request, with their keys. Nearly always one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    entries: SmallVec<[Entry; 1]>,
    /// Whether a policy asked for the peer's address in vain.
    pub(super) misses_peer: bool,
}

/// One policy, and who pays.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    policy: Arc<Policy>,
    tier: Option<usize>,
    key: Key,
    cost: u64,
    probe: bool,
}

impl Plan {
    /// One policy.
    #[inline]
    pub(super) fn of(entry: Entry) -> Self {
        Self {
            entries: SmallVec::from_buf([entry]),
            misses_peer: false,
        }
    }

    pub(super) fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    pub(crate) fn into_entries(self) -> impl Iterator<Item = Entry> {
        self.entries.into_iter()
    }

    /// The part of the plan that concerns the policies for which `keep` holds.
    pub(crate) fn only(&self, keep: impl Fn(&Policy) -> bool) -> Self {
        let kept = self.entries.iter().filter(|entry| keep(&entry.policy));
        Self {
            entries: kept.cloned().collect(),
            misses_peer: self.misses_peer,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The policies of the plan.
    pub(super) fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.entries.iter().map(|entry| &*entry.policy)
    }

    /// The policies of the plan, each with the key that pays and the quotas of that key's tier.
    pub(crate) fn payers(&self) -> impl Iterator<Item = (&Policy, &Key, &[Limit])> {
        let entries = self.entries.iter();
        entries.map(|entry| (&*entry.policy, &entry.key, entry.limits()))
    }

    /// The quotas of the plan in the order of its charges, each with the key that pays and how it is asked.
    pub(super) fn quotas(&self) -> impl Iterator<Item = (&Limit, &Key, Mode)> {
        self.entries.iter().flat_map(|entry| {
            let limits = entry.limits().iter();
            limits.map(|limit| (limit, &entry.key, entry.mode()))
        })
    }

    /// What each policy of the plan asks of its quotas.
    #[cfg(feature = "tonic")]
    pub(crate) fn costs(&self) -> impl Iterator<Item = u64> {
        self.entries.iter().map(|entry| entry.cost)
    }

    /// Makes each policy ask for another cost, in their order.
    #[cfg(feature = "tonic")]
    pub(crate) fn ask(&mut self, costs: impl IntoIterator<Item = u64>) {
        for (entry, cost) in self.entries.iter_mut().zip(costs) {
            entry.cost = cost;
        }
    }

    /// Calls `f` with a charge for each quota of each policy of the plan.
    #[inline]
    pub(super) fn with_charges<T>(&self, f: impl FnOnce(&[Charge<'_>]) -> T) -> T {
        if let [entry] = &self.entries[..]
            && let [limit] = entry.limits()
        {
            return f(&[entry.charge(limit)]);
        }
        let charges = self.entries.iter().flat_map(|entry| {
            let limits = entry.limits().iter();
            limits.map(|limit| entry.charge(limit))
        });
        f(&charges.collect::<SmallVec<[_; 4]>>())
    }
}

impl Entry {
    #[inline]
    pub(super) fn new(
        policy: &Arc<Policy>,
        tier: Option<usize>,
        key: Key,
        cost: u64,
        probe: bool,
    ) -> Self {
        Self {
            policy: Arc::clone(policy),
            tier,
            key: key.compact(),
            cost,
            probe,
        }
    }

    /// The quotas of the tier that the key is in.
    #[inline]
    pub(crate) fn limits(&self) -> &[Limit] {
        match self.policy.grant(self.tier) {
            Some(Grant::Limits(limits)) => limits,
            // A tier without limits is in no plan.
            _ => &self.policy.limits,
        }
    }

    /// The policy, and the key that pays.
    pub(crate) fn into_payer(self) -> (Arc<Policy>, Key) {
        (self.policy, self.key)
    }

    #[inline]
    pub(crate) fn mode(&self) -> Mode {
        if self.probe {
            Mode::Probe
        } else {
            self.policy.mode()
        }
    }

    #[inline]
    fn charge<'a>(&'a self, limit: &'a Limit) -> Charge<'a> {
        Charge {
            scope: limit.scope,
            quota: &limit.quota,
            key: &self.key,
            cost: self.cost,
            mode: self.mode(),
        }
    }
}
