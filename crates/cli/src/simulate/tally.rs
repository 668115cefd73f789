//! Counts of a replay: requests, refusals, callers and routes.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use foldhash::fast::RandomState;
use tollgate::{Key, KeyKind};

use super::timeline::Timeline;
use crate::log::Entry;
use crate::replay::{Decided, Replay};

/// The most routes that are counted by their name. The rest counts together.
const MOST_ROUTES: usize = 10_000;

/// Lines that are shown.
const SAMPLES: usize = 5;

/// Programs of one caller that are told apart.
const MOST_AGENTS: usize = 16;

/// Counts of a replay.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) requests: u64,
    pub(super) refused: u64,
    pub(super) unroutable: u64,
    pub(super) first_us: u64,
    pub(super) last_us: u64,
    callers: HashSet<u128, RandomState>,
    pub(super) timeline: Timeline,
    pub(super) policies: Vec<OfPolicy>,
    pub(super) refused_callers: HashMap<(usize, Option<Key>), OfCaller, RandomState>,
    pub(super) routes: HashMap<(usize, String), u64, RandomState>,
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
}

/// Counts of a caller that is refused.
#[derive(Debug, Default)]
pub(super) struct OfCaller {
    pub(super) refused: u64,
    pub(super) first_us: u64,
    pub(super) last_us: u64,
    /// Hashes of the programs by which it calls: many of them are many people.
    agents: Vec<u64>,
}

impl OfCaller {
    /// The number of programs, and true if there are more.
    pub(super) fn programs(&self) -> (usize, bool) {
        (self.agents.len(), self.agents.len() >= MOST_AGENTS)
    }

    fn count(&mut self, entry: &Entry<'_>) {
        if self.refused == 0 {
            self.first_us = entry.time_us;
        }
        self.refused += 1;
        self.last_us = entry.time_us;
        if let Some(agent) = &entry.user_agent
            && self.agents.len() < MOST_AGENTS
        {
            let agent = hash(agent);
            if !self.agents.contains(&agent) {
                self.agents.push(agent);
            }
        }
    }
}

/// A hash that is equal in every run.
fn hash(bytes: &[u8]) -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = foldhash::fast::FixedState::default().build_hasher();
    hasher.write(bytes);
    hasher.finish()
}

impl Tally {
    #[inline]
    pub(super) fn count(
        &mut self,
        replay: &Replay,
        entry: &Entry<'_>,
        line: &[u8],
        number: u64,
        decided: &Decided,
    ) {
        if self.requests == 0 {
            self.first_us = entry.time_us;
            self.policies
                .resize(replay.names().len(), OfPolicy::default());
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
            self.policies[0].covered += 1;
        } else {
            self.count_policies(decided);
        }
        if let Some((policy, key)) = &decided.refused {
            self.count_refusal(*policy, key, entry, line, number);
        }
    }

    fn count_policies(&mut self, decided: &Decided) {
        self.unroutable += u64::from(decided.is_unroutable);
        for policy in &decided.covered {
            self.policies[*policy].covered += 1;
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
        self.refused_callers
            .entry((policy, key.clone()))
            .or_default()
            .count(entry);
        let route = String::from_utf8_lossy(entry.path());
        let mut route: String = route.chars().take(80).collect();
        if self.routes.len() >= MOST_ROUTES && !self.routes.contains_key(&(policy, route.clone())) {
            "(others)".clone_into(&mut route);
        }
        *self.routes.entry((policy, route)).or_default() += 1;
        if self.samples.len() < SAMPLES {
            let line = String::from_utf8_lossy(line).chars().take(200).collect();
            self.samples.push((number, line));
        }
    }

    /// The number of distinct addresses; of IPv6, of networks of 64 bits.
    pub(super) fn callers(&self) -> usize {
        self.callers.len()
    }

    /// The refused callers, those with the most refusals first.
    pub(super) fn top_callers(&self) -> Vec<(usize, String, &OfCaller)> {
        let callers = self.refused_callers.iter();
        let mut callers: Vec<_> = callers
            .map(|((policy, key), of)| (*policy, words(key.as_ref()), of))
            .collect();
        callers.sort_by(|a, b| b.2.refused.cmp(&a.2.refused).then_with(|| a.1.cmp(&b.1)));
        callers
    }

    /// The routes of refused requests, those with the most refusals first.
    pub(super) fn top_routes(&self) -> Vec<(usize, &str, u64)> {
        let routes = self.routes.iter();
        let mut routes: Vec<_> = routes
            .map(|((policy, route), refused)| (*policy, route.as_str(), *refused))
            .collect();
        routes.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| a.1.cmp(b.1)));
        routes
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
    pub(super) fn count(&mut self, caller: Key, ours: &Decided, theirs: &Decided) {
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
