//! The parts of a gRPC answer beyond its status.

#[cfg(feature = "tonic")]
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::GrpcStatus;
use crate::Refusal;

/// The parts of gRPC answers beyond the status: see [`RateLimitLayer::grpc`](crate::RateLimitLayer::grpc).
///
/// By default a refusal says when to come back, to clients (`grpc-retry-pushback-ms`) and to programs (`grpc-status-details-bin`,
/// with the feature `tonic`). [`RateLimitHeaders::over_grpc`](crate::RateLimitHeaders::over_grpc) adds the RateLimit fields.
///
/// ```
/// use tollgate::{GrpcAnswers, Quota, RateLimitLayer};
///
/// let layer = RateLimitLayer::new(Quota::per_second(10)).grpc(GrpcAnswers::new().without_pushback());
/// ```
#[derive(Clone)]
#[must_use = "it does nothing until a layer has it"]
pub struct GrpcAnswers {
    #[cfg(feature = "tonic")]
    pub(super) details: bool,
    #[cfg(feature = "tonic")]
    pub(super) domain: Cow<'static, str>,
    pub(super) pushback: bool,
    asks_for_credentials: bool,
    status_by: Option<Arc<StatusBy>>,
}

type StatusBy = dyn Fn(&Refusal<'_>, GrpcStatus) -> GrpcStatus + Send + Sync;

impl GrpcAnswers {
    /// The defaults.
    pub const fn new() -> Self {
        Self {
            #[cfg(feature = "tonic")]
            details: true,
            #[cfg(feature = "tonic")]
            domain: Cow::Borrowed("tollgate"),
            pushback: true,
            asks_for_credentials: false,
            status_by: None,
        }
    }

    /// Ends a call without an identity, under [`OnMissing::Deny`](tollgate_limiter::OnMissing::Deny), with `UNAUTHENTICATED`
    /// rather than `PERMISSION_DENIED`: clients that can log in do so then. [`RateLimitLayer::challenge`] does the same, and
    /// answers in kind over HTTP.
    ///
    /// [`RateLimitLayer::challenge`]: crate::RateLimitLayer::challenge
    ///
    /// ```
    /// use tollgate::GrpcAnswers;
    ///
    /// let answers = GrpcAnswers::new().unauthenticated();
    /// ```
    pub const fn unauthenticated(mut self) -> Self {
        self.asks_for_credentials = true;
        self
    }

    /// Ends refused calls with the status that a closure returns, given the usual one.
    ///
    /// ```
    /// use tollgate::{GrpcAnswers, GrpcCode, GrpcStatus, Quota, RateLimitLayer, RefusalReason};
    ///
    /// let answers = GrpcAnswers::new().status_by(|refusal, usual| match refusal.reason() {
    ///     RefusalReason::QuotaExceeded => GrpcStatus::new(usual.code, "slow down, please"),
    ///     RefusalReason::Blocked(_) => GrpcStatus::new(GrpcCode::NotFound, "there is no such method"),
    ///     _ => usual,
    /// });
    /// let layer = RateLimitLayer::new(Quota::per_second(10)).grpc(answers);
    /// ```
    ///
    /// A client with a retry policy tries again by the code. When to come back, and the details, are the same under any status. A
    /// stream that a [message](tollgate_limiter::Policy::per_message) ends shows the closure no head of the request: it is over by
    /// then.
    pub fn status_by(
        mut self,
        status_by: impl Fn(&Refusal<'_>, GrpcStatus) -> GrpcStatus + Send + Sync + 'static,
    ) -> Self {
        self.status_by = Some(Arc::new(status_by));
        self
    }

    pub(in crate::answer) const fn asks_for_credentials(&self) -> bool {
        self.asks_for_credentials
    }

    pub(super) fn status(&self, refusal: &Refusal<'_>) -> GrpcStatus {
        let usual = GrpcStatus::of(refusal);
        match &self.status_by {
            None => usual,
            Some(status_by) => status_by(refusal, usual),
        }
    }

    /// Leaves `grpc-status-details-bin` out, which is most of a refusal's work. It holds `ErrorInfo` (the reason, and the missing
    /// part of an identity), `QuotaFailure` (a violation for each policy that refuses), and `RetryInfo` (the time until the same
    /// call would pass).
    ///
    /// ```
    /// use tollgate::GrpcAnswers;
    ///
    /// let answers = GrpcAnswers::new().without_details();
    /// ```
    #[cfg(feature = "tonic")]
    pub const fn without_details(mut self) -> Self {
        self.details = false;
        self
    }

    /// Sets the domain that `ErrorInfo` names, which is `tollgate` by default. As a rule it is the service's: `shop.example.com`.
    ///
    /// ```
    /// use tollgate::GrpcAnswers;
    ///
    /// let answers = GrpcAnswers::new().domain("shop.example.com");
    /// ```
    #[cfg(feature = "tonic")]
    pub fn domain(mut self, domain: impl Into<Cow<'static, str>>) -> Self {
        self.domain = domain.into();
        self
    }

    /// Leaves `grpc-retry-pushback-ms` out. A client whose retry policy includes `RESOURCE_EXHAUSTED` waits as long as this
    /// field says before it retries, and not at all if the call can never pass; without it, as long as its own backoff says.
    ///
    /// The pushback is longer than necessary by the layer's [jitter](crate::RateLimitLayer::jitter), or by up to a tenth if there
    /// is none. Clients wait exactly as long as they are told, and callers that were refused together should not come back
    /// together.
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

impl fmt::Debug for GrpcAnswers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("GrpcAnswers");
        #[cfg(feature = "tonic")]
        debug
            .field("details", &self.details)
            .field("domain", &self.domain);
        debug
            .field("pushback", &self.pushback)
            .field("asks_for_credentials", &self.asks_for_credentials)
            .field("status_by", &self.status_by.is_some())
            .finish()
    }
}
