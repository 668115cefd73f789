//! From a request to a plan: the policies that cover it, the identity, and its tier or quotas.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tollgate_core::BackendError;

use super::event::{Cause, Transport};
use super::observer::Observers;
use super::plan::{Demand, Entry, Plan, PlannedPolicy, Wish};
use crate::key::{ClientIp, KeyFuture, KeyMissing};
use crate::matching::PathForms;
use crate::policy::{Entitlement, FoundEntitlement, Listing, Tier, UnknownEntitlement};
use crate::request::Routing;
use crate::{Block, Key, OnMissing, Policy, RequestView};

/// The reason for a refusal that does not come from a quota.
#[derive(Debug)]
pub enum Rejection {
    /// A policy insists on an identity.
    Unidentified(KeyMissing),
    /// The caller is on a policy's block list, or a limit of 0 refuses it.
    Blocked(Block),
    /// The caller's tier or quota is not known, and a policy insists on it.
    TierUnknown,
    /// The backend failed, and a policy refuses then.
    Unavailable(BackendError),
    /// The process is under pressure, and refuses requests of this class. The wait is the one that the operator states.
    Shed(Duration),
}

/// A plan that is ready, or one that waits for an answer.
#[derive(Debug)]
pub enum Planning<'p> {
    /// The plan.
    Now(Plan<'p>),
    /// The identity, the tier or the quota has to be asked for.
    Later(PendingPlan),
}

/// The policies that cover a request, if the key of some is not known yet.
pub struct PendingPlan {
    /// In the order of the policies.
    found: Vec<Finding<'static>>,
    misses_peer: bool,
}

/// The result of one policy for a request.
pub(super) enum Finding<'p> {
    /// The policy does not concern it.
    Nothing,
    Entry(Entry<'p>),
    /// The policy waits for the key,
    Key(Arc<Policy>, KeyFuture),
    /// or for the key's tier or quotas.
    Entitlement(
        Arc<Policy>,
        Key,
        FoundEntitlement,
        Demand,
        Option<Box<Wish>>,
    ),
}

/// The place of a limit, which decides what is exempt from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Site {
    /// A policy that covers the request by its conditions. The operator's exemptions hold.
    Layer,
    /// A limit at the handler that the request has reached. No request is exempt here, because the handler is known and the
    /// request's appearance does not matter.
    Handler,
}

/// Matches first: the policy names the key. A missing key is an error only under a policy that insists on one.
pub(super) fn plan<'p>(
    candidates: impl Iterator<Item = &'p Arc<Policy>>,
    request: &RequestView<'_>,
    path: Option<&PathForms<'_>>,
    site: Site,
    observers: &Observers,
) -> Result<Planning<'p>, Rejection> {
    let mut candidates = candidates;
    let mut findings = Findings::default();
    while let Some(policy) = candidates.next() {
        match find(policy, request, path, site, &mut findings, observers) {
            Ok(Finding::Nothing) => {}
            Ok(found) => findings.add(found),
            Err(refused) => {
                findings.unasked(observers, observers.transport_of(request));
                for policy in candidates.filter(|policy| policy.shadow) {
                    unasked_if_covering(policy, request, path, site, observers);
                }
                return Err(refused);
            }
        }
    }
    Ok(findings.planning())
}

/// The result of one policy.
#[inline(always)]
fn find<'p>(
    policy: &'p Arc<Policy>,
    request: &RequestView<'_>,
    path: Option<&PathForms<'_>>,
    site: Site,
    findings: &mut Findings<'p>,
    observers: &Observers,
) -> Result<Finding<'p>, Rejection> {
    if site == Site::Layer && policy.exemptions.free(request) {
        let transport = observers.transport_of(request);
        observers.untouched(policy, None, Cause::Exempt, transport);
        return Ok(Finding::Nothing);
    }
    let (routing, routed);
    let request = match path {
        Some(path) => {
            routing = routing_of(policy, path);
            routed = request.routed(&routing);
            &routed
        }
        None => request,
    };
    let is_covered = match site {
        Site::Layer => policy.covers(request),
        // A handler that names a policy is limited by it whatever that covers: the caller writes what conditions read.
        Site::Handler => !policy.spares_network_of(request),
    };
    if !is_covered {
        return Ok(Finding::Nothing);
    }
    if policy.is_off() {
        let transport = observers.transport_of(request);
        observers.untouched(policy, None, Cause::Off, transport);
        return Ok(Finding::Nothing);
    }
    match policy.key.later() {
        Some(later) => Ok(Finding::Key(Arc::clone(policy), later.extract(request))),
        None => {
            let key = policy.key.extract(request);
            let misses_peer = &mut findings.plan.misses_peer;
            with_key(policy, key, request, misses_peer, observers)
        }
    }
}

fn routing_of<'a>(policy: &'a Policy, path: &'a PathForms<'a>) -> Routing<'a> {
    Routing {
        path,
        routes: policy.patterns().routes,
        is_exact: false,
    }
}

/// A policy on trial behind one that has refused the request.
#[cold]
fn unasked_if_covering(
    policy: &Policy,
    request: &RequestView<'_>,
    path: Option<&PathForms<'_>>,
    site: Site,
    observers: &Observers,
) {
    let is_free = site == Site::Layer && policy.exemptions.free(request);
    let covers = || match path {
        Some(path) => policy.covers(&request.routed(&routing_of(policy, path))),
        None => policy.covers(request),
    };
    if !is_free && !policy.is_off() && covers() {
        let transport = observers.transport_of(request);
        observers.untouched(policy, None, Cause::Unasked, transport);
    }
}

/// A question to one policy that is asked for by name, for a key that the caller brings along.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) policy: Arc<Policy>,
    pub(super) key: Key,
    pub(super) demand: Demand,
    pub(super) wish: Option<Box<Wish>>,
}

/// The plan of such questions.
pub(super) fn plan_questions(
    questions: impl IntoIterator<Item = Question>,
    observers: &Observers,
) -> Result<Planning<'static>, Rejection> {
    let mut questions = questions.into_iter();
    let mut findings = Findings::default();
    while let Some(question) = questions.next() {
        let Question {
            policy,
            key,
            demand,
            wish,
        } = question;
        if policy.is_off() {
            observers.untouched(&policy, Some(&key), Cause::Off, demand.transport);
            continue;
        }
        match with_payer(&policy, key, None, demand, wish, observers) {
            Ok(found) => findings.add(found.kept()),
            Err(refused) => {
                findings.unasked(observers, demand.transport);
                for Question { policy, key, .. } in questions {
                    if !policy.is_off() {
                        unasked(&policy, Some(&key), observers, demand.transport);
                    }
                }
                return Err(refused);
            }
        }
    }
    Ok(findings.planning())
}

/// The results of the policies so far: a plan, for as long as none has to wait.
#[derive(Default)]
struct Findings<'p> {
    plan: Plan<'p>,
    waiting: Option<Vec<Finding<'static>>>,
}

/// A policy that is not asked, because another one has refused the request. Those that are enforced have no need to say so.
#[cold]
fn unasked(policy: &Policy, key: Option<&Key>, observers: &Observers, transport: Transport) {
    if policy.shadow {
        observers.untouched(policy, key, Cause::Unasked, transport);
    }
}

impl Finding<'_> {
    fn kept(self) -> Finding<'static> {
        match self {
            Self::Nothing => Finding::Nothing,
            Self::Entry(entry) => Finding::Entry(entry.kept()),
            Self::Key(policy, key) => Finding::Key(policy, key),
            Self::Entitlement(policy, key, later, demand, wish) => {
                Finding::Entitlement(policy, key, later, demand, wish)
            }
        }
    }

    fn unasked(&self, observers: &Observers, transport: Transport) {
        match self {
            Self::Nothing => {}
            Self::Entry(entry) => unasked(entry.policy(), Some(entry.key()), observers, transport),
            Self::Key(policy, _) => unasked(policy, None, observers, transport),
            Self::Entitlement(policy, key, ..) => unasked(policy, Some(key), observers, transport),
        }
    }
}

impl<'p> Findings<'p> {
    /// Another policy has refused the request.
    #[cold]
    fn unasked(&self, observers: &Observers, transport: Transport) {
        for (policy, key, _) in self.plan.entries().payers() {
            unasked(policy, Some(key), observers, transport);
        }
        for found in self.waiting.iter().flatten() {
            found.unasked(observers, transport);
        }
    }

    #[inline(always)]
    fn add(&mut self, found: Finding<'p>) {
        match (&mut self.waiting, found) {
            (_, Finding::Nothing) => {}
            (None, Finding::Entry(entry)) => self.plan.push(entry),
            (None, later) => {
                let ready = mem::take(&mut self.plan);
                self.plan.misses_peer = ready.misses_peer;
                let ready = ready.into_entries().map(Entry::kept);
                let mut found: Vec<_> = ready.map(Finding::Entry).collect();
                found.push(later.kept());
                self.waiting = Some(found);
            }
            (Some(waiting), found) => waiting.push(found.kept()),
        }
    }

    #[inline(always)]
    fn planning(self) -> Planning<'p> {
        match self.waiting {
            None => Planning::Now(self.plan),
            Some(found) => Planning::Later(PendingPlan {
                found,
                misses_peer: self.plan.misses_peer,
            }),
        }
    }
}

fn with_key<'p>(
    policy: &'p Arc<Policy>,
    key: Result<Key, KeyMissing>,
    request: &RequestView<'_>,
    misses_peer: &mut bool,
    observers: &Observers,
) -> Result<Finding<'p>, Rejection> {
    let key = match key {
        Ok(key) => key,
        Err(missing) => match policy.on_missing {
            OnMissing::Share => {
                *misses_peer |= missing.what() == ClientIp::MISSING;
                missing.shared_key()
            }
            // A key that is there but ambiguous never passes: a handler may read it.
            OnMissing::Pass if missing.is_ambiguous() => missing.shared_key(),
            OnMissing::Pass => {
                let transport = observers.transport_of(request);
                observers.untouched(policy, None, Cause::PassedUnidentified, transport);
                return Ok(Finding::Nothing);
            }
            OnMissing::Deny => {
                let transport = observers.transport_of(request);
                observers.untouched(policy, None, Cause::Unidentified, transport);
                // A policy on trial refuses nothing.
                return if policy.shadow {
                    Ok(Finding::Nothing)
                } else {
                    Err(Rejection::Unidentified(missing))
                };
            }
        },
    };
    let cost = policy.cost.of(request);
    let by = policy.once.as_ref().and_then(|once| once.by.as_ref());
    let wish = by.and_then(|by| {
        let id = by.extract(request).ok()?;
        let id = Policy::id_of(&key, &id, cost);
        Some(Box::new(Wish::Once { id }))
    });
    let demand = Demand {
        seat: 0,
        class: policy.class_of(request),
        cost,
        probe: false,
        transport: observers.transport_of(request),
    };
    with_payer(policy, key, Some(request), demand, wish, observers)
}

fn with_payer<'p>(
    policy: &'p Arc<Policy>,
    key: Key,
    request: Option<&RequestView<'_>>,
    demand: Demand,
    wish: Option<Box<Wish>>,
    observers: &Observers,
) -> Result<Finding<'p>, Rejection> {
    match policy.listed(&key) {
        Listing::Nowhere => {}
        Listing::Exempt => {
            observers.untouched(policy, Some(&key), Cause::Exempt, demand.transport);
            return Ok(Finding::Nothing);
        }
        Listing::Blocked(how) => {
            observers.untouched(policy, Some(&key), Cause::Blocked, demand.transport);
            // A policy on trial refuses nothing.
            if !policy.shadow {
                return Err(Rejection::Blocked(how));
            }
        }
    }
    if policy.has_own_quotas_alone() {
        let policy = PlannedPolicy::Lent(policy);
        return with_tier(policy, None, key, demand, wish, observers);
    }
    match policy.entitlement_of(&key, request) {
        FoundEntitlement::Now(found) => {
            with_entitlement(policy, &found, key, demand, wish, observers)
        }
        later @ FoundEntitlement::Later(_) => {
            let policy = Arc::clone(policy);
            Ok(Finding::Entitlement(policy, key, later, demand, wish))
        }
    }
}

fn with_entitlement<'p>(
    policy: &'p Arc<Policy>,
    found: &Result<Entitlement, UnknownEntitlement>,
    key: Key,
    demand: Demand,
    wish: Option<Box<Wish>>,
    observers: &Observers,
) -> Result<Finding<'p>, Rejection> {
    let (policy, tier) = match found {
        Ok(Entitlement::Tier(tier)) => (PlannedPolicy::Lent(policy), *tier),
        // The answer is older than the switch.
        Ok(Entitlement::Stated(stated)) if stated.shadow != policy.shadow => {
            let mut stated = Policy::clone(stated);
            stated.turn(policy.switch);
            (PlannedPolicy::Kept(Arc::new(stated)), None)
        }
        Ok(Entitlement::Stated(stated)) => (PlannedPolicy::Kept(Arc::clone(stated)), None),
        Ok(Entitlement::Unlimited) => {
            observers.untouched(policy, Some(&key), Cause::Exempt, demand.transport);
            return Ok(Finding::Nothing);
        }
        Err(UnknownEntitlement) => {
            observers.untouched(policy, Some(&key), Cause::TierUnknown, demand.transport);
            // A policy on trial refuses nothing.
            if !policy.shadow {
                return Err(Rejection::TierUnknown);
            }
            (PlannedPolicy::Lent(policy), None)
        }
    };
    with_tier(policy, tier, key, demand, wish, observers)
}

#[inline]
fn with_tier<'p>(
    policy: PlannedPolicy<'p>,
    tier: Tier,
    key: Key,
    demand: Demand,
    wish: Option<Box<Wish>>,
    observers: &Observers,
) -> Result<Finding<'p>, Rejection> {
    if policy.has_none(tier) {
        observers.untouched(&policy, Some(&key), Cause::Blocked, demand.transport);
        // A policy on trial refuses nothing.
        return if policy.shadow {
            Ok(Finding::Nothing)
        } else {
            Err(Rejection::Blocked(Block::Forbidden))
        };
    }
    if policy.is_free(tier) {
        observers.untouched(&policy, Some(&key), Cause::Exempt, demand.transport);
        return Ok(Finding::Nothing);
    }
    let demand = Demand {
        seat: policy.seat(tier, demand.class),
        ..demand
    };
    let entry = Entry::new(policy, key, demand).wishing(wish);
    Ok(Finding::Entry(entry))
}

impl Planning<'_> {
    /// The plan, which may outlive the limiter's policies from now on.
    pub(super) fn kept(self) -> Planning<'static> {
        match self {
            Self::Now(plan) => Planning::Now(plan.kept()),
            Self::Later(plan) => Planning::Later(plan),
        }
    }
}

impl PendingPlan {
    /// Polls all answers that have not come yet. `request` is the one that was planned for; there is none if the key was brought
    /// along.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        request: Option<&RequestView<'_>>,
        observers: &Observers,
    ) -> Poll<Result<Plan<'static>, Rejection>> {
        let transport = request.map_or(Transport::Application, |request| {
            observers.transport_of(request)
        });
        let mut waits = false;
        for place in 0..self.found.len() {
            let found = &mut self.found[place];
            loop {
                let next = match found {
                    Finding::Key(policy, key) => match (key.as_mut().poll(cx), request) {
                        (Poll::Ready(key), Some(request)) => {
                            with_key(policy, key, request, &mut self.misses_peer, observers)
                        }
                        _ => break waits = true,
                    },
                    Finding::Entitlement(policy, key, later, demand, wish) => {
                        match later.poll(cx) {
                            Poll::Ready(found) => {
                                let (key, wish) = (key.clone(), wish.take());
                                with_entitlement(policy, &found, key, *demand, wish, observers)
                            }
                            Poll::Pending => break waits = true,
                        }
                    }
                    Finding::Nothing | Finding::Entry(_) => break,
                };
                match next.map(Finding::kept) {
                    Ok(next) => *found = next,
                    Err(refused) => {
                        *found = Finding::Nothing;
                        let unasked = |one: &Finding<'_>| one.unasked(observers, transport);
                        self.found.iter().for_each(unasked);
                        return Poll::Ready(Err(refused));
                    }
                }
            }
        }
        if waits {
            return Poll::Pending;
        }
        let mut plan = Plan::default();
        plan.misses_peer = self.misses_peer;
        for found in self.found.drain(..) {
            if let Finding::Entry(entry) = found {
                plan.push(entry);
            }
        }
        Poll::Ready(Ok(plan))
    }
}

impl fmt::Debug for PendingPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingPlan").finish_non_exhaustive()
    }
}
