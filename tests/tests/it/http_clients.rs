//! HTTP clients of another ecosystem understand the answers.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tollgate::{Quota, RateLimitLayer};

use crate::clients;

/// Serves one route under this layer, on a free port.
async fn serve(layer: RateLimitLayer) -> String {
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    format!("http://{address}/")
}

#[tokio::test]
async fn urllib3_waits_as_long_as_it_is_told_and_then_succeeds() {
    // given a server that admits one request every ten seconds
    let layer = RateLimitLayer::new(Quota::new(1, Duration::from_secs(10)));
    let url = serve(layer).await;

    // when a client with retries comes twice at once
    let said = clients::run("urllib3_retry.py", &url).await;

    // then it is refused once, waits until it may pass, and passes at its next attempt
    assert_eq!(said["first"], 200);
    assert_eq!(said["refused_with"], serde_json::json!([429]), "{said}");
    assert_eq!(said["last"], 200);
    let waited_ms = said["waited_ms"].as_u64().unwrap();
    assert!(waited_ms >= 10_000, "{said}");
}
