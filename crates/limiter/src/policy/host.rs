//! The host that a request is for.

use std::net::Ipv6Addr;

use http::header::{FORWARDED, HOST};
use http::{HeaderName, HeaderValue};
use percent_encoding::percent_decode;

use crate::RequestView;
use crate::request::is_in_names;

const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// A host, or every name below one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostPattern {
    name: Box<str>,
    below: bool,
}

/// True if `is_it` holds for a host that some reading of the request names, or if it names none: a server takes it for its own then.
pub(super) fn is_any_host(request: &RequestView<'_>, is_it: impl Fn(&str) -> bool) -> bool {
    let headers = request.headers();
    let others = [FORWARDED, X_FORWARDED_HOST];
    // Nearly every request says it once, in one way.
    if !others.iter().any(|name| headers.contains_key(name))
        && let Some(host) = request.host()
        && !host.starts_with('[')
    {
        return is_it(&host);
    }
    let target = request.original_uri().authority();
    let lines = [HOST, FORWARDED, X_FORWARDED_HOST].into_iter();
    let lines = lines.flat_map(|name| headers.get_all(name).iter().map(HeaderValue::as_bytes));
    let mut said = target
        .map(|target| target.as_str().as_bytes())
        .into_iter()
        .chain(lines)
        .filter(|said| !said.is_empty() && !said.starts_with(b":"))
        .peekable();
    said.peek().is_none() || said.any(|said| has_any_host(said, &is_it))
}

/// True if `is_it` holds for a part of this text that could be a host. Readers differ about the characters around it.
fn has_any_host(said: &[u8], is_it: impl Fn(&str) -> bool) -> bool {
    let mut said: Vec<u8> = percent_decode(said).collect();
    // Readers of URLs make other names of such characters, so that it may be any host.
    if said
        .iter()
        .any(|byte| !byte.is_ascii() || byte.is_ascii_control())
    {
        return true;
    }
    // One that quotes a character within quotes.
    said.retain(|byte| *byte != b'\\');
    said.make_ascii_lowercase();
    let parts = |is_part: fn(u8) -> bool| {
        let parts = said.split(move |byte| !is_part(*byte));
        parts.filter_map(|part| str::from_utf8(part).ok())
    };
    parts(is_in_names).any(|name| {
        let name = name.trim_matches('.');
        !name.is_empty() && is_it(name)
    }) || parts(|byte| byte.is_ascii_hexdigit() || b":.".contains(&byte)).any(|address| {
        let address = address.parse().ok();
        address.is_some_and(|address| is_it(&in_brackets(address)))
    })
}

fn in_brackets(address: Ipv6Addr) -> String {
    format!("[{address}]")
}

impl HostPattern {
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let (name, below) = match text.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (text, false),
        };
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let address = name
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let name = match address.map(str::parse) {
            Some(Ok(address)) if !below => in_brackets(address),
            None if !name.is_empty() && name.bytes().all(is_in_names) => name,
            _ => return Err("not a name or address without a port"),
        };
        Ok(Self {
            name: name.into(),
            below,
        })
    }

    /// True if the host, in lower case and without port, matches.
    pub(super) fn matches(&self, host: &str) -> bool {
        if !self.below {
            return *host == *self.name;
        }
        let label = host.strip_suffix(&*self.name);
        label.is_some_and(|label| label.len() > 1 && label.ends_with('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_itself_and_a_star_is_every_name_below() {
        let cases = [
            ("api.example.com", "api.example.com", true),
            ("API.example.com.", "api.example.com", true),
            ("api.example.com", "example.com", false),
            ("*.example.com", "api.example.com", true),
            ("*.example.com", "a.b.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", ".example.com", false),
            ("*.example.com", "badexample.com", false),
            ("[2001:db8::1]", "[2001:db8::1]", true),
            ("[2001:DB8:0::1]", "[2001:db8::1]", true),
        ];
        for (pattern, host, expected) in cases {
            let pattern = HostPattern::parse(pattern).unwrap();
            assert_eq!(pattern.matches(host), expected, "{pattern:?} {host}");
        }
    }

    #[test]
    fn what_no_host_could_be_is_refused() {
        for text in [
            "",
            "*.",
            "*",
            "a b",
            "example.com:80",
            "http://example.com",
            "a/b",
            "*.[::1]",
            "[::1",
            "[x]",
        ] {
            assert!(HostPattern::parse(text).is_err(), "{text}");
        }
    }

    fn covers(uri: &str, headers: &[(&str, &[u8])]) -> bool {
        let mut request = http::Request::get(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).unwrap();
        let patterns = ["api.example.com", "*.tenants.example.com", "[2001:db8::1]"];
        let patterns = patterns.map(|pattern| HostPattern::parse(pattern).unwrap());
        is_any_host(&RequestView::of(&request), |host| {
            patterns.iter().any(|pattern| pattern.matches(host))
        })
    }

    #[test]
    fn a_request_is_for_each_host_that_it_can_be_read_to_be_for() {
        let said: [&[u8]; 20] = [
            b"api.example.com",
            b"API.example.com.",
            b"api.example.com..:80",
            b" api.example.com ",
            b"api.example.com:",
            b"api.example.com:80:80",
            b"api.example.com:http",
            b"user@api.example.com",
            b"api.example.com@other.example.com",
            b"other.example.com, api.example.com",
            b"api.example.com other.example.com",
            b"api.example.com/path",
            b"http://api.example.com",
            b"api%2eexample.com",
            b"%61pi.example.com",
            b"\"api.example.com\"",
            b"api.example.com\xff",
            b"a.tenants.example.com:1",
            b"[2001:db8:0::1]:80",
            b"2001:DB8::1",
        ];
        for said in said {
            let shown = String::from_utf8_lossy(said);
            let other = b"other.example.com";
            assert!(covers("/", &[("host", said)]), "{shown}");
            assert!(covers("/", &[("host", other), ("host", said)]), "{shown}");
            assert!(covers("/", &[("host", said), ("host", other)]), "{shown}");
            let target = "http://other.example.com/";
            assert!(covers(target, &[("host", said)]), "{shown}");
            for forwarded in ["forwarded", "x-forwarded-host"] {
                assert!(
                    covers("/", &[("host", other), (forwarded, said)]),
                    "{shown}"
                );
            }
        }
        assert!(covers("http://api.example.com:80/", &[("host", b"x")]));
        assert!(covers("http://u@API.example.com/", &[]));
        let element: &[u8] = b"for=1.2.3.4;HOST=\"api\\.example.com:80\";proto=http, for=x";
        assert!(covers("/", &[("forwarded", element)]));
    }

    #[test]
    fn a_request_for_another_host_is_none_for_these() {
        let others: [&[u8]; 5] = [
            b"example.com",
            b"badapi.example.com",
            b"api.example.com.evil.example",
            b"tenants.example.com",
            b"[2001:db8::2]",
        ];
        for said in others {
            let shown = String::from_utf8_lossy(said);
            assert!(!covers("/", &[("host", said)]), "{shown}");
            assert!(!covers("/", &[("x-forwarded-host", said)]), "{shown}");
        }
    }

    #[test]
    fn a_request_for_no_host_may_be_for_any() {
        assert!(covers("/", &[]));
        for said in [b"".as_slice(), b":80"] {
            assert!(covers("/", &[("host", said)]));
        }
    }
}
