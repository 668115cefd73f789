//! Refusals in gRPC: a plain 429 would reach clients as UNAVAILABLE, which they retry at once.

#[cfg(feature = "tonic")]
mod details;
mod options;
mod pushback;
mod status;

use bytes::Bytes;
#[cfg(feature = "tonic")]
use http::header::CACHE_CONTROL;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Response};
#[cfg(feature = "tonic")]
use tollgate_limiter::RequestView;
use tollgate_limiter::transport::Dialect;

pub use self::options::GrpcAnswers;
use self::pushback::pushback;
pub use self::status::{GrpcCode, GrpcStatus};
use super::Refusal;
#[cfg(feature = "tonic")]
use super::texts::NO_STORE;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_RETRY_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// The content type of an answer to such a caller.
fn content_type(dialect: Dialect) -> HeaderValue {
    HeaderValue::from_static(match dialect {
        Dialect::Native => "application/grpc",
        Dialect::Web => "application/grpc-web+proto",
        Dialect::WebText => "application/grpc-web-text+proto",
    })
}

impl GrpcAnswers {
    /// The answer to a refusal. It is trailers-only: the status stands in the headers, and there is no body.
    pub(super) fn answer(&self, dialect: Dialect, refusal: &Refusal<'_>) -> Response<Bytes> {
        let status = self.status(refusal);
        let mut response = Response::new(Bytes::new());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, content_type(dialect));
        headers.insert(GRPC_STATUS, status.code.value());
        headers.insert(GRPC_MESSAGE, status.message_value());
        if self.pushback
            && let Some(value) = pushback(refusal)
        {
            headers.insert(GRPC_RETRY_PUSHBACK, value);
        }
        #[cfg(feature = "tonic")]
        if self.details {
            details::write(headers, &status, refusal, &self.domain);
        }
        response
    }
}

/// An answer to a call that no limit refuses, and that cannot go on all the same. A cache must not keep it: the service may answer
/// the same request as a page.
#[cfg(feature = "tonic")]
pub fn closed(dialect: Dialect, code: GrpcCode, message: &'static str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type(dialect));
    headers.insert(CACHE_CONTROL, NO_STORE);
    headers.insert(GRPC_STATUS, code.value());
    headers.insert(GRPC_MESSAGE, HeaderValue::from_static(message));
    response
}

/// The answer to a call whose deadline passed before it was decided.
#[cfg(feature = "tonic")]
pub(crate) fn too_late(call: &RequestView<'_>) -> Response<Bytes> {
    let dialect = Dialect::of(call).unwrap_or(Dialect::Native);
    let message = "the deadline passed before it was decided whether the call may pass";
    closed(dialect, GrpcCode::DeadlineExceeded, message)
}
