//! The limiter states once which proxies are trusted: a caller is the same to policies, annotations, routes and gRPC.

#![cfg(all(feature = "macros", feature = "tonic"))]

use crate::common::at_a_standstill;
use crate::common::served::{Served, Whole};
use axum::Router;
use axum::routing::get;
use http::Request as HttpRequest;
use tollgate::{
    ClientAddress, Limiter, MethodRouterExt, Networks, Policy, Quota, RateLimitLayer, rate_limit,
};
use tollgate_testkit::shop::{Order, Orders, OrdersClient, OrdersServer, Receipt, Receipts};
use tonic::service::Routes;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Response, Status, Streaming};

#[rate_limit("1/hour")]
async fn annotated() {}

/// A shop of which one method has a limit of its own, and the others are never called.
struct Shop;

#[tonic::async_trait]
impl Orders for Shop {
    type WatchStream = Receipts;
    type ChatStream = Receipts;

    #[rate_limit("1/hour")]
    async fn place(&self, _: Request<Order>) -> Result<Response<Receipt>, Status> {
        Ok(Response::new(Receipt::default()))
    }

    async fn upload(&self, _: Request<Streaming<Order>>) -> Result<Response<Receipt>, Status> {
        Ok(Response::new(Receipt::default()))
    }

    async fn watch(&self, _: Request<Order>) -> Result<Response<Receipts>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn chat(&self, _: Request<Streaming<Order>>) -> Result<Response<Receipts>, Status> {
        Err(Status::unimplemented(""))
    }
}

/// A server behind a proxy on this machine, which has four limits of one an hour for each caller, in four places.
async fn serve() -> Served {
    let address = ClientAddress::x_forwarded_for(Networks::new(["127.0.0.0/8"])).ipv6_prefix(48);
    let limiter = Limiter::builder()
        .client_address(address)
        .policy(Policy::new("policy", Quota::per_hour(1)).route("/policy"))
        .policy(Policy::new("uploads", Quota::per_hour(1)).grpc("shop.v1.Orders/Upload"))
        .backend(at_a_standstill().0)
        .build()
        .unwrap();
    let app = Router::new()
        .route("/policy", get(|| async {}))
        .route("/annotated", get(annotated))
        .route("/route", get(|| async {}).rate_limit("1/hour"))
        .merge(Routes::new(OrdersServer::new(Shop)).into_axum_router())
        .layer(RateLimitLayer::new(limiter));
    Served::new(app).await
}

/// A request that a proxy passes on, with what its caller says of itself in front.
async fn through(server: Served, path: &str, caller: &str) -> Whole {
    let request = HttpRequest::get(format!("http://{}{path}", server.0));
    let request = request.header("x-forwarded-for", format!("198.51.100.1, {caller}"));
    server.request(request.body("".into()).unwrap()).await
}

async fn call(server: Served, method: &str, caller: &str) -> Code {
    let endpoint = Endpoint::from_shared(format!("http://{}", server.0)).unwrap();
    let mut client = OrdersClient::new(endpoint.connect().await.unwrap());
    let chain = format!("198.51.100.1, {caller}").parse().unwrap();
    let answer = if method == "place" {
        let mut order = Request::new(Order::default());
        order.metadata_mut().insert("x-forwarded-for", chain);
        client.place(order).await
    } else {
        let mut orders = Request::new(tokio_stream::empty());
        orders.metadata_mut().insert("x-forwarded-for", chain);
        client.upload(orders).await
    };
    answer.map_or_else(|status| status.code(), |_| Code::Ok)
}

#[tokio::test]
async fn a_caller_is_the_same_to_policies_annotations_routes_and_grpc() {
    let server = serve().await;
    // Two forms of one caller, and another.
    let callers = [
        ("203.0.113.7", true),
        ("[::ffff:203.0.113.7]:4711", false),
        ("203.0.113.8", true),
        ("2001:db8:7:1::1", true),
        ("2001:db8:7:2::1", false),
        ("2001:db8:8:1::1", true),
    ];
    for (caller, is_new) in callers {
        for path in ["/policy", "/annotated", "/route"] {
            let response = through(server, path, caller).await;
            assert_eq!(response.status() == 200, is_new, "{caller} at {path}");
        }
        for method in ["place", "upload"] {
            let expected = if is_new {
                Code::Ok
            } else {
                Code::ResourceExhausted
            };
            assert_eq!(
                call(server, method, caller).await,
                expected,
                "{caller}, {method}"
            );
        }
    }
}
