//! How do I limit how many uploads, streams and sockets a caller has at once?
//!
//! `cargo run -p examples --example uploads_at_once`. What a request holds is given back when it is over, however it ends: the answer has been
//! read or it is read no more, the handler failed or was cut off. With `REDIS_URL=redis://127.0.0.1/` all processes on
//! several ports (`ADDR`) count together.

use std::convert::Infallible;
use std::env;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::http::StatusCode;
use axum::response::Response;
use axum::response::sse::{Event, Sse};
use axum::routing::{any, get, post};
use examples::serve;
use tokio::time::{sleep, timeout};
use tokio_stream::{Stream, StreamExt};
use tollgate::{Concurrent, Hold, Limiter, Policy, RateLimitLayer, RedisBackend};

/// The patience with a caller that sends nothing more: a slow body and an idle socket hold their places.
const PATIENCE: Duration = Duration::from_secs(30);

const MOST_BYTES: usize = 10 << 20;

async fn upload(body: Body) -> Result<String, StatusCode> {
    let body = timeout(PATIENCE, to_bytes(body, MOST_BYTES)).await;
    let body = body.map_err(|_slow| StatusCode::REQUEST_TIMEOUT)?;
    let body = body.map_err(|_too_long| StatusCode::PAYLOAD_TOO_LARGE)?;
    sleep(Duration::from_secs(1)).await;
    Ok(format!("{} bytes\n", body.len()))
}

/// Holds for as long as it streams: nothing more is to be done.
async fn events() -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let ticks = (1_u64..).map(|tick| Ok(Event::default().data(format!("tick {tick}"))));
    Sse::new(tokio_stream::iter(ticks).throttle(Duration::from_millis(500)))
}

/// The response to an upgrade is over before the first message, so that the connection takes a hold.
async fn socket(upgrade: WebSocketUpgrade, hold: Hold) -> Response {
    upgrade.on_upgrade(async move |socket| {
        echo(socket).await;
        drop(hold);
    })
}

async fn echo(mut socket: WebSocket) {
    while let Ok(Some(Ok(message))) = timeout(PATIENCE, socket.recv()).await {
        if socket.send(message).await.is_err() {
            break;
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let two_each = |name: &str, route: &str| Policy::new(name, Concurrent::at_most(2)).route(route);
    let limiter = Limiter::builder()
        .policy(two_each("uploads", "/upload"))
        .policy(two_each("events", "/events"))
        .policy(two_each("sockets", "/socket"));
    let limiter = match env::var("REDIS_URL") {
        Ok(url) => limiter.backend(RedisBackend::connect(&url).await?),
        Err(_) => limiter,
    };

    let app = Router::new()
        .route("/upload", post(upload))
        .route("/events", get(events))
        .route("/socket", any(socket))
        .layer(RateLimitLayer::new(limiter.build()?));

    let tries = [
        "for i in 1 2 3; do curl -s -o /dev/null -w '%{http_code}\\n' -d hello URL/upload & done; wait",
        "curl -N URL/events      # in three terminals",
        "websocat ws://HOST/socket    # the same",
    ];
    serve(app, "each caller may have two of each at once", &tries).await
}
