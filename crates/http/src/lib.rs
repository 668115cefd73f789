//! The tower layer of Tollgate, and its answers.
//!
//! [`RateLimitLayer`] puts each request before a limiter and makes an answer of a refusal: a status, a body and header fields
//! over HTTP, a status and its details over gRPC. A handler reads the [`RateLimitStatus`], and an annotation or
//! [`MethodRouterExt`](crate::RouteQuotas) limits one handler or route.
//!
//! **Users write `tollgate`**, which has everything here under one name.

#[cfg(feature = "axum")]
pub mod annotation;
mod answer;
mod body;
mod buffer;
mod hold;
mod layer;
mod settings;
mod status;
mod sync;
pub mod transport;

#[cfg(feature = "macros")]
pub use self::annotation::rate_limit;
#[cfg(feature = "axum")]
pub use self::annotation::{Guard, MethodRouterExt, RouteQuotas};
pub use self::answer::{
    AnswerBody, GrpcAnswers, GrpcCode, GrpcStatus, HeaderForm, IntoAnswer, Jitter, PlainText,
    ProblemJson, RateLimitHeaders, Refusal, RefusalReason, Respond, SeeOther,
};
pub use self::body::{
    AnyBody, AnyBodyFuture, AnyBodyLayer, AnyBodyService, BodyWatch, ResponseBody, WatchedBody,
};
pub use self::buffer::{BufferBodyLayer, BufferBodyService, BufferFuture, BufferedBody};
pub use self::hold::Hold;
pub use self::layer::{RateLimitLayer, RateLimitService, ResponseFuture};
pub use self::status::{RateLimitStatus, SettleError};
