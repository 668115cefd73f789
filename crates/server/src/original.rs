//! The original request, as a gateway states it.

use http::header::{
    ACCESS_CONTROL_REQUEST_METHOD, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, TE,
    TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
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

/// Forward auth as a configuration has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ForwardAuth {
    pub(crate) form: Form,
    /// True if requests pass whose path services read in different ways.
    pub(crate) allows_ambiguous_paths: bool,
    /// The header fields that are keys. Services differ about which of two lines counts.
    pub(crate) keys: Vec<HeaderName>,
    /// The methods that policies name, beside those of HTTP.
    pub(crate) methods: Vec<String>,
}

/// The methods that services know, in the letters of HTTP.
const METHODS: [&str; 9] = [
    "CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE",
];

/// The reason why a question is about no request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// The gateway does not state it.
    Unstated(String),
    /// Services can read it as another one, which has a limit.
    Ambiguous(String),
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
}

impl ForwardAuth {
    /// True if the caller gets the answer as it is. nginx answers 500 in place of every status but 401 and 403.
    pub(crate) fn passes_status_on(&self) -> bool {
        self.form != Form::Nginx
    }

    /// The request that a question is about.
    ///
    /// # Errors
    ///
    /// If the question does not state it, or states one that services read in different ways: with the reason.
    pub(crate) fn original(&self, question: Parts) -> Result<Request<()>, Flaw> {
        let mut headers = question.headers;
        let fields = self.form.fields();
        let method = required(&mut headers, &fields.method)?;
        let method = Method::from_bytes(method.as_bytes())
            .map_err(|_| Flaw::Unstated(format!("{}: is not a method", fields.method)))?;
        self.check_letters(&method)?;
        let target = required(&mut headers, &fields.target)?;
        let target = self.target(target.as_bytes(), &fields.target)?;
        let host = sole(&mut headers, &fields.host)?;
        for name in &self.keys {
            if headers.get_all(name).iter().count() > 1 {
                return Err(Flaw::Ambiguous(format!(
                    "{name}: is a key, and stands twice"
                )));
            }
        }
        // To services behind CGI or WSGI both are one field.
        let is_alike = |name: &str, key: &str| {
            name.contains('_') && name.replace('_', "-") == key.replace('_', "-") && name != key
        };
        for name in headers.keys() {
            if self
                .keys
                .iter()
                .any(|key| is_alike(name.as_str(), key.as_str()))
            {
                return Err(Flaw::Ambiguous(format!(
                    "{name}: some services take it for a field that is a key"
                )));
            }
        }
        // No preflight has one of them, and the service sees what this server does not.
        let may_be_preflight = DROPPED.iter().all(|name| match headers.get(name) {
            None => true,
            Some(value) => *name == CONNECTION || (*name == CONTENT_LENGTH && value == "0"),
        });
        for name in DROPPED {
            headers.remove(name);
        }
        if !may_be_preflight {
            headers.remove(ACCESS_CONTROL_REQUEST_METHOD);
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

    /// Refuses a method that some services take for another one: `post` is POST to some, and none that a policy names to others.
    fn check_letters(&self, method: &Method) -> Result<(), Flaw> {
        let named = self.methods.iter().map(String::as_str);
        let mut known = METHODS.into_iter().chain(named);
        let is_known_otherwise =
            |known: &str| known != method && known.eq_ignore_ascii_case(method.as_str());
        match known.find(|known| is_known_otherwise(known)) {
            None => Ok(()),
            Some(known) => Err(Flaw::Ambiguous(format!(
                "the method is {known} in other letters, and services read such methods in different ways"
            ))),
        }
    }

    fn target(&self, target: &[u8], field: &HeaderName) -> Result<PathAndQuery, Flaw> {
        let unstated = || Flaw::Unstated(format!("{field}: is not a path"));
        // Beginning with a slash, so that nothing in it is read as a host.
        if !target.starts_with(b"/") && target != b"*" {
            return Err(unstated());
        }
        // No client sends one. Some services cut it off, and others take it for a part of the path or the query.
        if target.contains(&b'#') {
            return Err(Flaw::Ambiguous(
                "the target has a fragment, and services read such targets in different ways"
                    .to_owned(),
            ));
        }
        let end = target.iter().position(|byte| *byte == b'?');
        let path = &target[..end.unwrap_or(target.len())];
        if let Some(what) = ambiguity(path).filter(|_| !self.allows_ambiguous_paths) {
            return Err(Flaw::Ambiguous(format!(
                "the path has {what}, and services read such paths in different ways"
            )));
        }
        PathAndQuery::try_from(encoded(target)).map_err(|_| unstated())
    }
}

/// The part of a path that one service resolves, decodes or cuts, and another takes as it is.
fn ambiguity(path: &[u8]) -> Option<&'static str> {
    let path = path.to_ascii_lowercase();
    let has = |part: &[u8]| path.windows(part.len()).any(|bytes| bytes == part);
    let is_dots = |segment: &[u8]| {
        let rest = segment.strip_prefix(b"%2e").or(segment.strip_prefix(b"."));
        rest.is_some_and(|rest| matches!(rest, b"" | b"." | b"%2e"))
    };
    if has(b"//") {
        Some("two slashes")
    } else if has(b"%2f") {
        Some("an encoded slash")
    } else if has(b"\\") || has(b"%5c") {
        Some("a backslash")
    } else if has(b";") || has(b"%3b") {
        Some("a semicolon")
    } else if (path.windows(3)).any(|it| matches!(it, [b'%', b'0' | b'1', _] | b"%7f")) {
        Some("an encoded control byte")
    } else if str::from_utf8(&path).is_err() {
        // Some services take such a byte for a blank, at which a path ends.
        Some("bytes that are not UTF-8")
    } else if path.split(|byte| *byte == b'/').any(is_dots) {
        Some("a segment of dots")
    } else {
        None
    }
}

/// A target in which the bytes are encoded that a URI cannot have. Gateways pass them on as they are.
fn encoded(target: &[u8]) -> Vec<u8> {
    const KEPT: &[u8] = b"-._~!$&'()*+,;=:@/?%#[]|^\\";
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut encoded = Vec::with_capacity(target.len());
    for byte in target {
        if byte.is_ascii_alphanumeric() || KEPT.contains(byte) {
            encoded.push(*byte);
        } else {
            let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
            encoded.extend([b'%', DIGITS[high], DIGITS[low]]);
        }
    }
    encoded
}

fn required(headers: &mut HeaderMap, name: &HeaderName) -> Result<HeaderValue, Flaw> {
    sole(headers, name)?.ok_or_else(|| Flaw::Unstated(format!("{name}: is not stated")))
}

/// Takes the value of a field, which must not have two: the gateway's may be the second.
fn sole(headers: &mut HeaderMap, name: &HeaderName) -> Result<Option<HeaderValue>, Flaw> {
    if headers.get_all(name).iter().count() > 1 {
        return Err(Flaw::Unstated(format!("{name}: is stated twice")));
    }
    Ok(headers.remove(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(form: Form, fields: &[(&str, &str)]) -> Result<Request<()>, Flaw> {
        let auth = ForwardAuth {
            form,
            allows_ambiguous_paths: false,
            keys: vec![HeaderName::from_static("x-api-key")],
            methods: vec!["PURGE".to_owned()],
        };
        original(&auth, fields)
    }

    fn original(auth: &ForwardAuth, fields: &[(&str, &str)]) -> Result<Request<()>, Flaw> {
        let mut question = Request::get("/_limit").header("host", "127.0.0.1:8082");
        for (name, value) in fields {
            question = question.header(*name, *value);
        }
        let (parts, ()) = question.body(()).unwrap().into_parts();
        auth.original(parts)
    }

    #[test]
    fn the_request_is_the_stated_one_and_keeps_its_fields_but_for_the_body() {
        let stated = [
            ("x-original-method", "DELETE"),
            ("x-original-uri", "/a/b%41/c?x=%41//.."),
            ("x-original-host", "shop.example"),
            ("x-api-key", "alice"),
            ("content-type", "application/grpc"),
            ("content-length", "7"),
        ];
        let request = asked(Form::Nginx, &stated).unwrap();
        assert_eq!(request.method(), Method::DELETE);
        assert_eq!(request.uri(), "/a/b%41/c?x=%41//..");
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
            (&[method, ("x-forwarded-uri", "*")], ""),
            (&[method, ("x-forwarded-uri", "/a b")], ""),
            // Those of another gateway state nothing.
            (
                &[("x-original-method", "GET"), ("x-original-uri", "/")],
                "x-forwarded-method: is not stated",
            ),
        ];
        for (fields, reason) in cases {
            for form in [Form::Caddy, Form::Traefik] {
                let read = asked(form, fields);
                let expected = (!reason.is_empty()).then(|| Flaw::Unstated((*reason).to_owned()));
                assert_eq!(read.err(), expected, "{fields:?}");
            }
        }
    }

    /// The layer in front of the service would charge it, because of a field that this server drops.
    #[test]
    fn what_is_no_preflight_to_the_service_is_none_here() {
        for (name, value, may_be) in [
            ("content-type", "application/json", false),
            ("content-length", "7", false),
            ("te", "trailers", false),
            ("upgrade", "websocket", false),
            ("content-length", "0", true),
            ("connection", "close", true),
        ] {
            let asked = asked(
                Form::Nginx,
                &[
                    ("x-original-method", "OPTIONS"),
                    ("x-original-uri", "/x"),
                    ("access-control-request-method", "POST"),
                    (name, value),
                ],
            );
            let headers = asked.unwrap().into_parts().0.headers;
            assert_eq!(
                headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD),
                may_be,
                "{name}"
            );
        }
    }

    #[test]
    fn a_field_that_services_take_for_a_key_is_told_to_be_one() {
        let stated = [("x-forwarded-method", "GET"), ("x-forwarded-uri", "/")];
        for (name, is_alike) in [
            ("x_api_key", true),
            ("x_api-key", true),
            ("X-API-KEY", false),
            ("x_other", false),
        ] {
            let asked = asked(Form::Caddy, &[stated[0], stated[1], (name, "a")]);
            assert_eq!(matches!(asked, Err(Flaw::Ambiguous(_))), is_alike, "{name}");
        }
    }

    #[test]
    fn without_a_stated_host_there_is_none() {
        let request = asked(
            Form::Caddy,
            &[("x-forwarded-method", "GET"), ("x-forwarded-uri", "/")],
        );
        assert!(!request.unwrap().headers().contains_key(HOST));
    }

    #[test]
    fn a_request_that_services_read_in_different_ways_is_told_to_be_one() {
        let method = ("x-forwarded-method", "POST");
        for (path, what) in [
            ("/x/../login", "a segment of dots"),
            ("/./login", "a segment of dots"),
            ("/x/%2E%2e/login", "a segment of dots"),
            ("/x/.%2e", "a segment of dots"),
            ("//shop/login", "two slashes"),
            ("/api%2Fx", "an encoded slash"),
            ("/\\shop/login", "a backslash"),
            ("/x%5c..%5clogin", "a backslash"),
            ("/login;a", "a semicolon"),
            ("/login%3Ba", "a semicolon"),
            ("/login%00", "an encoded control byte"),
            ("/login%0A", "an encoded control byte"),
            ("/login%7f", "an encoded control byte"),
        ] {
            let fields = [method, ("x-forwarded-uri", path)];
            let told =
                format!("the path has {what}, and services read such paths in different ways");
            assert_eq!(
                asked(Form::Caddy, &fields).err(),
                Some(Flaw::Ambiguous(told)),
                "{path}"
            );
            let lax = ForwardAuth {
                form: Form::Caddy,
                allows_ambiguous_paths: true,
                keys: Vec::new(),
                methods: Vec::new(),
            };
            assert!(original(&lax, &fields).is_ok(), "{path}");
        }
        for path in [
            "/",
            "/login?x=//../%2f;",
            "/a.b/..c/.d",
            "/100%25",
            "/a,b:c@d",
        ] {
            let fields = [method, ("x-forwarded-uri", path)];
            assert!(asked(Form::Caddy, &fields).is_ok(), "{path}");
        }
        let target = ("x-forwarded-uri", "/");
        let key = ("x-api-key", "alice");
        let twice = asked(Form::Caddy, &[method, target, key, key]);
        let told = "x-api-key: is a key, and stands twice".to_owned();
        assert_eq!(twice.err(), Some(Flaw::Ambiguous(told)));
    }

    #[test]
    fn a_method_in_other_letters_is_one_that_services_read_in_different_ways() {
        let target = ("x-forwarded-uri", "/");
        for (method, known) in [("post", "POST"), ("Get", "GET"), ("purge", "PURGE")] {
            let told = format!(
                "the method is {known} in other letters, and services read such methods in different ways"
            );
            assert_eq!(
                asked(Form::Caddy, &[("x-forwarded-method", method), target]).err(),
                Some(Flaw::Ambiguous(told))
            );
        }
        for method in ["POST", "PURGE", "m-search", "Report"] {
            let request = asked(Form::Caddy, &[("x-forwarded-method", method), target]);
            assert_eq!(request.unwrap().method().as_str(), method);
        }
    }

    #[test]
    fn a_target_that_is_not_a_uri_is_encoded() {
        let fields = [
            ("x-forwarded-method", "POST"),
            ("x-forwarded-uri", "/<a>`\"\u{e9}?{\"a\":1}"),
        ];
        let request = asked(Form::Caddy, &fields).unwrap();
        assert_eq!(request.uri(), "/%3Ca%3E%60%22%C3%A9?%7B%22a%22:1%7D");
    }
}
