//! How do I limit a server that speaks HTTP and gRPC on one port?
//!
//! `cargo run -p examples --example rest_and_grpc`. One layer goes around both. A caller that switches the protocol has the same budget, and
//! each request is answered in its own protocol.

use std::error::Error;

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use examples::greeter::greeter_server::GreeterServer;
use examples::{Greetings, serve};
use tollgate::{Limiter, Policy, Quota, RateLimitLayer};
use tonic::service::Routes;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::builder()
        .policy(
            Policy::new("greet", Quota::per_minute(6))
                .route("/greet/{name}")
                .grpc("greeter.v1.Greeter/Greet"),
        )
        .build()?;

    let rest = Router::new().route("/greet/{name}", get(greet));
    let grpc = Routes::new(GreeterServer::new(Greetings)).into_axum_router();
    let app = rest.merge(grpc).layer(RateLimitLayer::new(limiter));

    let tries = [
        "curl -i URL/greet/Ada",
        "grpcurl -plaintext -import-path examples/proto -proto greeter.proto -d '{\"name\": \"Ada\"}' HOST greeter.v1.Greeter/Greet",
    ];
    serve(
        app,
        "each caller is greeted six times a minute, in either way",
        &tries,
    )
    .await
}

async fn greet(Path(name): Path<String>) -> String {
    format!("Hello, {name}!\n")
}
