//! The tiers that share a state, and those that have one of their own.
//!
//! The state of a bucket is a time. A quota whose bucket drains in seconds mistakes a state of a day's drain for a clock that
//! was put back: it would cut the state to its own largest debt, and forgive most of the day. So quotas share a state only if
//! their full drains are within a factor of [`DEBT_CEILING`] of one another.

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use tollgate_core::{DEBT_CEILING, Unit};

use super::super::Limit;
use super::Grant;

/// Quotas that share a state, by the time that their full budgets take to refill.
struct Group<'a> {
    /// The tier that the state is named after; nothing of the state that a policy without tiers has.
    founder: Option<&'a str>,
    quickest_us: u128,
    slowest_us: u128,
}

/// One bucket of a tier.
struct Bucket<'a> {
    tier: &'a str,
    place: usize,
    drain_us: u128,
}

/// Gives quotas of tiers that drain at paces too different a state of their own.
///
/// The quotas of one name are told apart, then those of another; of quotas without names the first ones of all tiers, then the
/// second ones, and so on. The policy's own quota keeps the state that it has without tiers. The tiers follow in the order of
/// their distance to the policy's own drain, the closest first. Each joins the first state all of whose quotas are within the
/// factor of it, and otherwise founds one that is named after the tier. So the state of a tier depends on the quotas of the
/// policy and of its tiers, and not on their order.
pub(super) fn tell_apart(policy: &str, own: &[Limit], grants: &mut [(String, Grant)]) {
    let mut families = Vec::new();
    let limits = grants.iter().flat_map(|(_, grant)| grant.limits());
    let mut names: Vec<_> = limits.map(name).collect();
    names.sort_unstable();
    names.dedup();
    for called in names {
        let is_called = |limit: &&Limit| name(limit) == called;
        let own_us = own.iter().find(is_called).and_then(drain_us);
        let tiers = grants.iter().enumerate();
        let mut buckets: Vec<_> = tiers
            .filter_map(|(place, (tier, grant))| {
                let drain_us = grant.limits().iter().find(is_called).and_then(drain_us)?;
                Some(Bucket {
                    tier,
                    place,
                    drain_us,
                })
            })
            .collect();
        buckets.sort_by(|one, other| in_order(one, other, own_us));
        let mut groups: Vec<_> = own_us
            .map(|own_us| Group::of(None, own_us))
            .into_iter()
            .collect();
        for bucket in buckets {
            let group = groups
                .iter_mut()
                .find(|group| group.has_room_for(bucket.drain_us));
            let founder = match group {
                Some(group) => group.add(bucket.drain_us),
                None => {
                    let founder = (!groups.is_empty()).then_some(bucket.tier);
                    groups.push(Group::of(founder, bucket.drain_us));
                    founder
                }
            };
            if let Some(founder) = founder {
                families.push((bucket.place, called, format!("{policy}#{founder}")));
            }
        }
    }
    for (place, called, family) in families {
        if let Some((_, Grant::Limits(limits))) = grants.get_mut(place) {
            let mut limits = Arc::make_mut(limits).iter_mut();
            if let Some(limit) = limits.find(|limit| name(limit) == called) {
                *limit = limit.in_family(&family);
            }
        }
    }
}

/// The name by which a quota is found in a policy and its tiers: that of its states, or the position of one without a name.
fn name(limit: &Limit) -> (&'static str, u16) {
    (limit.scope.policy(), limit.scope.slot())
}

impl<'a> Group<'a> {
    fn of(founder: Option<&'a str>, drain_us: u128) -> Self {
        Self {
            founder,
            quickest_us: drain_us,
            slowest_us: drain_us,
        }
    }

    fn has_room_for(&self, drain_us: u128) -> bool {
        let (quickest, slowest) = (
            self.quickest_us.min(drain_us),
            self.slowest_us.max(drain_us),
        );
        slowest <= quickest.saturating_mul(DEBT_CEILING.into())
    }

    /// The name of the group that the bucket is in from here on.
    fn add(&mut self, drain_us: u128) -> Option<&'a str> {
        self.quickest_us = self.quickest_us.min(drain_us);
        self.slowest_us = self.slowest_us.max(drain_us);
        self.founder
    }
}

/// Tiers closest to the policy's own quota come first, and of two that are equally close the slower one. Without a quota of
/// the policy's own the slower tiers come first.
fn in_order(one: &Bucket<'_>, other: &Bucket<'_>, own_us: Option<u128>) -> Ordering {
    let by_distance = own_us.map_or(Ordering::Equal, |own_us| {
        // Quotients, compared without dividing. Each is some ten years in microseconds at most.
        let far = |drain_us: u128| (drain_us.max(own_us), drain_us.min(own_us));
        let ((one_max, one_min), (other_max, other_min)) = (far(one.drain_us), far(other.drain_us));
        (one_max * other_min).cmp(&(other_max * one_min))
    });
    by_distance
        .then_with(|| Reverse(one.drain_us).cmp(&Reverse(other.drain_us)))
        .then_with(|| one.tier.cmp(other.tier))
}

/// The time in which a full budget refills; `None` for algorithms whose states are counts.
fn drain_us(limit: &Limit) -> Option<u128> {
    let quota = &limit.quota;
    let takes = || {
        let full = u128::from(quota.capacity()) * quota.period().as_micros();
        full / u128::from(quota.limit())
    };
    match quota.unit() {
        Unit::Gcra | Unit::IntervalRefill { .. } => Some(takes()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::{Algorithm, Policy, Quota, Tiers};

    /// The states of the policy's own quota and of its tiers, whose full budgets take as many seconds to refill.
    fn states<'a>(own: u64, tiers: impl IntoIterator<Item = (&'a str, u64)>) -> Vec<String> {
        let drains_in = |seconds| Quota::per_second(1).burst(seconds);
        let mut all = Tiers::by(|_, _| None::<String>);
        for (name, seconds) in tiers {
            all = all.tier(name, drains_in(seconds));
        }
        let policy = Policy::new("api", drains_in(own)).tiers(all);
        let tiers = policy.tiers.as_ref().unwrap();
        let limits = policy
            .limits
            .iter()
            .chain(tiers.limits().map(|(_, limit)| limit));
        limits
            .map(|limit| {
                assert_eq!(limit.scope, limit.label.scope());
                limit.scope.policy().to_owned()
            })
            .collect()
    }

    #[test]
    fn tiers_within_a_factor_of_eight_share_a_state() {
        assert_eq!(states(8, [("slow", 64), ("quick", 8)]), ["api"; 3]);
        assert_eq!(states(8, [("slow", 65)]), ["api", "api#slow"]);
        assert_eq!(states(8, [("quick", 1)]), ["api", "api"]);
        assert_eq!(states(9, [("quick", 1)]), ["api", "api#quick"]);
        let far = [("gold", 1), ("silver", 8)];
        assert_eq!(states(100, far), ["api", "api#silver", "api#silver"]);
    }

    #[test]
    fn of_a_chain_each_tier_joins_the_first_state_whose_tiers_are_all_close_enough() {
        // The closer one shares the policy's own state; both would be sixteen times apart.
        let chain = [("slow", 64), ("quick", 4)];
        assert_eq!(states(8, chain), ["api", "api#slow", "api"]);
        // In whatever order they are stated.
        let chain = [("quick", 4), ("slow", 64)];
        assert_eq!(states(8, chain), ["api", "api", "api#slow"]);
        // The slower of two that are equally close comes first.
        let chain = [("quick", 1), ("slow", 64)];
        assert_eq!(states(8, chain), ["api", "api#quick", "api"]);
    }

    #[test]
    fn tiers_that_are_refilled_in_intervals_are_told_apart_as_buckets_are() {
        let refills = |burst| {
            let offset = std::time::Duration::ZERO;
            let quota = Quota::per_second(1).using(Algorithm::IntervalRefill { offset });
            quota.burst(burst)
        };
        let tiers = Tiers::by(|_, _| None::<String>)
            .tier("near", refills(64))
            .tier("slow", refills(65));
        let policy = Policy::new("api", refills(8)).tiers(tiers);
        let tiers = policy.tiers.as_ref().unwrap();
        let limits = tiers.limits();
        let scopes: Vec<_> = limits
            .map(|(tier, limit)| (tier, limit.scope.policy()))
            .collect();
        assert_eq!(scopes, [("near", "api"), ("slow", "api#slow")]);
    }

    #[test]
    fn each_quota_of_a_policy_is_told_apart_by_itself() {
        let second = Quota::per_second(10);
        let tiers = Tiers::by(|_, _| None::<String>).tier("gold", [second, second]);
        let policy = Policy::new("api", [second, Quota::per_day(10)]).tiers(tiers);
        let tiers = policy.tiers.as_ref().unwrap();
        let scopes: Vec<_> = tiers.limits().map(|(_, limit)| limit.scope).collect();
        assert_eq!(scopes[0], policy.limits[0].scope);
        assert_eq!((scopes[1].policy(), scopes[1].slot()), ("api#gold", 1));
    }

    #[test]
    fn named_quotas_of_tiers_share_the_states_of_their_names() {
        let (second, day) = (Quota::per_second(10), Quota::per_day(10));
        let tiers = Tiers::by(|_, _| None::<String>)
            .tier("gold", [("day", day), ("second", second)])
            .tier("slow", [("day", day), ("second", day)]);
        let policy = Policy::new("api", [("second", second), ("day", day)]).tiers(tiers);
        let tiers = policy.tiers.as_ref().unwrap();
        let limits = tiers.limits();
        let scopes: Vec<_> = limits.map(|(_, limit)| limit.scope.policy()).collect();
        let expected = ["api:day", "api:second", "api:day", "api#slow:second"];
        assert_eq!(scopes, expected);
    }
}
