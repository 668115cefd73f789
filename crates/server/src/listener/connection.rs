//! A connection, in the clear or over TLS, whose client has to begin in time.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;

/// The bytes with which a client begins HTTP/2: `PRI * HTTP/2.0`, and an `SM` that no HTTP/1 server would take.
const PREFACE_BYTES: usize = 24;

/// A connection, once its handshake is over.
pub(crate) struct Connection {
    stream: Stream,
    preface: Option<Preface>,
}

/// The bytes of a connection, in the clear or out of TLS.
pub(super) enum Stream {
    Plain(TcpStream),
    Secure(Box<TlsStream<TcpStream>>),
}

/// The preface of HTTP/2, of which something is missing. The server of HTTP/2 waits for it without an end. It refuses other words
/// by itself, and asks a client that has sent it for signs of life.
struct Preface {
    missing: usize,
    deadline: Pin<Box<Sleep>>,
}

impl Connection {
    pub(super) fn new(stream: Stream) -> Self {
        Self {
            stream,
            preface: None,
        }
    }

    /// Ends the connection with an error if so long after now the preface of HTTP/2 has not been read as a whole.
    pub(super) fn with_preface_in(mut self, deadline: Duration) -> Self {
        self.preface = Some(Preface {
            missing: PREFACE_BYTES,
            deadline: Box::pin(tokio::time::sleep(deadline)),
        });
        self
    }
}

/// Calls a method of the stream inside.
macro_rules! of_stream {
    ($connection:expr, $stream:ident => $call:expr) => {
        match $connection {
            Stream::Plain($stream) => {
                let $stream = Pin::new($stream);
                $call
            }
            Stream::Secure($stream) => {
                let $stream = Pin::new(&mut **$stream);
                $call
            }
        }
    };
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = of_stream!(&mut self.stream, stream => stream.poll_read(cx, buffer));
        let Some(preface) = &mut self.preface else {
            return read;
        };
        let came = buffer.filled().len().saturating_sub(before);
        preface.missing = preface.missing.saturating_sub(came);
        if preface.missing == 0 {
            self.preface = None;
        } else if preface.deadline.as_mut().poll(cx).is_ready() {
            tracing::debug!("a client does not begin HTTP/2, and its connection is closed");
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        of_stream!(&mut self.stream, stream => stream.poll_write(cx, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        of_stream!(&mut self.stream, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        of_stream!(&mut self.stream, stream => stream.poll_shutdown(cx))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        of_stream!(&mut self.stream, stream => stream.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Secure(stream) => stream.is_write_vectored(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::expect_used,
        clippy::unwrap_used,
        reason = "a test fails by panicking"
    )]

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    const DEADLINE: Duration = Duration::from_millis(50);

    /// A machine that builds beside the test takes its time.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// The preface.
    const PREFACE: &[u8; PREFACE_BYTES] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

    /// A connection, and its client.
    async fn connection() -> (Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, listener.accept());
        let stream = Stream::Plain(accepted.unwrap().0);
        (
            Connection::new(stream).with_preface_in(DEADLINE),
            client.unwrap(),
        )
    }

    #[tokio::test]
    async fn a_client_that_sends_less_than_the_preface_ends_with_an_error() {
        for sent in [0, 1, PREFACE_BYTES - 1] {
            let (mut connection, mut client) = connection().await;
            client.write_all(&PREFACE[..sent]).await.unwrap();

            let mut read = Vec::new();
            let ended = tokio::time::timeout(PATIENCE, connection.read_to_end(&mut read));
            let error = ended.await.expect("it ends").unwrap_err();

            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert_eq!(read, &PREFACE[..sent]);
        }
    }

    #[tokio::test]
    async fn a_client_that_has_sent_it_may_be_silent_for_longer() {
        let (mut connection, mut client) = connection().await;
        for byte in PREFACE {
            client.write_all(&[*byte]).await.unwrap();
        }
        let mut read = [0; PREFACE_BYTES];
        connection.read_exact(&mut read).await.unwrap();

        tokio::time::sleep(3 * DEADLINE).await;
        client.write_all(b"more").await.unwrap();
        drop(client);

        let mut more = String::new();
        connection.read_to_string(&mut more).await.unwrap();
        assert_eq!(more, "more");
    }
}
