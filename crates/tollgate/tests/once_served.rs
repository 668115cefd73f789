//! Ids of requests over HTTP, behind a real server, in memory and on a real Redis.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod common;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use common::at_a_standstill;
use common::served::{Served, Whole};
use http::{HeaderValue, Request};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tollgate::key::Header;
use tollgate::{Limiter, LimiterBuilder, Policy, Quota, RateLimitLayer, RedisBackend};
use tollgate_testkit::Standalone;

/// A limiter of orders on this backend, by the name of a caller and an id.
fn orders(backend: impl FnOnce(LimiterBuilder) -> LimiterBuilder) -> Limiter {
    let policy = Policy::new("orders", Quota::per_day(100)).key(Header::new("x-api-key"));
    let policy = policy.once_by(Header::new("idempotency-key"));
    backend(Limiter::builder().policy(policy)).build().unwrap()
}

/// A limiter in memory, one on Redis, and the server.
async fn everywhere() -> ([Limiter; 2], Standalone) {
    let server = Standalone::start();
    let redis = RedisBackend::connect(&server.url()).await.unwrap();
    let memory = at_a_standstill().0;
    let limiters = [
        orders(|builder| builder.backend(memory)),
        orders(|builder| builder.backend(redis)),
    ];
    (limiters, server)
}

/// A server that takes orders. Each adds a permit to the semaphore.
async fn serve(limiter: &Limiter) -> (Served, Arc<Semaphore>) {
    let taken = Arc::new(Semaphore::new(0));
    let counter = Arc::clone(&taken);
    let take = move || async move {
        counter.add_permits(1);
        "taken"
    };
    let app = Router::new().route("/orders", post(take));
    let served = Served::new(app.layer(RateLimitLayer::new(limiter))).await;
    (served, taken)
}

async fn order(served: Served, caller: &str, ids: &[&[u8]]) -> Whole {
    let request = Request::post(format!("http://{}/orders", served.0)).header("x-api-key", caller);
    let request = ids.iter().fold(request, |request, id| {
        request.header("idempotency-key", HeaderValue::from_bytes(id).unwrap())
    });
    let response = served.request(request.body(Body::empty()).unwrap()).await;
    assert_eq!(response.status(), 200);
    response
}

/// The rest, as the answer says.
fn left(response: &Whole) -> u64 {
    let field = response.headers()["ratelimit"].to_str().unwrap();
    let remaining = field.split(';').find_map(|part| part.strip_prefix("r="));
    remaining.unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_retry_after_a_lost_answer_is_not_charged_again() {
    let (limiters, _server) = everywhere().await;
    for limiter in limiters {
        let (served, taken) = serve(&limiter).await;
        let head = "POST /orders HTTP/1.1\r\nhost: a\r\nx-api-key: alice\r\nidempotency-key: order-7\r\n\
                    content-length: 0\r\n\r\n";
        let mut lost = TcpStream::connect(served.0).await.unwrap();
        lost.write_all(head.as_bytes()).await.unwrap();
        taken.acquire().await.unwrap().forget();
        drop(lost);

        for left_over in [99, 99, 98] {
            assert_eq!(
                left(&order(served, "alice", &[b"order-7"]).await),
                left_over
            );
        }

        // The id is another caller's as well, and spares that one nothing.
        assert_eq!(left(&order(served, "bob", &[b"order-7"]).await), 99);
        assert_eq!(taken.available_permits(), 4);
    }
}

/// The ids of a request.
type Ids<'a> = &'a [&'a [u8]];

#[tokio::test]
async fn odd_ids_gain_their_sender_nothing() {
    let long = vec![b'7'; 8_000];
    let (limiters, _server) = everywhere().await;
    for limiter in limiters {
        let (served, _) = serve(&limiter).await;
        // The ids of two requests, and how much of the budget these take.
        let cases: [(&str, [Ids<'_>; 2], u64); 8] = [
            ("none", [&[], &[]], 2),
            ("empty", [&[b""], &[b""]], 2),
            ("an empty one and another", [&[b"", b"a"], &[b"", b"a"]], 2),
            ("the first of two counts", [&[b"a", b"b"], &[b"a", b"c"]], 1),
            ("another first of two", [&[b"a", b"b"], &[b"b", b"a"]], 2),
            ("long", [&[&long], &[&long]], 1),
            ("of other lengths", [&[&long], &[&long[1..]]], 2),
            ("not ASCII", [&[b"\xe4\xff"], &[b"\xe4\xff"]], 1),
        ];
        for (caller, ids, taken) in cases {
            order(served, caller, ids[0]).await;
            let second = order(served, caller, ids[1]).await;
            assert_eq!(left(&second), 100 - taken, "{caller}");
        }
    }
}
