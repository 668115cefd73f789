//! Rate limiting for tower, axum and tonic: per route, per caller, exact, in memory or shared.
//!
//! ```
//! # #[cfg(feature = "axum")] {
//! use axum::{Router, routing::get};
//! use tollgate::{Quota, RateLimitLayer};
//!
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .layer(RateLimitLayer::new(Quota::per_second(10)));
//! # }
//! ```
//!
//! Callers are told apart by their address, which axum knows if the router is served by
//! `.into_make_service_with_connect_info::<SocketAddr>()`. Without it all callers share one budget, and a warning says so.
//!
//! Six words are enough to read the rest:
//!
//! | word | meaning |
//! | --- | --- |
//! | [`Quota`] | how much, per how long, by which [`Algorithm`]: `Quota::per_second(10).burst(20)` |
//! | [`Policy`] | a name, the requests that it covers, the key, the cost, and one or more quotas |
//! | [`key`] | the identity that has a budget: an address, a header, a cookie, or anything else in a request |
//! | [`Limiter`] | policies, a backend, and the rule for when the backend fails |
//! | [`Backend`] | keeps the budgets and decides; [`MemoryBackend`] unless you name another |
//! | [`RateLimitLayer`] | the tower layer: it asks the limiter and answers refused requests |
//!
//! # Where to go from here
//!
//! | question | answer |
//! | --- | --- |
//! | How do I limit a route, a method, a host? | [`Policy::route`], [`Policy::method`], [`Policy::host`] |
//! | How do I limit one handler where it stands? | [`rate_limit`], [`MethodRouterExt`] |
//! | How do paying customers get more? | [`Tiers`] |
//! | How does each customer get the quota that the database states? | [`QuotaLookup`] |
//! | How do I charge what a request really cost? | [`Policy::count_if`], [`Policy::settle_by`], [`RateLimitStatus::settle`] |
//! | How do I limit how many uploads, streams or sockets a caller has at once? | [`Concurrent`], [`Hold`] |
//! | How do important requests pass when a budget runs short? | [`Policy::keep_for`] |
//! | How do I limit a job that is not a request? | [`Limiter::check`] |
//! | How do I try a limit before it is enforced? | [`Policy::shadow`], [`LimiterBuilder::observe`] |
//! | How do I change limits while the service runs? | [`Limiter::replace`], [`config::watch`] |
//! | How do I turn a limit off that harms? | [`Limiter::switch`] |
//! | Which callers are denied most? | [`Limiter::offenders`] |
//! | Which caller is it, behind a proxy? | [`ClientAddress`] |
//! | How does a refused request look? | [`RateLimitLayer`], [`Respond`], [`RateLimitHeaders`] |
//! | How do I write a backend, or a wrapper around one? | [`Backend`], [docs/backends.md][backends] |
//!
//! # Testing
//!
//! A [`ManualClock`] stands still until a test moves it, so that no test sleeps. A handler test without a socket states the
//! caller with axum's `MockConnectInfo`: see [`ClientIp`].
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{Limiter, ManualClock, MemoryBackend, Policy, Quota};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = ManualClock::new();
//! let limiter = Limiter::builder()
//!     .policy(Policy::new("mail", Quota::per_minute(1)))
//!     .backend(MemoryBackend::builder().clock(clock.clone()).build())
//!     .build()?;
//!
//! assert!(limiter.check("mail", "alice").await?.is_allowed());
//! assert!(!limiter.check("mail", "alice").await?.is_allowed());
//! clock.advance(Duration::from_secs(60));
//! assert!(limiter.check("mail", "alice").await?.is_allowed());
//! # Ok(()) }
//! ```
//!
//! # More kinds of limits
//!
//! | limit | how it is stated |
//! | --- | --- |
//! | requests at once | [`Concurrent`] as a quota of a policy |
//! | a rate that requests wait for | [`Quota::wait_up_to`]; [`Limiter::acquire`] elsewhere |
//! | a ban after denials or failures | [`Ban`] and [`Policy::ban`]; [`Limiter::ban`] by hand |
//! | a share kept for important requests | [`Policy::class_by`] and [`Policy::keep_for`] |
//! | quotas that your own data states | [`Policy::quota_by_async`] and [`Tiers`] |
//! | fewer requests under pressure | [`Shedding`] and [`LimiterBuilder::shed`] |
//!
//! # Configuration
//!
//! With the feature `serde` a whole limiter is read from TOML, YAML or JSON: see [`config`]. The reference,
//! [docs/configuration.md][reference], lists every key with its type, its default and a line of TOML.
//!
//! # Fleets
//!
//! With the feature `redis` all processes share one budget: a [`RedisBackend`] asks one server, a master behind Sentinels, or a
//! cluster. [docs/redis.md][redis] is for the operator of that server.
//!
//! ```no_run
//! # #[cfg(feature = "redis")]
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use tollgate::{Limiter, Policy, Quota, RedisBackend};
//!
//! let limiter = Limiter::builder()
//!     .policy(Policy::new("api", Quota::per_second(10)))
//!     .backend(RedisBackend::connect("redis://127.0.0.1/").await?)
//!     .build()?;
//! # Ok(()) }
//! ```
//!
//! # gRPC
//!
//! [`RateLimitLayer`] limits tonic servers as well (feature `tonic`). A refusal is `RESOURCE_EXHAUSTED` with the time to wait.
//! [`Policy::grpc`] names methods, [`MessageLimitLayer`] limits the messages of streams, [`rate_limit`] stands at a method,
//! [`RateLimitInterceptor`] limits one service, and [`proto`] reads limits from `.proto` files.
//!
//! # Other frameworks
//!
//! [`RateLimitLayer`] is a plain tower layer over `http::Request`, so that it goes around hyper or a `ServiceBuilder`. The
//! server puts the peer's address into the request as a [`PeerAddr`]. A service with a response body of its own type gets an
//! [`AnyBodyLayer`].
//!
//! ```
//! use std::convert::Infallible;
//! use std::net::SocketAddr;
//! use bytes::Bytes;
//! use http::{Request, Response};
//! use http_body_util::Full;
//! use tollgate::{PeerAddr, Quota, RateLimitLayer};
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
//! let service = ServiceBuilder::new()
//!     .layer(RateLimitLayer::new(Quota::per_minute(1)))
//!     .service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello"))));
//!
//! let get = || {
//!     let mut request = Request::new(());
//!     // As accepted from the listener.
//!     request.extensions_mut().insert(PeerAddr(SocketAddr::from(([203, 0, 113, 7], 4711))));
//!     service.clone().oneshot(request)
//! };
//! assert_eq!(get().await?.status(), 200);
//! assert_eq!(get().await?.status(), 429);
//! # Ok(()) }
//! ```
//!
//! # Failure
//!
//! A failure is not a denial. [`OnFailure`] is the rule of each policy: let the request pass (the default),
//! refuse it with 503, or decide by a budget of this process. [`Limiter::failures`] counts, and the log says when an outage
//! begins and ends.
//!
//! # What is guaranteed
//!
//! * **All or nothing.** All enforced policies that cover a request charge it, or none does. A refused request costs nothing.
//! * **`Retry-After` is a promise.** A caller that waits that long, and is alone on its budget, passes.
//! * **Exact.** No floating-point numbers, no drift, no rounding in the caller's favour.
//! * **Nothing in a request is trusted** unless you say so. By default callers are told apart by their socket's address.
//! * **A refusal is never a failure**, nor the other way round: 429 is for a caller over quota, 503 for a limiter that cannot
//!   decide and was told to refuse.
//!
//! # Features
//!
//! | feature | what it adds |
//! | --- | --- |
//! | `axum` (default) | peer addresses from `ConnectInfo`, [`RateLimitStatus`] as an extractor, answers in axum's body |
//! | `calendar` | [`Calendar`]: quotas per day, week, month or year of a time zone |
//! | `json` | [`key::JsonField`]: an identity from a JSON body |
//! | `macros` (default) | [`rate_limit`], the annotation for axum handlers and gRPC methods |
//! | `metrics` | [`LimiterBuilder::metrics`]: counts and histograms for whatever recorder is installed |
//! | `proto` | [`proto::Contract`]: limits from the options of a gRPC service |
//! | `redis` | [`RedisBackend`]: one budget for a whole fleet |
//! | `redis-tls` | [`RedisBackend`] over `rediss://` |
//! | `serde` | [`config`]: policies and limiters as plain data, for a configuration file |
//! | `tls` | [`key::PeerCertificate`]: an identity from the certificate that a caller shows to tonic |
//! | `tonic` | peer addresses from tonic's connections, answers in tonic's body and with gRPC's error details |
//!
//! [backends]: https://github.com/tollgate-rs/tollgate/blob/main/docs/backends.md
//! [redis]: https://github.com/tollgate-rs/tollgate/blob/main/docs/redis.md
//! [reference]: https://github.com/tollgate-rs/tollgate/blob/main/docs/configuration.md
// The page speaks of all features. Links to items of a feature that is off lead nowhere, and are not a mistake.
#![cfg_attr(
    not(all(
        feature = "calendar",
        feature = "json",
        feature = "macros",
        feature = "metrics",
        feature = "proto",
        feature = "redis-tls",
        feature = "serde",
        feature = "tls"
    )),
    allow(rustdoc::broken_intra_doc_links)
)]

pub use tollgate_core::{
    Admin, Algorithm, Answer, Backend, BackendError, Ban, BanList, BannedCaller, Calendar, Call,
    Capabilities, Capability, Charge, Clock, Concurrent, DEBT_CEILING, Decision, FailureKind,
    Figure, ImmediateBackend, Key, KeyKind, Lease, MAX_BUCKETS, MAX_CHARGES, MAX_COLD_FACTOR,
    MAX_DRAIN, MAX_LIMIT, MAX_LOG_LIMIT, MAX_NAME_LEN, MAX_ONCE_LIFE, MAX_PERIOD, MAX_REPLAYS,
    MAX_STRIKES, MAX_WAIT, MAX_WAIT_INTERVALS, MAX_WARM_UP, ManualClock, Mode, Once, Outcome,
    ParseQuotaError, Quota, QuotaError, Receipt, RetryAfter, Scope, Settlement, Timestamp, Unit,
    Verdict, Zone,
};
#[cfg(feature = "tonic")]
pub use tollgate_grpc::{
    MessageBody, MessageLimitFuture, MessageLimitLayer, MessageLimitService, RateLimitInterceptor,
};
#[cfg(feature = "macros")]
pub use tollgate_http::rate_limit;
pub use tollgate_http::{
    AnswerBody, AnyBody, AnyBodyFuture, AnyBodyLayer, AnyBodyService, BodyWatch, BufferBodyLayer,
    BufferBodyService, BufferFuture, BufferedBody, GrpcAnswers, GrpcCode, GrpcStatus, HeaderForm,
    Hold, IntoAnswer, Jitter, PlainText, ProblemJson, RateLimitHeaders, RateLimitLayer,
    RateLimitService, RateLimitStatus, Refusal, RefusalReason, Respond, ResponseBody,
    ResponseFuture, SeeOther, SettleError, WatchedBody,
};
#[cfg(feature = "axum")]
pub use tollgate_http::{Guard, MethodRouterExt, RouteQuotas};
pub use tollgate_limiter::{
    Acquire, Allowance, Block, Cause, Check, CheckError, CheckFuture, CheckOutcome, ClientAddress,
    ClientIp, ConfigError, Event, Hops, JointCheck, JointOutcome, Limiter, LimiterBuilder,
    Messages, NetworkList, Networks, Observer, Offender, Offenders, OnFailure, OnMissing,
    OnUnknown, PeerAddr, Policy, PolicyVerdict, Pressure, PressureGauge, QuotaLookup, Quotas,
    RequestView, ResponseView, Share, Shedding, Switch, Tiers, Transport, TrustedProxies,
};
pub use tollgate_memory::{MemoryBackend, MemoryBackendBuilder, Stats, SystemClock};
#[cfg(feature = "redis")]
pub use tollgate_redis::{
    ConnectError, Examination, ExaminedSentinel, ExaminedServer, Holding, RedisBackend,
    RedisBackendBuilder, StateName, Stats as RedisStats, UsedBudget, UsedBudgets,
};

#[cfg(feature = "proto")]
pub use tollgate_grpc::proto;
#[cfg(feature = "serde")]
pub use tollgate_limiter::config;
pub use tollgate_limiter::key;

/// The names that [`rate_limit`] writes into handlers. No code names them by hand.
#[cfg(feature = "axum")]
#[doc(hidden)]
pub mod __private {
    #[cfg(feature = "tonic")]
    pub use tollgate_grpc::method::*;
    #[cfg(not(feature = "tonic"))]
    pub use tollgate_http::annotation::no_method::*;
    pub use tollgate_http::annotation::{limits::*, rule::*};
}

/// The parser of gRPC's frames, for fuzz targets. No code uses it otherwise.
#[cfg(feature = "tonic")]
#[doc(hidden)]
pub mod __frames {
    pub use tollgate_grpc::__frames::*;
}

/// The examples of the README and of the pages about limits on how many at once, bans, classes, the configuration file, more
/// ways to count, metrics, pressure, stated quotas and waiting, compiled and run with the tests.
#[cfg(all(
    doctest,
    feature = "macros",
    feature = "metrics",
    feature = "redis",
    feature = "serde",
    feature = "tonic"
))]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/at_once.md")]
#[doc = include_str!("../../../docs/bans.md")]
#[doc = include_str!("../../../docs/classes.md")]
#[doc = include_str!("../../../docs/configuration.md")]
#[doc = include_str!("../../../docs/counting.md")]
#[doc = include_str!("../../../docs/operating/metrics.md")]
#[doc = include_str!("../../../docs/operating/traces.md")]
#[doc = include_str!("../../../docs/pressure.md")]
#[doc = include_str!("../../../docs/stated_quotas.md")]
#[doc = include_str!("../../../docs/waiting.md")]
pub struct ReadmeExamples;
