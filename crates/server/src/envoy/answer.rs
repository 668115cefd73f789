//! The answer to a request of descriptors.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request, StatusCode};
use tollgate::{JointOutcome, RefusalReason, RequestView, Verdict};
use tollgate_http::transport::{Answers, refill_seconds};
use tollgate_limiter::PolicyVerdict;

use super::asked::{Asked, Place};
use crate::period::unit_of;
use crate::proto::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use crate::proto::{HeaderValue, RateLimitResponse};

/// Writes answers, with the header fields and the body that a layer of the library would send.
#[derive(Debug, Default)]
pub(super) struct Writer {
    answers: Answers,
    /// The gateway sends no head: the form of an answer does not depend on it.
    head: Request<()>,
}

impl Writer {
    pub(super) fn write(&self, asked: &Asked, outcome: &JointOutcome) -> RateLimitResponse {
        let statuses = asked.descriptors().iter();
        let statuses = statuses.map(|place| status(*place, outcome)).collect();
        if outcome.is_allowed() {
            let mut headers = HeaderMap::new();
            self.answers.write(&mut headers, outcome.report());
            return RateLimitResponse {
                overall_code: Code::Ok.into(),
                statuses,
                response_headers_to_add: fields(&headers),
                ..RateLimitResponse::default()
            };
        }
        let reason = match outcome.blocked() {
            Some(how) => RefusalReason::Blocked(how),
            None if outcome.is_shed() => {
                RefusalReason::Shed(outcome.retry_after().unwrap_or_default())
            }
            None => RefusalReason::QuotaExceeded,
        };
        let head = RequestView::of(&self.head);
        let mut answer = self.answers.refuse(reason, outcome.report(), head, true);
        // Envoy answers 429 in any case, unless it is configured otherwise, and the body of another status would contradict it.
        if answer.status() != StatusCode::TOO_MANY_REQUESTS {
            answer.headers_mut().remove(CONTENT_TYPE);
            *answer.body_mut() = Bytes::new();
        }
        RateLimitResponse {
            overall_code: Code::OverLimit.into(),
            statuses,
            response_headers_to_add: fields(answer.headers()),
            raw_body: answer.into_body().into(),
            ..RateLimitResponse::default()
        }
    }
}

/// Fields as Envoy adds them.
fn fields(headers: &HeaderMap) -> Vec<HeaderValue> {
    let fields = headers.iter().map(|(name, value)| HeaderValue {
        key: name.as_str().to_owned(),
        value: String::from_utf8_lossy(value.as_bytes()).into_owned(),
    });
    fields.collect()
}

fn status(place: Place, outcome: &JointOutcome) -> DescriptorStatus {
    let Place::Charge(check) = place else {
        return DescriptorStatus {
            code: Code::Ok.into(),
            ..DescriptorStatus::default()
        };
    };
    let code = if outcome.refuses(check) {
        Code::OverLimit
    } else {
        Code::Ok
    };
    let Some(tightest) = tightest(outcome.report_of(check).verdicts()) else {
        return DescriptorStatus {
            code: code.into(),
            ..DescriptorStatus::default()
        };
    };
    let verdict = tightest.verdict();
    let left = if verdict.is_denied() {
        0
    } else {
        verdict.remaining()
    };
    DescriptorStatus {
        code: code.into(),
        current_limit: Some(limit(tightest)),
        limit_remaining: left.try_into().unwrap_or(u32::MAX),
        duration_until_reset: time(verdict),
    }
}

/// The verdict that says most: also that of a policy on trial. A ban has no limit to show.
fn tightest(verdicts: &[PolicyVerdict]) -> Option<&PolicyVerdict> {
    let quotas = verdicts.iter().filter(|one| !one.is_ban());
    quotas.reduce(|best, one| {
        if one.verdict().is_tighter_than(best.verdict()) {
            one
        } else {
            best
        }
    })
}

/// The limit in the two numbers of the draft-11 fields: what a full budget holds, and the time in which it is full again, if that
/// has a name.
fn limit(of: &PolicyVerdict) -> RateLimit {
    let quota = of.label().whole();
    RateLimit {
        requests_per_unit: of.limit().try_into().unwrap_or(u32::MAX),
        unit: unit_of(refill_seconds(quota)).into(),
        name: of.quota().to_owned(),
    }
}

/// Whole seconds, rounded up, because Envoy shows callers the seconds alone. None if coming back does not help.
fn time(verdict: &Verdict) -> Option<prost_types::Duration> {
    let wait = if verdict.is_denied() {
        verdict.retry_after()?
    } else {
        verdict.reset_after()
    };
    Some(prost_types::Duration {
        seconds: whole_seconds(wait).try_into().unwrap_or(i64::MAX),
        nanos: 0,
    })
}

fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}
