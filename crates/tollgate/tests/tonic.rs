//! Under tonic: a real server and a real client.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]
#![cfg(feature = "tonic")]

use std::net::SocketAddr;

use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tollgate::{ClientAddress, Limiter, Networks, Policy, Quota, RateLimitLayer};
use tonic::Code;
use tonic::transport::{Endpoint, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

async fn serve(layer: RateLimitLayer) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(layer).add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    address
}

async fn call(address: SocketAddr) -> Result<(), tonic::Status> {
    let endpoint = Endpoint::new(format!("http://{address}")).unwrap();
    let mut client = HealthClient::new(endpoint.connect().await.unwrap());
    client.check(HealthCheckRequest::default()).await.map(drop)
}

#[tokio::test]
async fn a_server_is_limited_per_peer_and_a_denial_is_resource_exhausted() {
    let address = serve(RateLimitLayer::new(Quota::per_hour(2))).await;

    call(address).await.unwrap();
    call(address).await.unwrap();
    let denied = call(address).await.unwrap_err();

    assert_eq!(denied.code(), Code::ResourceExhausted);
    assert_eq!(denied.message(), "quota exceeded");
    assert_eq!(denied.metadata().get("retry-after").unwrap(), "1800");
}

#[tokio::test]
async fn services_are_routed_and_callers_told_apart_as_over_http() {
    // given a limit on one service, behind a proxy on this machine
    let proxies = Networks::new(["127.0.0.0/8"]);
    let limiter = Limiter::builder()
        .client_address(ClientAddress::x_forwarded_for(proxies))
        .policy(Policy::new("health", Quota::per_hour(1)).route("/grpc.health.v1.Health/{method}"))
        .policy(Policy::new("other", Quota::per_hour(1)).route("/other.{*rest}"))
        .build()
        .unwrap();
    let address = serve(RateLimitLayer::new(limiter)).await;
    let endpoint = Endpoint::new(format!("http://{address}")).unwrap();
    let channel = endpoint.connect().await.unwrap();
    let from = async |caller: &'static str| {
        let mut request = tonic::Request::new(HealthCheckRequest::default());
        let caller = caller.parse().unwrap();
        request.metadata_mut().insert("x-forwarded-for", caller);
        let mut client = HealthClient::new(channel.clone());
        client
            .check(request)
            .await
            .map_or_else(|status| status.code(), |_| Code::Ok)
    };

    // when callers call, one of them twice
    // then it is refused the second time
    assert_eq!(from("203.0.113.7").await, Code::Ok);
    assert_eq!(from("6.6.6.6, 203.0.113.7").await, Code::ResourceExhausted);
    assert_eq!(from("203.0.113.8").await, Code::Ok);
}
