//! The tower layer.

mod conclusion;
#[cfg(feature = "tonic")]
mod deadline;
mod future;
#[cfg(feature = "axum")]
mod inner_limits;
#[cfg(feature = "tonic")]
mod named;
mod service;

use std::fmt;
use std::sync::Arc;

use tollgate_limiter::Limiter;
use tower_layer::Layer;

pub use self::conclusion::Passage;
#[cfg(feature = "tonic")]
pub use self::deadline::Deadline;
pub use self::future::ResponseFuture;
#[cfg(feature = "axum")]
pub(crate) use self::inner_limits::InnerLimits;
pub use self::service::RateLimitService;

use http::HeaderValue;

use crate::answer::{
    Answers, GrpcAnswers, IntoAnswer, Jitter, ProblemJson, RateLimitHeaders, Refusal, Respond,
};
use crate::settings::Config;

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
/// The longest is still a sentence:
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
/// A refused request never reaches the service. Errors, readiness and request bodies pass through unchanged. The service must be
/// `Clone`, because a request that waits for the backend holds the service that was ready.
///
/// # What callers are told
///
#[doc = include_str!("answer/outcomes.md")]
#[derive(Clone)]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct RateLimitLayer {
    config: Arc<Config>,
}

impl RateLimitLayer {
    /// The settings that the services of this layer share, for other transports.
    #[doc(hidden)]
    #[must_use]
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// Makes a layer of a [`Limiter`]. A [`Policy`](tollgate_limiter::Policy) or a [`Quota`](tollgate_core::Quota) becomes a
    /// limiter by itself.
    pub fn new(limiter: impl Into<Limiter>) -> Self {
        Self {
            config: Arc::new(Config {
                limiter: limiter.into(),
                answers: Answers::default(),
                status: true,
            }),
        }
    }

    /// Answers refused requests in another form than [`ProblemJson`](crate::ProblemJson): as
    /// [`PlainText`](crate::PlainText), with a redirect to a waiting room ([`SeeOther`](crate::SeeOther)), or in one of your
    /// own.
    ///
    /// ```
    /// use tollgate::{Quota, RateLimitLayer, SeeOther};
    ///
    /// let layer = RateLimitLayer::new(Quota::per_second(10)).respond(SeeOther::at("/waiting-room"));
    /// ```
    pub fn respond(mut self, respond: impl Respond) -> Self {
        self.answers(|answers| answers.respond(respond));
        self
    }

    /// Answers refused requests with the result of a closure: a response of text or bytes, or, with the feature `axum`, anything
    /// that a handler may return.
    ///
    /// The layer adds `Retry-After`, `Cache-Control: no-store` and the RateLimit fields, unless the answer has them. The answer
    /// need not be a refusal:
    ///
    /// ```
    /// use http::Response;
    /// use tollgate::{Quota, RateLimitLayer};
    ///
    /// const CACHED: &str = "the front page, as it was a minute ago";
    ///
    /// let layer = RateLimitLayer::new(Quota::per_second(10)).respond_with(|_| Response::new(CACHED));
    ///
    /// // The usual status, another body:
    /// let layer = RateLimitLayer::new(Quota::per_second(10))
    ///     .respond_with(|refusal| refusal.response("slow down, please\n"));
    ///
    /// # #[cfg(feature = "axum")] {
    /// // What a handler might return:
    /// use axum::Json;
    ///
    /// let layer = RateLimitLayer::new(Quota::per_second(10)).respond_with(|refusal| {
    ///     let seconds = refusal.retry_after().map(|wait| wait.as_secs());
    ///     (refusal.status(), Json(vec![seconds]))
    /// });
    /// # }
    /// ```
    ///
    /// The body has to be complete when the closure returns, and no larger than 1 MiB. A body that has to be waited for is
    /// replaced by the usual answer, and an error in the log says so.
    pub fn respond_with<Via, A: IntoAnswer<Via>>(
        self,
        respond: impl Fn(&Refusal<'_>) -> A + Send + Sync + 'static,
    ) -> Self {
        self.respond(move |refusal: &Refusal<'_>| {
            respond(refusal).into_answer().unwrap_or_else(|| {
                tracing::error!("the body of an answer to a refused request has to be waited for; the usual answer is sent");
                ProblemJson.respond(refusal)
            })
        })
    }

    /// Asks callers without an identity for credentials, under [`OnMissing::Deny`](tollgate_limiter::OnMissing::Deny): 401 with
    /// this `WWW-Authenticate` rather than 403, and `UNAUTHENTICATED` over gRPC.
    ///
    /// ```
    /// use http::HeaderValue;
    /// use tollgate::key::Header;
    /// use tollgate::{OnMissing, Policy, Quota, RateLimitLayer};
    ///
    /// let policy = Policy::new("api", Quota::per_second(10))
    ///     .key(Header::new("authorization"))
    ///     .on_missing(OnMissing::Deny);
    /// let layer = RateLimitLayer::new(policy).challenge(HeaderValue::from_static("Bearer"));
    /// ```
    ///
    /// It is not the default, because a 401 has to name a scheme. Only the operator knows the scheme, and a key that is not a
    /// credential has none.
    pub fn challenge(mut self, challenge: HeaderValue) -> Self {
        self.answers(|answers| answers.challenge(challenge));
        self
    }

    /// Writes the state of budgets in another [form](crate::HeaderForm) than draft-11, in several forms, of all policies rather
    /// than the tightest, or only when little is left: see [`RateLimitHeaders`].
    ///
    /// ```
    /// use tollgate::{HeaderForm, Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::new(Quota::per_second(10)).headers(HeaderForm::Legacy);
    /// ```
    pub fn headers(mut self, headers: impl Into<RateLimitHeaders>) -> Self {
        self.answers(|answers| answers.headers(Some(headers.into())));
        self
    }

    /// Sets the parts of a gRPC refusal beyond the status: see [`GrpcAnswers`].
    ///
    /// ```
    /// use tollgate::{GrpcAnswers, Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::new(Quota::per_second(10)).grpc(GrpcAnswers::new().domain("shop.example.com"));
    /// ```
    pub fn grpc(mut self, answers: GrpcAnswers) -> Self {
        self.answers(|all| all.grpc(answers));
        self
    }

    /// Leaves the RateLimit fields out. `Retry-After` stays, so that a refused caller knows when to come back.
    ///
    /// ```
    /// use tollgate::{Quota, RateLimitLayer};
    ///
    /// // A service between services, whose callers read no such fields.
    /// let layer = RateLimitLayer::new(Quota::per_second(10)).without_headers();
    /// ```
    pub fn without_headers(mut self) -> Self {
        self.answers(|answers| answers.headers(None));
        self
    }

    /// Lets pages in browsers read the headers that this layer writes: it names them, and `Retry-After`, in
    /// `Access-Control-Expose-Headers`, beside those that are named there already.
    ///
    /// The rest of CORS belongs outside the limiter, or a page could not even read a refusal. A `CorsLayer` of tower-http with
    /// `expose_headers` of its own replaces these: name the headers there instead.
    ///
    /// ```
    /// use tollgate::{Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::new(Quota::per_second(10)).expose_headers();
    /// ```
    pub fn expose_headers(mut self) -> Self {
        self.answers(Answers::expose);
        self
    }

    /// Adds a random time to `Retry-After`, so that refused callers do not all come back at once: see [`Jitter`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::new(Quota::per_minute(100)).jitter(Duration::from_secs(5));
    /// ```
    pub fn jitter(mut self, jitter: impl Into<Jitter>) -> Self {
        self.answers(|answers| answers.jitter(jitter.into()));
        self
    }

    /// Puts no [`RateLimitStatus`](crate::RateLimitStatus) into requests, which saves an allocation.
    ///
    /// The layer then refunds nothing if a limit further in refuses the request. A request under a policy that looks at its
    /// response still carries one.
    ///
    /// ```
    /// use tollgate::{Quota, RateLimitLayer};
    ///
    /// // No handler behind it reads a `RateLimitStatus`.
    /// let layer = RateLimitLayer::new(Quota::per_second(10)).without_status();
    /// ```
    pub fn without_status(mut self) -> Self {
        Arc::make_mut(&mut self.config).status = false;
        self
    }

    fn answers(&mut self, change: impl FnOnce(&mut Answers)) {
        change(&mut Arc::make_mut(&mut self.config).answers);
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
