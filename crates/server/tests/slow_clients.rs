//! Clients that say nothing, or too much, on the sockets of HTTP: they hold no connection for ever, and keep no others out.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod common;

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use common::File;
use common::http::send;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tollgate_server::{Admin, AdminToken, Gateway};

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
    let gateway = Gateway::start(file.path(), |builder| builder).unwrap();
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

/// Sends this much, and waits until the server closes the connection.
async fn closed(to: SocketAddr, words: &str) -> String {
    let mut connection = TcpStream::connect(to).await.unwrap();
    connection.write_all(words.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A server that closes with something unread resets the connection.
    let _reset = connection.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
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
    for address in [forward_auth, status, admin] {
        let endless = format!("GET / HTTP/1.1\r\nx-long: {}", "x".repeat(100 << 10));
        let answer = closed(address, &endless).await;
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
            "{answer}"
        );
    }
}
