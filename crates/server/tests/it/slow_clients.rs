//! Clients that say nothing, or too much, on each socket: they hold no connection for ever, and keep no others out.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tollgate_server::proto::rate_limit_service_client::RateLimitServiceClient;
use tollgate_server::{Admin, AdminToken, Gateway, TlsFiles};
use tollgate_testkit::{Authority, Log};
use tonic::transport::Endpoint;

use crate::common::asking::{RULES, account, request};
use crate::common::http::send;
use crate::common::trust::trusting;
use crate::common::{File, Served};

const FORWARD_AUTH: &str = "
client_address = { x-forwarded-for = { hops = 1 } }
[forward_auth]
gateway = 'nginx'
[[policies]]
name = 'pages'
quotas = '1000000/h'
";

const QUESTION: &str =
    "x-original-method: GET\r\nx-original-uri: /\r\nx-forwarded-for: 192.0.2.7\r\n";

/// Longer than any deadline, also on a machine that does something else.
const PATIENCE: Duration = Duration::from_secs(180);

/// The sockets of HTTP: of questions, of the status and of the admin.
async fn sockets() -> (File, [SocketAddr; 3]) {
    let file = File::toml(FORWARD_AUTH);
    let gateway = Gateway::start(file.path(), None, |builder| builder).unwrap();
    let gateway = Arc::new(gateway);
    let mut listeners = Vec::new();
    for _ in 0..3 {
        listeners.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
    }
    let addresses = [0, 1, 2].map(|place: usize| listeners[place].local_addr().unwrap());
    let [admin, status, forward_auth] = [(); 3].map(|()| listeners.pop().unwrap());
    let serving = Arc::clone(&gateway);
    tokio::spawn(async move { serving.serve_forward_auth(forward_auth, pending()).await });
    let serving = Arc::clone(&gateway);
    tokio::spawn(async move { serving.serve_status(status, String::new, pending()).await });
    tokio::spawn(async move {
        let token = AdminToken::new("a-token-of-this-test").unwrap();
        gateway
            .serve_admin(admin, &Admin::new(token), pending())
            .await
    });
    (file, addresses)
}

/// The token of the admin.
const TOKEN: &str = "authorization: Bearer a-token-of-this-test\r\n";

/// Sends this much, and waits until the server closes the connection.
async fn closed(to: SocketAddr, words: &str) -> String {
    let connection = TcpStream::connect(to).await.unwrap();
    String::from_utf8(closed_on(connection, words).await).unwrap()
}

async fn closed_on(mut connection: impl AsyncRead + AsyncWrite + Unpin, words: &str) -> Vec<u8> {
    connection.write_all(words.as_bytes()).await.unwrap();
    connection.flush().await.unwrap();
    let mut answer = Vec::new();
    // A server that closes with something unread resets the connection.
    let _reset = connection.read_to_end(&mut answer).await;
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_send_no_whole_head_are_dropped_and_keep_no_others_out() {
    let (_file, addresses) = sockets().await;
    let whole = format!("GET / HTTP/1.1\r\nhost: shop\r\n{QUESTION}\r\n");
    let mut silent = JoinSet::new();
    for address in addresses {
        for words in ["", "GET / HTTP/1.1\r\nhost: sh", &whole] {
            for _ in 0..20 {
                let words = words.to_owned();
                silent.spawn(async move {
                    let answer = closed(address, &words).await;
                    // One that lies idle after its answer.
                    assert!(words.ends_with("\r\n\r\n") || answer.is_empty(), "{answer}");
                });
            }
        }
    }
    let [forward_auth, status, admin] = addresses;
    // An operator whose body does not come.
    silent.spawn(async move {
        let words = format!(
            "POST /api/switch HTTP/1.1\r\nhost: shop\r\n{TOKEN}content-length: 99\r\n\r\n{{\"policy\":"
        );
        let answer = closed(admin, &words).await;
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        assert!(answer.contains("the body is not there after 30 s"), "{answer}");
    });
    assert_eq!(send(forward_auth, "GET /", QUESTION).await.status, 204);
    assert_eq!(send(status, "GET /livez", "").await.status, 200);
    assert_eq!(send(admin, "GET /", "").await.status, 200);

    let all = async { while silent.join_next().await.transpose().unwrap().is_some() {} };
    let waited = tokio::time::timeout(PATIENCE, all).await;
    assert!(waited.is_ok(), "connections stay open");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_may_have_many_fields_and_not_much_in_them() {
    let (_file, [forward_auth, status, admin]) = sockets().await;
    // More than a service takes, as a caller may send them.
    let many: String = (0..200).map(|n| format!("x-{n}: 1\r\n")).collect();
    let asked = format!("{QUESTION}{many}");
    assert_eq!(send(forward_auth, "GET /", &asked).await.status, 204);
    let too_many: String = (0..300).map(|n| format!("x-{n}: 1\r\n")).collect();
    assert_eq!(
        send(forward_auth, "GET /", &format!("{QUESTION}{too_many}"))
            .await
            .status,
        431
    );
    // nginx passes on 32 KiB.
    let long = format!("{QUESTION}x-long: {}\r\n", "x".repeat(40 << 10));
    assert_eq!(send(forward_auth, "GET /", &long).await.status, 204);
    // However it is cut into packets.
    for kib in [64, 66, 70, 100, 200] {
        let longer = format!("{QUESTION}x-long: {}\r\n", "x".repeat(kib << 10));
        assert_eq!(send(forward_auth, "GET /", &longer).await.status, 431);
    }
    for address in [forward_auth, status, admin] {
        let endless = format!("GET / HTTP/1.1\r\nx-long: {}", "x".repeat(100 << 10));
        let answer = closed(address, &endless).await;
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
            "{answer}"
        );
    }
}

/// The files of a server's TLS in this folder, and a client of HTTP/2 that trusts it.
fn papers(folder: &std::path::Path) -> (TlsFiles, TlsConnector) {
    let authority = Authority::new();
    let identity = authority.server();
    let (certificate, key) = (folder.join("server.pem"), folder.join("server.key"));
    std::fs::write(&certificate, identity.certificate).unwrap();
    std::fs::write(&key, identity.key).unwrap();
    let mut settings = trusting(authority.pem()).with_no_client_auth();
    settings.alpn_protocols = vec![b"h2".to_vec()];
    (
        TlsFiles::new(certificate, key),
        TlsConnector::from(Arc::new(settings)),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_envoys_sockets_that_do_not_begin_are_dropped_and_one_that_has_begun_stays() {
    const WHOLE: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

    let folder = tempfile::tempdir().unwrap();
    let (files, connector) = papers(folder.path());
    let file = File::toml(RULES);
    let plain = Served::start(&file, SocketAddr::from(([127, 0, 0, 1], 0))).await;
    let secure = Served::secure(&file, &files.load().unwrap()).await;
    // Envoy, which has asked once and then has nothing to ask.
    let connections = Arc::<AtomicUsize>::default();
    let (counted, to) = (Arc::clone(&connections), plain.address);
    let connect = tower::service_fn(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move { TcpStream::connect(to).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://shop");
    let channel = endpoint.connect_with_connector(connect).await.unwrap();
    let mut envoy = RateLimitServiceClient::new(channel);
    envoy
        .should_rate_limit(request([account("acme")]))
        .await
        .unwrap();

    let mut silent = JoinSet::new();
    // The last one has begun, and gives no sign of life when it is asked for one.
    for words in ["", &WHOLE[..9], &WHOLE[..23], WHOLE] {
        for _ in 0..20 {
            let (to, connector) = (secure.address, connector.clone());
            silent.spawn(async move {
                let name = ServerName::try_from("localhost").unwrap();
                let connection = TcpStream::connect(to).await.unwrap();
                let connection = connector.connect(name, connection).await.unwrap();
                closed_on(connection, words).await;
            });
            silent.spawn(async move {
                let connection = TcpStream::connect(to).await.unwrap();
                closed_on(connection, words).await;
            });
        }
    }
    let all = async { while silent.join_next().await.transpose().unwrap().is_some() {} };
    let waited = tokio::time::timeout(PATIENCE, all).await;
    assert!(waited.is_ok(), "connections stay open");

    let asked = envoy.should_rate_limit(request([account("acme")])).await;
    assert_eq!(asked.unwrap().into_inner().statuses[0].limit_remaining, 8);
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_socket_that_is_to_end_waits_for_silent_clients_for_a_while_and_closes_their_connections()
{
    let log = Log::default();
    let _guard = log.listen();
    let file = File::toml(FORWARD_AUTH);
    let gateway = Gateway::start(file.path(), None, |builder| builder).unwrap();
    let admin = Admin::new(AdminToken::new("a-token-of-this-test").unwrap());
    let listener = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (questions, steering) = (listener().await, listener().await);
    let addresses = [&questions, &steering].map(|listener| listener.local_addr().unwrap());
    // Half a head and half a body, which have thirty seconds. Then a body would be answered.
    let words = [
        format!("GET / HTTP/1.1\r\nhost: shop\r\n{QUESTION}"),
        format!("POST /api/switch HTTP/1.1\r\nhost: shop\r\n{TOKEN}content-length: 99\r\n\r\n{{"),
    ];
    let clients = addresses.into_iter().zip(words);
    let clients: Vec<_> = clients
        .map(|(address, words)| tokio::spawn(async move { closed(address, &words).await }))
        .collect();
    // One is accepted when another one that came later has been answered.
    let stop = async |address| drop(send(address, "GET /", QUESTION).await);

    let ended = tokio::time::timeout(PATIENCE, async {
        tokio::join!(
            gateway.serve_forward_auth(questions, stop(addresses[0])),
            gateway.serve_admin(steering, &admin, stop(addresses[1])),
        )
    });

    let (one, other) = ended.await.expect("they end");
    assert!(one.is_ok() && other.is_ok());
    // The bound has ended them, and not the deadline of the heads.
    let told = "closes connections whose clients do not end them";
    assert_eq!(log.text().matches(told).count(), 2, "{}", log.text());
    for client in clients {
        assert_eq!(client.await.unwrap(), "");
    }
}
