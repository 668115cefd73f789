//! A socket on which gateways ask, in the clear or over TLS.

mod connection;
mod failures;
mod handshakes;

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::Sleep;

pub(crate) use self::connection::Connection;
use self::connection::Stream;
use self::failures::Failures;
use self::handshakes::Handshakes;
use crate::counts::Counters;
use crate::tls::{Protocol, Tls};

/// The time to wait for a file descriptor, if there is none left for another connection.
const WAIT: Duration = Duration::from_millis(500);

/// The time that a client of HTTP/2 has for its preface, which it sends unasked: that of a handshake.
const PREFACE: Duration = Duration::from_secs(10);

/// A socket that listens, in the clear unless [`tls`](Self::tls) says otherwise.
///
/// ```no_run
/// use tokio::net::TcpListener;
/// use tollgate_server::{Gateway, Listener};
///
/// # async fn serve(gateway: &Gateway) -> std::io::Result<()> {
/// let listener = Listener::from(TcpListener::bind("127.0.0.1:8081").await?);
/// gateway.serve(listener, std::future::pending()).await
/// # }
/// ```
#[must_use = "a gateway serves on it"]
pub struct Listener {
    tcp: TcpListener,
    tls: Option<Tls>,
}

impl Listener {
    /// Answers over TLS alone: HTTP/2 for Envoy, and HTTP/1.1 for forward auth. A client has ten seconds for its handshake, and
    /// one that takes longer, or that speaks anything else, is dropped. Others do not wait for it.
    ///
    /// ```no_run
    /// use tokio::net::TcpListener;
    /// use tollgate_server::{Listener, TlsFiles};
    ///
    /// # async fn listen() -> Result<Listener, Box<dyn std::error::Error>> {
    /// let tls = TlsFiles::new("server.pem", "server.key").client_authority("gateways.pem").load()?;
    /// Ok(Listener::from(TcpListener::bind("[::]:8081").await?).tls(&tls))
    /// # }
    /// ```
    pub fn tls(mut self, tls: &Tls) -> Self {
        self.tls = Some(tls.clone());
        self
    }

    /// The connections that come.
    pub(crate) fn connections(self, protocol: Protocol, counts: Arc<Counters>) -> Connections {
        Connections {
            tcp: self.tcp,
            handshakes: self.tls.map(|tls| Handshakes::of(tls, protocol, counts)),
            preface: match protocol {
                Protocol::Http2 => Some(PREFACE),
                // Their server has a deadline of its own.
                Protocol::Http1 | Protocol::Browsers => None,
            },
            wait: None,
            failures: Failures::default(),
        }
    }
}

impl From<TcpListener> for Listener {
    fn from(tcp: TcpListener) -> Self {
        Self { tcp, tls: None }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("tcp", &self.tcp)
            .field("tls", &self.tls)
            .finish()
    }
}

/// The connections that come to a socket, once their handshakes are over.
pub(crate) struct Connections {
    tcp: TcpListener,
    handshakes: Option<Handshakes>,
    /// The time for a preface of HTTP/2, if one has to come.
    preface: Option<Duration>,
    /// The time until the next try to accept, after one that failed.
    wait: Option<Pin<Box<Sleep>>>,
    failures: Failures,
}

impl Connections {
    /// The next connection, and its other end.
    pub(crate) async fn accept(&mut self) -> (Connection, SocketAddr) {
        poll_fn(|cx| self.poll_next_connection(cx)).await
    }

    fn poll_next_connection(&mut self, cx: &mut Context<'_>) -> Poll<(Connection, SocketAddr)> {
        self.failures.poll_end(cx);
        loop {
            if let Some(handshakes) = &mut self.handshakes {
                if let Poll::Ready((tls, peer)) = handshakes.poll_done(cx) {
                    let stream = Stream::Secure(Box::new(tls));
                    return Poll::Ready((self.connection(stream), peer));
                }
                ready!(handshakes.poll_room(cx));
            }
            let (tcp, peer) = ready!(self.poll_accept(cx));
            // Without it an answer is late, and no worse.
            let _slow = tcp.set_nodelay(true);
            match &mut self.handshakes {
                Some(handshakes) => handshakes.begin(tcp, peer),
                None => return Poll::Ready((self.connection(Stream::Plain(tcp)), peer)),
            }
        }
    }

    fn connection(&self, stream: Stream) -> Connection {
        let connection = Connection::new(stream);
        match self.preface {
            Some(deadline) => connection.with_preface_in(deadline),
            None => connection,
        }
    }

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<(TcpStream, SocketAddr)> {
        loop {
            if let Some(wait) = &mut self.wait {
                ready!(wait.as_mut().poll(cx));
                self.wait = None;
            }
            match ready!(self.tcp.poll_accept(cx)) {
                Ok(accepted) => return Poll::Ready(accepted),
                // The client has gone already.
                Err(error) if is_of_client(&error) => {}
                Err(error) => {
                    self.failures.tell(&error);
                    // It has to be heard when it is over.
                    self.failures.poll_end(cx);
                    self.wait = Some(Box::pin(tokio::time::sleep(WAIT)));
                }
            }
        }
    }
}

fn is_of_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker(pub(crate) SocketAddr);
