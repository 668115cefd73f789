//! Methods of a service whose annotations ban, or name a policy with classes.

use std::time::Duration;

use tollgate::key::{Global, Metadata};
use tollgate::{Key, Limiter, Policy, Quota, RateLimitLayer, Share, rate_limit};
use tollgate_testkit::shop::{Order, Orders, OrdersClient, OrdersServer, Receipt, Receipts};
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_types::StatusExt;

use crate::common::at_a_standstill;
use crate::grpc::serving::{client, incoming};

const MINUTE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Default)]
struct Shop;

#[tonic::async_trait]
impl Orders for Shop {
    type WatchStream = Receipts;
    type ChatStream = Receipts;

    #[rate_limit("1/min", key = Global, ban = "2 in 10min for 15min")]
    async fn place(&self, _: Request<Order>) -> Result<Response<Receipt>, Status> {
        Ok(Response::new(Receipt { count: 1 }))
    }

    #[rate_limit(policy = "api")]
    async fn upload(&self, _: Request<Streaming<Order>>) -> Result<Response<Receipt>, Status> {
        Ok(Response::new(Receipt { count: 2 }))
    }

    #[rate_limit("9/min")]
    async fn watch(&self, _: Request<Order>) -> Result<Response<Receipts>, Status> {
        Err(Status::unimplemented("no test calls it"))
    }

    #[rate_limit("9/min")]
    async fn chat(&self, _: Request<Streaming<Order>>) -> Result<Response<Receipts>, Status> {
        Err(Status::unimplemented("no test calls it"))
    }
}

async fn served(layer: RateLimitLayer) -> OrdersClient<Channel> {
    let server = Server::builder()
        .layer(layer)
        .add_service(OrdersServer::new(Shop));
    let (address, incoming) = incoming().await;
    tokio::spawn(server.serve_with_incoming(incoming));
    client(address).await
}

#[tokio::test]
async fn an_annotation_of_a_method_bans_those_who_are_denied_too_often() {
    let (backend, clock) = at_a_standstill();
    let everything = Policy::new("everything", Quota::per_hour(100)).key(Global);
    let limiter = Limiter::builder().policy(everything).backend(backend);
    let limiter = limiter.build().unwrap();
    let mut client = served(RateLimitLayer::new(limiter)).await;
    let mut place = async || client.place(Order::default()).await.map(drop);
    let reason = |status: &Status| {
        let details = status.get_error_details();
        details.error_info().unwrap().reason.clone()
    };
    place().await.unwrap();
    let denied = place().await.unwrap_err();
    assert_eq!(reason(&denied), "RATE_LIMIT_EXCEEDED");
    let struck = place().await.unwrap_err();
    assert_eq!(reason(&struck), "CALLER_BANNED");

    clock.advance(15 * MINUTE - Duration::from_micros(1));
    let knocked = place().await.unwrap_err();
    assert_eq!(
        (knocked.code(), reason(&knocked)),
        (Code::ResourceExhausted, "CALLER_BANNED".into())
    );
    clock.advance(Duration::from_micros(1));
    place().await.unwrap();
}

#[tokio::test]
async fn a_call_that_its_method_refuses_costs_nothing_under_the_layer() {
    let (backend, _clock) = at_a_standstill();
    let everything = Policy::new("everything", Quota::per_hour(100)).key(Global);
    let limiter = Limiter::builder().policy(everything).backend(backend);
    let limiter = limiter.build().unwrap();
    let mut client = served(RateLimitLayer::new(&limiter)).await;

    client.place(Order::default()).await.unwrap();
    for _ in 0..5 {
        let refused = client.place(Order::default()).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
    }

    let probe = limiter.check("everything", Key::global()).probe().await;
    assert_eq!(probe.unwrap().remaining(), 99);
}

#[tokio::test]
async fn a_method_whose_annotation_names_a_policy_with_classes_keeps_their_share() {
    let api = Policy::new("api", Quota::per_hour(4))
        .key(Global)
        .class_by(Metadata::new("class"))
        .keep_for("critical", Share::percent(50))
        .on_demand();
    let (backend, _clock) = at_a_standstill();
    let limiter = Limiter::builder().policy(api).backend(backend);
    let mut client = served(RateLimitLayer::new(limiter.build().unwrap())).await;
    let mut upload = async |class: &'static str| {
        let mut orders = Request::new(tokio_stream::iter([Order::default()]));
        orders
            .metadata_mut()
            .insert("class", class.parse().unwrap());
        let uploaded = client.upload(orders).await;
        uploaded.map_or_else(|status| status.code(), |_| Code::Ok)
    };

    for (class, expected) in [
        ("batch", Code::Ok),
        ("batch", Code::Ok),
        ("batch", Code::ResourceExhausted),
        ("critical", Code::Ok),
        ("batch", Code::ResourceExhausted),
        ("critical", Code::Ok),
        ("critical", Code::ResourceExhausted),
    ] {
        assert_eq!(upload(class).await, expected, "{class}");
    }
}
