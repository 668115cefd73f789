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
//! Six words are enough to read the rest:
//!
//! | word | what it is |
//! | --- | --- |
//! | [`Quota`] | how much, per how long, by which [`Algorithm`]: `Quota::per_second(10).burst(20)` |
//! | [`Policy`] | a name, which requests it covers, whose budget it spends, what a request costs, one or more quotas |
//! | [`key`] | whose budget: an address, a header, everybody, anything that you can find in a request |
//! | [`Limiter`] | policies, a backend, and what happens while the backend fails |
//! | [`Backend`] | who decides; [`MemoryBackend`] unless you say otherwise |
//! | [`RateLimitLayer`] | the tower part: asks the limiter, and answers whoever is refused |
//!
//! # What is guaranteed
//!
//! * **All or nothing.** A request is charged by all policies that cover it, or by none. A refused request consumes nothing.
//! * **`Retry-After` is a promise.** Who waits that long, and has the budget to themselves, passes.
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
//! | `json` | `key::JsonField`: an identity from a JSON body |
//! | `macros` (default) | [`rate_limit`], the annotation for axum handlers and gRPC methods |
//! | `proto` | `proto::Contract`: limits from the options of a gRPC service |
//! | `redis` | `RedisBackend`: one budget for a whole fleet |
//! | `redis-tls` | `RedisBackend` over `rediss://` |
//! | `serde` | `config`: policies and limiters as plain data, for a configuration file |
//! | `tls` | `key::PeerCertificate`: an identity from the certificate that a caller shows to tonic |
//! | `tonic` | peer addresses from tonic's connections, answers in tonic's body and with gRPC's error details |

pub use tollgate_core::{
    Algorithm, Answer, Backend, BackendError, Capabilities, Capability, Charge, Clock, Decide,
    Decision, FailureKind, ImmediateBackend, Key, KeyKind, ManualClock, Mode, Outcome,
    ParseQuotaError, Quota, QuotaError, Receipt, RetryAfter, Scope, Timestamp, Unit, Verdict,
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
    IntoAnswer, Jitter, PlainText, ProblemJson, RateLimitHeaders, RateLimitLayer, RateLimitService,
    RateLimitStatus, Refusal, RefusalReason, Respond, ResponseBody, ResponseFuture, SeeOther,
    SettleError, Watched,
};
#[cfg(feature = "axum")]
pub use tollgate_http::{Guard, MethodRouterExt, RouteQuotas};
pub use tollgate_limiter::{
    Block, Cause, Check, CheckError, CheckFuture, Checked, ClientAddress, ClientIp, ConfigError,
    Event, Hops, Limiter, LimiterBuilder, Messages, NetworkList, Networks, Observer, OnFailure,
    OnMissing, PeerAddr, Policy, PolicyVerdict, Quotas, RequestView, ResponseView, Share, Tiers,
    TrustedProxies, Unknown,
};
pub use tollgate_memory::{MemoryBackend, MemoryBackendBuilder, Stats, SystemClock};
#[cfg(feature = "redis")]
pub use tollgate_redis::{ConnectError, RedisBackend, RedisBackendBuilder, StateName};

#[cfg(feature = "proto")]
pub use tollgate_grpc::proto;
#[cfg(feature = "serde")]
pub use tollgate_limiter::config;
pub use tollgate_limiter::key;

/// What [`rate_limit`] writes into handlers. Nothing to be named by hand.
#[cfg(feature = "axum")]
#[doc(hidden)]
pub mod __private {
    #[cfg(feature = "tonic")]
    pub use tollgate_grpc::method::*;
    #[cfg(not(feature = "tonic"))]
    pub use tollgate_http::annotation::no_method::*;
    pub use tollgate_http::annotation::{limits::*, rule::*};
}

/// The parser of gRPC's frames, to be tried with arbitrary bytes. Nothing to be used.
#[cfg(feature = "tonic")]
#[doc(hidden)]
pub mod __frames {
    pub use tollgate_grpc::__frames::*;
}

/// The README's examples, compiled and run with the tests.
#[cfg(all(doctest, feature = "macros", feature = "redis", feature = "tonic"))]
#[doc = include_str!("../../../README.md")]
pub struct ReadmeExamples;
