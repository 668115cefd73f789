//! Limits that stand at the handler or the route, and not where the limiter is built.
//!
//! The annotation adds an argument to a handler, a [`Guard`], and a question to the beginning of a gRPC method;
//! [`MethodRouterExt`] adds a layer to a route. All of them
//! ask the limiter of the [`RateLimitLayer`](crate::RateLimitLayer) around them, in one decision of their own: a request pays
//! first what the layer's policies charge, and if it is refused further in, that comes back.

mod build;
mod claim;
pub(crate) mod entrance;
mod guard;
pub mod limits;
mod misuse;
pub(crate) mod name;
#[cfg(not(feature = "tonic"))]
pub mod no_method;
mod registry;
mod route;
pub mod rule;
pub(crate) mod site;

/// Limits an axum handler, or a method of a gRPC service, where it stands.
///
/// ```
/// use axum::{Router, routing::{get, post}};
/// use tollgate::{ClientIp, Limiter, Policy, Quota, RateLimitLayer, rate_limit};
///
/// // A limit of its own.
/// #[rate_limit("10/min", burst = 3, key = ClientIp)]
/// async fn login(form: String) -> &'static str {
///     "welcome"
/// }
///
/// // A policy of the limiter, by name.
/// #[rate_limit(policy = "search")]
/// async fn search() -> &'static str {
///     "found"
/// }
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let limiter = Limiter::builder()
///     .policy(Policy::new("search", Quota::per_second(5)).on_demand())
///     .build()?;
/// limiter.expects(["search"])?;
///
/// let app: Router = Router::new()
///     .route("/login", post(login))
///     .route("/search", get(search))
///     .layer(RateLimitLayer::new(limiter));
/// # Ok(()) }
/// ```
///
/// A key is a type, which may be your own:
///
/// ```
/// use tollgate::key::{KeyExtractor, KeyMissing};
/// use tollgate::{Key, RequestView, rate_limit};
///
/// #[derive(Default)]
/// struct ApiKey;
///
/// impl KeyExtractor for ApiKey {
///     fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
///         let key = request.headers().get("x-api-key").ok_or(KeyMissing::new("API key"))?;
///         Ok(Key::bytes(key.as_bytes()))
///     }
/// }
///
/// #[rate_limit("100/s", key = ApiKey)]
/// #[rate_limit("100000/day", key = ApiKey, name = "daily")]
/// async fn api() {}
/// ```
///
/// # What it does
///
#[cfg(feature = "macros")]
pub use tollgate_macros::rate_limit;

pub use self::guard::Guard;
pub use self::route::{MethodRouterExt, RouteQuotas};
