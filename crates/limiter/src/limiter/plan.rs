//! The charges of a request: the policies, the keys, the costs.

use std::ops::Deref;
use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::{Charge, Decision, Mode, Outcome, Verdict};

use super::event::Transport;
use crate::policy::{Limit, Rank, Seat};
use crate::{Key, Policy};

/// The policies that cover a request, with their keys. Nearly always one.
#[derive(Debug, Default)]
pub struct Plan<'p> {
    entries: SmallVec<[Entry<'p>; 1]>,
    /// True if a policy needed the peer's address and found none.
    pub(super) misses_peer: bool,
}

/// One policy and its payer.
#[derive(Debug)]
pub struct Entry<'p> {
    policy: PlannedPolicy<'p>,
    key: Key,
    demand: Demand,
    /// In a box: few requests have one.
    wish: Option<Box<Wish>>,
}

/// A policy of a plan.
#[derive(Debug)]
pub(super) enum PlannedPolicy<'p> {
    /// Of a request that is decided at once, which takes no reference: its count lies in a cache line that all requests read.
    Lent(&'p Arc<Policy>),
    /// Of a request that waits, and may outlive the limiter's policies.
    Kept(Arc<Policy>),
}

/// A wish beyond the cost.
#[derive(Clone, Debug)]
pub(super) enum Wish {
    /// As much as there is, up to the cost, and at least this much.
    UpTo { at_least: u64 },
    /// To be charged once, under this name of its id.
    Once { id: Key },
}

/// The question that a policy is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// The place of the quotas that hold: see [`Policy::limits_at`].
    pub(super) seat: Seat,
    pub(super) class: Rank,
    pub(super) cost: u64,
    /// True for a probe, which takes nothing.
    pub(super) probe: bool,
    /// The way by which the request came: HTTP, if there is no observer.
    pub(super) transport: Transport,
}

#[cfg(test)]
impl Demand {
    pub(super) const ONCE: Self = Self {
        seat: 0,
        class: 0,
        cost: 1,
        probe: false,
        transport: Transport::Application,
    };
}

/// An entry, wherever its parts lie.
#[derive(Clone, Copy, Debug)]
pub struct Payer<'a> {
    pub(super) policy: &'a Arc<Policy>,
    pub(super) key: &'a Key,
    pub(super) demand: Demand,
    pub(super) wish: Option<&'a Wish>,
}

impl<'p> Plan<'p> {
    pub(super) fn push(&mut self, entry: Entry<'p>) {
        self.entries.push(entry);
    }

    /// The cost.
    #[inline]
    #[must_use]
    pub fn entries(&self) -> Entries<'_> {
        Entries::Planned(&self.entries)
    }

    pub(super) fn into_entries(self) -> impl Iterator<Item = Entry<'p>> {
        self.entries.into_iter()
    }

    pub(super) fn and(mut self, other: Self) -> Self {
        self.entries.extend(other.entries);
        self
    }

    /// The plan, which may outlive the limiter's policies from now on.
    pub(super) fn kept(self) -> Plan<'static> {
        Plan {
            entries: self.entries.into_iter().map(Entry::kept).collect(),
            misses_peer: self.misses_peer,
        }
    }

    /// True if the plan charges nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The cost of each policy of the plan.
    #[cfg(feature = "tonic")]
    pub fn costs(&self) -> impl Iterator<Item = u64> {
        self.entries.iter().map(|entry| entry.demand.cost)
    }

    /// Makes each policy ask for another cost, in their order.
    pub fn ask(&mut self, costs: impl IntoIterator<Item = u64>) {
        for (entry, cost) in self.entries.iter_mut().zip(costs) {
            entry.demand.cost = cost;
        }
    }
}

/// The entries of a plan.
#[derive(Clone, Copy, Debug)]
pub enum Entries<'a> {
    /// The only one, where there is no need for a plan.
    SolePolicy(&'a Payer<'a>),
    /// As many as were planned.
    Planned(&'a [Entry<'a>]),
}

impl<'a> Entries<'a> {
    pub(super) fn iter(self) -> impl Iterator<Item = Payer<'a>> + Clone {
        let (sole, planned) = match self {
            Self::SolePolicy(payer) => (Some(*payer), &[][..]),
            Self::Planned(entries) => (None, entries),
        };
        sole.into_iter().chain(planned.iter().map(Entry::payer))
    }

    /// The only quota and its payer, if no other is asked: the usual call.
    #[inline(always)]
    pub(super) fn sole(self) -> Option<(Payer<'a>, &'a Limit)> {
        let payer = match self {
            Self::SolePolicy(payer) => *payer,
            Self::Planned([entry]) => entry.payer(),
            Self::Planned(_) => return None,
        };
        match payer.limits() {
            [limit] if payer.id().is_none() => Some((payer, limit)),
            _ => None,
        }
    }

    /// A plan of them, which outlives the request's head.
    pub(super) fn to_plan(self) -> Plan<'static> {
        let entries = self.iter().map(Payer::to_entry);
        Plan {
            entries: entries.collect(),
            misses_peer: false,
        }
    }

    /// The policies of the plan.
    pub(super) fn policies(self) -> impl Iterator<Item = &'a Policy> {
        self.iter().map(|payer| &**payer.policy)
    }

    /// The policies of the plan, each with the key that pays and the quotas of that key's tier.
    pub fn payers(self) -> impl Iterator<Item = (&'a Policy, &'a Key, &'a [Limit])> {
        self.iter()
            .map(|payer| (&**payer.policy, payer.key, payer.limits()))
    }

    /// The quotas of the plan in the order of its charges, each with the key that pays and how it is asked.
    pub(super) fn quotas(self) -> impl Iterator<Item = (&'a Limit, &'a Key, Mode)> {
        self.iter().flat_map(|payer| {
            let limits = payer.limits().iter();
            limits.map(move |limit| (limit, payer.key, payer.mode()))
        })
    }

    /// Each payer with the verdicts on its quotas, and whether its id repeats that of an earlier admission.
    pub(super) fn decided<'d>(
        self,
        decision: &'d Decision,
    ) -> impl Iterator<Item = (Payer<'a>, &'d [Verdict], bool)> {
        let mut verdicts = decision.verdicts();
        let quotas: usize = self.iter().map(|payer| payer.limits().len()).sum();
        // The ids stand behind the quotas.
        let mut ids = verdicts.get(quotas..).unwrap_or_default().iter();
        self.iter().map(move |payer| {
            let (own, rest) = verdicts.split_at(payer.limits().len().min(verdicts.len()));
            verdicts = rest;
            let id = payer.id().and_then(|id| Some((id, ids.next()?)));
            let is_replay = id.is_some_and(|(id, verdict)| {
                let passes = match id.mode {
                    Mode::Enforce => decision.is_admitted(),
                    Mode::Shadow => own.iter().all(|one| !one.is_denied()),
                    // A probe takes nothing in any case.
                    _ => false,
                };
                // The id of a first admission is taken.
                passes
                    && id.cost > 0
                    && verdict.outcome() != Outcome::Unknown
                    && verdict.taken() == 0
            });
            (payer, own, is_replay)
        })
    }

    /// The part of the plan that concerns the policies for which `keep` holds.
    pub fn only(self, keep: impl Fn(&Policy) -> bool) -> Plan<'static> {
        let kept = self.iter().filter(|payer| keep(payer.policy));
        Plan {
            entries: kept.map(Payer::to_entry).collect(),
            misses_peer: false,
        }
    }

    /// True if some of the policies let requests wait.
    #[inline]
    pub(super) fn may_wait(self) -> bool {
        match self {
            Self::SolePolicy(payer) => payer.policy.may_wait,
            Self::Planned(entries) => entries.iter().any(|entry| entry.policy.may_wait),
        }
    }

    /// True if the request may ask more than once: for a place that it waits for, or for its turn alone and then for a place.
    pub(super) fn may_ask_again(self) -> bool {
        self.with_charges(|charges| {
            let awaits_turn = |charge: &Charge<'_>| charge.quota.waits() && !charge.quota.is_held();
            charges.iter().any(waits_for_place)
                || charges.iter().any(is_place) && charges.iter().any(awaits_turn)
        })
    }

    /// The way by which the request came.
    pub(super) fn transport(self) -> Transport {
        let first = self.iter().next();
        first.map_or(Transport::Application, |payer| payer.demand.transport)
    }

    /// The least that is to be granted, if the request asks for as much as there is. Only a check does, and so under one policy.
    #[inline]
    pub(super) fn at_least(self) -> Option<u64> {
        let Self::Planned([entry]) = self else {
            return None;
        };
        match entry.wish.as_deref()? {
            Wish::UpTo { at_least } => Some(*at_least),
            Wish::Once { .. } => None,
        }
    }

    /// Calls `f` with a charge for each quota of each policy of the plan.
    #[inline(always)]
    pub(super) fn with_charges<T>(self, f: impl FnOnce(&[Charge<'_>]) -> T) -> T {
        match self.sole() {
            Some((payer, limit)) => f(&[payer.charge(limit)]),
            None => f(&self.charges()),
        }
    }

    #[inline(never)]
    fn charges(self) -> SmallVec<[Charge<'a>; 4]> {
        let charges = self.iter().flat_map(|payer| {
            let limits = payer.limits().iter();
            limits.map(move |limit| payer.charge_or_ask(limit))
        });
        // Behind all others, so that these stand at the places of their quotas.
        let ids = self.iter().filter_map(Payer::id);
        charges.chain(ids).collect()
    }
}

/// True if a request passes only with the place that it is charged.
pub(super) fn is_place(charge: &Charge<'_>) -> bool {
    charge.quota.is_held() && charge.cost > 0 && charge.mode == Mode::Enforce
}

/// True if a request may wait for the place that it is charged.
pub(super) fn waits_for_place(charge: &Charge<'_>) -> bool {
    charge.quota.waits() && is_place(charge)
}

impl Deref for PlannedPolicy<'_> {
    type Target = Arc<Policy>;

    #[inline]
    fn deref(&self) -> &Arc<Policy> {
        match self {
            Self::Lent(policy) => policy,
            Self::Kept(policy) => policy,
        }
    }
}

impl<'p> Entry<'p> {
    pub(super) fn new(policy: PlannedPolicy<'p>, key: Key, demand: Demand) -> Self {
        Self {
            policy,
            key: key.compact(),
            demand,
            wish: None,
        }
    }

    pub(super) fn policy(&self) -> &Policy {
        &self.policy
    }

    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    pub(super) fn wishing(mut self, wish: Option<Box<Wish>>) -> Self {
        self.wish = wish;
        self
    }

    pub(super) fn kept(self) -> Entry<'static> {
        let policy = match self.policy {
            PlannedPolicy::Lent(policy) => Arc::clone(policy),
            PlannedPolicy::Kept(policy) => policy,
        };
        Entry {
            policy: PlannedPolicy::Kept(policy),
            key: self.key,
            demand: self.demand,
            wish: self.wish,
        }
    }

    #[inline]
    fn payer(&self) -> Payer<'_> {
        Payer {
            policy: &self.policy,
            key: &self.key,
            demand: self.demand,
            wish: self.wish.as_deref(),
        }
    }
}

impl<'a> Payer<'a> {
    pub(super) fn to_entry(self) -> Entry<'static> {
        let policy = PlannedPolicy::Kept(Arc::clone(self.policy));
        let wish = self.wish.cloned().map(Box::new);
        Entry::new(policy, self.key.clone(), self.demand).wishing(wish)
    }

    /// The quotas of the tier that the key is in, as the class of the request sees them, and the ban behind them. Callers who lack their
    /// identity or a part of it have a budget together, and no ban: one of them would keep out all others.
    #[inline]
    pub(super) fn limits(self) -> &'a [Limit] {
        let limits = self.policy.limits_at(self.demand.seat);
        match limits {
            [quotas @ .., ban] if ban.quota.is_ban() && self.key.is_incomplete() => quotas,
            _ => limits,
        }
    }

    #[inline]
    pub(super) fn mode(self) -> Mode {
        if self.demand.probe {
            Mode::Probe
        } else {
            self.policy.mode()
        }
    }

    /// The charge of a quota, or the question to a ban, which costs nothing.
    fn charge_or_ask(self, limit: &'a Limit) -> Charge<'a> {
        let charge = self.charge(limit);
        if limit.quota.is_ban() {
            return Charge { cost: 0, ..charge };
        }
        charge
    }

    /// The charge of the id, if the request has one. A request that costs nothing is remembered by none.
    #[inline]
    pub(super) fn id(self) -> Option<Charge<'a>> {
        let Wish::Once { id } = self.wish? else {
            return None;
        };
        let once = self.policy.once.as_ref()?;
        Some(Charge {
            scope: once.scope,
            quota: &once.quota,
            key: id,
            cost: self.demand.cost.min(1),
            mode: self.mode(),
        })
    }

    #[inline(always)]
    pub(super) fn charge(self, limit: &'a Limit) -> Charge<'a> {
        Charge {
            scope: limit.scope,
            quota: &limit.quota,
            key: self.key,
            cost: self.demand.cost,
            mode: self.mode(),
        }
    }
}
