//! From a request to a plan: which policies cover it, who it is from, and in which tier that is.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::plan::{Entry, Plan};
use crate::key::{ClientIp, KeyFuture, KeyMissing};
use crate::matching::PathForms;
use crate::policy::{FoundTier, Listed, TierUnknown};
use crate::request::Routing;
use crate::{Block, Key, OnMissing, Policy, RefusalReason, RequestView};

/// Why a request is refused before anything is decided.
#[derive(Debug)]
pub(crate) enum Turned {
    /// A policy insists on knowing who it is from.
    Unidentified(KeyMissing),
    /// It is from somebody on a policy's block list, or whom a limit of 0 refuses.
    Blocked(Block),
    /// Nobody knows its tier, and a policy insists on knowing it.
    TierUnknown,
}

impl Turned {
    pub(crate) fn reason(&self) -> RefusalReason<'_> {
        match self {
            Self::Unidentified(missing) => RefusalReason::Unidentified(missing),
            Self::Blocked(how) => RefusalReason::Blocked(*how),
            Self::TierUnknown => RefusalReason::Undecided,
        }
    }
}

/// A plan that is ready, or for which somebody has to be waited for.
#[derive(Debug)]
pub(crate) enum Planned {
    Now(Plan),
    Later(Resolving),
}

/// The policies that cover a request, of which some do not know yet who it is from.
pub(crate) struct Resolving {
    /// In the order of the policies.
    found: Vec<Found>,
    misses_peer: bool,
}

/// What one policy found out about a request.
enum Found {
    /// That it is not concerned.
    Nothing,
    Entry(Entry),
    /// That it has to wait for the key,
    Key(Arc<Policy>, KeyFuture),
    /// or for the key's tier.
    Tier(Arc<Policy>, Key, FoundTier),
}

/// Who asks, and so what is exempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asking {
    /// A policy that covers the request by its conditions. What the operator exempts is.
    Layer,
    /// A limit that stands where the request has arrived. Nothing is exempt: whatever the request looks like, what it runs is known.
    #[cfg_attr(
        not(feature = "axum"),
        expect(dead_code, reason = "limits stand nowhere else")
    )]
    Site,
}

/// Matches first: the policy names the key. What is missing is an error only under a policy that insists on it.
pub(super) fn plan<'p>(
    candidates: impl Iterator<Item = &'p Arc<Policy>>,
    request: &RequestView<'_>,
    path: Option<&PathForms<'_>>,
    asking: Asking,
) -> Result<Planned, Turned> {
    let mut plan = Plan::empty();
    let mut resolving: Option<Resolving> = None;
    for policy in candidates {
        if asking == Asking::Layer && policy.exemptions.free(request) {
            continue;
        }
        let (routing, routed);
        let request = match path {
            Some(path) => {
                routing = Routing {
                    path,
                    routes: policy.patterns().routes,
                    is_exact: false,
                };
                routed = request.routed(&routing);
                &routed
            }
            None => request,
        };
        if !policy.covers(request) {
            continue;
        }
        let found = find_key(policy, request, &mut plan.misses_peer)?;
        match (&mut resolving, found) {
            (None, Found::Entry(entry)) => plan.push(entry),
            (None, Found::Nothing) => {}
            (None, waits) => {
                let ready = std::mem::replace(&mut plan, Plan::empty());
                let misses_peer = ready.misses_peer;
                let mut found: Vec<_> = ready.into_entries().map(Found::Entry).collect();
                found.push(waits);
                resolving = Some(Resolving { found, misses_peer });
            }
            (Some(resolving), found) => resolving.found.push(found),
        }
    }
    Ok(match resolving {
        None => Planned::Now(plan),
        Some(mut resolving) => {
            resolving.misses_peer |= plan.misses_peer;
            Planned::Later(resolving)
        }
    })
}

fn find_key(
    policy: &Arc<Policy>,
    request: &RequestView<'_>,
    misses_peer: &mut bool,
) -> Result<Found, Turned> {
    match policy.key.later() {
        Some(later) => Ok(Found::Key(Arc::clone(policy), later.extract(request))),
        None => with_key(policy, policy.key.extract(request), request, misses_peer),
    }
}

fn with_key(
    policy: &Arc<Policy>,
    key: Result<Key, KeyMissing>,
    request: &RequestView<'_>,
    misses_peer: &mut bool,
) -> Result<Found, Turned> {
    let key = match key {
        Ok(key) => key,
        Err(missing) => match policy.on_missing {
            OnMissing::Share => {
                *misses_peer |= missing.what() == ClientIp::MISSING;
                Key::missing()
            }
            // What is there but cannot be told is never passed: a handler may read it.
            OnMissing::Pass if missing.is_ambiguous() => Key::missing(),
            OnMissing::Pass => return Ok(Found::Nothing),
            // What is on trial refuses nobody.
            OnMissing::Deny if policy.shadow => return Ok(Found::Nothing),
            OnMissing::Deny => return Err(Turned::Unidentified(missing)),
        },
    };
    match policy.listed(&key) {
        Listed::Nowhere => {}
        Listed::Exempt => return Ok(Found::Nothing),
        Listed::Blocked(_) if policy.shadow => {}
        Listed::Blocked(how) => return Err(Turned::Blocked(how)),
    }
    match policy.tier_of(&key, Some(request)) {
        FoundTier::Now(tier) => with_tier(policy, tier, key, request),
        later @ FoundTier::Later(_) => Ok(Found::Tier(Arc::clone(policy), key, later)),
    }
}

fn with_tier(
    policy: &Arc<Policy>,
    tier: Result<Option<usize>, TierUnknown>,
    key: Key,
    request: &RequestView<'_>,
) -> Result<Found, Turned> {
    let tier = match tier {
        Ok(tier) => tier,
        // What is on trial refuses nobody.
        Err(TierUnknown) if policy.shadow => None,
        Err(TierUnknown) => return Err(Turned::TierUnknown),
    };
    if policy.refuses(tier) {
        return Err(Turned::Blocked(Block::Forbidden));
    }
    Ok(if policy.is_free(tier) {
        Found::Nothing
    } else {
        Found::Entry(Entry::new(policy, tier, key, request))
    })
}

impl Resolving {
    /// Asks again whoever has not answered yet. `request` is the one that was planned for.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        request: &RequestView<'_>,
    ) -> Poll<Result<Plan, Turned>> {
        let mut waits = false;
        for found in &mut self.found {
            loop {
                let next = match found {
                    Found::Key(policy, key) => match key.as_mut().poll(cx) {
                        Poll::Ready(key) => with_key(policy, key, request, &mut self.misses_peer),
                        Poll::Pending => break waits = true,
                    },
                    Found::Tier(policy, key, tier) => match tier.poll(cx) {
                        Poll::Ready(tier) => with_tier(policy, tier, key.clone(), request),
                        Poll::Pending => break waits = true,
                    },
                    Found::Nothing | Found::Entry(_) => break,
                };
                match next {
                    Ok(next) => *found = next,
                    Err(turned) => return Poll::Ready(Err(turned)),
                }
            }
        }
        if waits {
            return Poll::Pending;
        }
        let mut plan = Plan::empty();
        plan.misses_peer = self.misses_peer;
        for found in self.found.drain(..) {
            if let Found::Entry(entry) = found {
                plan.push(entry);
            }
        }
        Poll::Ready(Ok(plan))
    }
}

impl fmt::Debug for Resolving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolving").finish_non_exhaustive()
    }
}
