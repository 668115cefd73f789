//! One policy with one quota, which is all that most requests meet: decided without a plan.
//!
//! The same steps as with a [`Plan`], one after the other, on a key that stays where its extractor put it. A plan is
//! made only when there is something to be remembered, which is when the request does not pass at once.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::slice;
use std::sync::Arc;

use http::{Extensions, Request};
use tollgate_core::{Charge, Decide, Mode, Timestamp, Verdict};

use super::planning::{Planned, Turned};
use super::{Limiter, Plan};
use crate::client::ClientAddress;
use crate::layer::Config;
use crate::ledger::Ledger;
use crate::matching::{Covering, Matcher, PathForms};
use crate::policy::Limit;
use crate::request::{FoundClient, Routing, peer_at_hand};
use crate::{Key, Policy, PolicyVerdict, RateLimitStatus, RequestView};

/// A policy with but one quota, and what is known of it before any request comes.
pub(super) struct SolePolicy {
    policy: Arc<Policy>,
    limit: Limit,
    cost: u64,
    mode: Mode,
    /// Whether nothing but the peer's address is asked for, once the path is known to be covered.
    is_by_peer: bool,
    /// Whether there are requests that cost nothing under it, whatever path they are for.
    exempts_some: bool,
}

impl SolePolicy {
    /// If nothing about it has to be found out.
    pub(super) fn of(policy: &Arc<Policy>, client: &ClientAddress) -> Option<Self> {
        let [limit] = &policy.limits[..] else {
            return None;
        };
        let cost = policy.cost.fixed()?;
        let is_plain = policy.tiers.is_none() && policy.outcome.is_none() && !policy.has_lists();
        is_plain.then(|| Self {
            policy: Arc::clone(policy),
            limit: limit.clone(),
            cost,
            mode: policy.mode(),
            is_by_peer: policy.key.is_client_ip()
                && client.is_peer()
                && !policy.has_conditions_beside_paths(),
            exempts_some: policy.exemptions.any(),
        })
    }

    /// The peer, if nothing else says whose budget a request spends.
    #[inline(always)]
    fn paying_peer<'a>(
        &self,
        extensions: &'a Extensions,
        view: impl FnOnce() -> RequestView<'a>,
    ) -> Option<&'a SocketAddr> {
        if !self.is_by_peer || (self.exempts_some && self.policy.exemptions.free(&view())) {
            return None;
        }
        peer_at_hand(extensions)
    }
}

/// What a request meets in a limiter.
pub(crate) enum Met<'a> {
    /// One quota, and who pays.
    Sole(Sole<'a>, Key),
    Nothing,
    /// Several, or one about which something has to be found out.
    Planned(Result<Planned, Turned>),
}

/// One quota of a limiter, asked about one request.
#[derive(Clone, Copy)]
pub(crate) struct Sole<'a> {
    limiter: &'a Limiter,
    sole: &'a SolePolicy,
}

impl Limiter {
    /// The same of the usual request, which meets one quota for each peer.
    // Every request asks, and once: a call costs as much again.
    #[inline(always)]
    pub(crate) fn meet_by_peer<'a, B>(
        &'a self,
        request: &'a Request<B>,
    ) -> Option<(Sole<'a>, &'a SocketAddr)> {
        let limiter = self;
        self.watch(|| self.view(request));
        let sole = self.0.sole.as_ref()?;
        let peer = sole.paying_peer(request.extensions(), || self.view(request))?;
        Some((Sole { limiter, sole }, peer))
    }

    /// Whose budget an address spends.
    #[inline(never)]
    pub(crate) fn key_of_ipv6(&self, address: Ipv6Addr) -> Key {
        self.0.client.key(IpAddr::V6(address))
    }

    /// Which policies cover the request, and whose budgets it spends.
    #[inline(never)]
    pub(crate) fn meet(&self, request: &RequestView<'_>) -> Met<'_> {
        let inner = &*self.0;
        if let Some(sole) = &inner.sole {
            let met = self.meet_sole(sole, request);
            return met.unwrap_or_else(|| Met::Planned(self.plan(request)));
        }
        match &inner.matcher {
            Some(matcher) if !inner.soles.is_empty() => self.meet_matched(matcher, request),
            _ => Met::Planned(self.plan(request)),
        }
    }

    #[inline]
    fn meet_matched(&self, matcher: &Matcher, request: &RequestView<'_>) -> Met<'_> {
        let inner = &*self.0;
        let path = PathForms::of(request.original_uri().path(), inner.ignores_path_case);
        let covering = matcher.covering(&path);
        let sole = match covering.as_slice() {
            [] => return Met::Nothing,
            [only] => inner.soles.get(*only).and_then(Option::as_ref),
            _ => None,
        };
        if let Some(sole) = sole
            && let Some(peer) = sole.paying_peer(request.extensions(), || *request)
        {
            let limiter = self;
            let key = match peer {
                SocketAddr::V4(peer) => Key::from(*peer.ip()),
                SocketAddr::V6(peer) => self.key_of_ipv6(*peer.ip()),
            };
            return Met::Sole(Sole { limiter, sole }, key);
        }
        self.meet_covering(sole, &covering, &path, request)
    }

    #[inline(never)]
    fn meet_covering<'a>(
        &'a self,
        sole: Option<&'a SolePolicy>,
        covering: &Covering<'_>,
        path: &PathForms<'_>,
        request: &RequestView<'_>,
    ) -> Met<'a> {
        let found = FoundClient::new();
        let request = request.remembering(&found);
        let met = sole.and_then(|sole| {
            let routes = sole.policy.patterns().routes;
            self.meet_sole(
                sole,
                &request.routed(&Routing {
                    path,
                    routes,
                    is_exact: false,
                }),
            )
        });
        met.unwrap_or_else(|| Met::Planned(self.plan_covering(covering, path, &request)))
    }

    /// Nothing, if it cannot be said so simply.
    fn meet_sole<'a>(&'a self, sole: &'a SolePolicy, request: &RequestView<'_>) -> Option<Met<'a>> {
        let limiter = self;
        let policy = &sole.policy;
        if policy.exemptions.free(request) || !policy.covers(request) {
            return Some(Met::Nothing);
        }
        // Nobody asks for more of it: there are no tiers.
        let key = policy.key.extract(request).ok()?.compact();
        Some(Met::Sole(Sole { limiter, sole }, key))
    }
}

impl Sole<'_> {
    #[inline]
    pub(crate) fn decide(self, key: &Key) -> Decide {
        let charge = Charge {
            scope: self.sole.limit.scope,
            quota: &self.sole.limit.quota,
            key,
            cost: self.sole.cost,
            mode: self.sole.mode,
        };
        self.limiter.0.backend.decide(slice::from_ref(&charge))
    }

    /// The verdict under its name.
    pub(crate) fn named(self, verdict: &Verdict) -> PolicyVerdict {
        PolicyVerdict::new(self.sole.limit.labels, self.sole.mode, *verdict)
    }

    /// A handle that says what was decided, and who paid.
    // Every request that is told of asks, and once.
    #[inline(always)]
    pub(crate) fn status(
        self,
        config: &Arc<Config>,
        verdict: &Verdict,
        key: &Key,
        at: Timestamp,
    ) -> RateLimitStatus {
        let mut status = RateLimitStatus::spare();
        // Written where it stays, not made elsewhere and moved.
        if let Some(ledger) = status.begin(config) {
            let SolePolicy { limit, mode, .. } = self.sole;
            ledger.set(limit.labels, *mode, verdict, key, at);
            return status;
        }
        RateLimitStatus::first(config, Ledger::of_one(self.named(verdict), key.clone(), at))
    }

    /// What was asked, to be remembered.
    pub(crate) fn plan(self, key: Key) -> Plan {
        Plan::of_one(&self.sole.policy, None, key, self.sole.cost, false)
    }
}
