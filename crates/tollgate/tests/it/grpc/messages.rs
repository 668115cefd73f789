//! Messages that are charged as they pass, over sockets.

mod blocks;
mod building;
mod charges;
mod delayed;
mod ended;
mod framing;
mod small;
mod undeclared;

use std::net::SocketAddr;
use std::time::Duration;

use tokio_stream::Stream;
use tollgate::key::Global;
use tollgate::{Limiter, MessageLimitLayer, Messages, Policy, Quota, RateLimitLayer};
use tollgate_testkit::shop::{Order, OrdersClient, OrdersServer, Receipt, Shop};
use tonic::transport::{Channel, Server};
use tonic::{Code, Status, Streaming};
use tonic_types::StatusExt;

use crate::grpc::serving::{client, incoming};

/// A shop under a limiter's two layers, and a client of it.
async fn served(limiter: &Limiter) -> (OrdersClient<Channel>, Shop, SocketAddr) {
    let shop = Shop::default();
    let server = Server::builder()
        .layer(RateLimitLayer::new(limiter))
        .layer(MessageLimitLayer::new(limiter))
        .add_service(OrdersServer::new(shop.clone()));
    let (address, incoming) = incoming().await;
    tokio::spawn(server.serve_with_incoming(incoming));
    (client(address).await, shop, address)
}

fn limiter(policy: Policy) -> Limiter {
    Limiter::builder().policy(policy).build().unwrap()
}

/// Three an hour, for all callers.
fn three(messages: Messages) -> Policy {
    Policy::new("messages", Quota::per_hour(3))
        .key(Global)
        .per_message(messages)
}

fn orders(count: usize) -> impl Stream<Item = Order> + Send + 'static {
    tokio_stream::iter(vec![Order::default(); count])
}

/// Five at once, and then one every twenty milliseconds.
fn twenty_ms(messages: Messages) -> Policy {
    let quota = Quota::per_second(50).burst(5);
    Policy::new("messages", quota).per_message(messages)
}

async fn receipts(mut stream: Streaming<Receipt>) -> (usize, Option<Status>) {
    let mut count = 0;
    loop {
        match stream.message().await {
            Ok(Some(_)) => count += 1,
            Ok(None) => return (count, None),
            Err(status) => return (count, Some(status)),
        }
    }
}

#[track_caller]
fn assert_says_why(status: &Status) {
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert_eq!(status.message(), "quota exceeded");
    let details = status.get_error_details();
    let [violation] = &details.quota_failure().unwrap().violations[..] else {
        panic!("{details:?}");
    };
    assert_eq!(violation.quota_id, "messages");
    let delay = details.retry_info().unwrap().retry_delay.unwrap();
    assert!(delay > Duration::from_secs(1_000), "{delay:?}");
}
