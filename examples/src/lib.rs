//! What the examples share: the service that some of them limit.

/// The messages, the client and the server of `proto/greeter.proto`.
#[expect(
    missing_docs,
    unused_qualifications,
    clippy::missing_errors_doc,
    reason = "generated"
)]
pub mod greeter {
    tonic::include_proto!("greeter.v1");
}

use self::greeter::greeter_server::Greeter;
use self::greeter::{Greeting, Name};
use tonic::{Request, Response, Status};

/// Greets whoever calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Greetings;

#[tonic::async_trait]
impl Greeter for Greetings {
    async fn greet(&self, request: Request<Name>) -> Result<Response<Greeting>, Status> {
        let text = format!("Hello, {}!", request.into_inner().name);
        Ok(Response::new(Greeting { text }))
    }
}
