//! How do I limit a handler where it stands?
//!
//! `cargo run -p examples --example annotations`. The limits stand at the handlers. They need no registration.

use axum::Router;
use axum::routing::{get, post};
use examples::serve;
use tollgate::key::Global;
use tollgate::{Limiter, MethodRouterExt, Policy, Quota, RateLimitLayer, rate_limit};

/// Three at once for each client address, and five a minute. All callers together may try a hundred a minute.
#[rate_limit("5/min", burst = 3)]
#[rate_limit("100/min", key = Global, name = "all-logins")]
async fn login(password: String) -> &'static str {
    if password == "open sesame" {
        "welcome\n"
    } else {
        "no\n"
    }
}

/// Shares its budget with `search_deeply`, which costs more of it.
#[rate_limit(policy = "search")]
async fn search() -> &'static str {
    "the first page\n"
}

#[rate_limit(policy = "search", cost = 5)]
async fn search_deeply() -> &'static str {
    "every page\n"
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Limiter::builder()
        // For every request.
        .policy(Policy::new("everything", Quota::per_second(100)))
        // Where it is asked for.
        .policy(Policy::new("search", Quota::per_minute(10)).on_demand())
        .build()?;
    limiter.expects(["search"])?;

    let app = Router::new()
        .route("/login", post(login))
        .route("/search", get(search))
        .route("/search/deeply", get(search_deeply))
        // Without an annotation, since the handler belongs to another crate.
        .route("/export", get(|| async { "a lot\n" }).rate_limit("2/hour"))
        .layer(RateLimitLayer::new(limiter));

    let tries = [
        "curl -i URL/login -d 'open sesame'      # three at once, then five a minute",
        "curl -i URL/search                      # ten a minute",
        "curl -i URL/search/deeply               # each for five of them",
        "curl -i URL/export                      # two an hour",
    ];
    serve(app, "handlers say themselves how they are limited", &tries).await
}
