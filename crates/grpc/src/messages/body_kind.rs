//! Which requests are calls, as far as their heads tell.
//!
//! The letter of gRPC is no help: a call is a POST of `application/grpc`, and tonic runs a method for any other verb and content
//! type, and for none, by its path alone.

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use tollgate_http::transport::Dialect;

/// What a head says that a body is.
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
    /// Upper case does not make another type of it, nor does what stands behind. Of several lines each might be the one that is
    /// believed.
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

/// Whether the body is encoded as a whole, which no call's is: gRPC compresses messages one by one. A layer further in may decode
/// it, and none of its messages can be seen from outside of that layer.
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
