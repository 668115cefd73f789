//! Paths, and patterns of paths.

use http::{Request, Uri};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode_byte, utf8_percent_encode};
use tollgate::key::MatchedRoute;
use tollgate::{Limiter, ManualClock, MemoryBackend, Policy, Quota, RateLimitLayer};

use crate::service::answer;

/// The first line is a pattern, the second a path. If axum's router routes the path to the pattern, the policy covers it; and
/// every form of a covered path spends its budget.
pub fn paths(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.lines();
    let (pattern, path) = (
        lines.next().unwrap_or_default(),
        lines.next().unwrap_or_default(),
    );
    let Ok(policy) = Policy::try_new("p", Quota::per_hour(1))
        .unwrap()
        .try_route(pattern)
    else {
        return;
    };
    let Some(uri) = target(path) else {
        return;
    };
    // Policies that match nothing are refused. This one matches: it has no exemption.
    let limiter = || {
        let backend = MemoryBackend::builder().clock(ManualClock::new()).build();
        let policy = policy.clone().key(MatchedRoute);
        Limiter::builder()
            .policy(policy)
            .backend(backend)
            .build()
            .unwrap()
    };
    let spends = |layer: &RateLimitLayer, uri: &Uri| {
        let response = answer(layer, Request::get(uri.clone()).body(()).unwrap());
        (
            response.headers().contains_key("ratelimit"),
            response.status() == 200,
        )
    };

    let layer = RateLimitLayer::new(limiter());
    let (covered, passed) = spends(&layer, &uri);
    assert!(passed, "the first passes");
    let mut router = matchit::Router::new();
    router.insert(pattern, ()).unwrap();
    if router.at(uri.path()).is_ok() {
        assert!(covered, "axum routes {uri} to {pattern}");
    }
    if covered {
        for form in forms(uri.path()).iter().filter_map(|form| target(form)) {
            assert_eq!(spends(&layer, &form), (true, false), "{form} is {uri}");
        }
    }
}

/// Says whether a request line could carry it.
fn target(path: &str) -> Option<Uri> {
    let uri: Uri = path.parse().ok()?;
    (path.starts_with('/') && uri.authority().is_none() && !uri.path().is_empty()).then_some(uri)
}

/// Another spelling of a path.
fn forms(path: &str) -> Vec<String> {
    let mut forms = vec![path.to_owned()];
    // An empty parameter may have taken a slash that is one too many elsewhere, so this is for tidy paths alone.
    if !path.contains("//") && !path.ends_with('/') {
        forms.extend([format!("{path}/"), path.replace('/', "//")]);
    }
    // An encoded character stays so; the others may be encoded.
    let mut spelt = String::new();
    let mut rest = path.chars().peekable();
    while let Some(c) = rest.next() {
        if c == '%' && rest.clone().take(2).filter(char::is_ascii_hexdigit).count() == 2 {
            spelt.push(c);
            for digit in rest.by_ref().take(2) {
                spelt.push(digit.to_ascii_lowercase());
            }
        } else if c == '%' {
            spelt.push_str(percent_encode_byte(b'%'));
        } else if c == '/' {
            spelt.push(c);
        } else {
            spelt.extend(utf8_percent_encode(
                c.encode_utf8(&mut [0; 4]),
                NON_ALPHANUMERIC,
            ));
        }
    }
    forms.push(spelt.replace("%2F", "%2f"));
    forms
}
