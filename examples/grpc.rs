//! How do I limit a gRPC server?
//!
//! ```text
//! cargo run --example grpc
//! ```
//!
//! A server whose callers may greet twice in ten seconds each, and a client that greets three times and is told when to come
//! back.

use std::error::Error;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tollgate::{Limiter, Policy, Quota, RateLimitLayer};
use tollgate_examples::Greetings;
use tollgate_examples::greeter::Name;
use tollgate_examples::greeter::greeter_client::GreeterClient;
use tollgate_examples::greeter::greeter_server::GreeterServer;
use tonic::transport::Server;
use tonic_types::StatusExt;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::builder()
        .policy(Policy::new("greet", Quota::new(2, TEN_SECONDS)).grpc("greeter.v1.Greeter/Greet"))
        .policy(Policy::new("everything", Quota::per_second(1_000)).grpc("greeter.*"))
        .build()?;
    let server = Server::builder()
        .layer(RateLimitLayer::new(limiter))
        .add_service(GreeterServer::new(Greetings));

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));

    let mut client = GreeterClient::connect(format!("http://{address}")).await?;
    for name in ["Ada", "Grace", "Edsger"] {
        match client.greet(Name { name: name.into() }).await {
            Ok(greeting) => say(&greeting.into_inner().text),
            Err(status) => {
                let retry = status.get_details_retry_info();
                let delay = retry
                    .and_then(|retry| retry.retry_delay)
                    .unwrap_or_default();
                say(&format!("{}: come back in {delay:?}", status.message()));
            }
        }
    }
    Ok(())
}

const TEN_SECONDS: Duration = Duration::from_secs(10);

#[expect(clippy::print_stdout, reason = "an example is there to be watched")]
fn say(text: &str) {
    println!("{text}");
}
