//! One policy with one quota, which is all that most limiters have: decided without a plan.
//!
//! The same steps as with a [`Plan`], one after the other, on a key that stays where its extractor put it. A plan is
//! made only when there is something to be remembered, which is when the request does not pass at once.

use std::net::IpAddr;
use std::slice;
use std::sync::Arc;

use http::{Method, Request};
use tollgate_core::{Charge, Decide, Decision, Mode, Verdict};

use super::{Limiter, Plan};
use crate::policy::Limit;
use crate::request::peer;
use crate::{Key, Policy, PolicyVerdict};

/// The only quota of the only policy, and what is known of it before any request comes.
pub(super) struct SolePolicy {
    policy: Arc<Policy>,
    limit: Limit,
    cost: u64,
    mode: Mode,
    /// Whether nothing but the peer's address is asked for.
    is_by_peer: bool,
}

impl SolePolicy {
    /// If there is but one, and nothing about it has to be found out.
    pub(super) fn of(matched: &[Arc<Policy>]) -> Option<Self> {
        let [policy] = matched else {
            return None;
        };
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
            is_by_peer: policy.key.is_client_ip() && !policy.has_conditions(),
        })
    }
}

/// A limiter with one quota, asked about one request.
#[derive(Clone, Copy)]
pub(crate) struct Sole<'a> {
    limiter: &'a Limiter,
    sole: &'a SolePolicy,
}

impl<'a> Sole<'a> {
    #[inline]
    pub(super) fn of(limiter: &'a Limiter) -> Option<Self> {
        let sole = limiter.0.sole.as_ref()?;
        Some(Self { limiter, sole })
    }

    /// Whose budget the request spends, if it can be said so simply.
    #[inline]
    pub(crate) fn key<B>(self, request: &Request<B>) -> Option<Key> {
        // Of these some are exempt.
        let is_special = matches!(*request.method(), Method::OPTIONS | Method::POST);
        if self.sole.is_by_peer
            && !is_special
            && let Some(IpAddr::V4(address)) = peer(request.extensions())
        {
            return Some(Key::from(address));
        }
        self.key_of_any(request)
    }

    #[inline(never)]
    fn key_of_any<B>(self, request: &Request<B>) -> Option<Key> {
        let request = self.limiter.view(request);
        let policy = &self.sole.policy;
        let is_covered =
            !request.is_preflight() && !request.is_health_check() && policy.covers(&request);
        is_covered.then(|| policy.key.extract(&request).ok())?
    }

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

    /// What was decided, if that is known already.
    #[inline]
    pub(crate) fn decided(self, answer: &Decide) -> Option<(&Decision, &Verdict)> {
        let Some(Ok(decision)) = answer.peek() else {
            return None;
        };
        let [verdict] = decision.verdicts() else {
            return None;
        };
        Some((decision, verdict))
    }

    /// The verdict under its name.
    #[inline]
    pub(crate) fn named(self, verdict: &Verdict) -> PolicyVerdict {
        PolicyVerdict::new(self.sole.limit.labels, self.sole.mode, *verdict)
    }

    /// What was asked, to be remembered.
    pub(crate) fn plan(self, key: Key) -> Plan {
        Plan::of_one(&self.sole.policy, None, key, self.sole.cost, false)
    }
}
