//! How do I limit a gRPC server?
//!
//! ```text
//! cargo run -p examples --example grpc
//! ```
//!
//! Each caller of the server may greet twice in ten seconds. The client greets three times and is told when to come back.

use std::error::Error;
use std::time::Duration;

use examples::greeter::Name;
use examples::greeter::greeter_client::GreeterClient;
use examples::greeter::greeter_server::GreeterServer;
use examples::{Greetings, listen, tell};
use tollgate::{Limiter, Policy, Quota, RateLimitLayer};
use tonic::transport::Server;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::builder()
        .policy(Policy::new("greet", Quota::new(2, TEN_SECONDS)).grpc("greeter.v1.Greeter/Greet"))
        .policy(Policy::new("everything", Quota::per_second(1_000)).grpc("greeter.*"))
        .build()?;
    let server = Server::builder()
        .layer(RateLimitLayer::new(limiter))
        .add_service(GreeterServer::new(Greetings));

    let (url, incoming) = listen().await?;
    tokio::spawn(server.serve_with_incoming(incoming));

    let mut client = GreeterClient::connect(url).await?;
    for name in ["Ada", "Grace", "Edsger"] {
        tell(client.greet(Name { name: name.into() }).await);
    }
    Ok(())
}

const TEN_SECONDS: Duration = Duration::from_secs(10);
