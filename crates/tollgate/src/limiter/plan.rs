//! What a request will be charged: which policies, whose budgets, how much.

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
    /// The policy's place in the limiter.
    policy: usize,
    key: Key,
    cost: u64,
    probe: bool,
}

impl Plan {
    /// Matches first: the policy names the key. What is missing is an error only under a policy that insists on it.
    pub(super) fn of<'p>(
        candidates: impl Iterator<Item = (usize, &'p Policy)>,
        request: &RequestView<'_>,
        path: Option<&PathForms<'_>>,
    ) -> Result<Self, Turned> {
        let is_preflight = request.is_preflight();
        let mut plan = Self::new(Entries::NONE);
        for (index, policy) in candidates {
            if is_preflight && !policy.charges_preflights {
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
            plan.entries.push(Entry::new(index, policy, key));
        }
        Ok(plan)
    }

    /// One policy for one key.
    pub(super) fn of_one(policy: usize, key: Key, cost: u64, probe: bool) -> Self {
        Self::new(Entries::One(Entry {
            policy,
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
    pub(super) fn only(&self, policies: &[Policy], keep: impl Fn(&Policy) -> bool) -> Self {
        let kept = self
            .entries
            .as_slice()
            .iter()
            .filter(|entry| keep(&policies[entry.policy]));
        let kept = kept.map(|entry| Entry {
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

    /// The policies of the plan.
    pub(super) fn policies<'a>(
        &'a self,
        policies: &'a [Policy],
    ) -> impl Iterator<Item = &'a Policy> {
        let entries = self.entries.as_slice().iter();
        entries.map(|entry| &policies[entry.policy])
    }

    /// The names of the quotas of the plan, in the order of its charges, and how each is meant.
    pub(super) fn labels<'a>(
        &'a self,
        policies: &'a [Policy],
    ) -> impl Iterator<Item = (&'static Labels, Mode)> + 'a {
        self.entries.as_slice().iter().flat_map(move |entry| {
            let policy = &policies[entry.policy];
            policy
                .limits
                .iter()
                .map(move |limit| (limit.labels, entry.mode(policy)))
        })
    }

    /// Calls `f` with a charge for each quota of each policy of the plan.
    pub(super) fn with_charges<T>(
        &self,
        policies: &[Policy],
        f: impl FnOnce(&[Charge<'_>]) -> T,
    ) -> T {
        let charges = self.entries.as_slice().iter().flat_map(|entry| {
            let policy = &policies[entry.policy];
            policy
                .limits
                .iter()
                .map(move |limit| entry.charge(policy, limit))
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
    fn new(index: usize, policy: &Policy, key: Key) -> Self {
        Self {
            policy: index,
            key,
            cost: policy.cost,
            probe: false,
        }
    }

    fn charge<'a>(&'a self, policy: &Policy, limit: &'a Limit) -> Charge<'a> {
        Charge {
            scope: limit.scope,
            quota: &limit.quota,
            key: &self.key,
            cost: self.cost,
            mode: self.mode(policy),
        }
    }

    fn mode(&self, policy: &Policy) -> Mode {
        if self.probe {
            Mode::Probe
        } else {
            policy.mode()
        }
    }
}
