//! The parts that the examples share: a server for HTTP, and the gRPC service that some of them limit.

use std::pin::Pin;

mod calls;
mod serve;

pub use self::calls::{listen, refusal, tell, tell_each};
pub use self::serve::serve;

/// The messages, the client and the server of `proto/greeter.proto`.
pub mod greeter {
    pub use super::generated::greeter::v1::*;
}

/// The client and the server of `proto/limited.proto`.
pub mod limited {
    pub use super::generated::limited::v1::*;
}

#[expect(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::missing_errors_doc,
    reason = "generated"
)]
mod generated {
    pub mod greeter {
        pub mod v1 {
            tonic::include_proto!("greeter.v1");
        }
    }
    pub mod limited {
        pub mod v1 {
            tonic::include_proto!("limited.v1");
        }
    }
}

/// The file descriptor set of all services, with the limits that stand in their options.
pub const DESCRIPTORS: &[u8] = tonic::include_file_descriptor_set!("descriptors");

use self::greeter::greeter_server::Greeter;
use self::greeter::{Greeting, Name};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

/// Greets every caller.
#[derive(Clone, Copy, Debug, Default)]
pub struct Greetings;

/// One greeting after the other.
pub type GreetingStream = Pin<Box<dyn Stream<Item = Result<Greeting, Status>> + Send>>;

#[tonic::async_trait]
impl Greeter for Greetings {
    type GreetEachStream = GreetingStream;

    async fn greet(&self, request: Request<Name>) -> Result<Response<Greeting>, Status> {
        Ok(Response::new(greeting(&request.into_inner())))
    }

    async fn greet_each(
        &self,
        request: Request<Streaming<Name>>,
    ) -> Result<Response<GreetingStream>, Status> {
        let names = request.into_inner();
        Ok(Response::new(Box::pin(
            names.map(|name| Ok(greeting(&name?))),
        )))
    }
}

fn greeting(name: &Name) -> Greeting {
    Greeting {
        text: format!("Hello, {}!", name.name),
    }
}

#[tonic::async_trait]
impl limited::greeter_server::Greeter for Greetings {
    type GreetEachStream = GreetingStream;

    async fn greet(&self, request: Request<Name>) -> Result<Response<Greeting>, Status> {
        Greeter::greet(self, request).await
    }

    async fn greet_each(
        &self,
        request: Request<Streaming<Name>>,
    ) -> Result<Response<GreetingStream>, Status> {
        Greeter::greet_each(self, request).await
    }
}
