//! Bodies that are not gRPC messages, wrong messages, and messages of grpc-web.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tollgate::key::Global;
use tollgate::{Key, MessageLimitLayer, Messages, Policy, Quota};
use tollgate_testkit::shop::{Order, OrdersClient, OrdersServer, Shop};
use tonic::Code;
use tonic::transport::Server;
use tonic_web::{GrpcWebClientLayer, GrpcWebLayer};
use tower::ServiceBuilder;

use super::{assert_says_why, limiter, orders, receipts, served, three};
use crate::grpc::serving::{incoming, raw};

#[tokio::test]
async fn messages_within_tonic_web_are_charged_and_outside_of_it_refused() {
    let web = async |outside: bool| {
        let shop = Shop::default();
        let policy = three(Messages::both().end_stream());
        let messages = MessageLimitLayer::new(policy);
        let server = || Server::builder().accept_http1(true);
        let (address, incoming) = incoming().await;
        let orders = OrdersServer::new(shop.clone());
        if outside {
            let mut server = server().layer(messages).layer(GrpcWebLayer::new());
            tokio::spawn(server.add_service(orders).serve_with_incoming(incoming));
        } else {
            let mut server = server().layer(GrpcWebLayer::new()).layer(messages);
            tokio::spawn(server.add_service(orders).serve_with_incoming(incoming));
        }
        let http = Client::builder(TokioExecutor::new()).build_http();
        let http = ServiceBuilder::new()
            .layer(GrpcWebClientLayer::new())
            .service(http);
        let uri = format!("http://{address}").parse().unwrap();
        (OrdersClient::with_origin(http, uri), shop)
    };

    let (mut client, _) = web(false).await;
    let order = Order {
        count: 9,
        ..Order::default()
    };
    let watched = client.watch(order).await.unwrap().into_inner();
    let (count, end) = receipts(watched).await;
    assert_eq!(count, 2, "one of three was the question");
    assert_says_why(&end.unwrap());

    let (mut client, shop) = web(true).await;
    let closed = client.place(Order::default()).await.unwrap_err();
    assert_eq!((closed.code(), shop.calls()), (Code::Internal, 0));
    assert!(
        closed.message().contains("MessageLimitLayer goes inside"),
        "{closed:?}"
    );
}

#[tokio::test]
async fn a_prefix_that_lies_or_is_cut_off_ends_its_stream_and_takes_no_more_than_came() {
    for messages in [Messages::received(), Messages::received().by_bytes()] {
        let policy = Policy::new("messages", Quota::per_hour(1_000))
            .key(Global)
            .per_message(messages);
        let limiter = limiter(policy);
        let (mut client, _, address) = served(&limiter).await;
        let internal = "13";
        let out_of_range = "11";

        for (body, expected) in [
            (&[0, 0, 0][..], internal),
            (&[0, 0, 0, 0, 0, 0, 0], internal),
            (&[0, 0, 0, 0, 9, 1, 2], internal),
            (&[0, 0xff, 0xff, 0xff, 0xff, 1, 2], out_of_range),
        ] {
            let (status, message) = raw(address, "Upload", &[], body).await;
            assert_eq!(status, expected, "{body:?}: {message}");
        }

        // All other calls go on.
        assert_eq!(
            client.upload(orders(2)).await.unwrap().into_inner().count,
            2
        );
        let left = limiter.check("messages", Key::global()).cost(0).await;
        assert!(left.unwrap().remaining() >= 1_000 - 36, "{messages:?}");
    }
}

#[tokio::test]
async fn whatever_is_not_grpc_passes_as_it_is() {
    let app = axum::Router::new()
        .route("/echo", axum::routing::post(async |body: String| body))
        .layer(MessageLimitLayer::new(three(Messages::both()).cost(3)));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, app).await });

    let client = Client::builder(TokioExecutor::new()).build_http();
    let request = Request::post(format!("http://{address}/echo"));
    let request = request.body(Full::new(Bytes::from_static(b"\0\0\0\0\x01hello")));
    let response = client.request(request.unwrap()).await.unwrap();

    assert_eq!(response.headers()["content-length"], "10");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(&body[..], b"\0\0\0\0\x01hello");
}
