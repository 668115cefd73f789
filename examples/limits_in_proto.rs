//! How do I write limits into the contract of a gRPC service?
//!
//! ```text
//! cargo run --example limits_in_proto
//! ```
//!
//! The limits stand in `proto/limited.proto`. The server reads them when it starts, and would not start if one were wrong.

use std::error::Error;

use tollgate::proto::Contract;
use tollgate::{Limiter, RateLimitLayer};
use tollgate_examples::greeter::Name;
use tollgate_examples::limited::greeter_client::GreeterClient;
use tollgate_examples::limited::greeter_server::GreeterServer;
use tollgate_examples::{DESCRIPTORS, Greetings, listen, tell};
use tonic::transport::Server;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let contract = Contract::read(DESCRIPTORS)?;
    let limiter = Limiter::builder().policies(contract.policies()?).build()?;
    // Finds policies for methods that do not exist, which those of the code could be.
    contract.check(&limiter)?;
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
