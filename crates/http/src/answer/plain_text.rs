//! A sentence instead of a document.

use bytes::Bytes;
use http::Response;

use super::retry_after::told_seconds;
use super::{Refusal, RefusalReason, Respond};

/// Answers with a sentence as `text/plain`, for callers that are people with a terminal.
///
/// ```
/// use tollgate::{PlainText, Quota, RateLimitLayer};
///
/// let layer = RateLimitLayer::new(Quota::per_second(10)).respond(PlainText);
/// ```
///
/// ```text
/// Too many requests: try again in 12 seconds.
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainText;

impl Respond for PlainText {
    fn respond(&self, refusal: &Refusal<'_>) -> Response<Bytes> {
        let text: String = match (refusal.reason(), refusal.retry_after()) {
            (RefusalReason::QuotaExceeded, Some(wait)) => match told_seconds(wait) {
                1 => "Too many requests: try again in 1 second.\n".into(),
                seconds => format!("Too many requests: try again in {seconds} seconds.\n"),
            },
            (RefusalReason::QuotaExceeded, None) if !refusal.never_passes() => {
                "Too many requests at once: try again when another is over.\n".into()
            }
            (RefusalReason::QuotaExceeded, None) => {
                "This request asks for more than its quota ever holds.\n".into()
            }
            (RefusalReason::Undecided, _) => {
                "The rate limiter cannot decide at the moment.\n".into()
            }
            (RefusalReason::Shed(_), wait) => format!(
                "The server is under pressure: try again in {} s.\n",
                told_seconds(wait.unwrap_or_default())
            ),
            (RefusalReason::Unidentified(missing), _) => format!("There is {missing}.\n"),
            (RefusalReason::Banned(_), Some(wait)) => {
                format!(
                    "The caller is banned: try again in {} s.\n",
                    told_seconds(wait)
                )
            }
            (RefusalReason::Banned(_), None) => "The caller is banned.\n".into(),
            (RefusalReason::Blocked(_), _) => "The caller is blocked.\n".into(),
        };
        refusal.response(text)
    }
}
