//! The socket of a connection. It writes nothing once the other end has closed it, and counts what it has written: a command of which no
//! byte has left may be sent over another connection.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The time after which something is sent over a connection that nobody uses, by us and by the kernel: well below the idle time-outs of
/// load balancers and firewalls.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The time without an answer after which a write first looks whether the other end has closed: the runtime may not have told yet.
const QUIET: Duration = Duration::from_millis(2);

/// A socket that is read and written in tasks.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    /// The number of bytes that have come and wait to be read, 0 at the end, without waiting for any.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there are none yet.
    fn waiting(&self) -> io::Result<usize>;
}

impl Socket for TcpStream {
    fn waiting(&self) -> io::Result<usize> {
        SockRef::from(self).peek(&mut [MaybeUninit::uninit()])
    }
}

#[cfg(unix)]
impl Socket for UnixStream {
    fn waiting(&self) -> io::Result<usize> {
        SockRef::from(self).peek(&mut [MaybeUninit::uninit()])
    }
}

#[cfg(test)]
impl Socket for tokio::io::DuplexStream {
    fn waiting(&self) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

/// The number of bytes that a connection has written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written(Arc<AtomicU64>);

impl Written {
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A socket with the count of its bytes.
#[derive(Debug)]
pub(crate) struct Stream<S> {
    socket: S,
    written: Written,
    heard_at: Instant,
}

impl<S: Socket> Stream<S> {
    pub(crate) fn new(socket: S) -> (Self, Written) {
        let written = Written::default();
        let stream = Self {
            socket,
            written: written.clone(),
            heard_at: Instant::now(),
        };
        (stream, written)
    }
}

impl<S: Socket> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.socket).poll_read(cx, buffer))?;
        self.heard_at = Instant::now();
        Poll::Ready(Ok(()))
    }
}

impl<S: Socket> AsyncWrite for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.heard_at.elapsed() >= QUIET {
            match self.socket.waiting() {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
                Ok(_) => {
                    // The end of TLS, perhaps. Whoever reads this connection is about to be told.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        let count = ready!(Pin::new(&mut self.socket).poll_write(cx, bytes))?;
        let more = u64::try_from(count).unwrap_or(u64::MAX);
        self.written.0.fetch_add(more, Ordering::Relaxed);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

/// Any stream.
pub(crate) trait AnyStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> AnyStream for T {}

/// The first connection that can be made to any address of the host: one that nobody answers keeps nobody from the others.
pub(crate) async fn over_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut attempts = JoinSet::new();
    for address in lookup_host((host, port)).await? {
        attempts.spawn(TcpStream::connect(address));
    }
    let mut failed = io::ErrorKind::NotFound.into();
    while let Some(ended) = attempts.join_next().await {
        match ended.unwrap_or_else(|error| Err(error.into())) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                let keepalive = TcpKeepalive::new().with_time(KEEP_ALIVE);
                SockRef::from(&socket).set_tcp_keepalive(&keepalive)?;
                return Ok(socket);
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}
