//! What a request will be charged: which policies, whose budgets, how much.

use std::sync::Arc;
use std::{mem, slice};

use smallvec::SmallVec;
use tollgate_core::{Charge, Mode};

use crate::key::{ClientIp, KeyMissing};
use crate::matching::PathForms;
use crate::policy::{Labels, Limit, Listed};
use crate::request::Routing;
use crate::{Block, Key, OnMissing, Policy, RefusalReason, RequestView};

/// The policies that cover a request, with their keys.
#[derive(Debug)]
pub(crate) struct Plan {
    entries: Entries,
    misses_peer: bool,
}

/// The usual single entry stands by itself: it is written where the plan goes, and no list is built for it.
#[derive(Debug)]
enum Entries {
    One(Entry),
    Other(Vec<Entry>),
}

/// Why a request is refused before anything is decided.
#[derive(Debug)]
pub(crate) enum Turned {
    /// A policy insists on knowing who it is from.
    Unidentified(KeyMissing),
    /// It is from somebody on a policy's block list.
    Blocked(Block),
}

impl Turned {
    pub(crate) fn reason(&self) -> RefusalReason<'_> {
        match self {
            Self::Unidentified(missing) => RefusalReason::Unidentified(missing),
            Self::Blocked(how) => RefusalReason::Blocked(*how),
        }
    }
}

#[derive(Debug)]
struct Entry {
    policy: Arc<Policy>,
    key: Key,
    cost: u64,
    probe: bool,
}

impl Plan {
    /// Matches first: the policy names the key. What is missing is an error only under a policy that insists on it.
    pub(super) fn of<'p>(
        candidates: impl Iterator<Item = &'p Arc<Policy>>,
        request: &RequestView<'_>,
        path: Option<&PathForms<'_>>,
    ) -> Result<Self, Turned> {
        let is_preflight = request.is_preflight();
        let is_health_check = request.is_health_check();
        let mut plan = Self::new(Entries::NONE);
        for policy in candidates {
            if (is_preflight && !policy.charges_preflights)
                || (is_health_check && !policy.charges_health)
            {
                continue;
            }
            let (routing, routed);
            let request = match path {
                Some(path) => {
                    routing = Routing {
                        path,
                        routes: policy.patterns().routes,
                    };
                    routed = request.routed(&routing);
                    &routed
                }
                None => request,
            };
            if !policy.covers(request) {
                continue;
            }
            let key = match policy.key.extract(request) {
                Ok(key) => key,
                Err(missing) => match policy.on_missing {
                    OnMissing::Share => {
                        plan.misses_peer |= missing.what() == ClientIp::MISSING;
                        Key::missing()
                    }
                    OnMissing::Pass => continue,
                    // What is on trial refuses nobody.
                    OnMissing::Deny if policy.shadow => continue,
                    OnMissing::Deny => {
                        return Err(Turned::Unidentified(missing));
                    }
                },
            };
            match policy.listed(&key) {
                Listed::Nowhere => {}
                Listed::Exempt => continue,
                Listed::Blocked(_) if policy.shadow => {}
                Listed::Blocked(how) => return Err(Turned::Blocked(how)),
            }
            plan.entries.push(Entry::new(policy, key));
        }
        Ok(plan)
    }

    /// One policy for one key.
    pub(super) fn of_one(policy: &Arc<Policy>, key: Key, cost: u64, probe: bool) -> Self {
        Self::new(Entries::One(Entry {
            policy: Arc::clone(policy),
            key,
            cost,
            probe,
        }))
    }

    const fn new(entries: Entries) -> Self {
        Self {
            entries,
            misses_peer: false,
        }
    }

    /// The part of the plan that concerns the policies for which `keep` holds.
    pub(super) fn only(&self, keep: impl Fn(&Policy) -> bool) -> Self {
        let kept = self
            .entries
            .as_slice()
            .iter()
            .filter(|entry| keep(&entry.policy));
        let kept = kept.map(|entry| Entry {
            policy: Arc::clone(&entry.policy),
            key: entry.key.clone(),
            ..*entry
        });
        Self {
            entries: Entries::Other(kept.collect()),
            misses_peer: self.misses_peer,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.as_slice().is_empty()
    }

    pub(super) fn misses_peer(&self) -> bool {
        self.misses_peer
    }

    /// The policies of the plan, each with the key that pays.
    pub(crate) fn payers(&self) -> impl Iterator<Item = (&Policy, &Key)> {
        let entries = self.entries.as_slice().iter();
        entries.map(|entry| (&*entry.policy, &entry.key))
    }

    /// The names of the quotas of the plan, in the order of its charges, and how each is meant.
    pub(crate) fn labels(&self) -> impl Iterator<Item = (&'static Labels, Mode)> {
        self.entries.as_slice().iter().flat_map(|entry| {
            let limits = entry.policy.limits.iter();
            limits.map(|limit| (limit.labels, entry.mode()))
        })
    }

    /// Calls `f` with a charge for each quota of each policy of the plan.
    pub(super) fn with_charges<T>(&self, f: impl FnOnce(&[Charge<'_>]) -> T) -> T {
        let charges = self.entries.as_slice().iter().flat_map(|entry| {
            let limits = entry.policy.limits.iter();
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
        *self = match mem::replace(self, Self::NONE) {
            Self::One(first) => Self::Other(vec![first, entry]),
            Self::Other(none) if none.is_empty() => Self::One(entry),
            Self::Other(mut several) => {
                several.push(entry);
                Self::Other(several)
            }
        };
    }
}

impl Entry {
    fn new(policy: &Arc<Policy>, key: Key) -> Self {
        Self {
            policy: Arc::clone(policy),
            key,
            cost: policy.cost,
            probe: false,
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
