//! Turns a refusal into an answer.

use bytes::Bytes;
use http::Response;

use super::Refusal;

/// Makes the answer to a refused request: [`ProblemJson`](crate::ProblemJson) and [`PlainText`](crate::PlainText) do, and
/// [`SeeOther`](crate::SeeOther) sends the caller elsewhere.
///
/// The layer adds `Retry-After`, `Cache-Control: no-store` and the RateLimit fields to the answer, unless they are there. gRPC
/// callers are answered in gRPC and never get here.
///
/// A closure is one, too. [`respond_with`](crate::RateLimitLayer::respond_with) takes one as it is.
///
/// ```
/// use bytes::Bytes;
/// use http::Response;
/// use http::header::ACCEPT;
/// use tollgate::{PlainText, ProblemJson, Quota, RateLimitLayer, Refusal, Respond};
///
/// /// Sentences for clients that do not ask for JSON.
/// struct AsAsked;
///
/// impl Respond for AsAsked {
///     fn respond(&self, refusal: &Refusal<'_>) -> Response<Bytes> {
///         let accept = refusal.request().headers().get(ACCEPT);
///         if accept.is_some_and(|value| value.as_bytes().ends_with(b"json")) {
///             ProblemJson.respond(refusal)
///         } else {
///             PlainText.respond(refusal)
///         }
///     }
/// }
///
/// let layer = RateLimitLayer::new(Quota::per_second(10)).respond(AsAsked);
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
