//! How do I limit a server that speaks HTTP and gRPC on one port?
//!
//! ```text
//! cargo run --example rest_and_grpc
//! curl -i http://127.0.0.1:3000/greet/Ada
//! grpcurl -plaintext -import-path examples/proto -proto greeter.proto -d '{"name": "Ada"}' 127.0.0.1:3000 \
//!   greeter.v1.Greeter/Greet
//! ```
//!
//! One layer goes around both, so that a caller who switches the protocol has the same budget, and each is answered in its own.

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use tokio::net::TcpListener;
use tollgate::{Limiter, Policy, Quota, RateLimitLayer};
use tollgate_examples::Greetings;
use tollgate_examples::greeter::greeter_server::GreeterServer;
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

    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    // Without it nobody knows who the callers are, and all share one budget.
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}

async fn greet(Path(name): Path<String>) -> String {
    format!("Hello, {name}!\n")
}
