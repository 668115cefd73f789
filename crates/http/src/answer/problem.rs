//! The default answer: a problem document (RFC 9457).

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Response, StatusCode};
use tollgate_limiter::{Block, PolicyVerdict};

use super::texts::texts;
use super::violation::{NEVER_PASSES, PROBLEM_JSON, TOO_MANY_AT_ONCE, problem, problem_body};
use super::{Refusal, RefusalReason, Respond};

/// Answers with `application/problem+json`, and the problem types that the RateLimit draft registers.
///
/// ```json
/// {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,
///  "detail":"…","violated-policies":["login"]}
/// ```
///
/// ```
/// use tollgate::{PlainText, ProblemJson, Quota, RateLimitLayer};
///
/// # let speaks_json = true;
/// let layer = RateLimitLayer::new(Quota::per_second(10));
/// let layer = if speaks_json { layer.respond(ProblemJson) } else { layer.respond(PlainText) };
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ProblemJson;

impl Respond for ProblemJson {
    fn respond(&self, refusal: &Refusal<'_>) -> Response<Bytes> {
        let body = match refusal.reason() {
            RefusalReason::QuotaExceeded => quota_exceeded(refusal),
            RefusalReason::Undecided => Bytes::from_static(UNDECIDED.as_bytes()),
            RefusalReason::Shed(_) => Bytes::from_static(SHED.as_bytes()),
            RefusalReason::Blocked(Block::Forbidden) => Bytes::from_static(FORBIDDEN.as_bytes()),
            RefusalReason::Banned(Block::Forbidden) => Bytes::from_static(BANNED.as_bytes()),
            RefusalReason::Blocked(Block::TooManyRequests) => {
                Bytes::from_static(ABNORMAL_USAGE.as_bytes())
            }
            RefusalReason::Banned(Block::TooManyRequests) => {
                Bytes::from_static(BANNED_FOR_NOW.as_bytes())
            }
            RefusalReason::Unidentified(missing) => {
                Bytes::from(unidentified(refusal.status(), &missing.to_string()))
            }
        };
        let mut response = refusal.response(body);
        response.headers_mut().insert(CONTENT_TYPE, PROBLEM_JSON);
        response
    }
}

const UNDECIDED: &str = concat!(
    r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","#,
    r#""title":"Temporarily unavailable","status":503,"#,
    r#""detail":"The rate limiter cannot decide at the moment."}"#
);

const SHED: &str = concat!(
    r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","#,
    r#""title":"Temporarily reduced capacity","status":503,"#,
    r#""detail":"The server is under pressure, and lets in only more important requests."}"#
);

const FORBIDDEN: &str = concat!(
    r#"{"type":"about:blank","title":"Forbidden","status":403,"#,
    r#""detail":"The caller is blocked."}"#
);

const ABNORMAL_USAGE: &str = concat!(
    r#"{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected","#,
    r#""title":"Abnormal usage detected","status":429,"detail":"The caller is blocked."}"#
);

const BANNED: &str = concat!(
    r#"{"type":"about:blank","title":"Forbidden","status":403,"#,
    r#""detail":"The caller is banned."}"#
);

const BANNED_FOR_NOW: &str = concat!(
    r#"{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected","#,
    r#""title":"Abnormal usage detected","status":429,"#,
    r#""detail":"The caller was refused or failed too often, and is banned for a time."}"#
);

fn quota_exceeded(refusal: &Refusal<'_>) -> Bytes {
    let mut violated = refusal.violated();
    let names = || refusal.violated().map(PolicyVerdict::quota);
    match (violated.next(), violated.next()) {
        _ if refusal.never_passes() => Bytes::from(problem(NEVER_PASSES, names())),
        _ if refusal.awaits_others() => Bytes::from(problem(TOO_MANY_AT_ONCE, names())),
        // The usual case, written once.
        (Some(only), None) => texts(only.label()).refusal.body().clone(),
        _ => Bytes::from(problem_body(names())),
    }
}

fn unidentified(status: StatusCode, missing: &str) -> String {
    // Only header names and literals stand in it, but one of them may come from the user of this crate.
    let escaped: String = missing.chars().flat_map(char::escape_default).collect();
    let detail = escaped
        .replace("\\'", "'")
        .replace("\\u{", "(U+")
        .replace('}', ")");
    let title = status.canonical_reason().unwrap_or_default();
    let status = status.as_u16();
    format!(
        "{{\"type\":\"about:blank\",\"title\":\"{title}\",\"status\":{status},\"detail\":\"There is {detail}.\"}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_body_is_json() {
        let bodies = [
            problem_body(["login"]),
            problem_body(["api", "api-2"]),
            problem(NEVER_PASSES, ["api"]),
            problem(TOO_MANY_AT_ONCE, ["api"]),
            UNDECIDED.to_owned(),
            SHED.to_owned(),
            FORBIDDEN.to_owned(),
            ABNORMAL_USAGE.to_owned(),
            BANNED.to_owned(),
            BANNED_FOR_NOW.to_owned(),
            unidentified(
                StatusCode::UNAUTHORIZED,
                "no header x-api-key in the request",
            ),
            unidentified(
                StatusCode::FORBIDDEN,
                "no \"thing\" that\\ is\n'odd' \u{1F600} in the request",
            ),
        ];
        for body in bodies {
            let value: serde_json::Value = serde_json::from_str(&body).unwrap();
            assert!(
                value["status"].is_u64() && value["type"].is_string(),
                "{body}"
            );
        }
    }
}
