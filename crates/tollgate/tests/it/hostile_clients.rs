//! Clients that mean ill, on real sockets, before a router with the layer around it.

#![cfg(feature = "axum")]

use std::time::{Duration, Instant};

use crate::common::served::Served;
use axum::Router;
use axum::routing::get;
use http::{Method, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollgate::key::Global;
use tollgate::{ClientAddress, Limiter, Networks, Policy, Quota, RateLimitLayer};

const SLOW: usize = 200;

/// More than any answer here takes on a busy machine, and far less than what waits for a client that never ends.
const PROMPT: Duration = Duration::from_secs(20);

async fn served(policy: Policy, address: ClientAddress) -> Served {
    let limiter = Limiter::builder()
        .client_address(address)
        .policy(policy)
        .build()
        .unwrap();
    let handler = get(|| async { "hello" }).post(|body: String| async { body });
    let app = Router::new()
        .route("/", handler)
        .layer(RateLimitLayer::new(&limiter));
    Served::new(app).await
}

async fn open(served: Served, first: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(served.0).await.unwrap();
    stream.write_all(first).await.unwrap();
    stream
}

/// The status of what comes back, read to the end of its first line.
async fn status(stream: &mut TcpStream) -> u16 {
    let mut line = [0; 12];
    let answered = tokio::time::timeout(PROMPT, stream.read_exact(&mut line));
    answered.await.unwrap().unwrap();
    let line = String::from_utf8_lossy(&line).into_owned();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn who_sends_a_head_slowly_spends_nothing_and_keeps_nobody_waiting_until_it_is_there() {
    // given many clients that send a byte now and then
    let policy = Policy::new("five", Quota::per_hour(5)).key(Global);
    let served = served(policy, ClientAddress::peer()).await;
    let mut slow = Vec::new();
    for _ in 0..SLOW {
        slow.push(open(served, b"GET / HTTP/1.1\r\nHost: slow\r\nX-Slow: ").await);
    }
    for byte in [b"a", b"b", b"c"] {
        for stream in &mut slow {
            stream.write_all(byte).await.unwrap();
        }
    }

    // when others ask meanwhile
    for _ in 0..5 {
        let answer = tokio::time::timeout(PROMPT, served.get("/")).await;
        assert_eq!(answer.unwrap().status(), StatusCode::OK);
    }

    // then the slow ones find what those have left: nothing
    for stream in &mut slow {
        stream.write_all(b"\r\n\r\n").await.unwrap();
    }
    for stream in &mut slow {
        assert_eq!(status(stream).await, 429);
    }
}

#[tokio::test]
async fn who_sends_a_body_slowly_is_charged_for_its_head_and_refused_without_its_body() {
    let policy = Policy::new("five", Quota::per_hour(5)).key(Global);
    let served = served(policy, ClientAddress::peer()).await;
    let head = b"POST / HTTP/1.1\r\nHost: slow\r\nContent-Length: 1000000\r\n\r\na";
    let mut slow = Vec::new();
    for _ in 0..SLOW {
        slow.push(open(served, head).await);
    }

    // All but five are answered, though not one has sent its body.
    let mut refused = 0;
    let started_at = Instant::now();
    let mut last = [0_u8; 12];
    while refused < SLOW - 5 {
        assert!(started_at.elapsed() < PROMPT, "{refused} refused");
        slow.retain(|stream| match stream.try_read(&mut last) {
            Ok(_) => {
                assert!(last.starts_with(b"HTTP/1.1 429"), "{last:?}");
                refused += 1;
                false
            }
            Err(_nothing_yet) => true,
        });
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(slow.len(), 5);
    assert_eq!(
        served.send(Method::GET, "/", "").await.status(),
        StatusCode::TOO_MANY_REQUESTS
    );
}

#[tokio::test]
async fn a_flood_of_headers_is_the_servers_to_refuse_and_spends_nothing() {
    let policy = Policy::new("one", Quota::per_hour(1)).key(Global);
    let served = served(policy, ClientAddress::peer()).await;
    let many = "X-Flood: a\r\n".repeat(1_000);
    let long = format!("X-Flood: {}\r\n", "a".repeat(1 << 20));
    for flood in [many, long] {
        let head = format!("GET / HTTP/1.1\r\nHost: flood\r\n{flood}\r\n");
        let mut stream = TcpStream::connect(served.0).await.unwrap();
        // The server may have answered and gone before it has read all.
        let _unread = stream.write_all(head.as_bytes()).await;
        let mut answer = Vec::new();
        let read = tokio::time::timeout(PROMPT, stream.read_to_end(&mut answer));
        let _reset = read.await.unwrap();
        assert!(!answer.starts_with(b"HTTP/1.1 200"), "it was let through");
    }

    assert_eq!(served.get("/").await.status(), StatusCode::OK);
}

/// As much of `X-Forwarded-For` as the server takes, from peers that are trusted to write it and from peers that are not.
#[tokio::test]
async fn a_flood_of_forwarding_headers_buys_no_budget() {
    let line = format!("X-Forwarded-For: {}\r\n", "10.0.0.2,".repeat(400));
    let trusted = Networks::new(["10.0.0.0/8", "127.0.0.0/8"]);
    for address in [
        ClientAddress::peer(),
        ClientAddress::x_forwarded_for(trusted),
    ] {
        let policy = Policy::new("caller", Quota::per_hour(1));
        let served = served(policy, address.clone()).await;
        let mut statuses = Vec::new();
        for caller in 0..20 {
            // Another first address each time: the walk does not come that far.
            let first = format!("X-Forwarded-For: 6.6.6.{caller}\r\n");
            let flood = line.repeat(80);
            let head = format!("GET / HTTP/1.1\r\nHost: flood\r\n{first}{flood}\r\n");
            statuses.push(status(&mut open(served, head.as_bytes()).await).await);
        }

        assert_eq!(statuses[0], 200, "{address:?}");
        assert!(
            statuses[1..].iter().all(|&status| status == 429),
            "{statuses:?}"
        );
    }
}
