//! Gateways ask over TLS, with the lines of the guide: a real Envoy, nginx and Caddy, and clients that do it wrong.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tollgate_server::{Tls, TlsFiles};
use tollgate_testkit::{Authority, Caddy, Envoy, Identity, Nginx};

use crate::common::guide::example;
use crate::common::http::{Answer, send};
use crate::common::{File, Served, trust};

/// A machine that builds beside the test takes its time.
const PATIENCE: Duration = Duration::from_secs(30);

/// The files of a server and of its gateway, in a folder that is removed after the test.
struct Papers {
    folder: TempDir,
    authority: Authority,
}

impl Papers {
    fn new() -> Self {
        let papers = Self {
            folder: tempfile::tempdir().unwrap(),
            authority: Authority::new(),
        };
        papers.write("authority.pem", papers.authority.pem());
        papers.write_identity("server", &papers.authority.server());
        papers.write_identity("client", &papers.authority.client());
        papers
    }

    fn write_identity(&self, name: &str, identity: &Identity) {
        self.write(&format!("{name}.pem"), &identity.certificate);
        self.write(&format!("{name}.key"), &identity.key);
    }

    fn write(&self, name: &str, text: &str) {
        let next = self.path("next");
        fs::write(&next, text).unwrap();
        fs::rename(next, self.path(name)).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn files(&self) -> TlsFiles {
        TlsFiles::new(self.path("server.pem"), self.path("server.key"))
    }

    /// The server's TLS, which asks gateways for certificates.
    fn mutual(&self) -> Tls {
        let files = self.files().client_authority(self.path("authority.pem"));
        files.load().unwrap()
    }

    /// The lines of the guide about TLS, with the files and the name of the test.
    fn lines(&self, language: &str) -> String {
        let lines = example("TLS", language);
        assert!(lines.contains("/etc/gateway/") && lines.contains("tollgate.internal"));
        let lines = lines.replace("/etc/gateway", self.folder.path().to_str().unwrap());
        lines.replace("tollgate.internal", "localhost")
    }

    /// Those without the client's certificate.
    fn lines_of_stranger(&self, language: &str) -> String {
        let lines = self.lines(language);
        let (before, _) = lines.split_once("# For --tls-client-ca.\n").unwrap();
        before.to_owned()
    }
}

/// The service behind a gateway, which counts its requests.
async fn shop() -> (SocketAddr, Arc<AtomicUsize>) {
    let requests = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&requests);
    let app = Router::new().fallback(move || async move {
        counted.fetch_add(1, Ordering::SeqCst);
        "served"
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    (address, requests)
}

/// An Envoy with the configuration of the guide that lets nothing pass without an answer, and with these lines about TLS.
async fn envoy(server: SocketAddr, shop: SocketAddr, tls: &str) -> Envoy {
    let mut configuration = example("Envoy", "yaml");
    for (guide, test) in [
        ("failure_mode_deny: false", "failure_mode_deny: true"),
        ("timeout: 0.25s", "timeout: 10s"),
        ("8080", &shop.port().to_string()),
        ("8081", &server.port().to_string()),
        ("- name: tollgate\n", &format!("- name: tollgate\n{tls}\n")),
    ] {
        assert!(configuration.contains(guide), "the guide has {guide}");
        configuration = configuration.replace(guide, test);
    }
    let start = move || Envoy::start(|port| configuration.replace("10000", &port.to_string()));
    tokio::task::spawn_blocking(start).await.unwrap()
}

/// A failure is counted after the client has heard of it.
async fn until_failed(served: &Served, handshakes: u64) {
    let begun = Instant::now();
    while served.gateway.counts().failed_handshakes < handshakes {
        assert!(begun.elapsed() < PATIENCE, "{:?}", served.gateway.counts());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn status(front: SocketAddr, line: &str) -> u16 {
    let Answer { status, .. } = send(front, line, "").await;
    status
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_asks_over_tls_and_shows_its_certificate() {
    let papers = Papers::new();
    let file = File::toml(&example("Envoy", "toml"));
    let served = Served::secure(&file, &papers.mutual()).await;
    let (shop, requests) = shop().await;

    let known = envoy(served.address, shop, &papers.lines("yaml")).await;
    for _ in 0..5 {
        assert_eq!(status(known.address(), "GET /login").await, 200);
    }
    assert_eq!(status(known.address(), "GET /login").await, 429);
    assert_eq!(requests.swap(0, Ordering::SeqCst), 5);
    assert_eq!(served.gateway.counts().failed_handshakes, 0);

    // One without a certificate, one with a certificate of another authority, one that trusts another, and one in the clear.
    let others = Papers::new();
    let foreign = papers.lines("yaml").replace(
        papers.path("client").to_str().unwrap(),
        others.path("client").to_str().unwrap(),
    );
    let distrusting = papers.lines("yaml").replace(
        papers.path("authority").to_str().unwrap(),
        others.path("authority").to_str().unwrap(),
    );
    for lines in [
        papers.lines_of_stranger("yaml"),
        foreign,
        distrusting,
        String::new(),
    ] {
        let failed = served.gateway.counts().failed_handshakes;
        let stranger = envoy(served.address, shop, &lines).await;
        assert_eq!(
            status(stranger.address(), "GET /login").await,
            500,
            "{lines}"
        );
        until_failed(&served, failed + 1).await;
    }
    assert_eq!(requests.load(Ordering::SeqCst), 0);
    served.stop().await;

    // The same stranger is answered where no certificate is asked for.
    let served = Served::secure(&file, &papers.files().load().unwrap()).await;
    let stranger = envoy(served.address, shop, &papers.lines_of_stranger("yaml")).await;
    assert_eq!(status(stranger.address(), "GET /login").await, 200);
    served.stop().await;
}

/// The directives of the guide with these lines about TLS in place of the others, and with the ports of the test.
fn directives(
    (heading, language): (&str, &str),
    (plain, lines): (&str, &str),
    shop: SocketAddr,
    server: SocketAddr,
) -> String {
    let text = example(heading, language);
    assert!(text.contains(plain), "the guide has {plain}");
    let text = text.replace(plain, lines);
    // A busy machine makes no handshake in a second.
    let text = text.replace("timeout 1s", "timeout 20s");
    let text = text.replace("127.0.0.1:8080", &shop.to_string());
    text.replace("127.0.0.1:8082", &server.to_string())
}

const NGINX_PLAIN: &str = "    proxy_pass http://127.0.0.1:8082;\n";
const CADDY_PLAIN: &str = "forward_auth 127.0.0.1:8082 {\n    uri /\n    transport http {\n";

#[tokio::test(flavor = "multi_thread")]
async fn nginx_and_caddy_ask_over_tls_and_show_their_certificates() {
    let (papers, others) = (Papers::new(), Papers::new());
    let text = example("nginx", "toml");
    for gateway in ["nginx", "caddy"] {
        let text = text.replace("gateway = \"nginx\"", &format!("gateway = \"{gateway}\""));
        let file = File::toml(&text);
        let served = Served::secure_forward_auth(&file, &papers.mutual()).await;
        let (shop, requests) = shop().await;
        let address = served.address;
        // Asks a gateway of its own with these lines, several times.
        let ask = async |lines: String, times: usize| {
            let mut statuses = Vec::new();
            let start = move || match gateway {
                "nginx" => {
                    let words = (NGINX_PLAIN, &*lines);
                    let text = directives(("nginx", "nginx"), words, shop, address);
                    (Some(Nginx::start("", &text)), None)
                }
                _ => {
                    let words = (CADDY_PLAIN, &*lines);
                    let text = directives(("Caddy", "caddyfile"), words, shop, address);
                    (None, Some(Caddy::start(&text)))
                }
            };
            let front = tokio::task::spawn_blocking(start).await.unwrap();
            let at = match &front {
                (Some(nginx), _) => nginx.address(),
                (_, Some(caddy)) => caddy.address(),
                _ => unreachable!("one of them"),
            };
            for _ in 0..times {
                statuses.push(status(at, "POST /login").await);
            }
            statuses
        };
        let language = if gateway == "nginx" {
            "nginx"
        } else {
            "caddyfile"
        };
        let lines = papers.lines(language);

        assert_eq!(ask(lines.clone(), 6).await, [200, 200, 200, 200, 200, 429]);
        assert_eq!(requests.swap(0, Ordering::SeqCst), 5);
        assert_eq!(served.gateway.counts().failed_handshakes, 0);

        let without = if gateway == "nginx" { 500 } else { 502 };
        let distrusting = lines.replace(
            papers.path("authority").to_str().unwrap(),
            others.path("authority").to_str().unwrap(),
        );
        let stranger = papers.lines_of_stranger(language);
        for lines in [distrusting, stranger] {
            assert_eq!(ask(lines.clone(), 1).await, [without], "{lines}");
        }
        assert_eq!(requests.load(Ordering::SeqCst), 0);
        until_failed(&served, 1).await;
        served.stop().await;
    }
}

/// Connects with this trust, and asks for a protocol.
async fn connect(
    to: SocketAddr,
    trusting: &str,
    protocol: &str,
    identity: Option<&Identity>,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let builder = trust::trusting(trusting);
    let mut settings = match identity {
        Some(Identity { certificate, key }) => builder
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap(),
        None => builder.with_no_client_auth(),
    };
    settings.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let tcp = TcpStream::connect(to).await?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(settings))
        .connect(name, tcp)
        .await
}

/// True if a question over HTTP has an answer.
async fn is_answered(to: SocketAddr, papers: &Papers) -> bool {
    let question = "GET /_limit HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let mut answer = String::new();
    let Ok(mut stream) = connect(to, papers.authority.pem(), "http/1.1", None).await else {
        return false;
    };
    stream.write_all(question.as_bytes()).await.unwrap();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.starts_with("HTTP/1.1 ")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_certificate_is_that_of_new_connections_and_envoy_goes_on() {
    let (papers, next) = (Papers::new(), Papers::new());
    let file = File::toml(&example("Envoy", "toml"));
    let tls = papers.files().load().unwrap();
    let served = Served::secure(&file, &tls).await;
    let (shop, _) = shop().await;
    let trusts = async |papers: &Papers| {
        let connected = connect(served.address, papers.authority.pem(), "h2", None).await;
        connected.is_ok()
    };
    let first = envoy(served.address, shop, &papers.lines_of_stranger("yaml")).await;
    assert_eq!(status(first.address(), "GET /login").await, 200);
    assert!(trusts(&papers).await && !trusts(&next).await);
    assert_eq!(tls.reload(), Ok(false));

    let renewed = next.authority.server();
    papers.write_identity("server", &renewed);
    // It may have seen them by itself already.
    tls.reload().unwrap();
    assert!(trusts(&next).await && !trusts(&papers).await);
    // The connection of before is not touched: Envoy trusts no other certificate.
    for _ in 0..4 {
        assert_eq!(status(first.address(), "GET /login").await, 200);
    }
    assert_eq!(status(first.address(), "GET /login").await, 429);
    let second = envoy(served.address, shop, &next.lines_of_stranger("yaml")).await;
    assert_eq!(status(second.address(), "GET /things").await, 200);

    // A pair that does not go together, a file that is gone, and one that holds nothing.
    papers.write("server.key", &next.authority.server().key);
    let error = tls.reload().unwrap_err();
    assert_eq!(error.path(), papers.path("server.key"));
    assert_eq!(tls.reload(), Err(error));
    fs::remove_file(papers.path("server.key")).unwrap();
    assert_eq!(tls.reload().unwrap_err().path(), papers.path("server.key"));
    papers.write("server.pem", "");
    papers.write("server.key", &renewed.key);
    assert_eq!(tls.reload().unwrap_err().path(), papers.path("server.pem"));
    assert!(trusts(&next).await && !trusts(&papers).await);

    // The next look comes by itself.
    papers.write_identity("server", &papers.authority.server());
    let begun = Instant::now();
    while !trusts(&papers).await {
        assert!(begun.elapsed() < PATIENCE, "the files are not followed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_do_not_speak_tls_are_dropped_and_those_that_hang_keep_no_one_out() {
    let papers = Papers::new();
    let file = File::toml(&example("nginx", "toml"));
    let tls = papers.files().load().unwrap();
    let served = Served::secure_forward_auth(&file, &tls).await;
    let address = served.address;

    for words in [
        "GET /_limit HTTP/1.1\r\nhost: x\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(words.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let ended = client.read_to_end(&mut answer).await;
        assert!(ended.is_ok() || ended.unwrap_err().kind() == ErrorKind::ConnectionReset);
        assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    }
    // A protocol that this socket does not speak.
    let other = connect(address, papers.authority.pem(), "h2", None).await;
    assert!(other.is_err());
    until_failed(&served, 3).await;

    // Some say nothing, and the others a part of a handshake.
    let mut hanging = Vec::new();
    for number in 0..400 {
        let mut client = TcpStream::connect(address).await.unwrap();
        if number % 2 == 0 {
            client.write_all(&[22, 3, 1, 2]).await.unwrap();
        }
        hanging.push(client);
        if number % 100 == 0 {
            assert!(is_answered(address, &papers).await, "after {number}");
        }
    }
    assert!(is_answered(address, &papers).await);
    drop(hanging);
    served.stop().await;
}
