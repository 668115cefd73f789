//! gRPC clients of another ecosystem understand the answers.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tollgate::{Limiter, MessageLimitLayer, Messages, Policy, Quota, RateLimitLayer};
use tollgate_testkit::shop::{OrdersServer, Shop};
use tonic::transport::Server;

use crate::clients;

/// A shop under a limiter's two layers.
async fn served(limiter: &Limiter) -> (SocketAddr, Shop) {
    let shop = Shop::default();
    let server = Server::builder()
        .layer(RateLimitLayer::new(limiter))
        .layer(MessageLimitLayer::new(limiter))
        .add_service(OrdersServer::new(shop.clone()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    (address, shop)
}

const METHODS: [(&str, &str); 4] = [
    ("place", "Place"),
    ("upload", "Upload"),
    ("watch", "Watch"),
    ("chat", "Chat"),
];

#[tokio::test]
async fn grpcio_waits_as_long_as_it_is_told_and_then_succeeds_whichever_side_streams() {
    // given a server that admits one call of each method every ten seconds
    let policies = METHODS.map(|(name, method)| {
        Policy::new(name, Quota::new(1, Duration::from_secs(10)))
            .grpc(&format!("shop.v1.Orders/{method}"))
    });
    let limiter = Limiter::builder().policies(policies).build().unwrap();
    let (address, shop) = served(&limiter).await;

    // when each method is called, called again, and called with retries
    let said = clients::run("grpc_retry.py", &address.to_string()).await;

    // then the second call is refused with details that can be read, and the third waits for as long and passes
    for (policy, method) in METHODS {
        let said = &said[method];
        let refused = &said["refused"];
        assert_eq!(refused["code"], "RESOURCE_EXHAUSTED", "{said}");
        assert_eq!(refused["reason"], "RATE_LIMIT_EXCEEDED");
        assert_eq!(
            refused["subjects"],
            serde_json::json!([format!("policy:{policy}")])
        );
        let delay_ms = refused["retry_delay_ms"].as_u64().unwrap();
        assert!((1..=10_000).contains(&delay_ms), "{said}");
        let [asked_at_ms, passed_at_ms] =
            ["asked_at_ms", "passed_at_ms"].map(|at| said[at].as_u64().unwrap());
        assert!(passed_at_ms >= asked_at_ms + delay_ms, "{said}");
    }
    assert_eq!(shop.calls(), 2 * METHODS.len());
}

#[tokio::test]
async fn grpcio_reads_why_a_stream_ended_that_had_been_answered() {
    // given conversations of three messages
    let policy =
        Policy::new("talk", Quota::per_hour(3)).per_message(Messages::received().end_stream());
    let limiter = Limiter::builder().policy(policy).build().unwrap();
    let (address, _) = served(&limiter).await;

    // when there are more messages
    let said = clients::run("grpc_stream.py", &address.to_string()).await;

    // then the trailers give the reason, and the time to come back
    assert_eq!(said["answered"], 3, "{said}");
    let ended = &said["ended"];
    assert_eq!(ended["code"], "RESOURCE_EXHAUSTED", "{said}");
    assert_eq!(ended["reason"], "RATE_LIMIT_EXCEEDED");
    assert_eq!(ended["subjects"], serde_json::json!(["policy:talk"]));
    let delay_ms = ended["retry_delay_ms"].as_u64().unwrap();
    assert!((1_100_000..=1_200_000).contains(&delay_ms), "{said}");
}
