//! How do I limit a route?
//!
//! `cargo run -p quickstart` serves on 127.0.0.1:3000, or on the address in `ADDR`, and needs nothing else.
//!
//! `REDIS_URL=redis://127.0.0.1/ cargo run -p quickstart --features redis` counts in Redis. Two of these processes on two ports
//! enforce one budget.

#![allow(clippy::print_stdout, reason = "it tells the user what to try")]

use std::env;
use std::net::SocketAddr;
use std::time::Duration;

use axum::{Router, routing::get};
use tokio::net::TcpListener;
#[cfg(feature = "redis")]
use tollgate::RedisBackend;
use tollgate::{Limiter, Policy, Quota, RateLimitLayer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let five_in_ten_seconds = Quota::new(5, Duration::from_secs(10));
    let limiter = Limiter::builder().policy(Policy::new("quickstart", five_in_ten_seconds));
    #[cfg(feature = "redis")]
    let limiter = match env::var("REDIS_URL") {
        Ok(url) => limiter.backend(RedisBackend::connect(&url).await?),
        Err(_) => limiter,
    };
    #[cfg(not(feature = "redis"))]
    if env::var_os("REDIS_URL").is_some() {
        return Err(
            "REDIS_URL is set, but this build counts in memory: add `--features redis`".into(),
        );
    }

    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(RateLimitLayer::new(limiter.build()?))
        // Routes that are added after the layer are not limited.
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

    // The limiter reads the peer's address here, so that each caller has a budget of its own.
    axum::serve(
        listener,
        app.into_make_service_with_connect_info::<SocketAddr>(),
    )
    .await?;
    Ok(())
}
