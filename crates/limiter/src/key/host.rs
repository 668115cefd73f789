//! The host that a request is for.

use http::HeaderValue;
use http::header::HOST;

use super::spelling::Spelling;
use super::{KeyExtractor, KeyMissing, KeyShape};
use crate::{Key, RequestView};

/// The host that the request is for, in lower case, without port and without a dot at the end: see [`RequestView::host`].
///
/// The key is missing if neither the target nor `Host` names a host. It is [ambiguous](KeyMissing::ambiguous) if they differ, if
/// several `Host` lines differ, or if one is more than a name and a port: HTTP prefers the target, and axum-extra's `Host`
/// prefers the header. `Forwarded` and `X-Forwarded-Host` do not count, since any caller can send them. axum-extra's `Host` reads
/// these first, so limit by its host only behind a proxy that removes them.
///
/// The caller may name any host. Use it as identity only if something in front of this server admits only known hosts: otherwise
/// a caller has as many budgets as there are names.
///
/// ```
/// use tollgate::key::Host;
/// use tollgate::{Policy, Quota};
///
/// // The proxy in front lets the hosts of tenants through and no others.
/// let tenants = Policy::new("tenants", Quota::per_second(100)).key(Host);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Host;

impl KeyExtractor for Host {
    fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        if let Some(host) = request.host() {
            return Ok(Key::from(&*host));
        }
        let lines = request.headers().get_all(HOST).into_iter();
        let mut lines = lines.map(HeaderValue::as_bytes).map(<[u8]>::trim_ascii);
        let missing = KeyMissing::new("host");
        Err(
            if request.original_uri().host().is_some() || lines.any(|line| !line.is_empty()) {
                missing.ambiguous("it can be read in several ways, or in none")
            } else {
                missing
            },
        )
    }

    fn needs_whole_request(&self) -> bool {
        true
    }

    fn shape(&self) -> KeyShape {
        KeyShape::Spelled(Spelling::Host)
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn host(uri: &str, lines: &[&str]) -> Result<Key, KeyMissing> {
        let mut request = Request::get(uri);
        for line in lines {
            request = request.header("host", *line);
        }
        let request = request.body(()).unwrap();
        Host.extract(&RequestView::of(&request))
    }

    #[test]
    fn a_host_is_its_name_however_it_is_written() {
        let cases: &[(&str, &[&str], &str)] = &[
            ("/", &["api.example.com"], "api.example.com"),
            ("/", &["API.Example.com:8080"], "api.example.com"),
            ("/", &["api.example.com."], "api.example.com"),
            ("/", &["api.example.com.:80"], "api.example.com"),
            ("/", &[" api.example.com "], "api.example.com"),
            ("/", &["[2001:DB8::1]:80"], "[2001:db8::1]"),
            ("/", &["[2001:db8::1]"], "[2001:db8::1]"),
            ("/", &["[2001:DB8:0::0001]"], "[2001:db8::1]"),
            (
                "http://[2001:db8::1]/",
                &["[2001:db8:0::1]:80"],
                "[2001:db8::1]",
            ),
            ("/", &["api.example.com.."], "api.example.com"),
            ("/", &["a.example", "A.example.:80"], "a.example"),
            ("http://a.example:80/", &[], "a.example"),
            ("http://A.example/", &["a.example:80"], "a.example"),
        ];
        for (uri, lines, expected) in cases {
            let expected = Ok(Key::from(*expected));
            assert_eq!(host(uri, lines), expected, "{uri} {lines:?}");
        }
    }

    #[test]
    fn no_host_is_absent_and_what_can_be_read_in_several_ways_is_ambiguous() {
        let cases: &[(&str, &[&str], bool)] = &[
            ("/", &[], false),
            ("/", &[""], false),
            ("/", &[" ", ""], false),
            ("/", &[":80"], true),
            ("/", &["a.example", "b.example"], true),
            ("/", &["", "b.example"], true),
            ("/", &["user@a.example"], true),
            ("/", &["a.example, b.example"], true),
            ("/", &["%61.example"], true),
            // The target goes before the header to some, and the header before the target to others.
            ("http://a.example/", &["b.example"], true),
        ];
        for (uri, lines, is_ambiguous) in cases {
            let missing = host(uri, lines).unwrap_err();
            assert_eq!(missing.is_ambiguous(), *is_ambiguous, "{uri} {lines:?}");
        }
    }
}
