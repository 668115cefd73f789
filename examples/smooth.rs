//! How do I let requests wait for their turn instead of refusing them?
//!
//! `cargo run -p examples --example smooth`. Each caller gets ten answers a second, one at a time: a request that comes too early goes on when
//! its turn comes, and one whose turn is more than two seconds away is refused. A caller that goes away gives its turn back.

use std::time::Duration;

use axum::{Router, routing::get};
use examples::serve;
use tollgate::{Limiter, Policy, Quota, RateLimitLayer, RateLimitStatus};

async fn answer(status: RateLimitStatus) -> String {
    format!("waited {} ms\n", status.waited().as_millis())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let quota = Quota::per_second(10)
        .burst(1)
        .wait_up_to(Duration::from_secs(2));
    let limiter = Limiter::builder()
        .policy(Policy::new("smooth", quota))
        .build()?;

    let app = Router::new()
        .route("/", get(answer))
        .layer(RateLimitLayer::new(limiter));

    let tries = [
        "for i in 1 2 3 4 5; do curl -s URL/; done",
        "curl -s --parallel --parallel-immediate 'URL/?[1-25]'    # the last four are refused",
    ];
    serve(
        app,
        "each caller gets ten answers a second, one at a time, and waits for two seconds at most",
        &tries,
    )
    .await
}
