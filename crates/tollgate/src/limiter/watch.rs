//! The first requests of a limiter, and what they show to be wrong with how it is set up.
//!
//! Two mistakes are seen by no compiler and by no caller: a policy whose routes no request meets limits nothing, and behind a proxy
//! that nobody named all callers share one budget. Either shows in the first requests. Later ones are not looked at, so that this
//! costs a request no more than to read one number.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::{Inner, Limiter};
use crate::client::ClientAddress;
use crate::matching::{Matcher, PathForms, Pattern};
use crate::{Policy, RequestView};

/// How many requests are looked at: enough for every route of most services to be asked for, and few enough to be over in seconds
/// on a busy one.
const FIRST: usize = 1_000;

/// What has been seen so far.
#[derive(Debug)]
pub(super) struct Watch {
    /// By the layer for requests.
    requests: First,
    /// By the layer for messages.
    calls: First,
    /// Whether a forwarding header that nobody believes would be a mistake, and none has come.
    awaits_proxy: AtomicBool,
}

/// The first requests of one layer.
#[derive(Debug)]
struct First {
    /// How many requests are still to be looked at.
    left: AtomicUsize,
    /// Which of the layer's policies have covered a path, or have no route.
    met: Box<[AtomicBool]>,
}

impl Watch {
    pub(super) fn new(
        matched: &[Arc<Policy>],
        for_messages: &[Arc<Policy>],
        policies: &[Arc<Policy>],
    ) -> Self {
        // Limits at handlers are by address unless they say otherwise.
        let by_address = |policy: &Arc<Policy>| policy.key.is_client_ip();
        let asks_for_addresses = policies.is_empty() || policies.iter().any(by_address);
        let watch = Self {
            requests: First::of(matched),
            calls: First::of(for_messages),
            awaits_proxy: asks_for_addresses.into(),
        };
        watch.end_if_all_is_seen(&watch.requests);
        watch.end_if_all_is_seen(&watch.calls);
        watch
    }

    fn end_if_all_is_seen(&self, first: &First) {
        let are_met = first.met.iter().all(|met| met.load(Ordering::Relaxed));
        if are_met && !self.awaits_proxy.load(Ordering::Relaxed) {
            first.left.store(0, Ordering::Relaxed);
        }
    }
}

impl First {
    fn of(policies: &[Arc<Policy>]) -> Self {
        let has_no_route = |policy: &Arc<Policy>| policy.patterns().routes.is_empty();
        let met = policies.iter().map(|policy| has_no_route(policy).into());
        Self {
            left: AtomicUsize::new(FIRST),
            met: met.collect(),
        }
    }

    #[inline(always)]
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
        let path = PathForms::of(sent, ignores_case);
        let covering = matcher.covering(&path);
        for index in covering.as_slice() {
            if let Some(met) = self.met.get(*index) {
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

impl Limiter {
    /// Looks at a request if it is one of the first.
    #[inline(always)]
    pub(crate) fn watch<'a>(&self, request: impl FnOnce() -> RequestView<'a>) {
        if !self.0.watch.requests.is_over() {
            self.0.look_at_request(&request());
        }
    }

    /// Looks at a call whose messages may be charged if it is one of the first.
    #[cfg(feature = "tonic")]
    pub(crate) fn watch_messages(&self, call: &RequestView<'_>) {
        let inner = &*self.0;
        let first = &inner.watch.calls;
        if !first.is_over() {
            inner.look_at(
                first,
                &inner.for_messages,
                inner.message_matcher.as_ref(),
                call,
            );
        }
    }
}

impl Inner {
    #[cold]
    #[inline(never)]
    fn look_at_request(&self, request: &RequestView<'_>) {
        let first = &self.watch.requests;
        self.look_at(first, &self.matched, self.matcher.as_ref(), request);
    }

    fn look_at(
        &self,
        first: &First,
        policies: &[Arc<Policy>],
        matcher: Option<&Matcher>,
        request: &RequestView<'_>,
    ) {
        self.look_for_proxies(request);
        if let Some(matcher) = matcher {
            first.meet(policies, matcher, request, self.ignores_path_case);
        }
        if first.is_last() {
            first.warn_of_unmet_routes(policies);
        } else {
            self.watch.end_if_all_is_seen(first);
        }
    }

    fn look_for_proxies(&self, request: &RequestView<'_>) {
        let awaited = &self.watch.awaits_proxy;
        if awaited.load(Ordering::Relaxed)
            && let Some(header) = self.client.disbelieved(request.peer(), request.headers())
            && awaited.swap(false, Ordering::Relaxed)
        {
            warn_of_proxy(&self.client, header);
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

/// Names neither the peer nor what it sent: they are somebody's address.
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
