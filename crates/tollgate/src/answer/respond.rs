//! How a refusal becomes an answer.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};

use super::fields::{has_fields, write_fields};
use super::grpc::{is_grpc, trailers_only};
use super::retry_after::retry_after;
use crate::key::KeyMissing;
use crate::report::{PolicyVerdict, Report};
use crate::{Block, RequestView};

/// Makes the answer to a refused request.
///
/// A closure is one. The layer adds `Retry-After`, `Cache-Control: no-store` and the RateLimit fields to what it returns,
/// where they are not there already.
///
/// ```
/// use tollgate::{Quota, RateLimitLayer, Refusal};
///
/// let layer = RateLimitLayer::new(Quota::per_second(10)).respond_with(|refusal: &Refusal<'_>| {
///     let mut response = http::Response::new("slow down, please\n".into());
///     *response.status_mut() = refusal.status();
///     response
/// });
/// ```
pub trait Respond: Send + Sync + 'static {
    /// The answer to this refusal.
    fn respond(&self, refusal: &Refusal<'_>) -> Response<Bytes>;
}

impl<F> Respond for F
where
    F: Fn(&Refusal<'_>) -> Response<Bytes> + Send + Sync + 'static,
{
    fn respond(&self, refusal: &Refusal<'_>) -> Response<Bytes> {
        self(refusal)
    }
}

/// A request that is refused, and why.
#[derive(Clone, Copy, Debug)]
pub struct Refusal<'a> {
    reason: RefusalReason<'a>,
    report: &'a Report,
    request: RequestView<'a>,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum RefusalReason<'a> {
    /// The caller is over a quota.
    QuotaExceeded,
    /// The backend failed, and a policy says that requests are refused then.
    Undecided,
    /// The request does not say who it is from, and a policy insists on it.
    Unidentified(&'a KeyMissing),
    /// The caller is on a policy's block list.
    Blocked(Block),
}

impl<'a> Refusal<'a> {
    pub(crate) fn new(
        reason: RefusalReason<'a>,
        report: &'a Report,
        request: RequestView<'a>,
    ) -> Self {
        Self {
            reason,
            report,
            request,
        }
    }

    /// Why.
    #[must_use]
    pub fn reason(&self) -> RefusalReason<'a> {
        self.reason
    }

    /// The status that says so.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self.reason {
            RefusalReason::QuotaExceeded => StatusCode::TOO_MANY_REQUESTS,
            RefusalReason::Undecided => StatusCode::SERVICE_UNAVAILABLE,
            RefusalReason::Unidentified(_) => StatusCode::FORBIDDEN,
            RefusalReason::Blocked(how) => how.status(),
        }
    }

    /// How long until the same request would pass if nothing else arrives; `None` if it never would, or nobody knows.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.report.retry_after()
    }

    /// The quotas that the request would exceed.
    pub fn violated(&self) -> impl Iterator<Item = &'a PolicyVerdict> + use<'a> {
        self.report.verdicts().iter().filter(|one| one.refuses())
    }

    /// The refused request's head.
    #[must_use]
    pub fn request(&self) -> RequestView<'a> {
        self.request
    }
}

/// The whole answer to a refusal, in the protocol that the caller speaks.
pub(crate) fn answer(
    respond: &dyn Respond,
    refusal: &Refusal<'_>,
    fields: bool,
) -> Response<Bytes> {
    let grpc = is_grpc(&refusal.request);
    let mut response = if grpc {
        trailers_only(refusal)
    } else {
        respond.respond(refusal)
    };
    let headers = response.headers_mut();
    if let Some(wait) = refusal.retry_after() {
        headers
            .entry(RETRY_AFTER)
            .or_insert_with(|| retry_after(wait));
    }
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    if fields && !has_fields(headers) {
        write_fields(headers, refusal.report);
    }
    response
}
