//! How do I limit a handler where it stands?
//!
//! `cargo run --example annotations` serves on 127.0.0.1:3000, or wherever `ADDR` says, and needs nothing else.

#![allow(clippy::print_stdout, reason = "it talks to whoever started it")]

use std::env;
use std::net::SocketAddr;

use axum::Router;
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tollgate::key::Global;
use tollgate::{Limiter, MethodRouterExt, Policy, Quota, RateLimitLayer, rate_limit};

/// Three at once for each client address, and five a minute. Nobody may try more than a hundred a minute between them.
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
    tracing_subscriber::fmt().init();

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
        // Without an annotation, since the handler is somebody else's.
        .route("/export", get(|| async { "a lot\n" }).rate_limit("2/hour"))
        .layer(RateLimitLayer::new(limiter));

    let address = env::var("ADDR").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(&address).await.map_err(|error| {
        format!("cannot listen on {address}: {error}; choose another with ADDR")
    })?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}\n");
    println!(
        "  curl -i http://{address}/login -d 'open sesame'      # three at once, then five a minute"
    );
    println!("  curl -i http://{address}/search                      # ten a minute");
    println!("  curl -i http://{address}/search/deeply               # each for five of them");
    println!("  curl -i http://{address}/export                      # two an hour");

    axum::serve(
        listener,
        app.into_make_service_with_connect_info::<SocketAddr>(),
    )
    .await?;
    Ok(())
}
