//! The kind of a body, as far as the head of its request tells.
//!
//! The specification does not help: it says that a call is a POST of `application/grpc`, but tonic runs a method by its path
//! alone, for every verb and content type.

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use tollgate_limiter::transport::Dialect;

/// The kind of a body by its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyKind {
    /// Messages of gRPC.
    Grpc,
    /// Messages that another layer has to translate first, if there is one.
    Web(Dialect),
    /// Something else, or nothing, which may be messages all the same.
    Other,
}

impl BodyKind {
    /// Neither upper case nor parameters make another type. If there are several lines, a reader may take any of them.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut says = Self::Other;
        for line in headers.get_all(CONTENT_TYPE) {
            let line = line.as_bytes().trim_ascii_start();
            if begins(line, b"application/grpc-web-text") {
                return Self::Web(Dialect::WebText);
            }
            if begins(line, b"application/grpc-web") {
                return Self::Web(Dialect::Web);
            }
            if begins(line, b"application/grpc") {
                says = Self::Grpc;
            }
        }
        says
    }
}

fn begins(line: &[u8], with: &[u8]) -> bool {
    let beginning = line.get(..with.len());
    beginning.is_some_and(|beginning| beginning.eq_ignore_ascii_case(with))
}

/// True if the body is encoded as a whole. No call's body is, because gRPC compresses messages one by one. A layer further in may
/// decode it, and none of its messages can be seen from outside of that layer.
pub(super) fn is_encoded(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(CONTENT_ENCODING).iter();
    lines.any(|line| !line.as_bytes().eq_ignore_ascii_case(b"identity"))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn content_types_that_a_server_could_take_for_grpc_are_grpc() {
        let cases: [(&[&'static str], _); 13] = [
            (&[], BodyKind::Other),
            (&["application/json"], BodyKind::Other),
            (&["text/application/grpc"], BodyKind::Other),
            (&["application/grpc"], BodyKind::Grpc),
            (&["application/GRPC+proto"], BodyKind::Grpc),
            (&["application/grpcx"], BodyKind::Grpc),
            (&[" application/grpc"], BodyKind::Grpc),
            (&["application/json", "application/grpc"], BodyKind::Grpc),
            (&["application/grpc-web"], BodyKind::Web(Dialect::Web)),
            (&["application/gRPC-Webby"], BodyKind::Web(Dialect::Web)),
            (
                &["application/grpc-web-text+proto"],
                BodyKind::Web(Dialect::WebText),
            ),
            (
                &["application/grpc", "application/grpc-web"],
                BodyKind::Web(Dialect::Web),
            ),
            (&["application/grp"], BodyKind::Other),
        ];
        for (lines, expected) in cases {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(CONTENT_TYPE, HeaderValue::from_static(line));
            }
            assert_eq!(BodyKind::of(&headers), expected, "{lines:?}");
        }
    }
}
