//! How do I write limits into the contract of a gRPC service?
//!
//! ```text
//! cargo run -p examples --example limits_in_proto
//! ```
//!
//! The limits on calls and on messages stand in `proto/limited.proto`. The server reads them when it starts, and does not start
//! if one is wrong.

use std::error::Error;

use examples::greeter::Name;
use examples::limited::greeter_client::GreeterClient;
use examples::limited::greeter_server::GreeterServer;
use examples::{DESCRIPTORS, Greetings, listen, tell_each};
use tollgate::proto::Contract;
use tollgate::{Limiter, MessageLimitLayer, RateLimitLayer};
use tonic::transport::Server;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let contract = Contract::read(DESCRIPTORS)?;
    let limiter = Limiter::builder().policies(contract.policies()?).build()?;
    // Finds policies for methods that do not exist, which those of the code could be.
    contract.check(&limiter)?;
    let server = Server::builder()
        .layer(RateLimitLayer::new(&limiter))
        // Only because there are limits of messages.
        .layer(MessageLimitLayer::new(limiter))
        .add_service(GreeterServer::new(Greetings));

    let (url, incoming) = listen().await?;
    tokio::spawn(server.serve_with_incoming(incoming));

    let mut client = GreeterClient::connect(url).await?;
    let names = ["Ada", "Grace", "Edsger", "Barbara", "Donald"];
    let names = names.map(|name| Name { name: name.into() });
    tell_each(client.greet_each(tokio_stream::iter(names)).await).await;
    Ok(())
}
