//! A request that is refused.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Response, StatusCode};
use tollgate_limiter::key::KeyMissing;
use tollgate_limiter::transport::{Rejection, Report};
use tollgate_limiter::{Block, PolicyVerdict, RequestView};

use super::answer_body::AnswerBody;
use super::jitter::JitterDraw;

/// A request that is refused, and why.
///
/// ```
/// use tollgate::{Quota, RateLimitLayer, Refusal, RefusalReason};
///
/// fn sentence(refusal: &Refusal<'_>) -> String {
///     let path = refusal.request().uri().path();
///     let names: Vec<_> = refusal.violated().map(|verdict| verdict.quota()).collect();
///     match (refusal.reason(), refusal.retry_after()) {
///         (RefusalReason::QuotaExceeded, Some(wait)) => format!("{path}: {names:?}, in {} s\n", wait.as_secs()),
///         _ => format!("{path}: {}\n", refusal.status()),
///     }
/// }
///
/// let layer = RateLimitLayer::new(Quota::per_second(10))
///     .respond_with(|refusal| refusal.response(sentence(refusal)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Refusal<'a> {
    reason: RefusalReason<'a>,
    report: Report<'a>,
    request: RequestView<'a>,
    jitter: Option<JitterDraw>,
    asks_for_credentials: bool,
}

/// The reason why a request is refused.
///
/// ```
/// use tollgate::RefusalReason;
///
/// fn metric(reason: RefusalReason<'_>) -> &'static str {
///     match reason {
///         RefusalReason::QuotaExceeded => "quota",
///         RefusalReason::Undecided => "outage",
///         RefusalReason::Unidentified(_) => "no identity",
///         RefusalReason::Blocked(_) => "blocked",
///         _ => "other",
///     }
/// }
///
/// assert_eq!(metric(RefusalReason::Undecided), "outage");
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum RefusalReason<'a> {
    /// The caller is over a quota.
    QuotaExceeded,
    /// The backend failed, or the caller's tier could not be found out, and a policy refuses requests then.
    Undecided,
    /// The request has no identity, and a policy insists on one.
    Unidentified(&'a KeyMissing),
    /// The caller is on a policy's block list, or in a tier that a [limit of 0](tollgate_limiter::Quotas::none) refuses.
    Blocked(Block),
    /// The caller was denied too often: a policy's [ban](tollgate_limiter::Policy::ban) is in force.
    Banned(Block),
    /// The process is under pressure, and [refuses](tollgate_limiter::LimiterBuilder::shed) requests of this class. The wait is the
    /// one that the operator states, without jitter.
    Shed(Duration),
}

impl<'a> RefusalReason<'a> {
    /// The reason that callers are told.
    #[doc(hidden)]
    #[must_use]
    pub fn of(refused: &'a Rejection) -> Self {
        match refused {
            Rejection::Unidentified(missing) => Self::Unidentified(missing),
            Rejection::Blocked(how) => Self::Blocked(*how),
            Rejection::TierUnknown | Rejection::Unavailable(_) => Self::Undecided,
            Rejection::Shed(wait) => Self::Shed(*wait),
        }
    }
}

impl<'a> Refusal<'a> {
    pub(super) fn new(
        reason: RefusalReason<'a>,
        report: Report<'a>,
        request: RequestView<'a>,
        jitter: Option<JitterDraw>,
    ) -> Self {
        let reason = match (reason, report.banned()) {
            (RefusalReason::QuotaExceeded, Some(how)) => RefusalReason::Banned(how),
            (reason, _) => reason,
        };
        Self {
            reason,
            report,
            request,
            jitter,
            asks_for_credentials: false,
        }
    }

    /// The refusal under a layer that asks callers without an identity for credentials.
    pub(super) fn asking_for_credentials(self, asks_for_credentials: bool) -> Self {
        Self {
            asks_for_credentials,
            ..self
        }
    }

    pub(super) fn asks_for_credentials(&self) -> bool {
        self.asks_for_credentials
    }

    /// The reason.
    #[must_use]
    pub fn reason(&self) -> RefusalReason<'a> {
        self.reason
    }

    /// The status of the answer.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self.reason {
            RefusalReason::QuotaExceeded => StatusCode::TOO_MANY_REQUESTS,
            RefusalReason::Undecided | RefusalReason::Shed(_) => StatusCode::SERVICE_UNAVAILABLE,
            RefusalReason::Unidentified(_) if self.asks_for_credentials => StatusCode::UNAUTHORIZED,
            RefusalReason::Unidentified(_) => StatusCode::FORBIDDEN,
            RefusalReason::Blocked(how) | RefusalReason::Banned(how) => how.status(),
        }
    }

    /// Makes a response with the usual status and this body. The content type follows from the [body](AnswerBody): text is
    /// `text/plain; charset=utf-8`.
    #[must_use]
    pub fn response(&self, body: impl Into<AnswerBody>) -> Response<Bytes> {
        let AnswerBody {
            bytes,
            content_type,
        } = body.into();
        let mut response = Response::new(bytes);
        *response.status_mut() = self.status();
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        response
    }

    /// The wait that the caller is told: the time until the same request would pass if no other arrives, plus the layer's
    /// [`Jitter`](crate::Jitter). That time is unknown if others hold what the request needs. Then the wait is the policy's
    /// [hint](tollgate_limiter::Policy::retry_hint). Under pressure it is the one that the
    /// [operator states](tollgate_limiter::Shedding::retry_after), with a jitter in any case. `None` if there is no hint, if the
    /// request can never pass, or if a banned caller is told nothing.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        if let RefusalReason::Banned(Block::Forbidden) = self.reason {
            return None;
        }
        let wait = match self.reason {
            RefusalReason::Shed(wait) => Some(wait),
            _ => self.report.told_wait(),
        };
        wait.map(|wait| self.told(wait))
    }

    /// True if the request costs more than a full budget holds, so that no waiting helps.
    ///
    /// ```
    /// use tollgate::{Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::new(Quota::per_second(10)).respond_with(|refusal| {
    ///     refusal.response(if refusal.never_passes() { "ask for less" } else { "ask again later" })
    /// });
    /// ```
    #[must_use]
    pub fn never_passes(&self) -> bool {
        self.report.never_passes()
    }

    /// True if others hold what the request needs, so that the time of its passing is unknown.
    pub(super) fn awaits_others(&self) -> bool {
        self.report.retry_after().is_none() && !self.never_passes()
    }

    /// The quotas that the request would exceed.
    pub fn violated(&self) -> impl Iterator<Item = &'a PolicyVerdict> + use<'a> {
        let verdicts = self.report.verdicts();
        verdicts.iter().filter(|one| one.refuses())
    }

    /// The refused request's head.
    #[must_use]
    pub fn request(&self) -> RequestView<'a> {
        self.request
    }

    /// The wait that the caller is told.
    #[inline]
    pub(super) fn told(&self, wait: Duration) -> Duration {
        self.jitter.map_or(wait, |drawn| drawn.lengthen(wait))
    }

    /// True if the caller is told a longer wait than necessary.
    pub(super) fn has_jitter(&self) -> bool {
        self.jitter.is_some()
    }

    pub(super) fn report(&self) -> Report<'a> {
        self.report
    }
}
