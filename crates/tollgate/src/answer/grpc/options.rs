//! What a gRPC answer says beyond its status.

#[cfg(feature = "tonic")]
use std::borrow::Cow;

/// What answers over gRPC say beyond the status: see [`RateLimitLayer::grpc`](crate::RateLimitLayer::grpc).
///
/// As it comes, a refusal says when to come back, to clients (`grpc-retry-pushback-ms`) and to programs
/// (`grpc-status-details-bin`, with the feature `tonic`). The RateLimit fields are another matter:
/// [`RateLimitHeaders::over_grpc`](crate::RateLimitHeaders::over_grpc).
///
/// ```
/// use tollgate::{GrpcAnswers, Quota, RateLimitLayer};
///
/// let layer = RateLimitLayer::new(Quota::per_second(10)).grpc(GrpcAnswers::new().without_pushback());
/// ```
#[derive(Clone, Debug)]
#[must_use = "it does nothing until a layer has it"]
pub struct GrpcAnswers {
    #[cfg(feature = "tonic")]
    pub(super) details: bool,
    #[cfg(feature = "tonic")]
    pub(super) domain: Cow<'static, str>,
    pub(super) pushback: bool,
}

impl GrpcAnswers {
    /// As it comes.
    pub const fn new() -> Self {
        Self {
            #[cfg(feature = "tonic")]
            details: true,
            #[cfg(feature = "tonic")]
            domain: Cow::Borrowed("tollgate"),
            pushback: true,
        }
    }

    /// Leaves `grpc-status-details-bin` out, which is most of what a refusal costs. It holds `ErrorInfo` (why), `QuotaFailure`
    /// (a violation for each policy that refuses), and `RetryInfo` (how long until the same call would pass).
    #[cfg(feature = "tonic")]
    pub const fn without_details(mut self) -> Self {
        self.details = false;
        self
    }

    /// The domain that `ErrorInfo` names: of the service, as a rule, `shop.example.com`. `tollgate` unless this says
    /// otherwise.
    #[cfg(feature = "tonic")]
    pub fn domain(mut self, domain: impl Into<Cow<'static, str>>) -> Self {
        self.domain = domain.into();
        self
    }

    /// Leaves `grpc-retry-pushback-ms` out. A client whose retry policy includes `RESOURCE_EXHAUSTED` waits as long as this
    /// field says before it retries, and not at all if the call can never pass; without it, as long as its own backoff says.
    ///
    /// It is longer than necessary by the layer's [jitter](crate::RateLimitLayer::jitter), or if it has none by up to a tenth:
    /// clients wait exactly as long as they are told, and those who were refused together should not come back together.
    pub const fn without_pushback(mut self) -> Self {
        self.pushback = false;
        self
    }
}

impl Default for GrpcAnswers {
    fn default() -> Self {
        Self::new()
    }
}
