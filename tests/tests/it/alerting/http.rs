//! A client of HTTP that needs no runtime.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::alerting::PACE;

/// The body of the answer to a GET.
pub(crate) fn fetch(address: SocketAddr, path: &str) -> std::io::Result<String> {
    // No server sheds requests of this class.
    send(address, &format!("GET {path}"), "x-class: normal")
}

/// The body of the answer to a request of this method and path, with one more header.
pub(crate) fn send(address: SocketAddr, request: &str, header: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    write!(
        stream,
        "{request} HTTP/1.0\r\nHost: test\r\n{header}\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer
        .split_once("\r\n\r\n")
        .map(|(_, body)| body.to_owned());
    body.ok_or_else(|| std::io::Error::other(answer))
}

/// Requests that are sent until this is dropped.
pub(crate) struct Knocking {
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Knocking {
    /// Begins to knock. Each request has the header that is `header()` at its time.
    pub(crate) fn at(
        address: SocketAddr,
        header: impl Fn() -> &'static str + Send + 'static,
    ) -> Self {
        let (end, ended) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            while ended.recv_timeout(PACE) == Err(RecvTimeoutError::Timeout) {
                send(address, "GET /", header()).unwrap();
            }
        });
        Self {
            end: Some(end),
            thread: Some(thread),
        }
    }
}

impl Drop for Knocking {
    fn drop(&mut self) {
        drop(self.end.take());
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || ended.is_none_or(|ended| ended.is_ok()));
    }
}
