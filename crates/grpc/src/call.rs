//! A call behind tonic: without its method, path and protocol.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderValue, Method, Request, Response, Uri};
use tollgate_http::RefusalReason;
use tollgate_http::transport::Config;
use tollgate_limiter::RequestView;
use tollgate_limiter::transport::{Dialect, Report};
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

/// The head of the request that a call once was. Every call is a POST, and its target is in the extensions, if anywhere.
pub(crate) fn call_head(metadata: MetadataMap, extensions: Extensions) -> Parts {
    let (mut head, ()) = Request::new(()).into_parts();
    head.method = Method::POST;
    head.uri = target(&extensions).unwrap_or(Uri::from_static("/service/method"));
    head.headers = metadata.into_headers();
    head.extensions = extensions;
    if Dialect::of(&RequestView::of_parts(&head)).is_none() {
        // All that comes here is a call, even if the caller says otherwise.
        let grpc = HeaderValue::from_static("application/grpc");
        head.headers.insert(CONTENT_TYPE, grpc);
    }
    head
}

#[cfg(feature = "axum")]
fn target(extensions: &Extensions) -> Option<Uri> {
    let axum::extract::OriginalUri(target) = extensions.get()?;
    Some(target.clone())
}

#[cfg(not(feature = "axum"))]
fn target(_: &Extensions) -> Option<Uri> {
    None
}

/// The answer to a call that has begun. It is in gRPC, whatever content type the call has.
pub(crate) fn refuse_call(
    config: &Config,
    reason: RefusalReason<'_>,
    report: Report<'_>,
) -> Response<Bytes> {
    let head = call_head(MetadataMap::new(), Extensions::new());
    config.refuse_begun(reason, report, RequestView::of_parts(&head))
}

/// The layer's answer to a refused call, as a status.
pub(crate) fn refusal_status(headers: &HeaderMap) -> Status {
    let status = Status::from_header_map(headers);
    // It has one, since it answers a call.
    status.unwrap_or_else(|| Status::new(Code::Unavailable, ""))
}
