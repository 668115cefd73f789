//! How do I limit the messages of a gRPC stream?
//!
//! ```text
//! cargo run -p examples --example grpc_streams
//! ```
//!
//! A caller sends twelve names at once. The server greets three at once and then four a second; the others wait. The second
//! stream ends after ten messages.

use std::error::Error;
use std::time::Instant;

use examples::greeter::Name;
use examples::greeter::greeter_client::GreeterClient;
use examples::greeter::greeter_server::GreeterServer;
use examples::{Greetings, listen, refusal};
use tokio_stream::StreamExt;
use tollgate::{Limiter, MessageLimitLayer, Messages, Policy, Quota, RateLimitLayer};
use tonic::transport::Server;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::builder()
        // Of streams.
        .policy(Policy::new("streams", Quota::per_minute(10)))
        // Of what callers send. What is too much is held back.
        .policy(
            Policy::new("names", Quota::per_second(4).burst(3))
                .grpc("greeter.v1.Greeter/GreetEach")
                .per_message(Messages::received()),
        )
        // Of what they are sent. What is too much is the end.
        .policy(
            Policy::new("greetings", Quota::per_hour(22))
                .grpc("greeter.v1.Greeter/*")
                .per_message(Messages::sent().end_stream()),
        )
        .build()?;
    let server = Server::builder()
        .layer(RateLimitLayer::new(&limiter))
        .layer(MessageLimitLayer::new(limiter))
        .add_service(GreeterServer::new(Greetings));

    let (url, incoming) = listen().await?;
    tokio::spawn(server.serve_with_incoming(incoming));

    let mut client = GreeterClient::connect(url).await?;
    for _ in 0..2 {
        let names = (1..=12).map(|number| Name {
            name: format!("number {number}"),
        });
        let start = Instant::now();
        let stream = client.greet_each(tokio_stream::iter(names)).await?;
        let mut greetings = stream.into_inner();
        while let Some(greeting) = greetings.next().await {
            match greeting {
                Ok(greeting) => say(&format!(
                    "{:>4} ms  {}",
                    start.elapsed().as_millis(),
                    greeting.text
                )),
                Err(status) => say(&refusal(&status)),
            }
        }
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "an example is there to be watched")]
fn say(text: &str) {
    println!("{text}");
}
