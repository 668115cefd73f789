//! What a request will be charged: which policies, whose budgets, how much.

use std::sync::Arc;
use std::{mem, slice};

use smallvec::SmallVec;
use tollgate_core::{Charge, Mode};

use crate::policy::{Grant, Labels, Limit};
use crate::{Key, Policy, RequestView};

/// The policies that cover a request, with their keys.
#[derive(Debug)]
pub(crate) struct Plan {
    entries: Entries,
    /// Whether a policy asked for the peer's address in vain.
    pub(super) misses_peer: bool,
}

/// The usual single entry stands by itself: it is written where the plan goes, and no list is built for it.
#[derive(Debug)]
enum Entries {
    One(Entry),
    Other(Vec<Entry>),
}

/// One policy, and who pays.
#[derive(Debug)]
pub(super) struct Entry {
    policy: Arc<Policy>,
    tier: Option<usize>,
    key: Key,
    cost: u64,
    probe: bool,
}

impl Plan {
    /// One policy for one key.
    pub(super) fn of_one(
        policy: &Arc<Policy>,
        tier: Option<usize>,
        key: Key,
        cost: u64,
        probe: bool,
    ) -> Self {
        Self::new(Entries::One(Entry {
            policy: Arc::clone(policy),
            tier,
            key: key.compact(),
            cost,
            probe,
        }))
    }

    pub(super) const fn empty() -> Self {
        Self::new(Entries::NONE)
    }

    pub(super) fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    pub(super) fn into_entries(self) -> impl Iterator<Item = Entry> {
        let (one, several) = match self.entries {
            Entries::One(entry) => (Some(entry), Vec::new()),
            Entries::Other(entries) => (None, entries),
        };
        one.into_iter().chain(several)
    }

    const fn new(entries: Entries) -> Self {
        Self {
            entries,
            misses_peer: false,
        }
    }

    /// The part of the plan that concerns the policies for which `keep` holds.
    pub(crate) fn only(&self, keep: impl Fn(&Policy) -> bool) -> Self {
        let kept = self
            .entries
            .as_slice()
            .iter()
            .filter(|entry| keep(&entry.policy));
        let mut plan = Self::empty();
        plan.misses_peer = self.misses_peer;
        for entry in kept {
            plan.push(Entry {
                policy: Arc::clone(&entry.policy),
                key: entry.key.clone(),
                ..*entry
            });
        }
        plan
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.as_slice().is_empty()
    }

    /// The policies of the plan.
    pub(super) fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.entries.as_slice().iter().map(|entry| &*entry.policy)
    }

    /// The policies of the plan, each with the key that pays and the quotas of that key's tier.
    pub(crate) fn payers(&self) -> impl Iterator<Item = (&Policy, &Key, &[Limit])> {
        let entries = self.entries.as_slice().iter();
        entries.map(|entry| (&*entry.policy, &entry.key, entry.limits()))
    }

    /// What each policy of the plan asks of its quotas.
    #[cfg(feature = "tonic")]
    pub(crate) fn costs(&self) -> impl Iterator<Item = u64> {
        self.entries.as_slice().iter().map(|entry| entry.cost)
    }

    /// Makes each policy ask for another cost, in their order.
    #[cfg(feature = "tonic")]
    pub(crate) fn ask(&mut self, costs: impl IntoIterator<Item = u64>) {
        let entries = match &mut self.entries {
            Entries::One(entry) => slice::from_mut(entry),
            Entries::Other(entries) => entries,
        };
        for (entry, cost) in entries.iter_mut().zip(costs) {
            entry.cost = cost;
        }
    }

    /// The names of the quotas of the plan, in the order of its charges, and how each is meant.
    pub(crate) fn labels(&self) -> impl Iterator<Item = (&'static Labels, Mode)> {
        self.entries.as_slice().iter().flat_map(|entry| {
            let limits = entry.limits().iter();
            limits.map(|limit| (limit.labels, entry.mode()))
        })
    }

    /// If it is one quota of one policy, as it mostly is: what its name is and how it is meant, who pays, and which policy it is.
    pub(crate) fn sole(&self) -> Option<(&'static Labels, Mode, &Key, &Policy)> {
        let Entries::One(entry) = &self.entries else {
            return None;
        };
        match entry.limits() {
            [limit] => Some((limit.labels, entry.mode(), &entry.key, &entry.policy)),
            _ => None,
        }
    }

    /// Calls `f` with a charge for each quota of each policy of the plan.
    pub(super) fn with_charges<T>(&self, f: impl FnOnce(&[Charge<'_>]) -> T) -> T {
        if let Entries::One(entry) = &self.entries
            && let [limit] = entry.limits()
        {
            return f(&[entry.charge(limit)]);
        }
        let charges = self.entries.as_slice().iter().flat_map(|entry| {
            let limits = entry.limits().iter();
            limits.map(|limit| entry.charge(limit))
        });
        f(&charges.collect::<SmallVec<[_; 4]>>())
    }
}

impl Entries {
    const NONE: Self = Self::Other(Vec::new());

    fn as_slice(&self) -> &[Entry] {
        match self {
            Self::One(entry) => slice::from_ref(entry),
            Self::Other(entries) => entries,
        }
    }

    fn push(&mut self, entry: Entry) {
        match self {
            Self::Other(entries) if entries.is_empty() => *self = Self::One(entry),
            Self::Other(entries) => entries.push(entry),
            Self::One(_) => {
                if let Self::One(first) = mem::replace(self, Self::NONE) {
                    *self = Self::Other(vec![first, entry]);
                }
            }
        }
    }
}

impl Entry {
    pub(super) fn new(
        policy: &Arc<Policy>,
        tier: Option<usize>,
        key: Key,
        request: &RequestView<'_>,
    ) -> Self {
        Self {
            policy: Arc::clone(policy),
            tier,
            key: key.compact(),
            cost: policy.cost.of(request),
            probe: false,
        }
    }

    fn limits(&self) -> &[Limit] {
        match self.policy.grant(self.tier) {
            Some(Grant::Limits(limits)) => limits,
            // What is unlimited is in no plan.
            _ => &self.policy.limits,
        }
    }

    fn charge<'a>(&'a self, limit: &'a Limit) -> Charge<'a> {
        Charge {
            scope: limit.scope,
            quota: &limit.quota,
            key: &self.key,
            cost: self.cost,
            mode: self.mode(),
        }
    }

    fn mode(&self) -> Mode {
        if self.probe {
            Mode::Probe
        } else {
            self.policy.mode()
        }
    }
}
