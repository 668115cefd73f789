//! Calls that wait for their turn: a deadline limits the wait, methods let calls wait, and an interceptor and messages cannot.

use std::time::Duration;

use tollgate::key::Global;
use tollgate::{
    Key, Limiter, MemoryBackend, Messages, Policy, Quota, RateLimitInterceptor, RateLimitLayer,
    Tiers,
};
use tollgate_testkit::shop::Order;
use tonic::Code;
use tonic_types::StatusExt;

use crate::common::at_a_standstill;
use crate::grpc::serving::Served;

/// One in half an hour, and two that wait. No turn comes while a test runs.
const SLOW: Quota =
    Quota::new(1, Duration::from_secs(30 * 60)).wait_up_to(Duration::from_secs(60 * 60));

fn within(deadline: Duration) -> tonic::Request<Order> {
    let mut order = tonic::Request::new(Order::default());
    order.set_timeout(deadline);
    order
}

#[tokio::test]
async fn a_call_whose_turn_comes_after_its_deadline_is_refused_at_once_and_takes_nothing() {
    let (backend, _) = at_a_standstill();
    let limiter = Limiter::builder().policy(Policy::new("orders", SLOW).key(Global));
    let limiter = limiter.backend(backend).build().unwrap();
    let served = Served::behind(RateLimitLayer::new(&limiter)).await;
    let mut client = served.client().await;
    served.place().await.unwrap();

    // when calls come that wait for a minute at most
    for _ in 0..3 {
        let refused = client.place(within(Duration::from_secs(60))).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
        let details = refused.get_error_details();
        let delay = details.retry_info().unwrap().retry_delay.unwrap();
        assert!(delay > Duration::from_secs(28 * 60), "{delay:?}");
    }

    // then no request waits, and the first turn is still free
    assert_eq!(limiter.waiting(), 0);
    assert_eq!(served.shop.calls(), 1);
    let next = limiter
        .check("orders", Key::global())
        .probe()
        .await
        .unwrap();
    assert_eq!(next.retry_after(), Some(Duration::from_secs(30 * 60)));
}

#[tokio::test]
async fn a_call_whose_turn_comes_before_its_deadline_waits_for_it() {
    let quota = Quota::per_second(20)
        .burst(1)
        .wait_up_to(Duration::from_secs(40));
    let served = Served::behind(RateLimitLayer::new(Policy::new("orders", quota))).await;
    let mut client = served.client().await;
    for _ in 0..5 {
        client.place(within(Duration::from_secs(30))).await.unwrap();
    }
    assert_eq!(served.shop.calls(), 5);
}

#[test]
fn an_interceptor_cannot_wait() {
    let expected = "policy \"orders\": lets calls wait for their turn, and an interceptor cannot wait; use RateLimitLayer";
    let tiers = Tiers::by_key([("a", "gold")]).tier("gold", "10/s wait 1s");
    for policy in [
        Policy::new("orders", "10/s burst 1 wait 1s"),
        Policy::new("orders", "1000/day; 10/s wait 1s"),
        Policy::new("orders", "10/s")
            .key(tollgate::key::Metadata::new("x-key"))
            .tiers(tiers),
    ] {
        let limiter = Limiter::builder().policy(policy);
        let refused = RateLimitInterceptor::new(limiter, MemoryBackend::new()).unwrap_err();
        assert_eq!(refused.to_string(), expected);
    }
}

#[test]
fn messages_cannot_wait() {
    let policy = Policy::new("uploads", "10/s wait 1s").per_message(Messages::received());
    let refused = Limiter::builder().policy(policy).build().unwrap_err();
    assert_eq!(
        refused.to_string(),
        "policy \"uploads\": charges messages, which cannot wait for their turn: the stream would stand still"
    );
}

#[cfg(feature = "macros")]
mod annotated {
    use tollgate::rate_limit;
    use tollgate_testkit::shop::{Orders, OrdersServer, Receipt, Receipts};
    use tonic::transport::Server;
    use tonic::{Request, Response, Status, Streaming};

    use super::*;
    use crate::common::tokio_clock::in_tokio_time;
    use crate::grpc::serving::{client, incoming, place};

    #[derive(Clone, Copy, Debug)]
    struct Shop;

    #[tonic::async_trait]
    impl Orders for Shop {
        type WatchStream = Receipts;
        type ChatStream = Receipts;

        #[rate_limit("20/s burst 1 wait 40s", key = Global)]
        async fn place(&self, _: Request<Order>) -> Result<Response<Receipt>, Status> {
            Ok(Response::new(Receipt { count: 1 }))
        }

        async fn upload(&self, _: Request<Streaming<Order>>) -> Result<Response<Receipt>, Status> {
            Ok(Response::new(Receipt { count: 0 }))
        }

        async fn watch(&self, _: Request<Order>) -> Result<Response<Receipts>, Status> {
            Ok(Response::new(Box::pin(tokio_stream::empty())))
        }

        async fn chat(&self, _: Request<Streaming<Order>>) -> Result<Response<Receipts>, Status> {
            Ok(Response::new(Box::pin(tokio_stream::empty())))
        }
    }

    #[tokio::test]
    async fn an_annotated_method_lets_calls_wait() {
        let limiter = Limiter::builder()
            .allow_no_policies()
            .backend(in_tokio_time());
        let server = Server::builder()
            .layer(RateLimitLayer::new(limiter.build().unwrap()))
            .add_service(OrdersServer::new(Shop));
        let (address, incoming) = incoming().await;
        tokio::spawn(server.serve_with_incoming(incoming));
        let mut client = client(address).await;
        for _ in 0..5 {
            place(&mut client).await.unwrap();
        }
    }

    #[tokio::test]
    async fn under_an_interceptor_a_method_that_lets_calls_wait_is_closed_and_says_why() {
        let limiter = Limiter::builder().policy(Policy::new("orders", Quota::per_second(1_000)));
        let interceptor = RateLimitInterceptor::new(limiter, MemoryBackend::new()).unwrap();
        let orders = OrdersServer::with_interceptor(Shop, interceptor);
        let (address, incoming) = incoming().await;
        let server = Server::builder().add_service(orders);
        tokio::spawn(server.serve_with_incoming(incoming));

        let closed = place(&mut client(address).await).await.unwrap_err();

        assert_eq!(closed.code(), Code::Internal);
        let says = "lets calls wait for their turn, and an interceptor cannot wait";
        assert!(closed.message().contains(says), "{closed:?}");
    }
}
