//! Handshakes of TLS that are under way: each in a task of its own, for a time that is bounded, and a bounded number of them.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustls::{AlertDescription, InvalidMessage};
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, Sleep};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::counts::{Counters, Tally};
use crate::tls::{Protocol, Tls};

/// The bounds of handshakes.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// The number that may be under way. Each has some ten thousand bytes, and a file descriptor.
    most: usize,
    /// The time for a handshake. It takes a few round trips.
    deadline: Duration,
    /// The time that a handshake has in any case. If there are too many, the oldest that has had it gives way to new ones:
    /// otherwise a thousand clients that say nothing would keep all others out until the deadline.
    patience: Duration,
}

/// One handshake for so many files that the process may have open: three sockets leave most of them to connections and files.
const FILES_OF_ONE: u64 = 8;

const BOUNDS: Bounds = Bounds {
    most: 1_024,
    deadline: Duration::from_secs(10),
    patience: Duration::from_secs(1),
};

impl Bounds {
    /// The bounds in a process that may have so many files open.
    fn within(self, open_files: u64) -> Self {
        let most = usize::try_from(open_files / FILES_OF_ONE).unwrap_or(self.most);
        Self {
            most: most.clamp(1, self.most),
            ..self
        }
    }
}

/// The number of files that the process may have open.
#[cfg(unix)]
fn open_files() -> u64 {
    use rustix::process::{Resource, getrlimit};

    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(not(unix))]
fn open_files() -> u64 {
    u64::MAX
}

/// The handshakes under way on one socket.
pub(super) struct Handshakes {
    tls: Tls,
    protocol: Protocol,
    counts: Arc<Counters>,
    bounds: Bounds,
    under_way: JoinSet<Result<(TlsStream<TcpStream>, SocketAddr), Failure>>,
    /// The oldest first. Those that are over leave when they come to the front.
    begun: VecDeque<(Instant, AbortHandle)>,
    /// The time until the oldest may have to give way.
    patience: Option<Pin<Box<Sleep>>>,
}

struct Failure {
    peer: SocketAddr,
    reason: String,
}

impl Handshakes {
    pub(super) fn of(tls: Tls, protocol: Protocol, counts: Arc<Counters>) -> Self {
        Self {
            tls,
            protocol,
            counts,
            bounds: BOUNDS.within(open_files()),
            under_way: JoinSet::new(),
            begun: VecDeque::new(),
            patience: None,
        }
    }

    /// Is ready when a handshake has led to a connection.
    pub(super) fn poll_done(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<(TlsStream<TcpStream>, SocketAddr)> {
        while let Some(ended) = ready!(self.under_way.poll_join_next(cx)) {
            match ended {
                Ok(Ok(done)) => return Poll::Ready(done),
                Ok(Err(failure)) => self.tell(&failure),
                Err(_gave_way) => {}
            }
        }
        Poll::Pending
    }

    /// Is ready when another one may begin.
    pub(super) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.under_way.len() < self.bounds.most {
                self.patience = None;
                return Poll::Ready(());
            }
            while self.begun.front().is_some_and(|(_, of)| of.is_finished()) {
                self.begun.pop_front();
            }
            let Some((begun, oldest)) = self.begun.front() else {
                return Poll::Pending;
            };
            let ends = *begun + self.bounds.patience;
            if ends <= Instant::now() {
                oldest.abort();
                self.begun.pop_front();
                self.counts.add(Tally::FailedHandshake);
                tracing::debug!("a TLS handshake gives way to newer ones");
                // Its end is heard of by `poll_done`.
                return Poll::Pending;
            }
            let patience = self
                .patience
                .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(ends)));
            ready!(patience.as_mut().poll(cx));
            self.patience = None;
        }
    }

    pub(super) fn begin(&mut self, tcp: TcpStream, peer: SocketAddr) {
        let acceptor = TlsAcceptor::from(self.tls.settings(self.protocol));
        let Bounds { most, deadline, .. } = self.bounds;
        let task = self.under_way.spawn(async move {
            let shaken = tokio::time::timeout(deadline, acceptor.accept(tcp)).await;
            let reason = match shaken {
                Ok(Ok(stream)) => return Ok((stream, peer)),
                Ok(Err(error)) => words(&error),
                Err(_late) => format!("it takes longer than {} s", deadline.as_secs()),
            };
            Err(Failure { peer, reason })
        });
        // Behind one that takes its time there may be many that are over.
        if self.begun.len() >= 2 * most {
            self.begun.retain(|(_, of)| !of.is_finished());
        }
        self.begun.push_back((Instant::now(), task));
    }

    /// Counts a failure. Strangers can cause as many as they like, so that only the first is told unasked.
    fn tell(&self, Failure { peer, reason }: &Failure) {
        if self.counts.add(Tally::FailedHandshake) {
            tracing::warn!(%peer, reason, "a TLS handshake fails; later ones are counted");
        } else {
            tracing::debug!(%peer, reason, "a TLS handshake fails");
        }
    }
}

/// The failure in words that say where to look.
fn words(error: &io::Error) -> String {
    use rustls::Error as TlsError;

    let of_tls = error.get_ref().and_then(|inner| inner.downcast_ref());
    match of_tls {
        Some(TlsError::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            "the client does not speak TLS".to_owned()
        }
        Some(TlsError::NoCertificatesPresented) => "the client shows no certificate".to_owned(),
        Some(TlsError::InvalidCertificate(reason)) => {
            format!("the client's certificate is refused: {reason}")
        }
        Some(TlsError::NoApplicationProtocol) => {
            "the client asks for another protocol (ALPN)".to_owned()
        }
        Some(TlsError::AlertReceived(
            alert @ (AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired),
        )) => format!("the client refuses the server's certificate ({alert:?})"),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::fs;

    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::{ClientConfig, RootCertStore};
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsConnector;
    use tollgate_testkit::Authority;

    use super::super::Connections;
    use super::super::failures::Failures;
    use super::*;
    use crate::tls::TlsFiles;

    /// A machine that builds beside the test takes its time.
    const LONG: Duration = Duration::from_secs(60);

    /// The address of a socket with these bounds that accepts all that come, and a connector that trusts it.
    async fn serve(bounds: Bounds) -> (SocketAddr, Arc<Counters>, TlsConnector) {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("c"), folder.path().join("k"));
        let authority = Authority::new();
        let identity = authority.server();
        fs::write(&certificate, identity.certificate).unwrap();
        fs::write(&key, identity.key).unwrap();
        let tls = TlsFiles::new(certificate, key).load().unwrap();
        let counts = Arc::<Counters>::default();
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        let mut handshakes = Handshakes::of(tls, Protocol::Http2, Arc::clone(&counts));
        handshakes.bounds = bounds;
        let mut connections = Connections {
            tcp,
            handshakes: Some(handshakes),
            preface: None,
            wait: None,
            failures: Failures::default(),
        };
        tokio::spawn(async move {
            loop {
                drop(connections.accept().await);
            }
        });
        let mut roots = RootCertStore::empty();
        let trusted = CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap();
        roots.add(trusted).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let settings = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        (address, counts, TlsConnector::from(Arc::new(settings)))
    }

    #[test]
    fn handshakes_leave_most_files_to_others() {
        let most = |files| BOUNDS.within(files).most;
        assert_eq!(
            [0, 7, 256, 1_024, 4_096, 1 << 20, u64::MAX].map(most),
            [1, 1, 32, 128, 512, 1_024, 1_024]
        );
        assert!(open_files() > 0);
    }

    #[tokio::test]
    async fn the_oldest_give_way_where_too_many_hang() {
        let (address, counts, connector) = serve(Bounds {
            most: 4,
            deadline: 2 * LONG,
            patience: Duration::from_millis(50),
        })
        .await;
        let mut hanging = Vec::new();
        for _ in 0..12 {
            hanging.push(TcpStream::connect(address).await.unwrap());
        }

        let name = ServerName::try_from("localhost").unwrap();
        let client = TcpStream::connect(address).await.unwrap();
        let connected = connector.connect(name, client);
        let connected = tokio::time::timeout(LONG, connected).await;

        assert!(connected.is_ok_and(|it| it.is_ok()));
        // Before it came to the last, at most four were under way.
        assert!((9..=12).contains(&counts.read().failed_handshakes));
        let mut word = [0];
        assert_eq!(hanging[0].read(&mut word).await.unwrap_or_default(), 0);
    }

    #[tokio::test]
    async fn a_handshake_that_never_ends_is_dropped() {
        let (address, counts, _connector) = serve(Bounds {
            deadline: Duration::from_millis(50),
            ..BOUNDS
        })
        .await;
        let mut hanging = TcpStream::connect(address).await.unwrap();
        let mut word = [0];

        let read = tokio::time::timeout(LONG, hanging.read(&mut word)).await;

        assert_eq!(read.unwrap().unwrap_or_default(), 0);
        assert_eq!(counts.read().failed_handshakes, 1);
    }
}
