//! The conditions under which a policy covers a request.

use std::fmt;
use std::sync::Arc;

use http::Method;

use super::Policy;
use super::host::{HostPattern, is_any_host};
use crate::client::NetworkList;
use crate::key::{KeyExtractor, KeyList, ReadList, Source};
use crate::literal::literal;
use crate::matching::{Pattern, Patterns};
use crate::{ConfigError, RequestView};

/// The conditions under which a policy covers a request. Plain data, except for the closures.
#[derive(Clone, Default)]
pub(crate) struct Conditions {
    routes: Vec<Pattern>,
    /// Those of the routes that name methods of gRPC.
    grpc: Vec<Pattern>,
    exempt_routes: Vec<Pattern>,
    methods: Vec<Method>,
    exempt_methods: Vec<Method>,
    hosts: Vec<HostPattern>,
    exempt_networks: Vec<NetworkList>,
    when: Vec<Arc<Condition>>,
}

/// A condition of a policy that a request does not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unmet {
    /// The policy is charged by name alone.
    OnDemand,
    /// The policy is for messages of streams.
    Messages,
    /// The policy has other routes.
    Path,
    /// The path is exempt.
    ExemptPath,
    /// The policy has other methods.
    Method,
    /// The method is exempt.
    ExemptMethod,
    /// No reading of the request names a host of the policy.
    Host,
    /// The caller is in an exempt network.
    ExemptNetwork,
    /// A closure does not hold.
    Condition,
}

type Condition = dyn Fn(&RequestView<'_>) -> bool + Send + Sync;

/// Conditions. Without one, a policy covers all requests. Several routes, methods or hosts are alternatives; conditions of
/// different kinds must all hold.
impl Policy {
    /// Covers only requests to this path. Several calls name alternatives. The path is a pattern in axum's syntax, `/users/{id}`
    /// or `/files/{*path}`, and axum's own router matches it.
    ///
    /// ```
    /// use http::Method;
    /// use tollgate::{Policy, Quota};
    ///
    /// let login = Policy::new("login", Quota::per_minute(5)).route("/login").method(Method::POST);
    /// let files = Policy::new("files", Quota::per_second(100)).route("/files").route("/files/{*path}");
    /// ```
    ///
    /// To cover every request, name no route. No pattern matches a target that begins with no slash, such as `OPTIONS *`, and a
    /// fallback answers it.
    ///
    /// The path is the one that the caller sent, also within `nest` and before axum has routed the request. The policy covers
    /// every path that axum routes to the pattern, and other spellings of it: `%61` is `a`, doubled slashes count as one and a
    /// slash at the end as none. Upper and lower case differ, unless the limiter [ignores
    /// case](crate::LimiterBuilder::ignore_path_case). A `.` counts as nothing. A path with `..` is covered as it is, and as the one that it leads to:
    /// a proxy behind the limiter may send it there.
    ///
    /// # Panics
    ///
    /// While it is built, if `pattern` is invalid. Patterns from outside go through [`try_route`](Self::try_route).
    #[must_use]
    #[track_caller]
    pub fn route(self, pattern: &str) -> Self {
        literal(self.try_route(pattern))
    }

    /// Covers only requests to this path: see [`route`](Self::route).
    ///
    /// ```
    /// use tollgate::{Policy, Quota};
    ///
    /// let policy = || Policy::new("login", Quota::per_minute(5));
    /// assert!(policy().try_route("/login").is_ok());
    /// assert!(policy().try_route("login").is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// If `pattern` is invalid.
    pub fn try_route(mut self, pattern: &str) -> Result<Self, ConfigError> {
        let patterns = self.patterns_of(pattern)?;
        self.conditions_mut().routes.extend(patterns);
        let conditions = self.conditions.iter();
        let routes = conditions.flat_map(|conditions| conditions.routes.iter());
        for service in routes.filter_map(Pattern::starts_with) {
            self.exemptions.name_service(service);
        }
        Ok(self)
    }

    /// Exempts requests to this path, such as a health check, whatever [`route`](Self::route) says.
    ///
    /// The path is exempt in the form that axum's router takes, and in no other. `/health/`, `//health` and `/%68ealth` are
    /// charged, because they lead to another handler, if to any (a fallback, a route with a wildcard). `/Health` is charged too,
    /// even if the limiter [ignores case](crate::LimiterBuilder::ignore_path_case).
    ///
    /// ```
    /// use tollgate::{Policy, Quota};
    ///
    /// let api = Policy::new("api", Quota::per_second(10)).exempt_route("/health");
    /// ```
    ///
    /// # Panics
    ///
    /// While it is built, if `pattern` is invalid. Patterns from outside go through [`try_exempt_route`](Self::try_exempt_route).
    #[must_use]
    #[track_caller]
    pub fn exempt_route(self, pattern: &str) -> Self {
        literal(self.try_exempt_route(pattern))
    }

    /// Exempts requests to this path: see [`exempt_route`](Self::exempt_route).
    ///
    /// ```
    /// use tollgate::{Policy, Quota};
    ///
    /// let api = Policy::new("api", Quota::per_second(10));
    /// assert!(api.try_exempt_route("/{unclosed").is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// If `pattern` is invalid.
    pub fn try_exempt_route(mut self, pattern: &str) -> Result<Self, ConfigError> {
        let as_written = self.patterns_of(pattern)?.next();
        self.conditions_mut().exempt_routes.extend(as_written);
        Ok(self)
    }

    /// Covers only requests of this method. Several calls name alternatives. `GET` includes `HEAD`, as axum's `get` does: the
    /// handler runs for both.
    ///
    /// A gRPC server runs its methods for every HTTP method. So a policy that [names gRPC methods](Self::grpc) cannot have this
    /// condition: the limiter is not built.
    ///
    /// ```
    /// use http::Method;
    /// use tollgate::{Policy, Quota};
    ///
    /// let writes = Policy::new("writes", Quota::per_second(5)).method(Method::POST).method(Method::PUT);
    /// ```
    #[must_use]
    pub fn method(mut self, method: Method) -> Self {
        self.conditions_mut().methods.push(method);
        self
    }

    /// Exempts requests of this method. `GET` includes `HEAD`. Handlers that answer every method (`any(..)`, a fallback) then run
    /// uncharged for it, and so does each method of a gRPC server.
    ///
    /// A policy that [names gRPC methods](Self::grpc) cannot have this condition: the limiter is not built.
    ///
    /// ```
    /// use http::Method;
    /// use tollgate::{Policy, Quota};
    ///
    /// let writes = Policy::new("writes", Quota::per_second(5)).exempt_method(Method::GET);
    /// ```
    #[must_use]
    pub fn exempt_method(mut self, method: Method) -> Self {
        self.conditions_mut().exempt_methods.push(method);
        self
    }

    /// Covers only requests to this host: `api.example.com`, or `*.example.com` for every name below. Several calls name
    /// alternatives. Case, port and a dot at the end do not matter.
    ///
    /// A caller may name any host, and several at once. **The policy covers a request if any reading of it names the host**: by
    /// the target, by any of several `Host` lines, by `Forwarded` and `X-Forwarded-Host` (which axum-extra's `Host` reads first),
    /// or by a part of one of these (`user@host`, `a, b`, `%61`). So no ambiguous request gets around it. Policies for several
    /// hosts may then cover one request, and each charges it. [`RequestView::host`] is the strict side, for conditions that let
    /// requests pass: it names a host only if there is one way to read it.
    ///
    /// ```
    /// use tollgate::{Policy, Quota};
    ///
    /// let tenants = Policy::new("tenants", Quota::per_second(10)).host("*.example.com");
    /// ```
    ///
    /// # Panics
    ///
    /// While it is built, if `host` is invalid. Hosts from outside go through [`try_host`](Self::try_host).
    #[must_use]
    #[track_caller]
    pub fn host(self, host: &str) -> Self {
        literal(self.try_host(host))
    }

    /// Covers only requests to this host: see [`host`](Self::host).
    ///
    /// ```
    /// use tollgate::{Policy, Quota};
    ///
    /// let tenants = Policy::new("tenants", Quota::per_second(10));
    /// assert!(tenants.try_host("https://example.com").is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// If `host` is invalid.
    pub fn try_host(mut self, host: &str) -> Result<Self, ConfigError> {
        let host = HostPattern::parse(host).map_err(|reason| ConfigError::Host {
            policy: self.name.to_string(),
            host: host.chars().take(64).collect(),
            reason,
        })?;
        self.conditions_mut().hosts.push(host);
        Ok(self)
    }

    /// Exempts requests from these networks. The list may be replaced while it is in use. A caller without an address is in no
    /// network.
    ///
    /// ```
    /// use tollgate::{Networks, Policy, Quota};
    ///
    /// let api = Policy::new("api", Quota::per_second(10)).exempt_networks(Networks::new(["10.0.0.0/8"]));
    /// ```
    #[must_use]
    pub fn exempt_networks(mut self, networks: impl Into<NetworkList>) -> Self {
        self.conditions_mut().exempt_networks.push(networks.into());
        self
    }

    /// Exempts requests for which `what` finds an entry of the list: a route, a method, a host, or anything else that a key can
    /// be made of. The list may change while it is in use. Routes and parts of paths are found only in the form that axum routes.
    ///
    /// ```
    /// use tollgate::key::{KeyList, MatchedRoute, Method};
    /// use tollgate::{Policy, Quota};
    ///
    /// let (routes, methods) = (KeyList::new(), KeyList::new());
    /// let policy = Policy::new("api", Quota::per_second(10))
    ///     .exempt_by(MatchedRoute, &routes)
    ///     .exempt_by(Method, &methods);
    ///
    /// // Later, from anywhere.
    /// routes.insert("/reports/{id}");
    /// methods.insert("DELETE");
    /// ```
    #[must_use]
    pub fn exempt_by(self, what: impl KeyExtractor, list: impl Into<KeyList>) -> Self {
        let (list, shape) = (ReadList::of(list.into()), what.shape());
        let has = move |request: &RequestView<'_>| {
            let found = what.extract(request);
            found.is_ok_and(|found| list.contains(&shape, &found))
        };
        self.when(move |request| match request.routing() {
            // Other forms of a path widen what is covered, and never what is exempt.
            Some(routing) => !has(&request.routed(&routing.exact())),
            None => !has(request),
        })
    }

    /// Covers only requests for which `condition` holds. If it is called several times, all conditions must hold.
    ///
    /// ```
    /// use tollgate::{Policy, Quota};
    ///
    /// // Only requests of browsers that an outer layer has not recognised.
    /// let guests = Policy::new("guests", Quota::per_minute(30))
    ///     .when(|request| !request.headers().contains_key("authorization"));
    /// ```
    #[must_use]
    pub fn when(
        mut self,
        condition: impl Fn(&RequestView<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.conditions_mut().when.push(Arc::new(condition));
        self
    }

    /// True if all conditions that do not depend on the path hold.
    #[inline]
    pub(crate) fn has_conditions(&self) -> bool {
        self.conditions.is_some()
    }

    pub(crate) fn covers(&self, request: &RequestView<'_>) -> bool {
        self.conditions
            .as_ref()
            .is_none_or(|conditions| conditions.hold(request))
    }

    /// True if the caller's network is exempt.
    pub(crate) fn spares_network_of(&self, request: &RequestView<'_>) -> bool {
        let conditions = self.conditions.as_ref();
        conditions.is_some_and(|conditions| conditions.is_from_exempt_network(request))
    }

    /// The first condition that a request does not meet, the path aside.
    pub(crate) fn unmet(&self, request: &RequestView<'_>) -> Option<Unmet> {
        self.conditions.as_ref()?.unmet(request)
    }

    /// True if the lists of covered and exempt requests leave any request to cover.
    pub(crate) fn check_coverage(&self) -> Result<(), ConfigError> {
        let Some(conditions) = &self.conditions else {
            return Ok(());
        };
        if let Some(grpc) = conditions.grpc.first() {
            self.check_methods(grpc.as_str())?;
        }
        match conditions.contradiction() {
            None => Ok(()),
            Some(reason) => Err(ConfigError::CoversNothing {
                policy: self.name.to_string(),
                reason,
            }),
        }
    }

    /// Refuses conditions on the method of HTTP: a gRPC server runs this method of its own for all of them.
    #[doc(hidden)]
    pub fn check_methods(&self, grpc: &str) -> Result<(), ConfigError> {
        if !self.has_methods() {
            return Ok(());
        }
        Err(ConfigError::GrpcMethod {
            policy: self.name.to_string(),
            method: grpc.chars().take(128).collect(),
            reason: "runs whatever the HTTP method of a call is, so that `.method(..)` and `.exempt_method(..)` would leave ways \
                     around the policy; leave them out, or give them to a policy of its own",
        })
    }

    /// Refuses a key that finds no identity in any request.
    #[doc(hidden)]
    pub fn check_key(&self) -> Result<(), ConfigError> {
        match self.flaw_of(&self.key) {
            None => Ok(()),
            Some(reason) => Err(ConfigError::Key {
                policy: self.name.to_string(),
                reason,
            }),
        }
    }

    /// The reason why an extractor finds nothing in any request under this policy.
    pub(super) fn flaw_of(&self, source: &Source) -> Option<String> {
        source.flaw(self.only_params().as_deref())
    }

    /// The parameters of this policy's paths. `None` if a route of axum's may have others: the policy has no routes, one of them
    /// ends in a parameter for all the rest, or the policy is asked for by name.
    fn only_params(&self) -> Option<Vec<&str>> {
        let routes = self.patterns().routes;
        let is_open = self.on_demand || routes.is_empty() || routes.iter().any(Pattern::has_rest);
        (!is_open).then(|| {
            let mut params: Vec<_> = routes.iter().flat_map(Pattern::params).collect();
            params.sort_unstable();
            params.dedup();
            params
        })
    }

    /// The patterns of paths.
    pub(crate) fn patterns(&self) -> Patterns<'_> {
        match &self.conditions {
            None => Patterns::default(),
            Some(conditions) => Patterns {
                routes: &conditions.routes,
                exempt: &conditions.exempt_routes,
            },
        }
    }

    /// True if it reads the target of the request.
    pub(crate) fn has_targets(&self) -> bool {
        self.conditions.as_ref().is_some_and(|conditions| {
            let routes = [&conditions.routes, &conditions.exempt_routes];
            routes.iter().any(|routes| !routes.is_empty()) || !conditions.hosts.is_empty()
        })
    }

    /// True if it reads the method of the request.
    pub(crate) fn has_methods(&self) -> bool {
        self.conditions.as_ref().is_some_and(|conditions| {
            !(conditions.methods.is_empty() && conditions.exempt_methods.is_empty())
        })
    }

    /// True if it asks closures.
    pub(crate) fn has_closures(&self) -> bool {
        let conditions = self.conditions.as_ref();
        conditions.is_some_and(|conditions| !conditions.when.is_empty())
    }

    /// Remembers that the last route names methods of gRPC.
    pub(super) fn mark_grpc(&mut self) {
        let conditions = self.conditions_mut();
        conditions.grpc.extend(conditions.routes.last().cloned());
    }

    /// The routes that name methods of gRPC.
    #[doc(hidden)]
    pub fn grpc_patterns(&self) -> &[Pattern] {
        self.conditions.as_ref().map_or(&[], |all| &all.grpc)
    }

    /// Makes the patterns of covered paths ignore case.
    pub(crate) fn ignore_path_case(&mut self) {
        self.shape.ignore_path_case();
        if self.conditions.is_some() {
            for pattern in &mut self.conditions_mut().routes {
                pattern.ignore_case();
            }
        }
    }

    fn conditions_mut(&mut self) -> &mut Conditions {
        Arc::make_mut(self.conditions.get_or_insert_default())
    }

    /// The pattern, and a second one without surplus slashes if it has some. The router takes a pattern literally, and a
    /// parameter may be empty before a slash at the end.
    fn patterns_of(
        &self,
        text: &str,
    ) -> Result<impl Iterator<Item = Pattern> + use<>, ConfigError> {
        let pattern = Pattern::parse(text).map_err(|reason| ConfigError::Route {
            policy: self.name.to_string(),
            route: text.chars().take(128).collect(),
            reason,
        })?;
        let tidied = pattern.tidied();
        Ok([Some(pattern), tidied].into_iter().flatten())
    }
}

impl Conditions {
    /// The reason why no request is covered.
    fn contradiction(&self) -> Option<&'static str> {
        let mut methods = self.methods.iter();
        let mut routes = self.routes.iter().map(Pattern::route);
        let exempt: Vec<String> = self.exempt_routes.iter().map(Pattern::route).collect();
        if !self.methods.is_empty() && methods.all(|method| has(&self.exempt_methods, method)) {
            Some("all its methods are exempt")
        } else if !self.routes.is_empty() && routes.all(|route| exempt.contains(&route)) {
            Some("all its routes are exempt")
        } else {
            None
        }
    }

    fn hold(&self, request: &RequestView<'_>) -> bool {
        self.have_method(request.method())
            && !has(&self.exempt_methods, request.method())
            && self.have_host(request)
            && !self.is_from_exempt_network(request)
            && self.when.iter().all(|condition| condition(request))
    }

    /// The first condition that does not hold, in the order of [`hold`](Self::hold).
    fn unmet(&self, request: &RequestView<'_>) -> Option<Unmet> {
        if !self.have_method(request.method()) {
            Some(Unmet::Method)
        } else if has(&self.exempt_methods, request.method()) {
            Some(Unmet::ExemptMethod)
        } else if !self.have_host(request) {
            Some(Unmet::Host)
        } else if self.is_from_exempt_network(request) {
            Some(Unmet::ExemptNetwork)
        } else if !self.hold(request) {
            Some(Unmet::Condition)
        } else {
            None
        }
    }

    #[inline]
    fn have_method(&self, method: &Method) -> bool {
        self.methods.is_empty() || has(&self.methods, method)
    }

    #[inline]
    fn have_host(&self, request: &RequestView<'_>) -> bool {
        self.hosts.is_empty()
            || is_any_host(request, |host| {
                self.hosts.iter().any(|pattern| pattern.matches(host))
            })
    }

    #[inline]
    fn is_from_exempt_network(&self, request: &RequestView<'_>) -> bool {
        !self.exempt_networks.is_empty()
            && request.client_ip().is_some_and(|address| {
                let mut lists = self.exempt_networks.iter();
                lists.any(|list| list.contains(address))
            })
    }
}

fn has(methods: &[Method], method: &Method) -> bool {
    methods.contains(method) || (method == Method::HEAD && methods.contains(&Method::GET))
}

impl fmt::Debug for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conditions")
            .field("routes", &self.routes)
            .field("exempt_routes", &self.exempt_routes)
            .field("methods", &self.methods)
            .field("exempt_methods", &self.exempt_methods)
            .field("hosts", &self.hosts)
            .field("exempt_networks", &self.exempt_networks)
            .field("closures", &self.when.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Quota;

    #[test]
    fn what_is_no_route_or_host_is_refused_and_names_the_policy() {
        let policy = || Policy::new("login", Quota::per_second(1));
        let cases = [
            (
                policy().try_route("login"),
                "policy \"login\": route \"login\": does not start with /",
            ),
            (
                policy().try_exempt_route("/:id"),
                "policy \"login\": route \"/:id\": has the old syntax: write {name} or {*name}",
            ),
            (
                policy().try_host("http://x"),
                "policy \"login\": host \"http://x\": not a name or address without a port",
            ),
        ];
        for (result, expected) in cases {
            assert_eq!(result.unwrap_err().to_string(), expected);
        }
    }

    #[test]
    #[should_panic(expected = "policy \"login\": route \"login\"")]
    fn a_wrong_literal_fails_while_it_is_built() {
        drop(Policy::new("login", Quota::per_second(1)).route("login"));
    }
}
