//! Identities from request bodies, which go on as they came.

#![cfg(feature = "axum")]

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use allocation_counter::measure;
use axum::body::Body;
use axum::extract::Form;
use axum::routing::post;
use axum::{Router, extract::Request};
use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::{BodyExt, StreamBody};
use tollgate::key::{FormField, KeyExtractor};
use tollgate::{BufferBodyLayer, OnMissing, Policy, Quota, RateLimitLayer};
use tower::ServiceExt;
use tower_http::decompression::RequestDecompressionLayer;

/// Answers with what it was sent, trailers and all. It reads bodies of up to 20 bytes for keys.
fn echo(key: impl KeyExtractor) -> Router {
    let policy = Policy::new("body", Quota::per_hour(1))
        .key(key)
        .on_missing(OnMissing::Pass);
    Router::new()
        .route(
            "/",
            post(|request: Request| async { Response::new(request.into_body()) }),
        )
        .layer(RateLimitLayer::new(policy))
        .layer(BufferBodyLayer::new(20))
}

fn request(content_type: &str, body: impl Into<Body>) -> Request {
    Request::post("/")
        .header("content-type", content_type)
        .body(body.into())
        .unwrap()
}

async fn status(app: &Router, request: Request) -> u16 {
    let response = app.clone().oneshot(request).await.unwrap();
    response.status().as_u16()
}

const FORM: &str = "application/x-www-form-urlencoded";

#[tokio::test]
async fn a_field_of_a_form_is_an_identity_and_the_body_goes_on() {
    let app = echo(FormField::new("user"));

    let first = app
        .clone()
        .oneshot(request(FORM, "user=a+b&x=1"))
        .await
        .unwrap();
    assert_eq!(first.status(), 200);
    let body = first.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "user=a+b&x=1");

    assert_eq!(status(&app, request(FORM, "x=2&user=a%20b")).await, 429);
    assert_eq!(status(&app, request(FORM, "user=other")).await, 200);
}

#[tokio::test]
async fn a_form_without_the_field_passes_and_one_that_cannot_be_told_spends_one_budget() {
    let app = echo(FormField::new("user"));
    let kind = format!("{FORM}; charset=utf-8");
    assert_eq!(status(&app, request(&kind, "user=a")).await, 200);
    assert_eq!(status(&app, request(&kind, "user=a")).await, 429);

    let absent = [
        (FORM, "user="),
        (FORM, "users=a"),
        (FORM, ""),
        ("text/plain", ""),
        ("application/json", ""),
    ];
    for (kind, body) in absent.into_iter().chain(absent) {
        let status = status(&app, request(kind, body)).await;
        assert_eq!(status, 200, "{kind} {body}");
    }

    let ambiguous = [
        (FORM, "user=a&user=b"),
        (FORM, "user=a&longer=than-20"),
        ("text/plain", "user=a"),
        ("application/json", "{}"),
        ("application/json", "user=a"),
    ];
    let mut expected = 200;
    for (kind, body) in ambiguous {
        let status = status(&app, request(kind, body)).await;
        assert_eq!(status, expected, "{kind} {body}");
        expected = 429;
    }
    let mut two_kinds = request(FORM, "user=b");
    let other = "text/plain".parse().unwrap();
    two_kinds.headers_mut().append("content-type", other);
    assert_eq!(status(&app, two_kinds).await, 429);
}

/// A gzip member of this content, uncompressed, with an extra field in its head.
fn gzip(content: &[u8], extra: &[u8]) -> Vec<u8> {
    let length = |bytes: &[u8]| u16::try_from(bytes.len()).unwrap();
    let mut member = vec![0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 0xff];
    member.extend(length(extra).to_le_bytes());
    member.extend(extra);
    member.push(1);
    member.extend(length(content).to_le_bytes());
    member.extend((!length(content)).to_le_bytes());
    member.extend(content);
    let crc = content.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    });
    member.extend((!crc).to_le_bytes());
    member.extend(u32::from(length(content)).to_le_bytes());
    member
}

/// Otherwise a caller chooses, in bytes that no handler sees, who pays.
#[tokio::test]
async fn a_compressed_form_chooses_no_identity() {
    let served = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&served);
    let login = async move |Form(form): Form<Vec<(String, String)>>| {
        seen.lock().unwrap().extend(form);
    };
    let policy = Policy::new("login", Quota::per_hour(1))
        .key(FormField::new("user"))
        .on_missing(OnMissing::Pass);
    let app = Router::new()
        .route("/", post(login))
        .layer(RequestDecompressionLayer::new())
        .layer(RateLimitLayer::new(policy))
        .layer(BufferBodyLayer::new(1_000));

    for number in 0..10_usize {
        let extra = format!("&user=eve{number}&");
        let mut request = request(FORM, gzip(b"user=bob", extra.as_bytes()));
        let coding = ["gzip", "GZIP", "identity, gzip"][number % 3]
            .parse()
            .unwrap();
        request.headers_mut().insert("content-encoding", coding);
        assert_eq!(status(&app, request).await == 200, number == 0);
    }

    // The handler saw bob once, and nobody else has paid.
    let bob = ("user".to_owned(), "bob".to_owned());
    assert_eq!(*served.lock().unwrap(), [bob]);
    for victim in ["user=eve0", "user=bob"] {
        let mut plain = request(FORM, victim);
        let coding = "identity".parse().unwrap();
        plain.headers_mut().insert("content-encoding", coding);
        assert_eq!(status(&app, plain).await, 200);
    }
}

#[tokio::test]
async fn a_body_in_frames_goes_on_with_all_of_them_however_long_it_is() {
    for parts in [
        &["user", "=a"][..],
        &["user=a&x=", "0123456789", "0123456789", "end"],
    ] {
        let app = echo(FormField::new("user"));
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "42".parse().unwrap());
        let data = parts
            .iter()
            .map(|part| Frame::data(Bytes::from_static(part.as_bytes())));
        let frames = data.chain([Frame::trailers(trailers.clone())]);
        let frames: Vec<_> = frames.map(Ok::<_, Infallible>).collect();
        let body = StreamBody::new(tokio_stream::iter(frames));

        let response = app.oneshot(request(FORM, Body::new(body))).await.unwrap();

        let collected = response.into_body().collect().await.unwrap();
        assert_eq!(collected.trailers(), Some(&trailers));
        assert_eq!(collected.to_bytes(), parts.concat());
    }
}

#[tokio::test]
async fn a_stated_length_stays_stated() {
    let app = Router::new().route(
        "/",
        post(|request: Request| async move { format!("{:?}", request.body().size_hint().exact()) }),
    );
    let app = app.layer(BufferBodyLayer::new(20));
    for (body, expected) in [
        ("user=a", "Some(6)"),
        ("user=a&longer=than-20", "Some(21)"),
        ("", "Some(0)"),
    ] {
        let response = app.clone().oneshot(request(FORM, body)).await.unwrap();
        let answer = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(answer, expected, "{body}");
    }
}

#[tokio::test]
async fn a_body_that_has_been_read_ends_when_it_has_been_read_again() {
    // The handler asks before each frame whether that is all, and how many bytes are left.
    let app = Router::new().route(
        "/",
        post(|request: Request| async move {
            let mut body = request.into_body();
            let mut left = Vec::new();
            loop {
                left.push((body.is_end_stream(), body.size_hint().lower()));
                if body.frame().await.is_none() {
                    return format!("{left:?}");
                }
            }
        }),
    );
    let app = app.layer(BufferBodyLayer::new(20));
    let in_parts = |parts: &[&'static str]| {
        let frames = parts
            .iter()
            .map(|part| Ok::<_, Infallible>(Frame::data(Bytes::from_static(part.as_bytes()))))
            .collect::<Vec<_>>();
        Body::new(StreamBody::new(tokio_stream::iter(frames)))
    };
    for (body, expected) in [
        (Body::from("user=a"), "[(false, 6), (true, 0)]"),
        (Body::empty(), "[(true, 0)]"),
        // A stream does not know that it is at its end before it is asked for more.
        (in_parts(&["user", "=a"]), "[(false, 6), (false, 0)]"),
    ] {
        let response = app.clone().oneshot(request(FORM, body)).await.unwrap();
        let answer = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(answer, expected);
    }
}

#[tokio::test]
async fn bodies_that_are_too_long_share_one_budget_whether_they_say_so_or_not() {
    for first in [200, 429] {
        let app = echo(FormField::new("user"));
        if first == 429 {
            let stated = "user=b&x=01234567890123456789";
            assert_eq!(status(&app, request(FORM, stated)).await, 200);
        }
        let parts = ["user=a&x=", "0123456789", "0123456789"];
        let frames =
            parts.map(|part| Ok::<_, Infallible>(Frame::data(Bytes::from_static(part.as_bytes()))));
        let unstated = Body::new(StreamBody::new(tokio_stream::iter(frames)));
        assert_eq!(status(&app, request(FORM, unstated)).await, first);
        let stated = "user=a&x=01234567890123456789";
        assert_eq!(status(&app, request(FORM, stated)).await, 429);
        // No other caller pays for them.
        assert_eq!(status(&app, request(FORM, "user=a")).await, 200);
    }
}

#[tokio::test]
async fn a_body_of_just_as_many_bytes_is_read_whether_it_says_so_or_not() {
    let body = "user=a&longer=than-2";
    assert_eq!(body.len(), 20);
    let app = echo(FormField::new("user"));
    let frames =
        [body.as_bytes()].map(|part| Ok::<_, Infallible>(Frame::data(Bytes::from_static(part))));
    let unstated = Body::new(StreamBody::new(tokio_stream::iter(frames)));

    assert_eq!(status(&app, request(FORM, body)).await, 200);
    assert_eq!(status(&app, request(FORM, unstated)).await, 429);
    assert_eq!(status(&app, request(FORM, body)).await, 429);
}

#[tokio::test]
async fn a_body_that_says_it_is_too_long_is_not_waited_for() {
    /// Would be long, and never comes.
    struct Never;

    impl http_body::Body for Never {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(21)
        }
    }

    let app = Router::new()
        .route("/", post(|| async { "answered" }))
        .layer(BufferBodyLayer::new(20));
    assert_eq!(status(&app, request(FORM, Body::new(Never))).await, 200);
}

#[tokio::test]
async fn an_error_in_the_middle_reaches_whoever_reads_the_body() {
    let app = echo(FormField::new("user"));
    let frames = vec![
        Ok(Frame::data(Bytes::from_static(b"user=a"))),
        Err(std::io::Error::other("cut off")),
    ];
    let body = Body::new(StreamBody::new(tokio_stream::iter(frames)));

    let response = app.clone().oneshot(request(FORM, body)).await.unwrap();

    let error = response.into_body().collect().await.unwrap_err();
    assert!(error.to_string().contains("cut off"), "{error}");
    // A document that was cut off has no caller's identity.
    assert_eq!(status(&app, request(FORM, "user=a")).await, 200);
}

#[cfg(feature = "json")]
#[tokio::test]
async fn a_field_of_a_json_document_is_an_identity() {
    use tollgate::key::JsonField;

    const JSON: &str = "application/json";
    let app = echo(JsonField::new("a.0"));
    let body = |text: &'static str| request(JSON, text);

    assert_eq!(status(&app, body(r#"{"a":["7"]}"#)).await, 200);
    assert_eq!(status(&app, body(r#"{ "a" : [7] }"#)).await, 429);
    let problem = request("application/problem+json; q=1", r#"{"a":["\u0037"]}"#);
    assert_eq!(status(&app, problem).await, 429);
    assert_eq!(status(&app, body(r#"{"a":["8"]}"#)).await, 200);
    assert_eq!(status(&app, body(r#"{"a":["8"]}"#)).await, 429);

    assert_eq!(status(&app, body(r#"{"a":[7.0]}"#)).await, 429);
    let of_unknown = echo(JsonField::new("a.0"));
    for expected in [200, 429] {
        let as_a_form = request(FORM, r#"{"a":["7"]}"#);
        assert_eq!(status(&of_unknown, as_a_form).await, expected);
    }

    // None of these spends a budget.
    for absent in [
        r#"{"a":[""]}"#,
        r#"{"a":[null]}"#,
        r#"{"a":[]}"#,
        r#"{"a":{"1":7}}"#,
        r#"{"b":[7]}"#,
        "[]",
        "7",
        "",
    ] {
        for _ in 0..2 {
            assert_eq!(status(&app, body(absent)).await, 200, "{absent}");
        }
    }

    // All of these spend one.
    let ambiguous = [
        request("text/json", r#"{"a":["7"]}"#),
        body(r#"{"a":[7.5]}"#),
        body(r#"{"a":[[7]]}"#),
        body(r#"{"a":[true]}"#),
        body("{\"a\":[7]"),
        body(r#"{"a":["7"],"longer":1}"#),
        body("\u{fffd}"),
        body(r#"["7"]"#),
    ];
    let mut expected = 200;
    for request in ambiguous {
        let shown = format!("{request:?}");
        assert_eq!(status(&app, request).await, expected, "{shown}");
        expected = 429;
    }
}

#[cfg(feature = "json")]
#[tokio::test]
async fn a_caller_cannot_show_one_field_to_the_limiter_and_another_to_the_handler() {
    use tollgate::key::JsonField;

    const JSON: &str = "application/json";
    let app = echo(JsonField::new("a"));
    assert_eq!(status(&app, request(JSON, r#"{"a":"x"}"#)).await, 200);
    assert_eq!(status(&app, request(JSON, r#"{"a":"x"}"#)).await, 429);
    // A value that is written twice, or with escapes, is the same value.
    for body in [r#"{"a":"x","a":"x"}"#, r#"{"\u0061":"x"}"#] {
        assert_eq!(status(&app, request(JSON, body)).await, 429, "{body}");
    }
    // The budget for unidentified callers is spent, and none by a document without the field.
    let mut expected = 200;
    for body in [
        r#"{"a":"x","a":"y"}"#,
        r#"{"a":"y","a":"x"}"#,
        r#"{"a":[],"a":"x"}"#,
        r#"{"a":"x","a":null}"#,
    ] {
        assert_eq!(status(&app, request(JSON, body)).await, expected, "{body}");
        assert_eq!(status(&app, request(JSON, r#"{"b":"x"}"#)).await, 200);
        expected = 429;
    }
    let within = echo(JsonField::new("a.b"));
    let mut expected = 200;
    for body in [r#"{"a":{"b":1},"a":{}}"#, r#"{"a":{},"a":{"b":1}}"#] {
        let status = status(&within, request(JSON, body)).await;
        assert_eq!(status, expected, "{body}");
        expected = 429;
    }
}

#[tokio::test]
async fn a_body_of_another_kind_is_not_read() {
    // The body never comes, and no task waits for it.
    let app = Router::new()
        .route("/", post(|| async { "answered" }))
        .layer(BufferBodyLayer::new(20));
    let never = StreamBody::new(tokio_stream::pending::<Result<Frame<Bytes>, Infallible>>());

    let response = app
        .oneshot(request("text/plain", Body::new(never)))
        .await
        .unwrap();

    assert_eq!(response.status(), 200);
}

/// A caller who sends byte by byte makes the layer hold no more than others do.
#[test]
fn a_body_in_frames_of_a_byte_takes_no_more_than_three_times_the_limit() {
    const LIMIT: usize = 100_000;
    let policy = Policy::new("body", Quota::per_hour(9)).key(FormField::new("user"));
    let app = Router::new()
        .route("/", post(async || ()))
        .layer(RateLimitLayer::new(policy))
        .layer(BufferBodyLayer::new(LIMIT));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    // Each frame is a part of one buffer.
    let data = Bytes::from(vec![b'a'; LIMIT]);
    let frames = (0..LIMIT).map(move |at| Ok::<_, Infallible>(Frame::data(data.slice(at..=at))));
    let body = Body::new(StreamBody::new(tokio_stream::iter(frames)));
    let request = request(FORM, body);

    let mut answered = 0;
    let measured = measure(|| answered = runtime.block_on(status(&app, request)));

    assert_eq!(answered, 200);
    let most = measured.bytes_max;
    assert!(most < 3 * LIMIT as u64, "{most} bytes");
}
