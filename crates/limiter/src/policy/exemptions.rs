//! Requests that cost nothing because the operator says so.
//!
//! A request is recognised by what the caller writes, and a caller may write anything. So the exemptions are narrow: every part
//! of the request has to be as a browser or a load balancer sends it.

use std::sync::Arc;

use http::header::{
    ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE,
    COOKIE, EXPECT, ORIGIN, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, Method};

use super::Policy;
use super::grpc::is_name;
use crate::RequestView;
use crate::matching::Pattern;

/// The requests that cost nothing under a policy, by their kind and not by their path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exemptions {
    preflights: bool,
    health_checks: bool,
    /// True if a route of the policy names one of gRPC's own services.
    names_health: bool,
    /// The methods of gRPC that policies of the limiter name.
    grpc: Option<Arc<[Pattern]>>,
}

/// Exemptions by the kind of a request. By default none is exempt, because the caller chooses what a request looks like.
impl Policy {
    /// Exempts CORS preflights, with which browsers ask for permission to send a request.
    ///
    /// A CORS layer belongs outside the limiter and answers preflights itself, so that few arrive here. Only a service that
    /// answers them behind the limiter needs this.
    ///
    /// Any client can send what a browser sends. **Each handler that answers `OPTIONS` then runs uncharged for any client**:
    /// `any(..)`, `options(..)`, a fallback. An exempt request has all of this:
    ///
    /// * `OPTIONS`, one `Origin` and one `Access-Control-Request-Method`;
    /// * nothing that browsers leave out of preflights: no `Content-Type`, no body (as far as headers tell), no `TE`, no
    ///   credentials (`Cookie`, `Authorization`), nothing of gRPC (`grpc-timeout`);
    /// * a path that no gRPC method has, because a gRPC server runs a method whatever the verb and the headers are. gRPC's paths
    ///   end in `/package.Service/Method`. Without a package they are taken for gRPC's if there is an upper-case letter in
    ///   `/Service/Method`, if axum matched them as tonic mounts a service (`/service/{*rest}`), or if a policy of the limiter
    ///   [names them](Self::grpc). A preflight for such a path is charged, also if it was a browser's.
    ///
    /// A limit that stands at the handler itself (`#[rate_limit]`, `MethodRouterExt`) is never exempt,
    /// and neither is a [message](Self::per_message).
    ///
    /// ```
    /// use tollgate::{Policy, Quota};
    ///
    /// let api = Policy::new("api", Quota::per_second(10)).exempt_preflights();
    /// ```
    #[must_use]
    pub fn exempt_preflights(mut self) -> Self {
        self.exemptions.preflights = true;
        self
    }

    /// Exempts calls to gRPC's own services for health checks and reflection.
    ///
    /// An exempt call is a `POST` of gRPC's content type to exactly one of these paths, as the caller sent it:
    /// `/grpc.health.v1.Health/Check`, `/grpc.health.v1.Health/Watch`, and `ServerReflectionInfo` of
    /// `grpc.reflection.v1.ServerReflection` and `grpc.reflection.v1alpha.ServerReflection`. Any client can send such calls
    /// without bound, and the handlers of these paths run uncharged. A server without such a service answers them with its
    /// fallback.
    ///
    /// A policy with a [route](Self::route) to one of these services covers its calls all the same: the route takes precedence. A
    /// limit that stands at the method itself (`#[rate_limit]`) is never exempt.
    ///
    /// ```
    /// use tollgate::{Policy, Quota};
    ///
    /// let calls = Policy::new("calls", Quota::per_second(10)).exempt_health_checks();
    /// ```
    #[must_use]
    pub fn exempt_health_checks(mut self) -> Self {
        self.exemptions.health_checks = true;
        self
    }
}

impl Exemptions {
    /// Adds what the whole limiter exempts, and the methods of gRPC that its policies name.
    pub(crate) fn extend(&mut self, preflights: bool, health_checks: bool, grpc: &Arc<[Pattern]>) {
        self.preflights |= preflights;
        self.health_checks |= health_checks;
        self.grpc = Some(Arc::clone(grpc));
    }

    /// Exempts no preflight after all: no message is one.
    pub(crate) fn charge_preflights(&mut self) {
        self.preflights = false;
    }

    /// Remembers that a route of the policy begins like this.
    pub(super) fn name_service(&mut self, service: &str) {
        self.names_health |= HEALTH_CHECKS.iter().any(|(health, _)| *health == service);
    }

    /// True if there is an exemption.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.preflights || self.health_checks
    }

    /// True if the request costs nothing.
    #[inline]
    pub(crate) fn free(&self, request: &RequestView<'_>) -> bool {
        self.any() && self.free_any(request)
    }

    #[inline(never)]
    fn free_any(&self, request: &RequestView<'_>) -> bool {
        (self.preflights && is_preflight(request) && !self.may_be_grpc(request))
            || (self.health_checks && !self.names_health && is_health_check(request))
    }

    /// True if a gRPC service might have a method of this path, also within a nest.
    fn may_be_grpc(&self, request: &RequestView<'_>) -> bool {
        let is_named = |form| {
            let mut named = self.grpc.iter().flat_map(|grpc| grpc.iter());
            named.any(|pattern| pattern.covers(form))
        };
        has_form_of_call(request) || request.path_forms(false).iter().any(is_named)
    }
}

/// True if the path looks like that of a gRPC method, or if axum matched it as tonic mounts a service.
pub(crate) fn has_form_of_call(request: &RequestView<'_>) -> bool {
    request.path_forms(false).iter().any(has_grpc_form)
        || request
            .matched_path()
            .is_some_and(|route| route.ends_with("/{*rest}"))
}

/// True if the request has everything that a browser sends, and nothing else.
fn is_preflight(request: &RequestView<'_>) -> bool {
    /// A preflight has none of these headers.
    const NEVER: [HeaderName; 10] = [
        CONTENT_TYPE,
        CONTENT_ENCODING,
        TRANSFER_ENCODING,
        TE,
        TRAILER,
        EXPECT,
        UPGRADE,
        COOKIE,
        AUTHORIZATION,
        PROXY_AUTHORIZATION,
    ];

    let headers = request.headers();
    request.method() == Method::OPTIONS
        && is_once(headers, &ORIGIN)
        && is_once(headers, &ACCESS_CONTROL_REQUEST_METHOD)
        && !NEVER.iter().any(|never| headers.contains_key(never))
        && headers
            .get_all(CONTENT_LENGTH)
            .iter()
            .all(|length| length == "0")
        && !headers
            .keys()
            .any(|name| name.as_str().starts_with("grpc-"))
}

fn is_once(headers: &HeaderMap, name: &HeaderName) -> bool {
    headers.get_all(name).iter().count() == 1
}

/// True if the path ends like that of a gRPC method.
fn has_grpc_form(path: &str) -> bool {
    let mut segments = path.rsplit('/');
    let (Some(method), Some(service)) = (segments.next(), segments.next()) else {
        return false;
    };
    let begins = |name: &str| name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let has_package = service.contains('.') && service.split('.').all(begins);
    let has_capital = |name: &str| name.bytes().any(|byte| byte.is_ascii_uppercase());
    let are_names = is_name(service) && is_name(method);
    has_package || (are_names && (has_capital(service) || has_capital(method)))
}

/// The services that gRPC itself defines for load balancers and tools, with their methods.
const HEALTH_CHECKS: [(&str, &[&str]); 3] = [
    ("grpc.health.v1.Health", &["Check", "Watch"]),
    (
        "grpc.reflection.v1.ServerReflection",
        &["ServerReflectionInfo"],
    ),
    (
        "grpc.reflection.v1alpha.ServerReflection",
        &["ServerReflectionInfo"],
    ),
];

/// True if this is a call to one of these methods, as the service would see it and as the caller sent it.
fn is_health_check(request: &RequestView<'_>) -> bool {
    let path = request.original_uri().path();
    // Few begin like this.
    request.method() == Method::POST
        && path.starts_with("/grpc.")
        && request.uri().path() == path
        && has_health_path(path)
        && has_grpc_content(request.headers())
}

fn has_health_path(path: &str) -> bool {
    let parts = path.strip_prefix('/').and_then(|path| path.split_once('/'));
    parts.is_some_and(|(service, method)| {
        let mut services = HEALTH_CHECKS.iter();
        services.any(|(name, methods)| *name == service && methods.contains(&method))
    })
}

/// True if the one content type is gRPC's, in any encoding of the messages.
fn has_grpc_content(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(CONTENT_TYPE).iter();
    let (Some(only), None) = (lines.next(), lines.next()) else {
        return false;
    };
    let encoding = only.as_bytes().strip_prefix(b"application/grpc");
    matches!(encoding, Some([] | [b'+' | b';', ..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_a_grpc_method_could_have_are_told_by_their_end() {
        let cases = [
            ("/shop.v1.Orders/Place", true),
            ("/api/shop.v1.Orders/Place", true),
            ("/shop.v1.orders/place", true),
            ("/Orders/Place", true),
            ("/Orders/place", true),
            ("/orders/placeOrder", true),
            ("/", false),
            ("/Login", false),
            ("/login", false),
            ("/api/users", false),
            ("/v1.0/users", false),
            ("/users/7", false),
            ("/Users/7", false),
            ("/shop.v1.Orders", false),
            ("/api.v1/user-list", true),
            ("/files/READ-ME.md", false),
        ];
        for (path, expected) in cases {
            assert_eq!(has_grpc_form(path), expected, "{path}");
        }
    }

    #[test]
    fn health_checks_have_these_paths_and_no_others() {
        for path in [
            "/grpc.health.v1.Health/Check",
            "/grpc.health.v1.Health/Watch",
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        ] {
            assert!(has_health_path(path), "{path}");
        }
        for path in [
            "/grpc.health.v1.Health/",
            "/grpc.health.v1.Health",
            "/grpc.health.v1.Health/x",
            "/grpc.health.v1.Health/check",
            "/grpc.health.v1.Health/Check/",
            "/grpc.health.v1.Health//Check",
            "//grpc.health.v1.Health/Check",
            "/grpc.health.v1.Health/%43heck",
            "/grpc.health.v1.Health/../../admin/login",
            "/grpc.health.v1.Health/ServerReflectionInfo",
            "/grpc.health.v2.Health/Check",
        ] {
            assert!(!has_health_path(path), "{path}");
        }
    }
}
