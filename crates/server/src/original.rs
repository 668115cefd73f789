//! The original request, as a gateway states it.

use http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, Method, Request, Uri};
use serde::Deserialize;

/// The fields in which a gateway states the original request, and the answers that it understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Form {
    /// `auth_request`, with the fields of our guide.
    Nginx,
    /// `forward_auth`.
    Caddy,
    /// `ForwardAuth`.
    Traefik,
}

/// The fields that a gateway sets, whatever its caller has sent.
struct Fields {
    method: HeaderName,
    target: HeaderName,
    host: HeaderName,
}

/// The fields about the connection or the body of the original request. The content type is among them: an answer in the form of
/// gRPC would have the status 200, by which the gateway would let the request pass.
const DROPPED: [HeaderName; 7] = [
    CONNECTION,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    EXPECT,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

impl Form {
    fn fields(self) -> Fields {
        let name = HeaderName::from_static;
        match self {
            Self::Nginx => Fields {
                method: name("x-original-method"),
                target: name("x-original-uri"),
                host: name("x-original-host"),
            },
            Self::Caddy | Self::Traefik => Fields {
                method: name("x-forwarded-method"),
                target: name("x-forwarded-uri"),
                host: name("x-forwarded-host"),
            },
        }
    }

    /// True if the caller gets the answer as it is. nginx answers 500 in place of every status but 401 and 403.
    pub(crate) fn passes_status_on(self) -> bool {
        self != Self::Nginx
    }

    /// The request that a question is about.
    ///
    /// # Errors
    ///
    /// If the question does not state it: with the reason.
    pub(crate) fn original(self, question: Parts) -> Result<Request<()>, String> {
        let mut headers = question.headers;
        let fields = self.fields();
        let method = required(&mut headers, &fields.method)?;
        let method = Method::from_bytes(method.as_bytes())
            .map_err(|_| format!("{}: is not a method", fields.method))?;
        let target = required(&mut headers, &fields.target)?;
        // Beginning with a slash, so that nothing in it is read as a host.
        let target = Some(target.as_bytes())
            .filter(|target| target.starts_with(b"/") || *target == b"*")
            .and_then(|target| PathAndQuery::try_from(target).ok())
            .ok_or_else(|| format!("{}: is not a path", fields.target))?;
        let host = sole(&mut headers, &fields.host)?;
        for name in DROPPED {
            headers.remove(name);
        }
        match host {
            Some(host) => headers.insert(HOST, host),
            // That of the question is the server's own.
            None => headers.remove(HOST),
        };
        let mut request = Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() = Uri::from(target);
        *request.version_mut() = question.version;
        *request.headers_mut() = headers;
        Ok(request)
    }
}

fn required(headers: &mut HeaderMap, name: &HeaderName) -> Result<http::HeaderValue, String> {
    sole(headers, name)?.ok_or_else(|| format!("{name}: is not stated"))
}

/// Takes the value of a field, which must not have two: the gateway's may be the second.
fn sole(headers: &mut HeaderMap, name: &HeaderName) -> Result<Option<http::HeaderValue>, String> {
    if headers.get_all(name).iter().count() > 1 {
        return Err(format!("{name}: is stated twice"));
    }
    Ok(headers.remove(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn original(form: Form, fields: &[(&str, &str)]) -> Result<Request<()>, String> {
        let mut question = Request::get("/_limit").header("host", "127.0.0.1:8082");
        for (name, value) in fields {
            question = question.header(*name, *value);
        }
        let (parts, ()) = question.body(()).unwrap().into_parts();
        form.original(parts)
    }

    #[test]
    fn the_request_is_the_stated_one_and_keeps_its_fields_but_for_the_body() {
        let stated = [
            ("x-original-method", "DELETE"),
            ("x-original-uri", "/a//b/../c?x=%41"),
            ("x-original-host", "shop.example"),
            ("x-api-key", "alice"),
            ("content-type", "application/grpc"),
            ("content-length", "7"),
        ];
        let request = original(Form::Nginx, &stated).unwrap();
        assert_eq!(request.method(), Method::DELETE);
        assert_eq!(request.uri(), "/a//b/../c?x=%41");
        let names: Vec<_> = request.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        assert_eq!(request.headers()["host"], "shop.example");
        assert_eq!(request.headers()["x-api-key"], "alice");
    }

    #[test]
    fn a_question_without_its_request_is_refused_with_the_field() {
        let method = ("x-forwarded-method", "GET");
        let target = ("x-forwarded-uri", "/");
        let cases: &[(&[(&str, &str)], &str)] = &[
            (&[target], "x-forwarded-method: is not stated"),
            (&[method], "x-forwarded-uri: is not stated"),
            (
                &[method, method, target],
                "x-forwarded-method: is stated twice",
            ),
            (
                &[method, target, ("x-forwarded-uri", "/x")],
                "x-forwarded-uri: is stated twice",
            ),
            (
                &[("x-forwarded-method", "G T"), target],
                "x-forwarded-method: is not a method",
            ),
            (
                &[method, ("x-forwarded-uri", "http://evil/")],
                "x-forwarded-uri: is not a path",
            ),
            (&[method, ("x-forwarded-uri", "//")], ""),
            (&[method, ("x-forwarded-uri", "*")], ""),
            (
                &[method, ("x-forwarded-uri", "/a b")],
                "x-forwarded-uri: is not a path",
            ),
            // Those of another gateway state nothing.
            (
                &[("x-original-method", "GET"), ("x-original-uri", "/")],
                "x-forwarded-method: is not stated",
            ),
        ];
        for (fields, reason) in cases {
            for form in [Form::Caddy, Form::Traefik] {
                let read = original(form, fields);
                assert_eq!(read.err().unwrap_or_default(), *reason, "{fields:?}");
            }
        }
    }

    #[test]
    fn without_a_stated_host_there_is_none() {
        let request = original(
            Form::Caddy,
            &[("x-forwarded-method", "GET"), ("x-forwarded-uri", "/")],
        );
        assert!(!request.unwrap().headers().contains_key(HOST));
    }
}
