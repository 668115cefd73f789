//! How do I charge what a request has really cost?
//!
//! `cargo run -p examples --example real_cost`. What a request costs is unknown before it is answered. Each is charged a guess, so that
//! simultaneous requests cannot overdraw the budget by far, and the charge is corrected. The example `llm_tokens` does it at the
//! end of a stream.

use axum::extract::Path;
use axum::{Router, routing::get};
use examples::serve;
use tollgate::{Limiter, Policy, Quota, RateLimitLayer, RateLimitStatus};

/// Costs the rows that were found.
async fn search(status: RateLimitStatus, Path(word): Path<String>) -> String {
    let rows = ["a gate", "a toll", "a tollgate", "a gatekeeper"];
    let found: Vec<_> = rows.into_iter().filter(|row| row.contains(&word)).collect();
    // The search has run, also if it finds nothing.
    if let Err(error) = status.settle("rows", found.len().max(1) as u64) {
        tracing::error!(%error, "not charged");
    }
    format!("{}\n", found.join("\n"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Limiter::builder()
        // A guess of 20 rows each, of 60 a minute.
        .policy(
            Policy::new("rows", Quota::per_minute(60))
                .cost(20)
                .route("/search/{word}"),
        )
        // The size of a download is known when it has been sent: no handler needs to know of it.
        .policy(
            Policy::new("kilobytes", Quota::per_minute(500))
                .settle_by_bytes(|bytes| bytes.div_ceil(1_000))
                .route("/download"),
        )
        .build()?;

    let app = Router::new()
        .route("/search/{word}", get(search))
        .route("/download", get(|| async { "0123456789".repeat(10_000) }))
        .layer(RateLimitLayer::new(limiter));

    let tries = [
        "curl -i URL/search/gate     # some fourteen times, since each takes 3 rows and not 20",
        "curl -i -o /dev/null URL/download    # 100 kB each, of 500 a minute",
    ];
    serve(app, "requests cost what they cost", &tries).await
}
