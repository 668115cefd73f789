//! The parts that the gRPC examples share: a server on a port of its own, and the client's output.

#![allow(clippy::print_stdout, reason = "it talks to whoever started it")]

use std::io;

use tokio::net::TcpListener;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Response, Status, Streaming};
use tonic_types::StatusExt;

use crate::greeter::Greeting;

/// A port that is free, as a URL for clients and as connections for a server.
///
/// # Errors
///
/// If no port is free.
pub async fn listen() -> io::Result<(String, TcpListenerStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    Ok((url, TcpListenerStream::new(listener)))
}

/// Prints the answer to a call, or the time to come back.
pub fn tell(answer: Result<Response<Greeting>, Status>) {
    match answer {
        Ok(greeting) => println!("{}", greeting.into_inner().text),
        Err(status) => println!("{}", refusal(&status)),
    }
}

/// Prints the answers of a stream, and the reason if it ended early.
pub async fn tell_each(answers: Result<Response<Streaming<Greeting>>, Status>) {
    let mut greetings = match answers {
        Ok(answers) => answers.into_inner(),
        Err(status) => return println!("{}", refusal(&status)),
    };
    while let Some(greeting) = greetings.next().await {
        tell(greeting.map(Response::new));
    }
}

/// The text for a refused caller.
#[must_use]
pub fn refusal(status: &Status) -> String {
    let retry = status.get_details_retry_info();
    match retry.and_then(|retry| retry.retry_delay) {
        Some(delay) => format!("{}: come back in {delay:?}", status.message()),
        None => status.message().to_owned(),
    }
}
