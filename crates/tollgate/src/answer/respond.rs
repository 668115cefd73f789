//! How a refusal becomes an answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};

use super::fields::{RATE_LIMIT, RATE_LIMIT_POLICY, has_fields, state, write_fields};
use super::prepared::Prepared;
use super::problem::{PROBLEM_JSON, ProblemJson, problem_body};
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

/// How refusals are answered over HTTP.
#[derive(Clone)]
pub(crate) enum Responder {
    /// As [`ProblemJson`] does, out of what was prepared when the policies were built: this is the path that is attacked.
    Prepared,
    /// As the user says.
    Custom(Arc<dyn Respond>),
}

impl Responder {
    /// The whole answer to a refusal.
    pub(crate) fn answer(&self, refusal: &Refusal<'_>, fields: bool) -> Response<Bytes> {
        match self {
            Self::Prepared => prepared_problem(refusal, fields)
                .unwrap_or_else(|| complete(ProblemJson.respond(refusal), refusal, fields)),
            Self::Custom(respond) => complete(respond.respond(refusal), refusal, fields),
        }
    }
}

/// Adds what every refusal says, where it is not said already.
pub(super) fn complete(
    mut response: Response<Bytes>,
    refusal: &Refusal<'_>,
    fields: bool,
) -> Response<Bytes> {
    let headers = response.headers_mut();
    if let Some(wait) = refusal.retry_after() {
        headers
            .entry(RETRY_AFTER)
            .or_insert_with(|| retry_after(wait));
    }
    headers.entry(CACHE_CONTROL).or_insert(NO_STORE);
    if fields && !has_fields(headers) {
        write_fields(headers, refusal.report);
    }
    response
}

/// The answer if one quota refuses for now and no other took part, which is nearly always.
fn prepared_problem(refusal: &Refusal<'_>, fields: bool) -> Option<Response<Bytes>> {
    let [sole] = refusal.report.verdicts() else {
        return None;
    };
    let wait = sole.verdict().retry_after().filter(|_| sole.refuses())?;
    let prepared = &sole.labels().refusal;
    let mut response = Response::new(Bytes::from_static(prepared.problem.as_bytes()));
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    let headers = response.headers_mut();
    let mut changing = if fields {
        let mut changing = prepared.with_fields.copy_to(headers);
        *changing.next()? = state(sole);
        changing
    } else {
        prepared.without.copy_to(headers)
    };
    *changing.next()? = retry_after(wait);
    Some(response)
}

/// What the answers have in common that say that one quota was exceeded, and no other took part.
#[derive(Debug)]
pub(crate) struct PreparedRefusal {
    /// The body.
    pub(crate) problem: String,
    with_fields: Prepared,
    without: Prepared,
}

impl PreparedRefusal {
    /// For the quota of this name, and with this member of the `RateLimit-Policy` field.
    pub(crate) fn of(name: &str, member: &HeaderValue) -> Self {
        let changes = HeaderValue::from_static("");
        Self {
            problem: problem_body([name]),
            with_fields: Prepared::new([
                (RATE_LIMIT, changes.clone()),
                (RETRY_AFTER, changes.clone()),
                (RATE_LIMIT_POLICY, member.clone()),
                (CONTENT_TYPE, PROBLEM_JSON),
                (CACHE_CONTROL, NO_STORE),
            ]),
            without: Prepared::new([
                (RETRY_AFTER, changes),
                (CONTENT_TYPE, PROBLEM_JSON),
                (CACHE_CONTROL, NO_STORE),
            ]),
        }
    }
}

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
