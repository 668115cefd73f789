//! How do I give paying customers more?
//!
//! `cargo run -p examples --example api_keys`. Each API key has a budget of the size of its tier. Requests without a key are refused. An
//! upgrade hands out no fresh budget. If tiers are in a database, `Tiers::by_async` asks it and caches the answers.

use axum::{Router, routing::get};
use examples::serve;
use tollgate::key::{Header, KeyList};
use tollgate::{Block, Limiter, OnMissing, Policy, Quota, RateLimitLayer, RateLimitStatus, Tiers};

async fn data(status: RateLimitStatus) -> String {
    match status.tightest() {
        Some(tightest) => format!("data; {} requests left\n", tightest.verdict().remaining()),
        None => "data; as often as you like\n".to_owned(),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tiers = Tiers::by_key([("key-of-acme", "gold"), ("key-of-the-monitoring", "staff")])
        .tier("gold", [Quota::per_second(50), Quota::per_day(1_000_000)])
        .unlimited("staff");
    // May be changed while the server runs.
    let blocked = KeyList::from_iter(["key-that-leaked"]);
    let limiter = Limiter::builder()
        .policy(
            Policy::new("api", [Quota::per_second(5), Quota::per_day(1_000)])
                .key(Header::new("x-api-key"))
                .on_missing(OnMissing::Deny)
                .tiers(tiers)
                .block_keys(&blocked, Block::Forbidden),
        )
        .build()?;

    let app = Router::new()
        .route("/", get(data))
        .layer(RateLimitLayer::new(limiter));

    let tries = [
        "curl -i -H 'x-api-key: somebody' URL/",
        "curl -i -H 'x-api-key: key-of-acme' URL/",
        "curl -i -H 'x-api-key: key-of-the-monitoring' URL/",
        "curl -i -H 'x-api-key: key-that-leaked' URL/",
        "curl -i URL/",
    ];
    serve(app, "each API key has the limits of its tier", &tries).await
}
