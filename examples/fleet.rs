//! How do many processes share one budget, and what happens without Redis?
//!
//! `REDIS_URL=redis://127.0.0.1/ cargo run -p examples --example fleet`, on several ports with `ADDR`. While Redis cannot be reached each
//! process goes on with a quarter of the budget of its own.

use std::env;
use std::time::Duration;

use axum::{Router, routing::get};
use examples::serve;
use tollgate::{Limiter, OnFailure, Policy, Quota, RateLimitLayer, RedisBackend, Share};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let backend = RedisBackend::builder(&url)
        .prefix("example")
        .deadline(Duration::from_millis(50))
        // Does not wait for Redis: the failure rule acts until it is there.
        .start()?;
    let limiter = Limiter::builder()
        .policy(
            Policy::new("fleet", Quota::per_minute(20))
                .on_failure(OnFailure::Local(Share::one_in(4))),
        )
        .backend(backend)
        .build()?;

    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(RateLimitLayer::new(limiter));

    let tries = [
        "for i in $(seq 25); do curl -s -o /dev/null -w '%{http_code} ' URL/; done",
        "redis-cli --scan --pattern 'example:*'",
    ];
    serve(
        app,
        "all processes with this REDIS_URL share twenty requests a minute",
        &tries,
    )
    .await
}
