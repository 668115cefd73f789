//! Refusals in gRPC: a plain 429 would reach clients as UNAVAILABLE, which they retry at once.

#[cfg(feature = "tonic")]
mod details;
mod options;
mod pushback;
mod status;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Response};
use tollgate_limiter::RequestView;

pub use self::options::GrpcAnswers;
use self::pushback::pushback;
pub use self::status::{GrpcCode, GrpcStatus};
use super::Refusal;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_RETRY_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// The variant of gRPC that a caller speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// gRPC over HTTP/2.
    Native,
    /// gRPC-Web, for browsers. Such a caller reads the status from the headers too if there is no body.
    Web,
    /// gRPC-Web in base64. An answer without a body has none.
    WebText,
}

impl Dialect {
    /// `None` if the content type is not gRPC's. The method does not count, nor does the case: a gRPC server runs a call by any
    /// of them, and a plain 429 would tell its caller nothing. tonic also runs calls of other content types. Their callers are
    /// not gRPC clients and are answered in HTTP.
    #[inline]
    pub fn of(request: &RequestView<'_>) -> Option<Self> {
        let content_type = request.headers().get(CONTENT_TYPE)?.as_bytes();
        // HTTP/2 keeps blanks around values.
        let rest = behind(content_type.trim_ascii(), b"application/grpc")?;
        let (dialect, rest) = match behind(rest, b"-web") {
            None => (Self::Native, rest),
            Some(rest) => match behind(rest, b"-text") {
                None => (Self::Web, rest),
                Some(rest) => (Self::WebText, rest),
            },
        };
        matches!(rest, [] | [b'+' | b';' | b' ' | b'\t', ..]).then_some(dialect)
    }

    fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Native => "application/grpc",
            Self::Web => "application/grpc-web+proto",
            Self::WebText => "application/grpc-web-text+proto",
        })
    }
}

/// The text behind this prefix, which may be in any case.
fn behind<'t>(text: &'t [u8], beginning: &[u8]) -> Option<&'t [u8]> {
    let (first, rest) = text.split_at_checked(beginning.len())?;
    first.eq_ignore_ascii_case(beginning).then_some(rest)
}

impl GrpcAnswers {
    /// The answer to a refusal. It is trailers-only: the status stands in the headers, and there is no body.
    pub(super) fn answer(&self, dialect: Dialect, refusal: &Refusal<'_>) -> Response<Bytes> {
        let status = self.status(refusal);
        let mut response = Response::new(Bytes::new());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, dialect.content_type());
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

/// An answer to a call that no limit refuses, and that cannot go on all the same.
#[cfg(feature = "tonic")]
pub fn closed(dialect: Dialect, code: GrpcCode, message: &'static str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, dialect.content_type());
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

#[cfg(test)]
mod tests {
    use http::{Method, Request};

    use super::*;

    #[test]
    fn who_speaks_grpc_says_so_by_content_type() {
        let cases = [
            ("application/grpc", Some(Dialect::Native)),
            ("application/grpc+proto", Some(Dialect::Native)),
            ("application/grpc;charset=utf-8", Some(Dialect::Native)),
            ("Application/GRPC", Some(Dialect::Native)),
            ("application/gRPC+Proto", Some(Dialect::Native)),
            (" application/grpc ; charset=utf-8", Some(Dialect::Native)),
            ("application/grpc-web", Some(Dialect::Web)),
            ("application/grpc-WEB-Text", Some(Dialect::WebText)),
            ("application/grpc-web+proto", Some(Dialect::Web)),
            ("application/grpc-web-text", Some(Dialect::WebText)),
            ("application/grpc-web-text+proto", Some(Dialect::WebText)),
            ("application/grpcish", None),
            ("application/GRPCish", None),
            ("application/grpc-webby", None),
            ("application/grpc-web-textual", None),
            ("application/json", None),
        ];
        for (content_type, expected) in cases {
            let mut request = Request::post("/")
                .header(CONTENT_TYPE, content_type)
                .body(())
                .unwrap();
            for method in [Method::POST, Method::PUT, Method::OPTIONS, Method::GET] {
                *request.method_mut() = method;
                assert_eq!(
                    Dialect::of(&RequestView::of(&request)),
                    expected,
                    "{content_type}"
                );
            }
        }
        let silent = Request::post("/").body(()).unwrap();
        assert_eq!(Dialect::of(&RequestView::of(&silent)), None);
    }
}
