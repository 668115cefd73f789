//! HTTP and gRPC on one port, behind one layer.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::StatusCode;
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tollgate::key::Metadata;
use tollgate::{Key, Policy, Quota, QuotaLookup, RateLimitLayer};
use tollgate_testkit::shop::{Order, OrdersServer, Shop};
use tonic::Code;
use tonic::service::Routes;

use crate::grpc::serving::client;

async fn serve(policy: Policy) -> SocketAddr {
    let rest = Router::new().route("/orders", get(async || "none"));
    let grpc = Routes::new(OrdersServer::new(Shop::default())).into_axum_router();
    let app = rest.merge(grpc).layer(RateLimitLayer::new(policy));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async { axum::serve(listener, service).await });
    address
}

async fn over_http(address: SocketAddr, account: &str) -> StatusCode {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let request = http::Request::get(format!("http://{address}/orders"))
        .header("account", account)
        .body(Empty::<Bytes>::new());
    client.request(request.unwrap()).await.unwrap().status()
}

async fn over_grpc(address: SocketAddr, account: &str) -> Code {
    let mut order = tonic::Request::new(Order::default());
    let account = account.parse().unwrap();
    order.metadata_mut().insert("account", account);
    let receipt = client(address).await.place(order).await;
    receipt.map_or_else(|status| status.code(), |_| Code::Ok)
}

#[tokio::test]
async fn a_caller_has_one_budget_whatever_it_speaks_and_is_answered_in_it() {
    for policy in [
        Policy::new("per-address", Quota::per_hour(2)),
        Policy::new("per-account", Quota::per_hour(2)).key(Metadata::new("account")),
    ] {
        let address = serve(policy).await;

        assert_eq!(over_http(address, "a").await, StatusCode::OK);
        assert_eq!(over_grpc(address, "a").await, Code::Ok);

        assert_eq!(over_http(address, "a").await, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(over_grpc(address, "a").await, Code::ResourceExhausted);
    }
}

#[tokio::test]
async fn callers_of_other_accounts_have_budgets_of_their_own_over_both() {
    let policy = Policy::new("per-account", Quota::per_hour(1)).key(Metadata::new("account"));
    let address = serve(policy).await;

    assert_eq!(over_http(address, "a").await, StatusCode::OK);
    assert_eq!(over_grpc(address, "b").await, Code::Ok);
    assert_eq!(over_grpc(address, "a").await, Code::ResourceExhausted);
}

#[tokio::test]
async fn a_quota_that_a_database_states_holds_over_both() {
    let lookup = QuotaLookup::new(Duration::from_secs(60), async |account: Key| {
        let stated = (account.content() == b"4711").then(|| Quota::per_hour(2));
        Ok::<_, String>(stated)
    });
    let policy = Policy::new("per-account", Quota::per_hour(1)).key(Metadata::new("account"));
    let address = serve(policy.quota_by_async(lookup)).await;

    assert_eq!(over_grpc(address, "4711").await, Code::Ok);
    assert_eq!(over_http(address, "4711").await, StatusCode::OK);
    assert_eq!(over_grpc(address, "4711").await, Code::ResourceExhausted);
    assert_eq!(over_grpc(address, "other").await, Code::Ok);
    assert_eq!(over_grpc(address, "other").await, Code::ResourceExhausted);
}
