//! Which caller is it, behind a proxy?
//!
//! `cargo run -p examples --example behind_a_proxy`. Only trusted proxies may name the caller. The caller is the last address in
//! `X-Forwarded-For` that is not a trusted proxy's: it may have invented the addresses left of that.

use axum::{Router, routing::get};
use examples::serve;
use tollgate::{ClientAddress, Limiter, Networks, Policy, Quota, RateLimitLayer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Here the proxy is on this machine. A load balancer's networks are in its documentation.
    let proxies = Networks::new(["127.0.0.0/8", "::1"]);
    let limiter = Limiter::builder()
        .client_address(ClientAddress::x_forwarded_for(proxies))
        .policy(Policy::new("caller", Quota::per_minute(3)))
        .build()?;

    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(RateLimitLayer::new(limiter));

    let tries = [
        "curl -i -H 'x-forwarded-for: 203.0.113.7' URL/     # four times: the fourth is refused",
        "curl -i -H 'x-forwarded-for: 203.0.113.8' URL/     # another caller",
        "curl -i -H 'x-forwarded-for: 198.51.100.1, 203.0.113.7' URL/     # the first one again, with a lie",
    ];
    serve(
        app,
        "each address behind the proxy may come three times a minute",
        &tries,
    )
    .await
}
