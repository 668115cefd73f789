//! Limits beside others: quotas, annotations, routes, and a smaller limit that replaces one.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::routing::{get, post};
use bytes::Bytes;
use http::StatusCode;
use http::header::RETRY_AFTER;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollgate::key::Global;
use tollgate::{Cause, Concurrent, Key, Limiter, Policy, Quota, RateLimitLayer};

use crate::common::held::{Held, Streams, TWO};
use crate::concurrency::{Client, serve, status};

#[tokio::test]
async fn what_a_request_held_before_it_was_refused_further_in_is_given_back() {
    let held = Held::two();
    let inner = RateLimitLayer::new(Policy::new("none", tollgate::Quotas::none()).key(Global));
    let app = Router::new().route("/", get(|| async {}));
    let address = serve(app.layer(inner).layer(held.layer())).await;
    for turn in 1..=3 {
        assert_eq!(status(address, "/").await, StatusCode::FORBIDDEN);
        held.comes_to(2).await;
        assert_eq!(held.released(), turn);
    }
}

#[tokio::test]
async fn a_quota_beside_it_that_refuses_holds_nothing() {
    let held = Held::under(Policy::new("held", (Quota::per_hour(3), TWO)));
    let app = Router::new().route("/", get(|| async {}));
    let address = serve(app.layer(held.layer())).await;
    for expected in [200, 200, 200, 429, 429, 429] {
        assert_eq!(status(address, "/").await.as_u16(), expected);
    }
    let verdicts = held.limiter.check("held", Key::global()).cost(0).await;
    let verdicts = verdicts.unwrap().verdicts().to_vec();
    assert_eq!((verdicts[0].remaining(), verdicts[1].remaining()), (0, 2));
}

#[tokio::test]
async fn a_request_that_is_one_too_many_takes_nothing_from_the_quotas_beside_it() {
    // In one policy, and in two, as for tokens that cost more than one.
    let together = Policy::new("held", (Quota::per_hour(10), TWO));
    let alone = [
        Policy::new("held", Quota::per_hour(100)).cost(10),
        Policy::new("places", TWO),
    ];
    for policies in [vec![together], alone.to_vec()] {
        let limiter = Limiter::builder()
            .policies(policies.into_iter().map(|policy| policy.key(Global)))
            .build()
            .unwrap();
        let streams = Streams::default();
        let opened = streams.clone();
        let stream = get(async move || Body::from_stream(opened.open()));
        let app = Router::new().route("/", stream);
        let address = serve(app.layer(RateLimitLayer::new(&limiter))).await;
        let mut clients = Vec::new();
        for expected in [200, 200, 429, 429, 429] {
            let mut client = Client::to(address).await;
            let answer = client.get("/").await;
            assert_eq!(answer.status().as_u16(), expected);
            clients.push((client, answer));
        }
        let left = limiter.check("held", Key::global()).cost(0).await.unwrap();
        let left = left.verdicts()[0];
        assert_eq!(left.remaining() * 10, left.limit() * 8);
    }
}

#[tokio::test]
async fn who_keeps_all_places_of_its_own_shuts_out_nobody_else() {
    let by_caller = Policy::new("own", TWO).key(tollgate::key::Header::new("x-api-key"));
    let shared = Policy::new("shared", Concurrent::at_most(4)).key(Global);
    let limiter = Limiter::builder()
        .policies([by_caller, shared])
        .build()
        .unwrap();
    let app = Router::new().route("/", post(async |body: Bytes| body.len().to_string()));
    let address = serve(app.layer(RateLimitLayer::new(&limiter))).await;
    // Each sends a head that promises a body, and then nothing.
    let slow = async |key: &str| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST / HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\ncontent-length: 5\r\nexpect: 100-continue\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.unwrap();
        (stream, String::from_utf8_lossy(&status[9..]).into_owned())
    };
    let mut kept = Vec::new();
    for (key, expected) in [
        ("slow", "100"),
        ("slow", "100"),
        ("slow", "429"),
        ("slow", "429"),
        ("other", "100"),
        ("other", "100"),
        ("other", "429"),
        // The shared budget is what callers can fill together.
        ("third", "429"),
    ] {
        let (stream, status) = slow(key).await;
        assert_eq!(status, expected, "{key}");
        kept.push(stream);
    }
}

#[tokio::test]
async fn requests_that_are_reset_at_once_are_charged_by_the_quota_beside_it() {
    let held = Held::under(Policy::new("held", (Quota::per_hour(20), TWO)));
    let app = Router::new().route("/", get(pending::<()>));
    let address = serve(app.layer(held.layer())).await;
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    drop(tokio::spawn(connection));
    let mut resets = 0;
    let refused = loop {
        let request = Request::get(format!("http://{address}/")).body(Empty::<Bytes>::new());
        let answer = sender.send_request(request.unwrap());
        let holds_a_place = async {
            while held.places_free().await == 2 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        // Those that pass are never answered, and are reset.
        tokio::select! {
            refused = answer => break refused.unwrap(),
            () = holds_a_place => resets += 1,
        }
        assert!(resets <= 20);
        while held.places_free().await < 2 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    assert_eq!(
        (refused.status(), resets),
        (StatusCode::TOO_MANY_REQUESTS, 20)
    );
    assert!(refused.headers().contains_key(RETRY_AFTER));
}

#[tokio::test]
async fn a_smaller_limit_cuts_nobody_off_and_lets_nobody_in_before_enough_have_gone() {
    let policy = |limit| Policy::new("held", Concurrent::at_most(limit));
    let limiter = Limiter::from(policy(4));
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(limiter.check("held", "alice").await.unwrap());
    }
    limiter.replace([policy(2)]).unwrap();
    for left in [4, 3, 2] {
        let refused = limiter.check("held", "alice").await.unwrap();
        assert!(!refused.is_allowed(), "{left} are held");
        drop(held.pop());
    }
    let again = limiter.check("held", "alice").await.unwrap();
    assert!(again.is_allowed());
    assert!(!limiter.check("held", "alice").await.unwrap().is_allowed());

    // A larger one lets more in at once.
    limiter.replace([policy(3)]).unwrap();
    let third = limiter.check("held", "alice").await.unwrap();
    assert!(third.is_allowed() && !limiter.check("held", "alice").await.unwrap().is_allowed());
}

#[tokio::test]
async fn an_annotation_and_a_route_hold_as_the_layer_does() {
    #[tollgate::rate_limit("1 at once", key = Global)]
    async fn annotated(state: axum::extract::State<Streams>) -> Body {
        Body::from_stream(state.open())
    }
    use tollgate::MethodRouterExt;

    for headers in [true, false] {
        let (plain, streams) = (Limiter::from(Quota::per_second(1_000)), Streams::default());
        let layer = RateLimitLayer::new(plain);
        let layer = if headers {
            layer
        } else {
            layer.without_headers()
        };
        let app = Router::new()
            .route("/annotated", get(annotated))
            .route("/route", get(annotated_twin).rate_limit("1 at once"))
            .with_state(streams.clone())
            .layer(axum::Extension(tollgate::PeerAddr(
                "10.0.0.1:1".parse().unwrap(),
            )))
            .layer(layer);
        let address = serve(app).await;
        for path in ["/annotated", "/route"] {
            for _turn in 0..3 {
                let mut client = Client::to(address).await;
                let first = client.get(path).await;
                assert_eq!(first.status(), StatusCode::OK, "{path}");
                let second = status(address, path).await;
                assert_eq!(second, StatusCode::TOO_MANY_REQUESTS, "{path}");
                streams.close();
                first.into_body().collect().await.unwrap();
                // The server is done with the body a moment later.
                let mut tries = 0;
                loop {
                    let mut client = Client::to(address).await;
                    let again = client.get(path).await;
                    let passed = again.status() == StatusCode::OK;
                    streams.close();
                    let _rest = again.into_body().collect().await;
                    if passed {
                        break;
                    }
                    tries += 1;
                    assert!(tries < 5_000, "{path} is held for ever");
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    async fn annotated_twin(state: axum::extract::State<Streams>) -> Body {
        Body::from_stream(state.open())
    }
}

/// The layer has let the request in, and an annotation refuses it: its place is given back with the refusal, once.
#[tokio::test]
async fn a_request_that_an_annotation_refuses_gives_back_what_the_layer_holds() {
    #[tollgate::rate_limit("1/hour", key = Global)]
    async fn annotated() -> &'static str {
        "let in"
    }

    let held = Held::two();
    let app = Router::new().route("/", get(annotated)).layer(held.layer());
    let address = serve(app).await;

    for (expected, released) in [
        (StatusCode::OK, 1),
        (StatusCode::TOO_MANY_REQUESTS, 2),
        (StatusCode::TOO_MANY_REQUESTS, 3),
    ] {
        assert_eq!(status(address, "/").await, expected);
        held.comes_to(2).await;
        assert_eq!(held.released(), released);
    }
}

#[tokio::test]
async fn a_trial_beside_a_quota_that_refuses_is_given_back_at_once() {
    let released = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&released);
    let limiter = Limiter::builder()
        .policy(Policy::new("page", Quota::per_hour(1)).key(Global))
        .policy(Policy::new("held", TWO).key(Global).shadow())
        .observe(move |event: &tollgate::Event<'_>| {
            count.fetch_add(
                usize::from(event.cause() == Cause::Released),
                Ordering::SeqCst,
            );
        })
        .build()
        .unwrap();
    let held = Held { limiter, released };
    for headers in [true, false] {
        let layer = match headers {
            true => held.layer(),
            false => held.layer().without_headers().without_status(),
        };
        let app = Router::new().route("/", get(|| async {})).layer(layer);
        let address = serve(app).await;
        for _turn in 0..3 {
            let _status = status(address, "/").await;
            held.comes_to(2).await;
        }
    }
    assert_eq!(held.released(), 6);
}
