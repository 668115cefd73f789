//! Policies and callers, from a seed.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use tollgate::RequestView;
use tollgate_core::{Algorithm, Calendar, Charge, Key, Quota, Scope, Zone};

use crate::attempt::{AskedCharge, Budget, Door, Manner, Verb};

/// The number of callers that all clients share. Those from this number on belong to one worker of one client each.
pub const SHARED_CALLERS: u32 = 3;

/// The number of parts of a budget. Each process may spend one part by itself while the backend fails.
pub const ONE_IN: u64 = 4;

/// The number of policies under which requests wait for their turn.
const WAITING: usize = 5;

/// The number of these whose quotas are replaced now and then, with others of the same rate.
const REPLACED: usize = 2;

/// The number of policies that are refilled in intervals.
const REFILLED: usize = 2;

/// The number of policies that warm up.
const WARMING: usize = 2;

/// The zones of the policy whose windows are days.
const ZONES: [&str; 6] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kathmandu",
    "Pacific/Apia",
    "Australia/Lord_Howe",
];

/// The number of versions of a quota that is replaced by another wait, and of one that is replaced by another burst too.
const OTHER_WAIT: usize = 2;
const OTHER_BURST: usize = 3;

/// The number of versions of the quota that is replaced by others of another rate, of another rate and burst, and of another
/// algorithm.
const OTHER_RATE: usize = 4;

/// The start of the header that names the caller under a policy. The policy's number follows, here and below.
pub(crate) const CALLER: &str = "x-fire-caller-";

/// The start of the header with the cost of a request.
pub(crate) const COST: &str = "x-fire-cost-";

/// The header with the longest wait, in milliseconds, that a caller states.
pub(crate) const WAITS_AT_MOST: &str = "x-fire-waits-at-most";

/// The caller of shared budgets, which are charged beside one's own, as those of a whole service.
const EVERYBODY: u32 = 0;

/// Policies and callers, the same in every process that knows the seed.
#[derive(Clone, Debug)]
pub struct Population {
    quotas: Vec<Quota>,
    scopes: Vec<Scope>,
    /// The later versions of some quotas.
    replacements: BTreeMap<usize, Vec<Quota>>,
    /// See [`others`](Self::others).
    others: BTreeMap<usize, usize>,
    /// A mark in the names of one run, which sets them apart from another run's on one server.
    run: u64,
}

impl Population {
    /// The policies of this seed: two of each algorithm, one of days, two that warm up, some under which requests wait for their
    /// turn, one whose rate, burst and algorithm are replaced, and one that hardly refills during a run, so that a wrong count
    /// stays visible.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut quotas: Vec<Quota> = (0..10).map(|kind| quota(&mut rng, kind % 5)).collect();
        quotas.extend((0..WAITING).map(|_| waiting_quota(&mut rng)));
        let first = quotas.len() - REPLACED;
        // These draw from generators of their own, so that the other policies of a seed stay.
        let mut refills = Rng::with_seed(seed.rotate_left(32));
        quotas.extend((0..REFILLED).map(|_| refilled_quota(&mut refills)));
        let mut days = Rng::with_seed(seed.rotate_left(16));
        quotas.push(quota_of_days(&mut days));
        let mut others = Rng::with_seed(seed.rotate_left(48));
        quotas.extend((0..WARMING).map(|_| warming_quota(&mut others)));
        let rated = quotas.len();
        let [of_first_rate, later @ .., of_other_algorithm] = replaced_quotas(&mut others);
        quotas.extend([of_first_rate, of_other_algorithm]);
        quotas.push(Quota::per_day(50_000));
        let mut population = Self::with(seed, quotas);
        let versions = later.into_iter().chain([of_other_algorithm]);
        population.replacements.insert(rated, versions.collect());
        population.others.insert(rated, rated + 1);
        population.scopes[rated + 1] = Scope::of(&Self::name(rated), 0, &of_other_algorithm);
        // Likewise.
        let mut rng = Rng::with_seed(!seed);
        for policy in first..first + REPLACED {
            population.replace(&mut rng, policy);
        }
        population
    }

    /// Adds other versions of this policy's quota.
    fn replace(&mut self, rng: &mut Rng, policy: usize) {
        let quota = self.quotas[policy];
        let mut other = |burst: u64| {
            let wait = Duration::from_millis(rng.u64(500..=2_500));
            Quota::new(quota.limit(), quota.period())
                .burst(burst)
                .wait_up_to(wait)
        };
        let other_wait = other(quota.capacity());
        let other_burst = other(quota.capacity() % 6 + 1);
        let versions = vec![other_wait, other_burst];
        self.replacements.insert(policy, versions);
    }

    /// These policies.
    #[must_use]
    pub fn with(run: u64, quotas: Vec<Quota>) -> Self {
        let scopes = quotas
            .iter()
            .enumerate()
            .map(|(number, quota)| Scope::of(&Self::name(number), 0, quota))
            .collect();
        Self {
            quotas,
            scopes,
            replacements: BTreeMap::new(),
            others: BTreeMap::new(),
            run,
        }
    }

    /// The quota of each policy.
    #[must_use]
    pub fn quotas(&self) -> &[Quota] {
        &self.quotas
    }

    /// The quotas that replace a policy's now and then.
    #[must_use]
    pub fn replacements(&self) -> &BTreeMap<usize, Vec<Quota>> {
        &self.replacements
    }

    /// The number of the budgets of each policy while it has a quota of another algorithm: these have states of their own. No
    /// caller asks by that number.
    #[must_use]
    pub fn others(&self) -> &BTreeMap<usize, usize> {
        &self.others
    }

    /// The policies that callers ask for.
    pub(crate) fn asked(&self) -> Vec<usize> {
        let is_other = |policy: &usize| self.others.values().any(|other| other == policy);
        let all = 0..self.quotas.len();
        all.filter(|policy| !is_other(policy)).collect()
    }

    /// The policies that callers ask for by this door: Envoy's requests do not wait for their turn.
    pub(crate) fn asked_by(&self, door: Door) -> Vec<usize> {
        let mut asked = self.asked();
        asked.retain(|policy| door != Door::Envoy || self.quotas[*policy].longest_wait().is_zero());
        asked
    }

    /// Says whether a policy's quota is replaced by others of another rate and algorithm. No process has a share of it.
    pub(crate) fn is_rated(&self, policy: usize) -> bool {
        self.others.contains_key(&policy)
    }

    /// Says whether a policy's quota is replaced now and then.
    pub(crate) fn is_replaced(&self, policy: usize) -> bool {
        self.replacements.contains_key(&policy)
    }

    /// A version of all quotas for a process that asks by itself, or through a limiter: its shares are those of one burst.
    #[must_use]
    pub fn any_version(rng: &mut Rng, has_limiter: bool) -> usize {
        rng.usize(0..if has_limiter { OTHER_WAIT } else { OTHER_BURST })
    }

    /// A version of all quotas, among which are those of another rate and algorithm.
    pub(crate) fn any_version_and_rate(rng: &mut Rng, has_limiter: bool) -> usize {
        Self::any_version(rng, has_limiter) + OTHER_BURST * rng.usize(0..OTHER_RATE)
    }

    /// The quota of a policy in a version: the policy's own unless that is replaced.
    #[must_use]
    pub fn quota(&self, policy: usize, version: usize) -> Quota {
        let version = part_of_version(self.is_rated(policy), version);
        let replaced = self.replacements.get(&policy);
        let replaced = replaced.and_then(|later| later.get(version.checked_sub(1)?));
        replaced.copied().unwrap_or(self.quotas[policy])
    }

    /// The longest time for which these charges may wait for their turn.
    #[must_use]
    pub fn longest_wait(&self, asked: &[AskedCharge]) -> Duration {
        let quotas = asked.iter().map(|asked| &self.quotas[asked.budget.policy]);
        quotas.map(Quota::longest_wait).max().unwrap_or_default()
    }

    /// The first midnight after a time, in the zone of the policy of days.
    pub(crate) fn midnight_after(&self, us: u64) -> Option<u64> {
        let mut calendars = self.quotas.iter().filter_map(calendar_of);
        let [_, _, _, next_us, ..] = calendars.next()?.bounds_around(us);
        Some(next_us)
    }

    /// The name of a policy.
    #[must_use]
    pub fn name(policy: usize) -> String {
        format!("fire-{policy}")
    }

    /// The identity of a caller.
    #[must_use]
    pub fn key(&self, caller: u32) -> Key {
        Key::from(self.identity(caller).as_str())
    }

    pub(crate) fn identity(&self, caller: u32) -> String {
        format!("run-{}-caller-{caller}", self.run)
    }

    /// A question of a caller that is alone, so that it is soon denied and can check that a retry passes as promised.
    #[must_use]
    pub fn ask_much(&self, rng: &mut Rng, caller: u32) -> Vec<AskedCharge> {
        let policy = rng.choice(self.asked()).unwrap_or_default();
        let capacity = self.quotas[policy].capacity();
        vec![AskedCharge {
            budget: Budget { policy, caller },
            cost: rng.u64(capacity.div_ceil(2)..=capacity),
            manner: Manner::Enforce,
        }]
    }

    /// The next question of this caller: one to three policies, one of which may be shared and one be named twice, mostly
    /// enforced, and costs that are mostly 1.
    #[must_use]
    pub fn ask(&self, rng: &mut Rng, caller: u32) -> Vec<AskedCharge> {
        let mut policies = self.asked();
        rng.shuffle(&mut policies);
        policies.truncate(rng.choice([1, 1, 1, 2, 3]).unwrap_or(1));
        let is_shared = policies.len() > 1 && rng.bool();
        let last = policies.len() - 1;
        let charge = |(position, policy): (usize, usize)| {
            let capacity = self.quotas[policy].capacity();
            let cost = match rng.u8(0..20) {
                0 => 0,
                1 => capacity + 1,
                2..=4 => rng.u64(1..=capacity.min(8)),
                _ => 1,
            };
            let caller = if is_shared && position == last {
                EVERYBODY
            } else {
                caller
            };
            let manner = match rng.u8(0..16) {
                0 | 1 => Manner::Shadow,
                2 => Manner::Probe,
                _ => Manner::Enforce,
            };
            AskedCharge {
                budget: Budget { policy, caller },
                cost,
                manner,
            }
        };
        let mut asked: Vec<_> = policies.into_iter().enumerate().map(charge).collect();
        // Like a request with a cost of its own and a further cost for its content.
        if rng.u8(0..8) == 0
            && let Some(&first) = asked.first()
            // Two charges in one line stand one behind the other: core's own tests have them.
            && self.longest_wait(&[first]).is_zero()
        {
            let cost = rng.u64(0..=3);
            asked.push(AskedCharge { cost, ..first });
        }
        asked
    }

    /// A question for as much as there is of some of these budgets: one caller's, each named once, in one manner. The most is often
    /// more than there is, and now and then more than a full budget.
    #[must_use]
    pub fn grant(&self, rng: &mut Rng, mut asked: Vec<AskedCharge>) -> Verb {
        let Some(&AskedCharge { budget, manner, .. }) = asked.first() else {
            return Verb::Decide(asked);
        };
        asked.retain(|charge| charge.budget.caller == budget.caller);
        asked.sort_by_key(|charge| charge.budget);
        asked.dedup_by_key(|charge| charge.budget);
        let capacities = asked
            .iter()
            .map(|it| self.quotas[it.budget.policy].capacity());
        let largest = capacities.max().unwrap_or(1);
        let cost = match rng.u8(0..4) {
            0 => rng.u64(1..=largest + 2),
            _ => rng.u64(1..=largest.min(12)),
        };
        for charge in &mut asked {
            *charge = AskedCharge {
                cost,
                manner,
                ..*charge
            };
        }
        let at_least = match rng.u8(0..3) {
            0 => rng.u64(1..=cost),
            _ => 1,
        };
        Verb::Grant(asked, at_least)
    }

    /// A policy whose budgets may be reset: any but the one in which wrong counts must stay visible.
    #[must_use]
    pub fn resettable(&self, rng: &mut Rng) -> usize {
        rng.usize(0..self.quotas.len().saturating_sub(1).max(1))
    }

    /// The backend's name of a policy's budgets.
    #[must_use]
    pub fn scope(&self, policy: usize) -> Scope {
        self.scopes[policy]
    }

    /// The budget whose state a quota counts in: a bucket and a window of one policy have two.
    #[must_use]
    pub fn budget_by(&self, budget: Budget, quota: &Quota) -> Budget {
        let other = self.others.get(&budget.policy);
        let other = other.filter(|_| quota.algorithm() != Algorithm::Gcra);
        Budget {
            policy: other.copied().unwrap_or(budget.policy),
            ..budget
        }
    }

    /// The callers of these charges.
    #[must_use]
    pub fn keys(&self, asked: &[AskedCharge]) -> Vec<Key> {
        asked
            .iter()
            .map(|asked| self.key(asked.budget.caller))
            .collect()
    }

    /// These charges in the backend's words, with the [keys](Self::keys) of the callers.
    #[must_use]
    pub fn charges<'a>(&'a self, asked: &[AskedCharge], keys: &'a [Key]) -> Vec<Charge<'a>> {
        let charge = |(asked, key): (&AskedCharge, &'a Key)| Charge {
            scope: self.scopes[asked.budget.policy],
            quota: &self.quotas[asked.budget.policy],
            key,
            cost: asked.cost,
            mode: asked.manner.mode(),
        };
        asked.iter().zip(keys).map(charge).collect()
    }
}

/// The calendar of a quota, if it has one.
pub(crate) fn calendar_of(quota: &Quota) -> Option<Calendar> {
    match quota.algorithm() {
        Algorithm::Calendar(calendar) => Some(calendar),
        _ => None,
    }
}

/// The part of a version that concerns a policy whose rate is replaced, or another one.
pub(crate) fn part_of_version(is_rated: bool, version: usize) -> usize {
    if is_rated {
        version / OTHER_BURST
    } else {
        version % OTHER_BURST
    }
}

pub(crate) fn number_in(request: &RequestView<'_>, header: &str) -> Option<u64> {
    let value = request.headers().get(header)?;
    value.to_str().ok()?.parse().ok()
}

/// A quota that a few clients exhaust, and that is full again before a run is over.
fn quota(rng: &mut Rng, kind: usize) -> Quota {
    let limit = rng.u64(2..=60);
    let period_ms = rng.choice([100, 300, 1_000, 2_000]).unwrap_or(1_000);
    let quota = Quota::new(limit, Duration::from_millis(period_ms));
    let offset = Duration::from_millis(rng.u64(0..period_ms));
    match kind {
        0 => quota.burst(rng.u64(1..=80)),
        1 => quota.using(Algorithm::FixedWindow { offset }),
        2 => quota.using(Algorithm::SlidingWindow),
        3 => quota.using(Algorithm::RollingWindow {
            buckets: rng.choice([2, 5, 10, 50]).unwrap_or(10),
        }),
        _ => quota.using(Algorithm::SlidingLog),
    }
}

/// A bucket that is refilled in intervals. Three refills are owed at most, so that a wrong one is soon felt.
fn refilled_quota(rng: &mut Rng) -> Quota {
    let limit = rng.u64(2..=60);
    let period_ms = rng.choice([100, 300, 1_000, 2_000]).unwrap_or(1_000);
    let offset = Duration::from_millis(rng.u64(0..period_ms));
    let quota = Quota::new(limit, Duration::from_millis(period_ms));
    let quota = quota.using(Algorithm::IntervalRefill { offset });
    quota.burst(rng.u64(1..=3 * limit))
}

/// So few in a day that callers use them up, until a midnight or a reset.
fn quota_of_days(rng: &mut Rng) -> Quota {
    let zone = rng.choice(ZONES).unwrap_or_default();
    Quota::per_calendar(rng.u64(40..=120), Calendar::day(Zone::named(zone)))
}

/// A bucket that a few clients keep warm, and that grows cold in a pause.
fn warming_quota(rng: &mut Rng) -> Quota {
    let limit = rng.u64(10..=40);
    let warm_up = Duration::from_millis(rng.u64(400..=3_000));
    let quota = Quota::per_second(limit).burst(rng.u64(1..=20));
    let factor = rng.choice([2, 3, 5]).unwrap_or(3);
    quota.warm_up(warm_up).cold_factor(factor)
}

/// A bucket, and its replacements: one of another rate, one of another rate and burst, and a window or a log.
fn replaced_quotas(rng: &mut Rng) -> [Quota; OTHER_RATE] {
    let mut bucket = || {
        let (limit, burst) = (rng.u64(5..=40), rng.u64(1..=40));
        (limit, burst)
    };
    let [(limit, burst), (other_limit, _), (third_limit, other_burst)] =
        [bucket(), bucket(), bucket()];
    let [first, other_rate, third] = [
        Quota::per_second(limit).burst(burst),
        Quota::per_second(other_limit).burst(burst),
        Quota::per_second(third_limit).burst(other_burst),
    ];
    let kind = rng.usize(1..5);
    [first, other_rate, third, quota(rng, kind)]
}

/// A bucket whose requests wait for their turn, with a rate that a few clients exceed.
fn waiting_quota(rng: &mut Rng) -> Quota {
    let limit = rng.u64(2..=8);
    let period_ms = rng.choice([1_000, 2_000]).unwrap_or(1_000);
    let wait_ms = rng.u64(500..=2_500);
    let quota = Quota::new(limit, Duration::from_millis(period_ms)).burst(rng.u64(1..=6));
    quota.wait_up_to(Duration::from_millis(wait_ms))
}
