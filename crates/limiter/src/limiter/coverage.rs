//! Policies of one kind, and the search for those that cover a request.

use std::net::SocketAddr;
use std::sync::Arc;

use super::event::Transport;
use super::observer::Observers;
use super::plan::{Demand, Payer};
use super::planning::{self, Planning, Rejection, Site};
use super::terms::Terms;
use super::watch::{ProxyWatch, Watch};
use crate::matching::Matcher;
use crate::policy::Limit;
use crate::request::{FoundClient, peer_at_hand};
use crate::{Key, Policy, RequestView};

/// The policies of one kind, and the search for those that cover a request.
///
/// There are four ways. One of them is chosen when the policies are put together:
///
/// * **sole**: one policy, without routes, tiers, lists or a key that has to be waited for, under which nothing is exempt and every
///   request costs the same. `RateLimitLayer::new(quota)` makes such a policy. Only its key is looked for, and there is
///   no plan: a request takes less than half of the instructions of one under a policy with a route (`BENCHMARKS.md`).
/// * **by peer**: a sole policy with a single quota, without conditions, classes or waits, whose key is the address of the other
///   end of the socket. The address is read from the request's extensions and is the key. No header is read, so that there is
///   no such way beside an observer, which hears of the transport. It saves 290 of the 1,003 instructions that such a request
///   takes by **sole**, without which the layer would cost 1.87 of tower_governor's, and not 1.33.
/// * **by path**: where policies have routes, a router tells which of them the path concerns, so that a hundred cost as much as
///   one.
/// * **each**: otherwise all are asked, one by one.
///
/// A request that **by peer** cannot handle (its extensions hold no address at hand) goes to **sole**. A request that **sole**
/// cannot handle (such as one without an identity) goes to **each**, which can handle every request.
#[derive(Debug)]
pub(super) struct Coverage {
    pub(super) policies: Box<[Arc<Policy>]>,
    /// There, if one of the first two ways is chosen.
    sole: Option<SolePolicy>,
    /// `None` if no policy has a route.
    matcher: Option<Matcher>,
    watch: Watch,
}

/// The only policy. Only its key has to be found, so that there is no plan, and nothing is counted or moved.
#[derive(Debug)]
pub(super) struct SolePolicy {
    policy: Arc<Policy>,
    cost: u64,
    /// The only quota, if nothing is asked for but the address of the other end of the socket: most limiters are no more than that.
    by_peer: Option<Limit>,
}

impl SolePolicy {
    fn of(policies: &[Arc<Policy>], terms: &Terms) -> Option<Self> {
        let [policy] = policies else {
            return None;
        };
        if !policy.is_plain() {
            return None;
        }
        let is_by_peer = policy.key.is_client_ip()
            && terms.client.is_peer()
            && !terms.has_observer
            && !policy.has_conditions()
            && !policy.has_classes();
        let by_peer = match &policy.limits[..] {
            [limit] if is_by_peer && !limit.quota.waits() => Some(limit.clone()),
            _ => None,
        };
        Some(Self {
            policy: Arc::clone(policy),
            cost: policy.cost.fixed()?,
            by_peer,
        })
    }

    /// The only quota, and the address that pays, if that is all there is to be found.
    #[inline(always)]
    pub(super) fn peer<'a>(
        &'a self,
        request: &RequestView<'a>,
    ) -> Option<(&'a Limit, &'a SocketAddr)> {
        let limit = self.by_peer.as_ref()?;
        Some((limit, peer_at_hand(request.extensions())?))
    }

    /// The key that pays, if the policy covers the request and finds one. The last way handles all other requests.
    pub(super) fn key(&self, request: &RequestView<'_>) -> Option<Key> {
        if !self.policy.covers(request) {
            return None;
        }
        let key = self.policy.key.extract(request);
        key.ok().map(Key::compact)
    }

    /// All of the plan.
    #[inline(always)]
    pub(super) fn paid_by<'a>(&'a self, key: &'a Key) -> Payer<'a> {
        Payer {
            policy: &self.policy,
            key,
            demand: Demand {
                seat: 0,
                class: 0,
                cost: self.cost,
                probe: false,
                transport: Transport::Http,
            },
            wish: None,
        }
    }

    /// All of the plan, for a request that may have a class.
    #[inline]
    pub(super) fn asked_by<'a>(&'a self, key: &'a Key, request: &RequestView<'_>) -> Payer<'a> {
        let mut payer = self.paid_by(key);
        if self.policy.has_classes() {
            payer.demand.class = self.policy.class_of(request);
            payer.demand.seat = self.policy.seat(None, payer.demand.class);
        }
        payer
    }
}

impl Coverage {
    pub(super) fn new(
        policies: Box<[Arc<Policy>]>,
        matcher: Option<Matcher>,
        terms: &Terms,
        proxies: &ProxyWatch,
    ) -> Self {
        let has_paths = matcher.is_some() || terms.ignores_path_case;
        Self {
            watch: Watch::new(&policies, proxies),
            sole: if has_paths {
                None
            } else {
                SolePolicy::of(&policies, terms)
            },
            policies,
            matcher,
        }
    }

    /// Goes on with the watch over the first requests where the policies of before have come to.
    pub(super) fn go_on_from(&self, before: &Self, proxies: [&ProxyWatch; 2]) {
        let policies = [&*self.policies, &*before.policies];
        self.watch.go_on_from(&before.watch, policies, proxies);
    }

    /// Looks at a request if it is one of the first.
    #[inline(always)]
    pub(super) fn watch(&self, request: &RequestView<'_>, terms: &Terms, proxies: &ProxyWatch) {
        let matcher = self.matcher.as_ref();
        self.watch
            .look(&self.policies, matcher, request, terms, proxies);
    }

    /// The router of the policies' paths, if they have routes.
    pub(super) fn matcher(&self) -> Option<&Matcher> {
        self.matcher.as_ref()
    }

    /// The only policy, if one of the first two ways is chosen.
    #[inline]
    pub(super) fn sole(&self) -> Option<&SolePolicy> {
        self.sole.as_ref()
    }

    /// The policies that cover a request, the budgets that they spend, and how much of them.
    pub(super) fn plan<'p>(
        &'p self,
        request: &RequestView<'_>,
        terms: &Terms,
        observers: &Observers,
    ) -> Result<Planning<'p>, Rejection> {
        let found = FoundClient::new();
        let request = request.remembering(&found);
        if self.matcher.is_none() && !terms.ignores_path_case {
            let all = self.policies.iter();
            return planning::plan(all, &request, None, Site::Layer, observers);
        }
        let path = request.path_forms(terms.ignores_path_case);
        match &self.matcher {
            None => {
                let all = self.policies.iter();
                planning::plan(all, &request, Some(&path), Site::Layer, observers)
            }
            Some(matcher) => {
                let covering = matcher.covering(&path);
                let positions = covering.as_slice().iter();
                let covering = positions.filter_map(|position| self.policies.get(*position));
                planning::plan(covering, &request, Some(&path), Site::Layer, observers)
            }
        }
    }
}

/// The budgets that a request spends under the policies of its handler.
pub(super) fn plan_at_handler<'p>(
    policies: &'p [Arc<Policy>],
    request: &RequestView<'_>,
    terms: &Terms,
    observers: &Observers,
) -> Result<Planning<'p>, Rejection> {
    let found = FoundClient::new();
    let request = request.remembering(&found);
    let ignores_case = terms.ignores_path_case;
    let path = ignores_case.then(|| request.path_forms(ignores_case));
    let all = policies.iter();
    planning::plan(all, &request, path.as_ref(), Site::Handler, observers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Global, Header};
    use crate::limiter::Limiter;
    use crate::{Quota, Share, Tiers};

    fn ways(policy: Policy) -> (bool, bool) {
        let limiter = Limiter::from(policy);
        let snapshot = limiter.snapshot();
        let sole = snapshot.requests.sole();
        (
            sole.is_some(),
            sole.is_some_and(|sole| sole.by_peer.is_some()),
        )
    }

    #[test]
    fn a_sole_policy_is_asked_without_a_plan_with_classes_and_without() {
        let api = || Policy::new("api", Quota::per_second(10));
        let classed = |policy: Policy| {
            let class = Header::new("x-class");
            policy
                .class_by(class)
                .keep_for("critical", Share::percent(20))
        };
        assert_eq!(ways(api()), (true, true));
        assert_eq!(ways(api().key(Global)), (true, false));
        assert_eq!(ways(classed(api())), (true, false));
        assert_eq!(ways(classed(api().key(Global))), (true, false));
        let tiers = Tiers::by(|_, _| None::<String>).tier("gold", Quota::per_second(20));
        assert_eq!(ways(classed(api().tiers(tiers))), (false, false));
    }
}
