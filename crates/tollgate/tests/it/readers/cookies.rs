//! Cookies, as jars and typed headers read them.

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::any;
use axum_extra::TypedHeader;
use axum_extra::extract::cookie::{Cookie, Key as Secret};
use axum_extra::extract::{CookieJar, PrivateCookieJar, SignedCookieJar};
use tollgate::{Policy, key};

use crate::readers::{Shared, cookies, is_one_budget};

fn by_jar() -> Router<Shared> {
    Router::new().route(
        "/",
        any(|State(shared): State<Shared>, jar: CookieJar| async move {
            shared.note(jar.get("sid").map(Cookie::value));
        }),
    )
}

fn by_typed_cookie() -> Router<Shared> {
    Router::new().route(
        "/",
        any(
            |State(shared): State<Shared>,
             TypedHeader(cookie): TypedHeader<axum_extra::headers::Cookie>| async move {
                shared.note(cookie.get("sid"));
            },
        ),
    )
}

#[tokio::test]
async fn a_cookie_of_axum_extras_jar_is_one_budget_however_it_is_encoded() {
    let rows = [
        (cookies("sid=abc"), Some("abc")),
        (cookies("sid=%61bc"), Some("abc")),
        (cookies("sid=%61%62%63; other=1"), Some("abc")),
        (cookies("%73id=abc"), Some("abc")),
        (cookies("%73%69%64=a%62c"), Some("abc")),
        (cookies(" sid\t=  abc "), Some("abc")),
        (cookies("sid=zzz; sid=abc"), Some("abc")),
        (cookies("sid=zzz; %73id=abc"), Some("abc")),
        (cookies("sid=; sid=abc"), Some("abc")),
        (cookies("sid=%ff; sid=abc"), Some("abc")),
        (cookies("sid=zzz").with("cookie", "sid=abc"), Some("abc")),
        (cookies(b"sid=\xff").with("cookie", "sid=abc"), Some("abc")),
        (cookies("sid=\"abc\""), Some("\"abc\"")),
        (cookies("sid=%22abc%22"), Some("\"abc\"")),
        (cookies("sid=\"%61bc\""), Some("\"abc\"")),
        (cookies("sid=%2561bc"), Some("%61bc")),
        (cookies("SID=abc"), None),
        (cookies("sid"), None),
    ];
    is_one_budget(by_jar, |policy| policy.key(key::Cookie::new("sid")), &rows).await;
}

#[tokio::test]
async fn a_cookie_of_a_typed_header_is_one_budget_whichever_of_several_it_reads() {
    let rows = [
        (cookies("sid=abc"), Some("abc")),
        (cookies("sid=abc; sid=zzz"), Some("abc")),
        (cookies("sid=abc;%73id=zzz"), Some("abc")),
        (cookies("sid=abc").with("cookie", "sid=zzz"), Some("abc")),
        (cookies("sid=%61bc"), Some("%61bc")),
        (cookies("sid=%61bc; sid=abc"), Some("%61bc")),
        (cookies("%73id=abc"), None),
    ];
    is_one_budget(
        by_typed_cookie,
        |policy| policy.key(key::Cookie::new("sid")),
        &rows,
    )
    .await;
}

/// The cookie that a jar would have the caller send, with its percent signs.
fn line_of(encode: impl FnOnce(CookieJar) -> http::Response<Body>) -> String {
    let response = encode(CookieJar::new());
    let line = response.headers()["set-cookie"].to_str().unwrap();
    line.split(';').next().unwrap().to_owned()
}

/// The line with its letters encoded.
fn encoded(line: &str) -> String {
    let (name, value) = line.split_once('=').unwrap();
    let value = percent_encoding::percent_decode_str(value).decode_utf8();
    let all = percent_encoding::NON_ALPHANUMERIC;
    let rest = percent_encoding::percent_encode(value.as_ref().unwrap().as_bytes(), all);
    format!("{name}={}", rest.to_string().replace('a', "%61"))
}

#[tokio::test]
async fn a_signed_or_private_cookie_is_one_budget_however_it_is_encoded() {
    use axum::response::IntoResponse;

    let secret = Shared::new().secret;
    let cookie = || Cookie::new("sid", "abc");
    let signed = line_of(|_| {
        SignedCookieJar::new(secret.clone())
            .add(cookie())
            .into_response()
    });
    let private = line_of(|_| {
        PrivateCookieJar::new(secret.clone())
            .add(cookie())
            .into_response()
    });
    let policy = |policy: Policy| policy.key(key::Cookie::new("sid"));

    let rows = [
        (cookies(&signed), Some("abc")),
        (cookies(encoded(&signed)), Some("abc")),
        (cookies(format!("sid=zzz; {signed}")), Some("abc")),
        (cookies(format!("{signed}x")), None),
    ];
    let by_signed = || {
        Router::new().route(
            "/",
            any(
                |State(shared): State<Shared>, jar: SignedCookieJar<Secret>| async move {
                    shared.note(jar.get("sid").as_ref().map(Cookie::value));
                },
            ),
        )
    };
    is_one_budget(by_signed, policy, &rows).await;

    let rows = [
        (cookies(&private), Some("abc")),
        (cookies(encoded(&private)), Some("abc")),
        (cookies(format!("sid=zzz; {private}")), Some("abc")),
        (cookies(format!("{private}x")), None),
    ];
    let by_private = || {
        Router::new().route(
            "/",
            any(
                |State(shared): State<Shared>, jar: PrivateCookieJar<Secret>| async move {
                    shared.note(jar.get("sid").as_ref().map(Cookie::value));
                },
            ),
        )
    };
    is_one_budget(by_private, policy, &rows).await;
}
