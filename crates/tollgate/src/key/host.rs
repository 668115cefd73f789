//! The host that a request is for.

use super::{KeyExtractor, KeyMissing};
use crate::{Key, RequestView};

/// The host that the request is for, in lower case and without port: see [`RequestView::host`]. Missing if it does not say, or
/// says several.
///
/// The caller may say anything. Use it as identity only if something in front of this server lets known hosts through and no
/// others: if any name gets a budget, a caller has as many budgets as there are names.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host;

impl KeyExtractor for Host {
    fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        match request.host() {
            Some(host) => Ok(Key::from(&*host)),
            None => Err(KeyMissing::new("host")),
        }
    }

    fn needs_whole_request(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use http::Request;

    use super::*;

    fn host(uri: &str, lines: &[&str]) -> Option<String> {
        let mut request = Request::get(uri);
        for line in lines {
            request = request.header("host", *line);
        }
        let request = request.body(()).unwrap();
        let view = RequestView::of(&request);
        assert_eq!(
            Host.extract(&view).ok(),
            view.host().map(|host| Key::from(&*host))
        );
        view.host().map(Cow::into_owned)
    }

    #[test]
    fn a_host_is_its_name_however_it_is_written() {
        let cases: &[(&str, &[&str], Option<&str>)] = &[
            ("/", &["api.example.com"], Some("api.example.com")),
            ("/", &["API.Example.com:8080"], Some("api.example.com")),
            ("/", &["api.example.com."], Some("api.example.com")),
            ("/", &["[2001:DB8::1]:80"], Some("[2001:db8::1]")),
            ("/", &["[2001:db8::1]"], Some("[2001:db8::1]")),
            // The target goes before the header to some, and the header before the target to others.
            ("http://A.example/", &["b.example"], None),
            ("http://A.example/", &["a.example:80"], Some("a.example")),
            ("http://a.example:80/", &[], Some("a.example")),
            ("/", &["a.example", "b.example"], None),
            ("/", &["a.example", "A.example."], Some("a.example")),
            ("/", &["user@a.example"], None),
            ("/", &["a.example, b.example"], None),
            ("/", &["%61.example"], None),
            ("/", &[""], None),
            ("/", &[":80"], None),
            ("/", &[], None),
        ];
        for (uri, lines, expected) in cases {
            assert_eq!(host(uri, lines).as_deref(), *expected, "{uri} {lines:?}");
        }
    }
}
