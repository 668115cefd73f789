//! Calls of unimportant classes are refused under pressure.

use std::time::Duration;

use tollgate::key::{Global, Metadata, PathParam};
use tollgate::{
    Limiter, LimiterBuilder, MemoryBackend, MessageLimitLayer, Messages, Policy, PressureGauge,
    Quota, RateLimitInterceptor, RateLimitLayer, Shedding,
};
use tollgate_testkit::shop::{Order, OrdersServer, Receipt, Shop};
use tonic::service::Interceptor;
use tonic::transport::Server;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::grpc::serving::{Served, client, incoming};

const WAIT: Duration = Duration::from_secs(30);

fn shedding(gauge: &PressureGauge) -> LimiterBuilder {
    Limiter::builder()
        .policy(Policy::new("orders", Quota::per_hour(9)).key(Global))
        .classes(["critical", "batch"], Metadata::new("class"))
        .shed(gauge, Shedding::at([("batch", 0.7)]).retry_after(WAIT))
}

fn order(class: &str) -> tonic::Request<Order> {
    let mut order = tonic::Request::new(Order::default());
    order.metadata_mut().insert("class", class.parse().unwrap());
    order
}

async fn place(served: &Served, class: &str) -> Result<Receipt, Status> {
    let placed = served.client().await.place(order(class)).await;
    placed.map(tonic::Response::into_inner)
}

#[track_caller]
fn assert_says_when(refused: &Status) {
    assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
    assert_eq!(refused.message(), "the server is under pressure");
    let pushback = refused.metadata().get("grpc-retry-pushback-ms").unwrap();
    let pushback: u64 = pushback.to_str().unwrap().parse().unwrap();
    assert!((30_000..=60_000).contains(&pushback), "{pushback}");
    let details = refused.get_error_details();
    let delay = details.retry_info().unwrap().retry_delay.unwrap();
    assert!((WAIT..=2 * WAIT).contains(&delay), "{delay:?}");
    assert_eq!(
        details.error_info().unwrap().reason,
        "SERVER_UNDER_PRESSURE"
    );
    assert!(details.quota_failure().is_none());
}

#[tokio::test]
async fn a_call_that_is_refused_under_pressure_is_told_when_to_come_back() {
    let gauge = PressureGauge::new();
    let limiter = shedding(&gauge).build().unwrap();
    let served = Served::behind(RateLimitLayer::new(&limiter)).await;
    gauge.set(0.7);

    assert_says_when(&place(&served, "batch").await.unwrap_err());
    place(&served, "critical").await.unwrap();

    assert_eq!(served.shop.calls(), 1);
    let left = limiter
        .check("orders", tollgate::Key::global())
        .class("critical")
        .cost(0);
    assert_eq!(left.await.unwrap().remaining(), 8);
    gauge.set(0.0);
    place(&served, "batch").await.unwrap();
}

#[tokio::test]
async fn an_interceptor_sheds_by_metadata() {
    let gauge = PressureGauge::new();
    let mut interceptor =
        RateLimitInterceptor::new(shedding(&gauge), MemoryBackend::new()).unwrap();
    let mut call = |class| interceptor.call(order(class).map(drop));
    gauge.set(0.7);

    assert_says_when(&call("batch").unwrap_err());
    call("critical").unwrap();
    gauge.set(0.0);
    call("batch").unwrap();
}

#[test]
fn an_interceptor_cannot_shed_by_what_it_does_not_see() {
    let gauge = PressureGauge::new();
    let limiter = Limiter::builder()
        .classes(["critical", "batch"], PathParam::new("class"))
        .shed(&gauge, [("batch", 0.7)]);
    let refused = RateLimitInterceptor::new(limiter, MemoryBackend::new()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "shedding: the class of a request is found in a part that an interceptor lacks; use RateLimitLayer"
    );
}

/// The layer for messages by itself is not a way around, and behind the other layer it does not ask
/// again.
#[tokio::test]
async fn the_layer_for_messages_refuses_calls_under_pressure_too() {
    for behind_another in [false, true] {
        // given a policy for messages
        let gauge = PressureGauge::new();
        let raise = gauge.clone();
        let messages = Policy::new("messages", Quota::per_hour(9)).key(Global);
        let limiter = shedding(&gauge)
            .policy(messages.per_message(Messages::received()))
            .build()
            .unwrap();
        let shop = Shop::default();
        let outer = behind_another.then(|| RateLimitLayer::new(&limiter));
        let between = behind_another.then(|| {
            // The pressure rises between the two.
            tower::util::MapRequestLayer::new(move |request: http::Request<_>| {
                raise.set(1.0);
                request
            })
        });
        let server = Server::builder()
            .layer(tower::util::option_layer(outer))
            .layer(tower::util::option_layer(between))
            .layer(MessageLimitLayer::new(&limiter))
            .add_service(OrdersServer::new(shop.clone()));
        let (address, incoming) = incoming().await;
        tokio::spawn(server.serve_with_incoming(incoming));
        let mut client = client(address).await;

        // when a call comes, under pressure from the beginning or while it is under way
        gauge.set(if behind_another { 0.0 } else { 0.7 });
        let placed = client.place(order("batch")).await;

        // then it is refused by the first layer that sees it, and by no other
        if behind_another {
            placed.unwrap();
        } else {
            assert_says_when(&placed.unwrap_err());
            client.place(order("critical")).await.unwrap();
        }
        assert_eq!(shop.calls(), 1);
    }
}
