//! Refusals in gRPC: a plain 429 would reach clients as UNAVAILABLE, which they retry at once.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Method, Response};

use super::{Refusal, RefusalReason};
use crate::{Block, RequestView};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// Whether the caller speaks gRPC, by its content type.
pub(super) fn is_grpc(request: &RequestView<'_>) -> bool {
    // Every call is a POST: a browser's GET is not made one by a header.
    if request.method() != Method::POST {
        return false;
    }
    let content_type = request
        .headers()
        .get(CONTENT_TYPE)
        .map(HeaderValue::as_bytes);
    let rest = content_type.and_then(|value| value.strip_prefix(b"application/grpc"));
    matches!(rest, Some([] | [b'+' | b';', ..]))
}

/// A trailers-only answer: the status stands in the headers, and there is no body.
pub(super) fn trailers_only(refusal: &Refusal<'_>) -> Response<Bytes> {
    let (status, message) = match refusal.reason() {
        RefusalReason::QuotaExceeded => ("8", "quota exceeded"),
        RefusalReason::Undecided => ("14", "the rate limiter cannot decide at the moment"),
        RefusalReason::Blocked(Block::Forbidden) => ("7", "the caller is blocked"),
        RefusalReason::Blocked(Block::TooManyRequests) => ("8", "the caller is blocked"),
        RefusalReason::Unidentified(_) => ("7", "the request does not say who it is from"),
    };
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(GRPC_STATUS, HeaderValue::from_static(status));
    headers.insert(GRPC_MESSAGE, HeaderValue::from_static(message));
    response
}
