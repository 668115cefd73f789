//! Clients of another ecosystem understand what they are told.
//!
//! They are Python programs in `tests/clients`, and run in the environment that `tests/install.sh` makes.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::process::Command;
use tollgate::{Quota, RateLimitLayer};

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

/// What a client prints.
async fn run(client: &str, url: &str) -> serde_json::Value {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = tests.join(".venv/bin/python");
    assert!(
        python.exists(),
        "{} is missing: tests/install.sh makes it, with the clients that these tests run",
        python.display()
    );
    let output = Command::new(python)
        .arg(tests.join("clients").join(client))
        .arg(url)
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(60), output);
    let output = output.await.unwrap().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{client}: {error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn urllib3_waits_as_long_as_it_is_told_and_then_succeeds() {
    // given a server that admits one request every two seconds
    let layer = RateLimitLayer::new(Quota::new(1, Duration::from_secs(2)));
    let url = serve(layer).await;

    // when a client with retries comes twice at once
    let said = run("urllib3_retry.py", &url).await;

    // then it is refused once, waits for two seconds and not for another two, and passes at its first attempt after that
    assert_eq!(said["first"], 200);
    assert_eq!(said["refused_with"], serde_json::json!([429]), "{said}");
    assert_eq!(said["last"], 200);
    let waited_ms = said["waited_ms"].as_u64().unwrap();
    assert!((2000..4000).contains(&waited_ms), "{said}");
}
