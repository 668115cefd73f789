//! The first requests of a limiter, and what they show to be wrong with how it is set up.
//!
//! Two mistakes are seen by no compiler and by no caller: a policy whose routes no request meets limits nothing, and behind a proxy
//! that nobody named all callers share one budget. Either shows in the first requests. Later ones are not looked at, so that this
//! costs a request no more than to read one number.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::{Inner, Limiter};
use crate::client::ClientAddress;
use crate::matching::{PathForms, Pattern};
use crate::{Policy, RequestView};

/// How many requests are looked at: enough for every route of most services to be asked for, and few enough to be over in seconds
/// on a busy one.
const FIRST: usize = 1_000;

/// What has been seen so far.
#[derive(Debug)]
pub(super) struct Watch {
    /// How many requests are still to be looked at.
    left: AtomicUsize,
    /// Which of the matched policies have covered a path, or have no route.
    met: Box<[AtomicBool]>,
    /// Whether a forwarding header that nobody believes would be a mistake, and none has come.
    awaits_proxy: AtomicBool,
}

impl Watch {
    pub(super) fn new(matched: &[Arc<Policy>], policies: &[Arc<Policy>]) -> Self {
        let has_no_route = |policy: &Arc<Policy>| policy.patterns().routes.is_empty();
        let met = matched.iter().map(|policy| has_no_route(policy).into());
        // Limits at handlers are by address unless they say otherwise.
        let by_address = |policy: &Arc<Policy>| policy.key.is_client_ip();
        let asks_for_addresses = policies.is_empty() || policies.iter().any(by_address);
        let watch = Self {
            left: AtomicUsize::new(FIRST),
            met: met.collect(),
            awaits_proxy: asks_for_addresses.into(),
        };
        watch.end_if_all_is_seen();
        watch
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

    fn end_if_all_is_seen(&self) {
        let are_met = self.met.iter().all(|met| met.load(Ordering::Relaxed));
        if are_met && !self.awaits_proxy.load(Ordering::Relaxed) {
            self.left.store(0, Ordering::Relaxed);
        }
    }
}

impl Limiter {
    /// Looks at a request if it is one of the first.
    #[inline(always)]
    pub(crate) fn watch<'a>(&self, request: impl FnOnce() -> RequestView<'a>) {
        if !self.0.watch.is_over() {
            self.0.look_at(&request());
        }
    }
}

impl Inner {
    #[cold]
    #[inline(never)]
    fn look_at(&self, request: &RequestView<'_>) {
        let watch = &self.watch;
        self.look_for_proxies(request);
        self.look_for_routes(request);
        if watch.is_last() {
            self.warn_of_unmet_routes();
        } else {
            watch.end_if_all_is_seen();
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

    fn look_for_routes(&self, request: &RequestView<'_>) {
        let Some(matcher) = &self.matcher else {
            return;
        };
        let sent = request.original_uri().path();
        let path = PathForms::of(sent, self.ignores_path_case);
        let covering = matcher.covering(&path);
        for index in covering.as_slice() {
            if let Some(met) = self.watch.met.get(*index) {
                met.store(true, Ordering::Relaxed);
            }
        }
        let here = request.uri().path();
        if here == sent {
            return;
        }
        // Within a nest, a policy may have been given routes as the nested router has them.
        let path = PathForms::of(here, self.ignores_path_case);
        for (policy, met) in self.matched.iter().zip(&self.watch.met) {
            let mut routes = policy.patterns().routes.iter();
            if let Some(route) = routes.find(|route| path.iter().any(|form| route.covers(form)))
                && !met.swap(true, Ordering::Relaxed)
            {
                warn_of_nested_route(policy, route, request.nested_path());
            }
        }
    }

    fn warn_of_unmet_routes(&self) {
        for (policy, met) in self.matched.iter().zip(&self.watch.met) {
            let mut routes = policy.patterns().routes.iter();
            if let Some(route) = routes.next()
                && !met.load(Ordering::Relaxed)
            {
                tracing::warn!(
                    policy = policy.name(),
                    route = route.as_str(),
                    "none of the first {FIRST} requests was for a route of this policy, so that it has limited nothing; change \
                     `.route(\"{route}\")` unless such requests are rare: it is the path that the caller sends, with the prefix of each \
                     `nest` around the layer",
                    route = route.as_str(),
                );
            }
        }
    }
}

#[cold]
fn warn_of_nested_route(policy: &Policy, route: &Pattern, nest: Option<&str>) {
    let (policy, route) = (policy.name(), route.as_str());
    let nest = nest.map_or("/PREFIX", |nest| nest.trim_end_matches('/'));
    tracing::warn!(
        policy,
        route,
        "a policy is not matched against the path within `nest`, but against the path that the caller sent, so that this route \
         covers nothing here; change `.route(\"{route}\")` to `.route(\"{nest}{route}\")`, or put the layer around the outer router"
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
