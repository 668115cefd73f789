//! Callers that speak grpc-web, with the limiter on either side of tonic-web.

use std::net::SocketAddr;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Request, Response};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tollgate::{Quota, RateLimitLayer};
use tollgate_testkit::shop::{Order, OrdersClient, OrdersServer, Shop};
use tonic::Code;
use tonic::transport::Server;
use tonic_types::StatusExt;
use tonic_web::{GrpcWebClientLayer, GrpcWebLayer};
use tower::ServiceBuilder;

use crate::grpc::serving::incoming;

/// One served with the limiter outside of tonic-web, and one with it inside.
async fn served() -> [SocketAddr; 2] {
    let limited = || RateLimitLayer::new(Quota::per_hour(1));
    let orders = || OrdersServer::new(Shop::default());
    let server = || Server::builder().accept_http1(true);
    let outside = server()
        .layer(limited())
        .layer(GrpcWebLayer::new())
        .add_service(orders());
    let inside = server()
        .layer(GrpcWebLayer::new())
        .layer(limited())
        .add_service(orders());

    let (outside_address, outside_incoming) = incoming().await;
    let (inside_address, inside_incoming) = incoming().await;
    tokio::spawn(outside.serve_with_incoming(outside_incoming));
    tokio::spawn(inside.serve_with_incoming(inside_incoming));
    [outside_address, inside_address]
}

#[tokio::test]
async fn a_grpc_web_client_understands_a_denial_on_either_side_of_tonic_web() {
    for address in served().await {
        let http = Client::builder(TokioExecutor::new()).build_http();
        let http = ServiceBuilder::new()
            .layer(GrpcWebClientLayer::new())
            .service(http);
        let uri = format!("http://{address}").parse().unwrap();
        let mut client = OrdersClient::with_origin(http, uri);

        let receipt = client.place(Order::default()).await.unwrap();
        let denied = client.place(Order::default()).await.unwrap_err();

        assert_eq!(receipt.into_inner().count, 1);
        assert_eq!(denied.code(), Code::ResourceExhausted);
        assert_eq!(denied.message(), "quota exceeded");
        assert!(denied.metadata().contains_key("grpc-retry-pushback-ms"));
        assert!(denied.get_error_details().retry_info().is_some());
    }
}

#[tokio::test]
async fn a_denial_comes_back_in_the_callers_own_content_type() {
    let cases = [
        ("application/grpc-web", "application/grpc-web+proto"),
        ("application/grpc-web+proto", "application/grpc-web+proto"),
        (
            "application/grpc-web-text",
            "application/grpc-web-text+proto",
        ),
        (
            "application/grpc-web-text+proto",
            "application/grpc-web-text+proto",
        ),
    ];
    for address in served().await {
        drop(post(address, "application/grpc-web").await);
        for (asked, answered) in cases {
            let denied = post(address, asked).await;
            let value = |name: &str| denied.headers()[name].to_str().unwrap();

            assert_eq!(denied.status(), 200, "a status of gRPC is none of HTTP's");
            assert_eq!(value("grpc-status"), "8");
            assert_eq!(value(CONTENT_TYPE.as_str()), answered);
        }
    }
}

/// An order without a word in it, as a browser would post it.
async fn post(address: SocketAddr, content_type: &str) -> Response<hyper::body::Incoming> {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let request = Request::post(format!("http://{address}/shop.v1.Orders/Place"))
        .header(CONTENT_TYPE, content_type)
        .header("accept", content_type)
        .body(Full::new(Bytes::from_static(&[0; 5])))
        .unwrap();
    client.request(request).await.unwrap()
}
