//! Answers to refused callers, in every body that a service may have.

use std::convert::Infallible;
use std::time::Duration;

use crate::common::{Body, Strict, Waiting, at_a_standstill, from, header};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use http_body_util::{BodyExt, Either, Empty, Full};
use tollgate::key::{self, Header, KeyList};
use tollgate::{
    AnswerBody, Ban, Block, FailureKind, HeaderForm, Limiter, OnFailure, OnMissing, PlainText,
    Policy, Quota, RateLimitLayer, RefusalReason, Respond, ResponseBody, SeeOther,
};
use tower::{Layer, ServiceExt, service_fn};

fn one_an_hour() -> RateLimitLayer {
    RateLimitLayer::new(Quota::per_hour(1))
}

/// The layer's answer to a request, as text.
async fn send_to(layer: &RateLimitLayer, request: Request<Body>) -> Response<String> {
    let service = layer.layer(Strict::default());
    let response = service.oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    Response::from_parts(parts, String::from_utf8(bytes.to_vec()).unwrap())
}

async fn send(layer: &RateLimitLayer) -> Response<String> {
    send_to(layer, from("10.0.0.1")).await
}

async fn refused(layer: &RateLimitLayer) -> Response<String> {
    assert_eq!(send(layer).await.status(), 200);
    send(layer).await
}

/// A limiter whose clock stands still, so that seconds can be compared.
fn standing(policy: Policy) -> RateLimitLayer {
    let limiter = Limiter::builder()
        .policy(policy)
        .backend(at_a_standstill().0);
    RateLimitLayer::new(limiter.build().unwrap())
}

#[tokio::test]
async fn plain_text_is_a_sentence_for_each_reason() {
    let keyed = || {
        Policy::new("api", Quota::per_hour(1))
            .key(Header::new("x-api-key"))
            .on_missing(OnMissing::Deny)
    };
    let blocked = |how| keyed().block_keys(KeyList::from_iter(["spammer"]), how);
    let with_key = |key: &'static str| {
        let mut request = from("10.0.0.1");
        let key = HeaderValue::from_static(key);
        request.headers_mut().insert("x-api-key", key);
        request
    };
    let cases = [
        (
            keyed().cost_by(|_| 2),
            with_key("me"),
            429,
            "This request asks for more than its quota ever holds.\n",
        ),
        (
            keyed(),
            from("10.0.0.1"),
            403,
            "There is no header x-api-key in the request.\n",
        ),
        (
            blocked(Block::Forbidden),
            with_key("spammer"),
            403,
            "The caller is blocked.\n",
        ),
        (
            blocked(Block::TooManyRequests),
            with_key("spammer"),
            429,
            "The caller is blocked.\n",
        ),
    ];
    for (policy, request, status, expected) in cases {
        let response = send_to(&standing(policy).respond(PlainText), request).await;
        assert_eq!(response.status(), status);
        assert_eq!(response.body(), expected);
        assert_eq!(
            header(&response, "content-type"),
            "text/plain; charset=utf-8"
        );
        assert_eq!(header(&response, "cache-control"), "no-store");
        assert_eq!(header(&response, "retry-after"), "");
    }

    for (quota, expected) in [
        (
            Quota::per_hour(1),
            "Too many requests: try again in 3600 seconds.\n",
        ),
        (
            Quota::per_second(1),
            "Too many requests: try again in 1 second.\n",
        ),
    ] {
        let layer = standing(Policy::new("api", quota)).respond(PlainText);
        assert_eq!(refused(&layer).await.body(), expected);
    }

    // Of the banned: the second denial bans.
    let ban = Ban::after(2, Duration::from_secs(600)).lasting(Duration::from_secs(900));
    for (how, status, expected, wait) in [
        (
            Block::TooManyRequests,
            429,
            "The caller is banned: try again in 900 s.\n",
            "900",
        ),
        (Block::Forbidden, 403, "The caller is banned.\n", ""),
    ] {
        let policy = Policy::new("api", Quota::per_minute(1)).ban(ban);
        let layer = standing(policy.answer_banned(how)).respond(PlainText);
        refused(&layer).await;
        for _knock in 0..2 {
            let banned = send(&layer).await;
            assert_eq!(
                (banned.status().as_u16(), &**banned.body()),
                (status, expected)
            );
            assert_eq!(header(&banned, "retry-after"), wait);
        }
    }
}

#[tokio::test]
async fn what_never_passes_is_not_told_to_retry() {
    let layer = standing(Policy::new("api", Quota::per_hour(1)).cost_by(|_| 2));
    let response = send(&layer).await;
    assert_eq!(response.status(), 429);
    assert_eq!(header(&response, "retry-after"), "");
    assert_eq!(header(&response, "ratelimit"), "\"api\";r=0");
    assert!(
        !response.body().contains("Retry-After"),
        "{}",
        response.body()
    );
    assert!(response.body().contains("more than a quota ever holds"));
}

#[tokio::test]
async fn a_waiting_room_is_one_line() {
    let layer = one_an_hour().respond(SeeOther::at("/waiting-room?from=here"));

    let response = refused(&layer).await;

    assert_eq!(response.status(), StatusCode::SEE_OTHER);
    assert_eq!(header(&response, "location"), "/waiting-room?from=here");
    assert_eq!(header(&response, "cache-control"), "no-store");
    // A browser would wait before it follows, and another budget counts where it goes.
    assert_eq!(header(&response, "retry-after"), "");
    assert_eq!(header(&response, "ratelimit"), "");
    assert_eq!(header(&response, "ratelimit-policy"), "");
}

#[test]
fn a_location_that_no_header_can_carry_is_refused() {
    assert!(SeeOther::try_at("/waiting\nroom").is_err());
    let built = std::panic::catch_unwind(|| SeeOther::at("/waiting\nroom"));
    assert!(built.is_err());
}

#[tokio::test]
async fn a_cached_page_is_one_line() {
    let layer = one_an_hour().respond_with(|_| Response::new("as it was a minute ago"));

    let response = refused(&layer).await;

    assert_eq!(response.status(), 200);
    assert_eq!(response.body(), "as it was a minute ago");
    assert_eq!(header(&response, "cache-control"), "no-store");
}

#[tokio::test]
async fn what_the_user_s_answer_says_of_the_budget_is_all_that_is_said() {
    for form in [HeaderForm::Draft11, HeaderForm::Draft06] {
        let layer = one_an_hour().headers(form).respond_with(move |refusal| {
            let mut response = refusal.response("");
            let name = match form {
                HeaderForm::Draft11 => "ratelimit",
                _ => "ratelimit-limit",
            };
            let headers = response.headers_mut();
            headers.insert(name, HeaderValue::from_static("\"mine\";r=0"));
            response
        });

        let response = refused(&layer).await;

        let said = response.headers().iter();
        let said = said.filter(|(name, _)| name.as_str().starts_with("ratelimit"));
        let said: Vec<_> = said.map(|(_, value)| value).collect();
        assert_eq!(said, ["\"mine\";r=0"], "{form}");
        assert_eq!(header(&response, "retry-after"), "3600");
    }
}

#[tokio::test]
async fn a_closure_may_return_any_bytes() {
    let layers = [
        one_an_hour().respond_with(|refusal| refusal.response("slow down")),
        one_an_hour().respond_with(|_| Response::new(String::from("slow down"))),
        one_an_hour().respond_with(|_| Response::new(b"slow down".to_vec())),
        one_an_hour().respond_with(|_| Response::new(Bytes::from_static(b"slow down"))),
        one_an_hour().respond(|refusal: &tollgate::Refusal<'_>| {
            PlainText.respond(refusal).map(|_| "slow down".into())
        }),
    ];
    for layer in layers {
        assert_eq!(refused(&layer).await.body(), "slow down");
    }
}

#[tokio::test]
async fn an_answer_says_what_its_body_is() {
    const PAGE: &str = "<title>slow down</title>";
    let text = "text/plain; charset=utf-8";
    let octets = "application/octet-stream";
    let html = HeaderValue::from_static("text/html");
    let layers = [
        (
            one_an_hour().respond_with(|refusal| refusal.response("slow")),
            text,
        ),
        (
            one_an_hour().respond_with(|refusal| refusal.response(String::from("slow"))),
            text,
        ),
        (
            one_an_hour().respond_with(|refusal| refusal.response(Bytes::from_static(b"slow"))),
            octets,
        ),
        (
            one_an_hour()
                .respond_with(move |refusal| refusal.response(AnswerBody::of(html.clone(), PAGE))),
            "text/html",
        ),
    ];
    for (layer, expected) in layers {
        let response = refused(&layer).await;
        assert_eq!(response.status(), 429);
        assert_eq!(header(&response, "content-type"), expected);
    }
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn whatever_a_handler_may_return_is_an_answer() {
    use axum::Json;
    use axum::body::Body as Stream;
    use axum::response::{Html, IntoResponse};

    // given answers as a handler would return them, one with a header of its own
    let standing = || standing(Policy::new("api", Quota::per_hour(1)));
    let json = standing().respond_with(|refusal| {
        let wait = refusal.retry_after().unwrap().as_secs();
        (refusal.status(), Json(serde_json::json!({ "wait": wait })))
    });
    let html = standing().respond_with(|_| {
        let headers = [("retry-after", "7"), ("cache-control", "max-age=1")];
        (StatusCode::IM_A_TEAPOT, headers, Html("<p>slow down"))
    });
    let status = standing().respond_with(|_| StatusCode::NOT_FOUND);
    let boxed = standing().respond_with(|_| "slow down".into_response());

    // then their bodies and types arrive, with what every refusal says where it was not said
    let json = refused(&json).await;
    assert_eq!(
        (json.status().as_u16(), json.body().as_str()),
        (429, "{\"wait\":3600}")
    );
    assert_eq!(header(&json, "content-type"), "application/json");
    assert_eq!(header(&json, "retry-after"), "3600");
    assert_eq!(header(&json, "cache-control"), "no-store");
    assert_eq!(header(&json, "ratelimit"), "\"api\";r=0;t=3600");

    let html = refused(&html).await;
    assert_eq!(
        (html.status().as_u16(), html.body().as_str()),
        (418, "<p>slow down")
    );
    assert_eq!(header(&html, "retry-after"), "7");
    assert_eq!(header(&html, "cache-control"), "max-age=1");

    assert_eq!(refused(&status).await.status(), 404);
    assert_eq!(refused(&boxed).await.body(), "slow down");

    // and the answer does not wait for a body that is late, or never ends
    let pending = one_an_hour().respond_with(|_| {
        Stream::from_stream(tokio_stream::pending::<Result<Bytes, Infallible>>())
    });
    let endless = one_an_hour().respond_with(|_| {
        let bytes = Bytes::from_static(&[0; 4096]);
        let stream = tokio_stream::iter(std::iter::repeat_with(move || {
            Ok::<_, Infallible>(bytes.clone())
        }));
        Stream::from_stream(stream)
    });
    for layer in [pending, endless] {
        let usual = refused(&layer).await;
        assert_eq!(usual.status(), 429);
        assert_eq!(header(&usual, "content-type"), "application/problem+json");
    }
}

#[tokio::test]
async fn a_layer_that_asks_for_credentials_answers_401_to_those_without_and_to_nobody_else() {
    let policy = || {
        Policy::new("api", Quota::per_hour(1))
            .key(Header::new("x-api-key"))
            .on_missing(OnMissing::Deny)
    };
    let forbids = send(&standing(policy())).await;
    assert_eq!(forbids.status(), 403);
    assert!(
        forbids.body().contains("\"status\":403") && forbids.body().contains("header x-api-key")
    );
    assert!(!forbids.headers().contains_key("www-authenticate"));

    let layer = standing(policy()).challenge(HeaderValue::from_static("Bearer"));
    let asks = send(&layer).await;
    assert_eq!(asks.status(), 401);
    assert_eq!(header(&asks, "www-authenticate"), "Bearer");
    assert!(asks.body().contains("\"status\":401") && asks.body().contains("header x-api-key"));

    let known = || {
        let mut request = from("10.0.0.1");
        request
            .headers_mut()
            .insert("x-api-key", HeaderValue::from_static("secret"));
        request
    };
    assert_eq!(send_to(&layer, known()).await.status(), 200);
    let denied = send_to(&layer, known()).await;
    assert_eq!(denied.status(), 429);
    assert!(!denied.headers().contains_key("www-authenticate"));
}

#[tokio::test]
async fn who_does_not_say_who_they_are_can_be_told_to_authenticate() {
    let policy = Policy::new("api", Quota::per_hour(1)).key(Header::new("authorization"));
    let layer = standing(policy.on_missing(OnMissing::Deny)).respond_with(|refusal| {
        let mut response = refusal.response("");
        if let RefusalReason::Unidentified(_) = refusal.reason() {
            *response.status_mut() = StatusCode::UNAUTHORIZED;
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert("www-authenticate", scheme);
        }
        response
    });

    let response = send(&layer).await;

    assert_eq!(response.status(), 401);
    assert_eq!(header(&response, "www-authenticate"), "Bearer");
}

#[tokio::test]
async fn answers_fit_into_the_bodies_of_services() {
    async fn holds<B>(empty: fn() -> B)
    where
        B: ResponseBody<Data = Bytes> + Send + 'static,
        B::Error: std::fmt::Debug,
    {
        let service = service_fn(move |_: Request<Body>| async move {
            Ok::<_, Infallible>(Response::new(empty()))
        });
        let layered = one_an_hour()
            .respond_with(|refusal| refusal.response("slow down"))
            .layer(service);
        let passed = layered.clone().oneshot(from("10.0.0.1")).await.unwrap();
        assert_eq!(passed.status(), 200);
        let refused = layered.oneshot(from("10.0.0.1")).await.unwrap();
        assert_eq!(refused.status(), 429);
        let body = std::pin::pin!(refused.into_body());
        assert_eq!(body.collect().await.unwrap().to_bytes(), "slow down");
    }

    holds(String::new).await;
    holds(Full::<Bytes>::default).await;
    holds(|| Box::new(Full::<Bytes>::default())).await;
    holds(|| BoxBody::<Bytes, Infallible>::new(Empty::new())).await;
    holds(|| UnsyncBoxBody::<Bytes, Infallible>::new(Empty::new())).await;
    holds(|| Either::<Full<Bytes>, Full<Bytes>>::Right(Full::default())).await;
}

#[test]
fn bytes_that_are_no_text_do_not_stop_an_answer_of_text() {
    assert_eq!(
        String::from_bytes(Bytes::from_static(b"a\xffb")),
        "a\u{fffd}b"
    );
}

#[tokio::test]
async fn whoever_is_refused_further_in_gets_back_what_an_outer_layer_took() {
    // given a budget for all, and a route whose policy does not serve all callers
    let all = Limiter::from(Policy::new("all", Quota::per_hour(10)));
    let own = Policy::new("own", Quota::per_hour(1)).key(Header::new("x-api-key"));
    let inner = RateLimitLayer::new(own.on_missing(OnMissing::Deny)).layer(Strict::default());
    let service = RateLimitLayer::new(&all).layer(inner);

    // when a caller without an identity comes
    let response = service.oneshot(from("10.0.0.1")).await.unwrap();

    // then they are refused, and it has cost nothing
    assert_eq!(response.status(), 403);
    let peer = all.client_key("10.0.0.1".parse().unwrap());
    assert_eq!(
        all.check("all", peer).cost(0).await.unwrap().remaining(),
        10
    );
}

#[tokio::test]
async fn problem_documents_are_of_the_types_that_are_registered() {
    // given a policy that denies while its backend fails, and one that blocks
    let backend = Waiting::new(at_a_standstill().0);
    backend.fail_with(Some(FailureKind::Unreachable));
    backend.gate.add_permits(1);
    let strict = Policy::new("api", Quota::per_hour(1)).on_failure(OnFailure::Deny);
    let failing = Limiter::builder().policy(strict).backend(backend);
    let blocking = |how| {
        let list = KeyList::from_iter(["everybody"]);
        let policy =
            Policy::new("api", Quota::per_hour(1)).key(key::from_fn(|_| Some("everybody")));
        standing(policy.block_keys(list, how))
    };
    let cases = [
        (
            RateLimitLayer::new(failing.build().unwrap()),
            503,
            "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
        ),
        (
            blocking(Block::TooManyRequests),
            429,
            "https://iana.org/assignments/http-problem-types#abnormal-usage-detected",
        ),
        (blocking(Block::Forbidden), 403, "about:blank"),
    ];
    for (layer, status, kind) in cases {
        let response = send(&layer).await;

        // then each says so, is not to be stored, and promises nothing
        assert_eq!(response.status(), status);
        let problem: serde_json::Value = serde_json::from_str(response.body()).unwrap();
        assert_eq!(
            (&problem["type"], &problem["status"]),
            (&kind.into(), &status.into())
        );
        assert_eq!(
            header(&response, "content-type"),
            "application/problem+json"
        );
        assert_eq!(header(&response, "cache-control"), "no-store");
        assert_eq!(header(&response, "retry-after"), "");
        assert_eq!(header(&response, "ratelimit"), "");
    }
}
