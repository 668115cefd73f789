//! How do I write limits into the contract of a gRPC service?
//!
//! ```text
//! cargo run --example limits_in_proto
//! ```
//!
//! The limits stand in `proto/limited.proto`. The server reads them when it starts, and would not start if one were wrong.

use std::error::Error;

use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tollgate::proto::Contract;
use tollgate::{Limiter, RateLimitLayer};
use tollgate_examples::greeter::Name;
use tollgate_examples::limited::greeter_client::GreeterClient;
use tollgate_examples::limited::greeter_server::GreeterServer;
use tollgate_examples::{DESCRIPTORS, Greetings};
use tonic::transport::Server;
use tonic_types::StatusExt;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let contract = Contract::read(DESCRIPTORS)?;
    let limiter = Limiter::builder().policies(contract.policies()?).build()?;
    // Finds policies for methods that do not exist, which those of the code could be.
    contract.check(&limiter)?;
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

#[expect(clippy::print_stdout, reason = "an example is there to be watched")]
fn say(text: &str) {
    println!("{text}");
}
