//! Limits on a route, without an annotation.

use std::collections::HashMap;
use std::convert::Infallible;
use std::panic::Location;
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};

use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::MethodRouter;
use http::Method;
use tollgate_core::{Concurrent, Quota};
use tollgate_limiter::transport::literal;

use super::guard::enter_route;
use super::name;
use super::rule::{OwnPolicy, Rule};
use super::site::{Owner, Site};

/// Limits on axum's method routers.
///
/// ```
/// use axum::{Router, routing::get};
/// use tollgate::{Limiter, MethodRouterExt, Policy, Quota, RateLimitLayer};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let limiter = Limiter::builder()
///     .policy(Policy::new("search", Quota::per_second(5)).on_demand())
///     .build()?;
///
/// let app: Router = Router::new()
///     .route("/export", get(|| async { "a lot" }).rate_limit("2/hour"))
///     .route("/search", get(|| async { "a little" }).rate_limit_by("search"))
///     .layer(RateLimitLayer::new(limiter));
/// # Ok(()) }
/// ```
///
/// The handlers that the route has so far are limited, as by axum's `route_layer`: requests of other methods are answered with
/// 405 and not charged. A route with a fallback (`any(..)`, `.fallback(..)`) answers every method, so that all its methods share
/// one budget, called `any/export`. Methods that have limits of their own are joined when they have them:
///
/// ```
/// use axum::{Router, routing::{get, post}};
/// use tollgate::MethodRouterExt;
///
/// let notes = get(|| async { "notes" }).rate_limit("10/s").merge(post(|| async {}).rate_limit("1/s"));
/// let app: Router = Router::new().route("/notes", notes);
/// ```
///
/// A request is refused before its body is read. As with [`rate_limit`](macro@crate::rate_limit), a
/// [`RateLimitLayer`](crate::RateLimitLayer) has to surround the route, which answers 500 without one.
pub trait MethodRouterExt: Sized + private::Sealed {
    /// Limits each client address to this quota, or to all of several: `"2/hour"`, a [`Quota`], a [`Concurrent`], or an array or a
    /// tuple of them.
    ///
    /// The limit is called by method and route, such as `get/export`, so that each has budgets of its own; `HEAD` counts as
    /// `GET`. A limit with another key or name is a policy of the limiter: see [`rate_limit_by`](Self::rate_limit_by).
    ///
    /// # Panics
    ///
    /// While the route is built, if a text is not a quota, or if the route has no handler yet.
    #[track_caller]
    #[must_use]
    fn rate_limit(self, quotas: impl RouteQuotas) -> Self;

    /// Charges requests under the policy of this name, even if the policy's own conditions do not cover them. Only its exempt
    /// networks stay exempt.
    /// [`Policy::on_demand`](tollgate_limiter::Policy::on_demand) is for policies that are only charged by name.
    ///
    /// # Panics
    ///
    /// While the route is built, if it has no handler yet.
    #[track_caller]
    #[must_use]
    fn rate_limit_by(self, policy: &str) -> Self;
}

impl<S> MethodRouterExt for MethodRouter<S, Infallible>
where
    S: Clone + Send + Sync + 'static,
{
    fn rate_limit(self, quotas: impl RouteQuotas) -> Self {
        limited(self, RouteRule::Quotas(quotas.into_quotas()))
    }

    fn rate_limit_by(self, policy: &str) -> Self {
        limited(self, RouteRule::Policy(policy.to_owned()))
    }
}

/// The quotas that [`MethodRouterExt::rate_limit`] takes: a text such as `"2/hour"`, a [`Quota`], a [`Concurrent`], or an array or
/// a tuple of them.
///
/// ```
/// use axum::{Router, routing::get};
/// use tollgate::{Concurrent, MethodRouterExt, Quota, RouteQuotas};
///
/// fn search(quotas: impl RouteQuotas) -> Router {
///     Router::new().route("/search", get(|| async {}).rate_limit(quotas))
/// }
///
/// let app = search("2/hour");
/// let app = search([Quota::per_second(10), Quota::per_day(1_000)]);
/// let app = search((Quota::per_minute(30), Concurrent::at_most(5)));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a quota of a route",
    note = "use a text such as \"2/hour\", a `Quota`, a `Concurrent`, or an array or a tuple of them"
)]
pub trait RouteQuotas: private::Sealed {
    #[doc(hidden)]
    #[track_caller]
    fn into_quotas(self) -> Vec<Quota>;
}

impl RouteQuotas for Quota {
    fn into_quotas(self) -> Vec<Quota> {
        vec![self]
    }
}

impl RouteQuotas for Concurrent {
    fn into_quotas(self) -> Vec<Quota> {
        vec![self.into()]
    }
}

impl RouteQuotas for &str {
    #[track_caller]
    fn into_quotas(self) -> Vec<Quota> {
        literal(Quota::parse_all(self).map_err(|error| format!("quota {self:?}: {error}")))
    }
}

impl<Q: RouteQuotas, const N: usize> RouteQuotas for [Q; N] {
    #[track_caller]
    fn into_quotas(self) -> Vec<Quota> {
        let mut quotas = Vec::with_capacity(N);
        // A closure would be named as the place, not the caller.
        for quota in self {
            quotas.extend(quota.into_quotas());
        }
        quotas
    }
}

impl<A: RouteQuotas, B: RouteQuotas> RouteQuotas for (A, B) {
    #[track_caller]
    fn into_quotas(self) -> Vec<Quota> {
        let mut quotas = self.0.into_quotas();
        quotas.extend(self.1.into_quotas());
        quotas
    }
}

impl<A: RouteQuotas, B: RouteQuotas, C: RouteQuotas> RouteQuotas for (A, B, C) {
    #[track_caller]
    fn into_quotas(self) -> Vec<Quota> {
        ((self.0, self.1), self.2).into_quotas()
    }
}

#[track_caller]
fn limited<S>(route: MethodRouter<S, Infallible>, what: RouteRule) -> MethodRouter<S, Infallible>
where
    S: Clone + Send + Sync + 'static,
{
    let handlers = Handlers::of(&route);
    #[expect(clippy::panic, reason = "routes fail while they are built, by design")]
    if handlers == Handlers::None {
        panic!(
            "a limit covers the handlers that the route has so far, and this one has none: add them before the limit"
        );
    }
    let has_fallback = handlers == Handlers::WithFallback;
    let limit = RouteLimit::keep(Location::caller(), what, has_fallback);
    if has_fallback {
        route.layer(from_fn_with_state(limit, pass))
    } else {
        route.route_layer(from_fn_with_state(limit, pass))
    }
}

/// The methods for which a route has handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handlers {
    None,
    Methods,
    WithFallback,
}

impl Handlers {
    /// axum shows it only in `Debug`. If its words change, each route counts as one with a fallback: then a 405 is charged, and
    /// nothing passes uncharged.
    fn of<S>(route: &MethodRouter<S, Infallible>) -> Self {
        let shown = format!("{route:?}");
        let has_method = || shown.contains(": BoxedHandler") || shown.contains(": Route");
        if !shown.contains("fallback: Default(") {
            Self::WithFallback
        } else if has_method() {
            Self::Methods
        } else {
            Self::None
        }
    }
}

async fn pass(State(limit): State<&'static RouteLimit>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    match enter_route(limit, &mut parts).await {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(response) => response,
    }
}

/// The limit of a route. It lives as long as the process, so that its address identifies it. Equal limits on one line of the
/// source are one, so that the program bounds their number, however often it builds its routes.
#[derive(Debug)]
struct RouteLimit {
    place: &'static Location<'static>,
    what: RouteRule,
    /// True if the route answers every method, with one budget for all of them.
    has_fallback: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum RouteRule {
    Quotas(Vec<Quota>),
    Policy(String),
}

impl RouteLimit {
    fn keep(
        place: &'static Location<'static>,
        what: RouteRule,
        has_fallback: bool,
    ) -> &'static Self {
        type KeptLimits =
            HashMap<(&'static Location<'static>, RouteRule, bool), &'static RouteLimit>;
        static KEPT: OnceLock<Mutex<KeptLimits>> = OnceLock::new();

        let mut kept = KEPT
            .get_or_init(Mutex::default)
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        kept.entry((place, what.clone(), has_fallback))
            .or_insert_with(|| {
                Box::leak(Box::new(Self {
                    place,
                    what,
                    has_fallback,
                }))
            })
    }
}

impl Site for RouteLimit {
    fn owner(&self) -> Owner {
        Owner::Route(ptr::from_ref(self).addr())
    }

    fn family(&self, method: &Method) -> &'static str {
        if self.has_fallback {
            "ANY"
        } else {
            name::family(method)
        }
    }

    fn who(&self) -> String {
        "the handler".to_owned()
    }

    fn place(&self) -> String {
        format!("{}:{}", self.place.file(), self.place.line())
    }

    fn rules(&self) -> Vec<Rule> {
        vec![match &self.what {
            RouteRule::Quotas(quotas) => Rule::Inline(OwnPolicy {
                quotas: quotas.clone(),
                name: None,
                finish: |policy| policy,
            }),
            RouteRule::Policy(policy) => Rule::Named {
                policy: policy.clone(),
                cost: None,
            },
        }]
    }

    fn name(&self, method: &str, route: &str) -> String {
        name::of_route(method, route)
    }

    fn other_name(&self) -> &'static str {
        "make it a policy of the limiter and use `.rate_limit_by(\"..\")`"
    }
}

mod private {
    use std::convert::Infallible;

    use axum::routing::MethodRouter;

    use tollgate_core::{Concurrent, Quota};

    pub trait Sealed {}

    impl<S> Sealed for MethodRouter<S, Infallible> {}
    impl Sealed for Quota {}
    impl Sealed for Concurrent {}
    impl Sealed for &str {}
    impl<Q: Sealed, const N: usize> Sealed for [Q; N] {}
    impl<A: Sealed, B: Sealed> Sealed for (A, B) {}
    impl<A: Sealed, B: Sealed, C: Sealed> Sealed for (A, B, C) {}
}
