//! Counts of a replay: requests, refusals, callers and routes.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use foldhash::fast::RandomState;
use tollgate::{Key, KeyKind};

use super::callers::{OfCaller, RefusedCallers};
use super::places::Places;
use super::tiers::ByTier;
use crate::log::Entry;
use crate::replay::{Replay, RequestDecision};
use crate::timeline::Timeline;

/// The most routes that are counted by their name. The rest counts together.
const MOST_ROUTES: usize = 10_000;

/// The longest route that is counted by its whole name.
const LONGEST_ROUTE: usize = 80;

/// Lines that are shown.
const SAMPLES: usize = 5;

/// Counts of a replay.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) requests: u64,
    pub(super) refused: u64,
    pub(super) unroutable: u64,
    /// Requests whose line has no cost, under policies that charge it.
    pub(super) without_cost: u64,
    pub(super) first_us: u64,
    pub(super) last_us: u64,
    callers: HashSet<u128, RandomState>,
    pub(super) timeline: Timeline,
    pub(super) policies: Vec<OfPolicy>,
    pub(super) tiers: ByTier,
    pub(super) places: Places,
    /// By policy.
    refused_callers: Vec<RefusedCallers>,
    /// By policy, as the log writes them.
    routes: Vec<HashMap<Box<[u8]>, u64, RandomState>>,
    /// The first lines that are refused.
    pub(super) samples: Vec<(u64, String)>,
}

/// Counts of one policy.
#[derive(Clone, Debug, Default)]
pub(super) struct OfPolicy {
    pub(super) covered: u64,
    pub(super) refused: u64,
    pub(super) on_trial: u64,
    pub(super) unidentified: u64,
    /// The units that requests asked for, and those of refused ones, if the policy charges what the log has as their cost.
    pub(super) units: Option<(u64, u64)>,
}

impl Tally {
    #[inline]
    pub(super) fn count(
        &mut self,
        replay: &Replay,
        entry: &Entry<'_>,
        line: &[u8],
        number: u64,
        decided: &RequestDecision,
    ) {
        if self.requests == 0 {
            self.first_us = entry.time_us;
            let policies = replay.names().len();
            self.policies.resize(policies, OfPolicy::default());
            self.tiers = ByTier::of(replay);
            let costed = self.policies.iter_mut().zip(replay.costed());
            for (of, _) in costed.filter(|(_, is_costed)| **is_costed) {
                of.units = Some((0, 0));
            }
            self.refused_callers
                .resize_with(policies, RefusedCallers::default);
            self.routes.resize_with(policies, HashMap::default);
        }
        self.requests += 1;
        self.last_us = entry.time_us;
        self.callers.insert(match entry.caller {
            IpAddr::V4(address) => address.to_bits().into(),
            // As policies do by default.
            IpAddr::V6(address) => address.to_bits() >> 64 << 64,
        });
        self.timeline
            .count(entry.time_us, decided.refused.is_some());
        if replay.is_by_address() {
            self.unroutable += u64::from(decided.is_unroutable);
            self.policies[0].covered += u64::from(!decided.is_unroutable);
        } else {
            self.count_policies(entry, decided);
        }
        if let Some((policy, key)) = &decided.refused {
            self.count_refusal(*policy, key, entry, line, number);
        }
    }

    fn count_policies(&mut self, entry: &Entry<'_>, decided: &RequestDecision) {
        self.unroutable += u64::from(decided.is_unroutable);
        let refused_by = decided.refused.as_ref().map(|(policy, _)| *policy);
        let mut is_costed = false;
        for policy in &decided.covered {
            let of = &mut self.policies[*policy];
            of.covered += 1;
            if let Some((asked, refused)) = &mut of.units {
                is_costed = true;
                let cost = entry.cost.unwrap_or(1);
                *asked = asked.saturating_add(cost);
                if refused_by == Some(*policy) {
                    *refused = refused.saturating_add(cost);
                }
            }
        }
        self.without_cost += u64::from(is_costed && entry.cost.is_none());
        decided.by_tier.iter().for_each(|it| self.tiers.count(it));
        let duration_us = entry.duration_us().unwrap_or_default();
        for (policy, caller) in &decided.places {
            self.places
                .count(*policy, caller, entry.time_us, duration_us);
        }
        for policy in &decided.unidentified {
            self.policies[*policy].unidentified += 1;
        }
        for (policy, _) in &decided.on_trial {
            self.policies[*policy].on_trial += 1;
        }
    }

    fn count_refusal(
        &mut self,
        policy: usize,
        key: &Option<Key>,
        entry: &Entry<'_>,
        line: &[u8],
        number: u64,
    ) {
        self.refused += 1;
        self.policies[policy].refused += 1;
        self.refused_callers[policy].count(key, entry);
        let path = entry.path();
        let path = &path[..path.len().min(LONGEST_ROUTE)];
        let routes = &mut self.routes[policy];
        match routes.get_mut(path) {
            Some(refused) => *refused += 1,
            None => {
                let path = if routes.len() < MOST_ROUTES {
                    path
                } else {
                    b"(others)"
                };
                *routes.entry(path.into()).or_default() += 1;
            }
        }
        if self.samples.len() < SAMPLES {
            let line = String::from_utf8_lossy(line).chars().take(200).collect();
            self.samples.push((number, line));
        }
    }

    /// The number of distinct addresses; of IPv6, of networks of 64 bits.
    pub(super) fn callers(&self) -> usize {
        self.callers.len()
    }

    /// The number of refused callers, as their policies tell them apart.
    pub(super) fn refused_callers(&self) -> usize {
        self.refused_callers.iter().map(RefusedCallers::len).sum()
    }

    /// The number of policies that refused a caller.
    pub(super) fn refusing_policies(&self) -> usize {
        let policies = self.policies.iter();
        policies.filter(|of| of.refused > 0).count()
    }

    /// The refused callers with the most refusals.
    pub(super) fn top_callers(&self, most: usize) -> Vec<(usize, String, &OfCaller)> {
        let order = |row: &(usize, &Option<Key>, &OfCaller)| {
            let key = row.1.as_ref().map(|key| key.as_bytes().to_vec());
            (std::cmp::Reverse(row.2.refused), key, row.0)
        };
        let mut top: Vec<(usize, &Option<Key>, &OfCaller)> = Vec::new();
        // A list of all of them would take as much memory again as a million of them have.
        for (policy, callers) in self.refused_callers.iter().enumerate() {
            for (key, of) in callers.iter() {
                top.push((policy, key, of));
                if top.len() >= 2 * most.max(1_000) {
                    top.sort_by_cached_key(order);
                    top.truncate(most);
                }
            }
        }
        top.sort_by_cached_key(order);
        let top = top.into_iter().take(most);
        top.map(|(policy, key, of)| (policy, words(key.as_ref()), of))
            .collect()
    }

    /// The refusals of each refused caller, most first.
    pub(super) fn refusals(&self) -> Vec<u64> {
        let callers = self.refused_callers.iter().flat_map(RefusedCallers::iter);
        let mut refusals: Vec<_> = callers.map(|(_, of)| of.refused).collect();
        refusals.sort_unstable_by(|one, other| other.cmp(one));
        refusals
    }

    /// The routes of refused requests with the most refusals.
    pub(super) fn top_routes(&self, most: usize) -> Vec<(usize, String, u64)> {
        let policies = self.routes.iter().enumerate();
        let routes = policies.flat_map(|(policy, routes)| {
            routes
                .iter()
                .map(move |(route, refused)| (policy, route, *refused))
        });
        let mut routes: Vec<_> = routes.collect();
        routes.sort_unstable_by(|a, b| b.2.cmp(&a.2).then_with(|| a.1.cmp(b.1)));
        let routes = routes.into_iter().take(most);
        routes
            .map(|(policy, route, refused)| {
                (policy, String::from_utf8_lossy(route).into_owned(), refused)
            })
            .collect()
    }
}

/// A caller in words.
pub(super) fn words(key: Option<&Key>) -> String {
    let Some(key) = key else {
        return "(no identity)".to_owned();
    };
    match key.kind() {
        KeyKind::Global => "(all callers)".to_owned(),
        KeyKind::Missing => "(no identity)".to_owned(),
        KeyKind::Tuple => {
            let parts: Vec<_> = key.parts().map(|part| words(Some(&part))).collect();
            parts.join(" + ")
        }
        KeyKind::Ipv4 => {
            let octets: [u8; 4] = key.content().try_into().unwrap_or_default();
            Ipv4Addr::from(octets).to_string()
        }
        KeyKind::Ipv6 => {
            let (prefix, covered) = key.content().split_first().unwrap_or((&128, &[]));
            let mut octets = [0; 16];
            for (octet, covered) in octets.iter_mut().zip(covered) {
                *octet = *covered;
            }
            format!("{}/{prefix}", Ipv6Addr::from(octets))
        }
        _ => key
            .text()
            .map_or_else(|| "(a long identity)".to_owned(), str::to_owned),
    }
}

/// Requests that two files of limits decide differently.
#[derive(Debug, Default)]
pub(super) struct Difference {
    /// Refused by ours alone.
    pub(super) newly_refused: u64,
    /// Refused by theirs alone.
    pub(super) no_longer_refused: u64,
    callers: HashMap<Key, (u64, u64), RandomState>,
}

impl Difference {
    pub(super) fn count(&mut self, caller: Key, ours: &RequestDecision, theirs: &RequestDecision) {
        let (newly, no_longer) = match (&ours.refused, &theirs.refused) {
            (Some(_), None) => (1, 0),
            (None, Some(_)) => (0, 1),
            _ => return,
        };
        self.newly_refused += newly;
        self.no_longer_refused += no_longer;
        let of_caller = self.callers.entry(caller).or_default();
        of_caller.0 += newly;
        of_caller.1 += no_longer;
    }

    /// The callers with the most requests that are decided differently, and both counts.
    pub(super) fn top_callers(&self) -> Vec<(String, u64, u64)> {
        let callers = self.callers.iter();
        let mut callers: Vec<_> = callers
            .map(|(key, (newly, no_longer))| (words(Some(key)), *newly, *no_longer))
            .collect();
        callers.sort_by(|a, b| (b.1 + b.2).cmp(&(a.1 + a.2)).then_with(|| a.0.cmp(&b.0)));
        callers
    }
}
