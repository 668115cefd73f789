//! The variants of gRPC, by which a call is told from other requests.

use http::Method;
use http::header::CONTENT_TYPE;

use crate::RequestView;

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
    /// `None` if the content type is not gRPC's, the method is not `POST`, or the path is not that of a call: an HTTP page must not be
    /// answered by a 200 because a caller claims to speak gRPC. tonic also runs calls of other methods and content types. Their callers
    /// are not gRPC clients and are answered in HTTP. The case of a content type does not count.
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
        let is_grpc = matches!(rest, [] | [b'+' | b';' | b' ' | b'\t', ..]);
        let is_call = is_grpc && request.method() == Method::POST && may_be_call(request);
        is_call.then_some(dialect)
    }
}

/// True unless the path, or the route that axum matched, cannot be that of a method: `/shop.v1.Orders/Place`, perhaps behind a prefix.
/// tonic's routes end with `{*rest}`.
fn may_be_call(request: &RequestView<'_>) -> bool {
    if let Some((_, last)) = (request.matched_path()).and_then(|route| route.rsplit_once('/'))
        && last.contains('{')
        && !last.starts_with("{*")
    {
        return false;
    }
    let path = request.original_uri().path();
    let behind_service = path.trim_start_matches('/').split_once('/');
    behind_service.is_some_and(|(_, method)| !method.is_empty())
}

/// The text behind this prefix, which may be in any case.
fn behind<'t>(text: &'t [u8], beginning: &[u8]) -> Option<&'t [u8]> {
    let (first, rest) = text.split_at_checked(beginning.len())?;
    first.eq_ignore_ascii_case(beginning).then_some(rest)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn a_caller_that_speaks_grpc_says_so_by_content_type() {
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
            let mut request = Request::post("/shop.v1.Orders/Place")
                .header(CONTENT_TYPE, content_type)
                .body(())
                .unwrap();
            let dialect = Dialect::of(&RequestView::of(&request));
            assert_eq!(dialect, expected, "{content_type}");
            for method in [Method::PUT, Method::OPTIONS, Method::GET, Method::HEAD] {
                *request.method_mut() = method;
                assert_eq!(Dialect::of(&RequestView::of(&request)), None);
            }
        }
        let silent = Request::post("/shop.v1.Orders/Place").body(()).unwrap();
        assert_eq!(Dialect::of(&RequestView::of(&silent)), None);
        for (path, expected) in [
            ("/api/shop.v1.Orders/Place", Some(Dialect::Native)),
            ("//shop.v1.Orders/Place", Some(Dialect::Native)),
            ("/", None),
            ("/page", None),
            ("/page/", None),
        ] {
            let request = Request::post(path).header(CONTENT_TYPE, "application/grpc");
            let request = request.body(()).unwrap();
            assert_eq!(Dialect::of(&RequestView::of(&request)), expected, "{path}");
        }
    }
}
