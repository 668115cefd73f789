//! The body that names the quotas that a request would exceed.

use http::HeaderValue;

pub(super) const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

pub(super) const NEVER_PASSES: &str = "The request asks for more than a quota ever holds.";

pub(super) const TOO_MANY_AT_ONCE: &str =
    "The caller has too many requests under way. This one would pass when another is over.";

/// The body for quotas that are violated for now.
pub(super) fn problem_body<'a>(violated: impl IntoIterator<Item = &'a str>) -> String {
    let detail = "The request would exceed a quota; Retry-After says when it would not.";
    problem(detail, violated)
}

/// Names are a part of ASCII that JSON need not escape.
pub(super) fn problem<'a>(detail: &str, violated: impl IntoIterator<Item = &'a str>) -> String {
    let names = violated.into_iter().collect::<Vec<_>>().join("\",\"");
    format!(
        "{{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\"title\":\"Quota exceeded\",\
         \"status\":429,\"detail\":\"{detail}\",\
         \"violated-policies\":[\"{names}\"]}}"
    )
}
