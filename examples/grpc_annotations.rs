//! How do I limit the method of a gRPC service where it stands?
//!
//! ```text
//! cargo run -p examples --example grpc_annotations
//! ```
//!
//! The limit of the first method stands at the method: each caller is greeted twice at once. The limit of the second, one stream
//! an hour, is a policy of the limiter, which other methods could name too.

use std::error::Error;

use examples::greeter::greeter_client::GreeterClient;
use examples::greeter::greeter_server::{Greeter, GreeterServer};
use examples::greeter::{Greeting, Name};
use examples::{GreetingStream, Greetings, listen, tell, tell_each};
use tollgate::{Limiter, Policy, Quota, RateLimitLayer, rate_limit};
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

struct Limited;

#[tonic::async_trait]
impl Greeter for Limited {
    type GreetEachStream = GreetingStream;

    // Called `greeter.v1.greeter/greet`, and there is nothing to register.
    #[rate_limit("12/min", burst = 2)]
    async fn greet(&self, request: Request<Name>) -> Result<Response<Greeting>, Status> {
        Greetings.greet(request).await
    }

    #[rate_limit(policy = "streams")]
    async fn greet_each(
        &self,
        request: Request<Streaming<Name>>,
    ) -> Result<Response<GreetingStream>, Status> {
        Greetings.greet_each(request).await
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::builder()
        .policy(Policy::new("streams", Quota::per_hour(1)).on_demand())
        .build()?;
    // Better now than when the first call comes.
    limiter.expects(["streams"])?;
    let server = Server::builder()
        .layer(RateLimitLayer::new(limiter))
        .add_service(GreeterServer::new(Limited));

    let (url, incoming) = listen().await?;
    tokio::spawn(server.serve_with_incoming(incoming));

    let mut client = GreeterClient::connect(url).await?;
    for name in ["Ada", "Grace", "Edsger"] {
        tell(client.greet(Name { name: name.into() }).await);
    }
    for name in ["Barbara", "Donald"] {
        let names = tokio_stream::once(Name { name: name.into() });
        tell_each(client.greet_each(names).await).await;
    }
    Ok(())
}
