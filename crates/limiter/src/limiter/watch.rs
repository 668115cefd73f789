//! The first requests of a limiter, and the mistakes in its set-up that they reveal.
//!
//! Two mistakes are seen by no compiler and by no caller: a policy whose routes no request meets limits nothing, and all callers
//! behind a proxy that is not named share one budget. Either shows in the first requests. Later ones are not looked at, so that
//! this costs a request no more than to read one number.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::terms::Terms;
use crate::client::ClientAddress;
use crate::matching::{Matcher, PathForms, Pattern};
use crate::{Policy, RequestView};

/// The number of requests that are looked at: enough for every route of most services to be asked for, and few enough to be over in
/// seconds on a busy one.
const FIRST: usize = 1_000;

/// The findings from the first requests of one layer.
#[derive(Debug)]
pub(super) struct Watch {
    /// The number of requests that are still to be looked at.
    left: AtomicUsize,
    /// True for each of the layer's policies that has covered a path, or has no route.
    met: Box<[AtomicBool]>,
}

/// The search for a forwarding header from an untrusted peer, which would be a mistake.
#[derive(Debug)]
pub(super) struct ProxyWatch {
    /// True if a policy asks for the client's address.
    is_asked: bool,
    has_come: AtomicBool,
}

impl ProxyWatch {
    pub(super) fn new(policies: &[Arc<Policy>]) -> Self {
        // Limits at handlers are by address unless they say otherwise.
        let by_address = |policy: &Arc<Policy>| policy.key.is_client_ip();
        Self {
            is_asked: policies.is_empty() || policies.iter().any(by_address),
            has_come: false.into(),
        }
    }

    /// Goes on from the search under the policies of before.
    pub(super) fn go_on_from(&self, before: &Self) {
        let has_come = before.has_come.load(Ordering::Relaxed);
        self.has_come.store(has_come, Ordering::Relaxed);
    }

    fn waits(&self) -> bool {
        self.is_asked && !self.has_come.load(Ordering::Relaxed)
    }

    fn look(&self, request: &RequestView<'_>, client: &ClientAddress) {
        if self.waits()
            && let Some(header) = client.disbelieved(request.peer(), request.headers())
            && !self.has_come.swap(true, Ordering::Relaxed)
        {
            warn_of_proxy(client, header);
        }
    }
}

impl Watch {
    pub(super) fn new(policies: &[Arc<Policy>], proxies: &ProxyWatch) -> Self {
        let has_no_route = |policy: &Arc<Policy>| policy.patterns().routes.is_empty();
        let met = policies.iter().map(|policy| has_no_route(policy).into());
        let watch = Self {
            left: AtomicUsize::new(FIRST),
            met: met.collect(),
        };
        watch.end_if_all_is_seen(proxies);
        watch
    }

    /// Goes on from the watch over the policies of before. A policy with the name and the routes of one of them is not new; if none
    /// is, the count of the first requests goes on as well.
    pub(super) fn go_on_from(
        &self,
        before: &Self,
        [policies, policies_before]: [&[Arc<Policy>]; 2],
        [proxies, proxies_before]: [&ProxyWatch; 2],
    ) {
        let mut is_new = proxies.is_asked && !proxies_before.is_asked;
        for (policy, met) in policies.iter().zip(&self.met) {
            let is_this = |other: &Arc<Policy>| {
                other.name() == policy.name() && other.patterns().routes == policy.patterns().routes
            };
            let mut known = policies_before.iter().zip(&before.met);
            match known.find(|(other, _)| is_this(other)) {
                Some((_, was_met)) if was_met.load(Ordering::Relaxed) => {
                    met.store(true, Ordering::Relaxed);
                }
                Some(_) => {}
                None => is_new |= !met.load(Ordering::Relaxed),
            }
        }
        if !is_new {
            let left = before.left.load(Ordering::Relaxed);
            self.left.store(left, Ordering::Relaxed);
        }
        self.end_if_all_is_seen(proxies);
    }

    fn end_if_all_is_seen(&self, proxies: &ProxyWatch) {
        let are_met = self.met.iter().all(|met| met.load(Ordering::Relaxed));
        if are_met && !proxies.waits() {
            self.left.store(0, Ordering::Relaxed);
        }
    }

    #[inline]
    fn is_over(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    /// Counts a request, and says whether it was the last to be looked at.
    fn is_last(&self) -> bool {
        let one_less = |left: usize| left.checked_sub(1);
        let before = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        before == Ok(1)
    }

    /// Marks the policies that cover the path of a request.
    fn meet(
        &self,
        policies: &[Arc<Policy>],
        matcher: &Matcher,
        request: &RequestView<'_>,
        ignores_case: bool,
    ) {
        let sent = request.original_uri().path();
        let path = request.path_forms(ignores_case);
        for position in matcher.covering(&path).as_slice() {
            if let Some(met) = self.met.get(*position) {
                met.store(true, Ordering::Relaxed);
            }
        }
        let here = request.uri().path();
        if here == sent {
            return;
        }
        // Within a nest, a policy may have been given routes as the nested router has them.
        let path = PathForms::of(here, ignores_case);
        for (policy, met) in policies.iter().zip(&self.met) {
            let mut routes = policy.patterns().routes.iter();
            if let Some(route) = routes.find(|route| path.iter().any(|form| route.covers(form)))
                && !met.swap(true, Ordering::Relaxed)
            {
                warn_of_nested_route(policy, route, request.nested_path());
            }
        }
    }

    /// Looks at a request if it is one of the first.
    #[inline(always)]
    pub(super) fn look(
        &self,
        policies: &[Arc<Policy>],
        matcher: Option<&Matcher>,
        request: &RequestView<'_>,
        terms: &Terms,
        proxies: &ProxyWatch,
    ) {
        if !self.is_over() {
            self.look_at(policies, matcher, *request, terms, proxies);
        }
    }

    #[cold]
    fn look_at(
        &self,
        policies: &[Arc<Policy>],
        matcher: Option<&Matcher>,
        request: RequestView<'_>,
        terms: &Terms,
        proxies: &ProxyWatch,
    ) {
        proxies.look(&request, &terms.client);
        if let Some(matcher) = matcher {
            self.meet(policies, matcher, &request, terms.ignores_path_case);
        }
        if self.is_last() {
            self.warn_of_unmet_routes(policies);
        } else {
            self.end_if_all_is_seen(proxies);
        }
    }

    fn warn_of_unmet_routes(&self, policies: &[Arc<Policy>]) {
        for (policy, met) in policies.iter().zip(&self.met) {
            let mut routes = policy.patterns().routes.iter();
            if let Some(route) = routes.next()
                && !met.load(Ordering::Relaxed)
            {
                tracing::warn!(
                    policy = policy.name(),
                    route = route.as_str(),
                    "none of the first {FIRST} requests was for a route of this policy, so that it has limited nothing; change \
                     `{line}` unless such requests are rare: it is the path that the caller sends, with the prefix of each \
                     `nest` around the layer",
                    line = policy.written(route),
                );
            }
        }
    }
}

#[cold]
fn warn_of_nested_route(policy: &Policy, route: &Pattern, nest: Option<&str>) {
    let line = policy.written(route);
    let (policy, route) = (policy.name(), route.as_str());
    let nest = nest.map_or("/PREFIX", |nest| nest.trim_end_matches('/'));
    tracing::warn!(
        policy,
        route,
        "a policy is not matched against the path within `nest`, but against the path that the caller sent, so that this route \
         covers nothing here; change `{line}` to `.route(\"{nest}{route}\")`, or put the layer around the outer router"
    );
}

/// Names neither the peer nor the header's value, because they are addresses of clients.
#[cold]
fn warn_of_proxy(client: &ClientAddress, header: &str) {
    if client.is_peer() {
        tracing::warn!(
            header,
            "a forwarding header came from a peer that is not trusted, and is ignored; if this server stands behind a proxy, all \
             its callers share one budget: trust it by its networks, \
             `.client_address(ClientAddress::x_forwarded_for(Networks::new([\"10.0.0.0/8\"])))`, or with `ClientAddress::forwarded` \
             or `ClientAddress::header`, by what it writes"
        );
    } else {
        tracing::warn!(
            header,
            "a forwarding header came from a peer that is in none of the trusted networks, and is ignored; if the peer is a proxy of \
             yours, all its callers share one budget: add its network to those of `.client_address(..)`"
        );
    }
}
