//! How do I limit a route?
//!
//! `cargo run --example quickstart` serves on 127.0.0.1:3000, or wherever `ADDR` says, and needs nothing else. With
//! `REDIS_URL=redis://127.0.0.1/` it counts in Redis, and two of them on two ports enforce one budget.

#![allow(clippy::print_stdout, reason = "it talks to whoever started it")]

use std::env;
use std::net::SocketAddr;
use std::time::Duration;

use axum::{Router, routing::get};
use tokio::net::TcpListener;
use tollgate::{Limiter, Policy, Quota, RateLimitLayer, RedisBackend};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();

    let five_in_ten_seconds = Quota::new(5, Duration::from_secs(10));
    let mut limiter = Limiter::builder().policy(Policy::new("quickstart", five_in_ten_seconds));
    if let Ok(url) = env::var("REDIS_URL") {
        limiter = limiter.backend(RedisBackend::connect(&url).await?);
    }

    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(RateLimitLayer::new(limiter.build()?))
        // Added after the layer, so not under it.
        .route("/unlimited", get(|| async { "as often as you like\n" }));

    let address = env::var("ADDR").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(&address).await.map_err(|error| {
        format!("cannot listen on {address}: {error}; choose another with ADDR")
    })?;
    let address = listener.local_addr()?;
    println!(
        "listening on http://{address}; each client address may GET / five times in ten seconds\n"
    );
    println!("  curl -i http://{address}/");
    println!(
        "  for i in 1 2 3 4 5 6; do curl -s -o /dev/null -w '%{{http_code}}\\n' http://{address}/; done"
    );
    println!("  curl -i http://{address}/unlimited");

    // With the connection's address, so that each caller has a budget of its own.
    axum::serve(
        listener,
        app.into_make_service_with_connect_info::<SocketAddr>(),
    )
    .await?;
    Ok(())
}
