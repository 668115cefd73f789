//! How do I give routes limits of their own?
//!
//! `cargo run -p examples --example routes`. One limiter around the whole router, policies that name their routes, and two budgets that
//! every request spends besides: its caller's and the server's.

use axum::Router;
use axum::routing::{get, post};
use examples::serve;
use http::Method;
use tollgate::key::Global;
use tollgate::{Limiter, Policy, Quota, RateLimitLayer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Limiter::builder()
        // Every request but the health check, for each client address.
        .policy(Policy::new("caller", Quota::per_second(20)).exempt_route("/health"))
        // Dear to serve, for every caller.
        .policy(
            Policy::new("reports", Quota::per_minute(3))
                .route("/reports/{name}")
                .key(Global),
        )
        // Writing is limited, reading is not; an upload costs its size in kilobytes.
        .policy(
            Policy::new("upload", Quota::per_hour(3_000))
                .route("/files/{*path}")
                .method(Method::POST)
                .cost_by(|request| {
                    let length = request.headers().get("content-length");
                    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
                    // What costs nothing always passes.
                    length.map_or(1_000, |bytes: u64| bytes.div_ceil(1_000).max(1))
                }),
        )
        // On trial: handlers read in the status which requests it would refuse, and none is refused.
        .policy(Policy::new("trial", Quota::per_second(2)).shadow())
        .build()?;

    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .route("/health", get(|| async { "well\n" }))
        .route("/reports/{name}", get(|| async { "a report\n" }))
        .route(
            "/files/{*path}",
            post(|body: String| async move { format!("{} bytes\n", body.len()) }),
        )
        .layer(RateLimitLayer::new(limiter));

    let tries = [
        "for i in 1 2 3 4; do curl -s -o /dev/null -w '%{http_code}\\n' URL/reports/sales; done",
        "head -c 1900000 /dev/zero | curl -i --data-binary @- URL/files/a    # and once more",
        "curl -i URL/health",
    ];
    serve(app, "each route has its own limits", &tries).await
}
