//! The tower layer.

#[allow(dead_code, reason = "annotations, which come next, use it")]
mod further;
mod future;
#[cfg(feature = "tonic")]
mod interceptor;
#[cfg(feature = "tonic")]
mod named;
mod service;

use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;

#[allow(unused_imports, reason = "the same")]
pub(crate) use self::further::Further;
pub use self::future::ResponseFuture;
#[cfg(feature = "tonic")]
pub use self::interceptor::RateLimitInterceptor;
pub use self::service::RateLimitService;

use bytes::Bytes;
use http::{Request, Response};

use crate::answer::{Dialect, GrpcAnswers, Refusal, Respond, Responder};
use crate::limiter::Limiter;

/// Limits the requests to the service that it wraps.
///
/// The shortest form limits each client address, in memory:
///
/// ```
/// # #[cfg(feature = "axum")] {
/// use axum::{Router, routing::get};
/// use tollgate::{Quota, RateLimitLayer};
///
/// let app: Router = Router::new()
///     .route("/", get(|| async { "hello" }))
///     .layer(RateLimitLayer::new(Quota::per_second(10)));
/// # }
/// ```
///
/// and the longest is still a sentence:
///
/// ```
/// # #[cfg(feature = "axum")]
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// use axum::{Router, routing::get};
/// use tollgate::key::{Global, Header};
/// use tollgate::{Limiter, Policy, Quota, RateLimitLayer};
///
/// let limiter = Limiter::builder()
///     .policy(Policy::new("api", Quota::per_second(10).burst(50)).key(Header::new("x-api-key")))
///     .policy(Policy::new("everything", Quota::per_second(5_000)).key(Global))
///     .build()?;
///
/// let app: Router = Router::new()
///     .route("/", get(|| async { "hello" }))
///     .layer(RateLimitLayer::new(limiter).without_headers());
/// # Ok(()) }
/// # #[cfg(not(feature = "axum"))] fn main() {}
/// ```
///
/// The layer goes around a whole router, a route, a method router, a `ServiceBuilder`'s stack, a tonic server or one service of
/// it. Clones of it, and of the services that it makes, share their budgets.
///
/// # What it does to the service
///
/// A refused request never reaches it. Its errors, its readiness and its request bodies pass through as they are. It must be
/// `Clone`, because a backend that waits takes the service that was found ready along with the request.
#[derive(Clone)]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct RateLimitLayer {
    config: Arc<Config>,
}

/// What the services of one layer share.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) limiter: Limiter,
    responder: Responder,
    grpc: GrpcAnswers,
    /// Whether the RateLimit fields are written.
    fields: bool,
    /// Whether requests carry a handle.
    status: bool,
}

impl RateLimitLayer {
    /// A layer around a [`Limiter`], or a [`Policy`](crate::Policy) or [`Quota`](crate::Quota) that is all of one.
    pub fn new(limiter: impl Into<Limiter>) -> Self {
        Self {
            config: Arc::new(Config {
                limiter: limiter.into(),
                responder: Responder::Prepared,
                grpc: GrpcAnswers::new(),
                fields: true,
                status: true,
            }),
        }
    }

    /// Answers refused requests in another form than [`ProblemJson`](crate::ProblemJson).
    pub fn respond_with(mut self, respond: impl Respond) -> Self {
        self.change(|config| config.responder = Responder::Custom(Arc::new(respond)));
        self
    }

    /// What answers over gRPC say beyond the status.
    pub fn grpc(mut self, answers: GrpcAnswers) -> Self {
        self.change(|config| config.grpc = answers);
        self
    }

    /// Leaves the RateLimit fields out. `Retry-After` stays: whoever is refused is told when to come back.
    pub fn without_headers(mut self) -> Self {
        self.change(|config| config.fields = false);
        self
    }

    /// Does not put a [`RateLimitStatus`](crate::RateLimitStatus) into requests, which saves the allocation of one.
    pub fn without_status(mut self) -> Self {
        self.change(|config| config.status = false);
        self
    }

    fn change(&mut self, f: impl FnOnce(&mut Config)) {
        f(Arc::make_mut(&mut self.config));
    }
}

impl Config {
    /// The whole answer to a refusal, in the protocol that the caller speaks.
    pub(crate) fn answer(&self, refusal: &Refusal<'_>, fields: bool) -> Response<Bytes> {
        let request = refusal.request();
        match Dialect::of(request.method(), request.headers()) {
            Some(dialect) => self.grpc.answer(dialect, refusal, fields),
            None => self.responder.answer(refusal, fields),
        }
    }

    /// Whether the RateLimit fields are written on the response to this request.
    #[inline]
    fn writes_fields<B>(&self, request: &Request<B>) -> bool {
        self.fields
            && (self.grpc.writes_fields()
                || Dialect::of(request.method(), request.headers()).is_none())
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimitService<S>;

    fn layer(&self, inner: S) -> RateLimitService<S> {
        RateLimitService::new(inner, Arc::clone(&self.config))
    }
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("config", &self.config)
            .finish()
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("limiter", &self.limiter)
            .field("fields", &self.fields)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}
