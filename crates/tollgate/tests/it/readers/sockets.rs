//! Blanks and doubled lines as clients send them, which only a socket shows.

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use http::{HeaderMap, HeaderValue, Request};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollgate::key::Header;
use tollgate::{Limiter, OnMissing, Policy, RateLimitLayer, key};

use crate::common::at_a_standstill;
use crate::common::served::Served;
use crate::readers::{Seen, Shared, one_an_hour};

/// A server whose handler notes the header that it is given, and whose callers each have one request an hour.
async fn served(policy: Policy, name: &'static str) -> (Served, Shared) {
    let shared = Shared::new();
    let limiter = Limiter::builder().policy(policy);
    let limiter = limiter.backend(at_a_standstill().0).build().unwrap();
    let app = Router::new()
        .fallback(
            move |State(shared): State<Shared>, headers: HeaderMap| async move {
                let value = headers.get(name).map(HeaderValue::as_bytes);
                shared.note(value.map(String::from_utf8_lossy));
            },
        )
        .with_state(shared.clone())
        .layer(RateLimitLayer::new(limiter));
    (Served::new(app).await, shared)
}

#[tokio::test]
async fn blanks_that_http_2_keeps_are_no_second_budget() {
    let policy = one_an_hour(OnMissing::Deny).key(Header::new("x-api-key"));
    let (server, shared) = served(policy, "x-api-key").await;
    let mut client = Client::builder(TokioExecutor::new());
    let client = client.http2_only(true).build_http::<Body>();

    for value in [" abc", "abc", "abc ", "\tabc"] {
        let request = Request::get(format!("http://{}/", server.0)).header("x-api-key", value);
        client
            .request(request.body(Body::empty()).unwrap())
            .await
            .unwrap();
    }

    // The handler was shown the blanks.
    let seen = shared.seen.lock().unwrap().clone();
    assert_eq!(seen, Seen::from([(" abc".to_owned(), 1)]));
}

#[tokio::test]
async fn two_host_lines_over_http_1_are_ambiguous_and_not_absent() {
    let policy = one_an_hour(OnMissing::Pass).key(key::Host);
    let (server, shared) = served(policy, "host").await;

    let mut statuses = Vec::new();
    for head in [
        "GET / HTTP/1.1\r\nhost: a.example\r\nhost: b.example",
        "GET / HTTP/1.1\r\nHost: b.example\r\nHost: a.example",
        "GET http://a.example/ HTTP/1.1\r\nHost: b.example",
        "GET / HTTP/1.1\r\nHost: a.example\r\nHost: A.example.:80",
        "GET http://a.example/ HTTP/1.1\r\nHost: a.example",
    ] {
        let mut stream = TcpStream::connect(server.0).await.unwrap();
        let request = format!("{head}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        statuses.push(answer[9..12].to_owned());
    }

    assert_eq!(statuses, ["200", "429", "429", "200", "429"]);
    let seen: usize = shared.seen.lock().unwrap().values().sum();
    assert_eq!(seen, 2);
}
