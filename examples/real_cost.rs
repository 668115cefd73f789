//! How do I charge what a request has really cost?
//!
//! `cargo run --example real_cost`. An answer of a model costs as many tokens as it has, which is unknown before. Each request is
//! charged a guess, so that simultaneous requests cannot overdraw the budget by far. The charge is corrected when the stream has
//! ended or the caller has gone.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::get;
use tokio_stream::StreamExt;
use tollgate::{Limiter, Policy, Quota, RateLimitLayer, RateLimitStatus};
use tollgate_examples::serve;

/// Settles the generated tokens when it is dropped together with the stream.
struct Meter {
    status: RateLimitStatus,
    tokens: u64,
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Err(error) = self.status.settle("tokens", self.tokens) {
            tracing::error!(%error, "not charged");
        }
    }
}

async fn complete(status: RateLimitStatus) -> Body {
    let mut meter = Meter { status, tokens: 0 };
    let words = ["once", "upon", "a", "time", "there", "was", "a", "gate\n"];
    let words = tokio_stream::iter(words).throttle(Duration::from_millis(200));
    Body::from_stream(words.map(move |word| {
        // All of it goes along, not only the number.
        let meter = &mut meter;
        meter.tokens += 1;
        Ok::<_, Infallible>(Bytes::from(format!("{word} ")))
    }))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Limiter::builder()
        // A guess of 20 tokens each, of 60 a minute.
        .policy(
            Policy::new("tokens", Quota::per_minute(60))
                .cost(20)
                .route("/complete"),
        )
        // The size of a download is known when it has been sent: no handler needs to know of it.
        .policy(
            Policy::new("kilobytes", Quota::per_minute(500))
                .settle_by_bytes(|bytes| bytes.div_ceil(1_000))
                .route("/download"),
        )
        .build()?;

    let app = Router::new()
        .route("/complete", get(complete))
        .route("/download", get(|| async { "0123456789".repeat(10_000) }))
        .layer(RateLimitLayer::new(limiter));

    let tries = [
        "curl -iN URL/complete       # some seven times, since each takes 8 tokens and not 20",
        "curl -i -o /dev/null URL/download    # 100 kB each, of 500 a minute",
    ];
    serve(app, "requests cost what they cost", &tries).await
}
