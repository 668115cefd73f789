//! Calls that end while their decision waits.

use std::time::Duration;

use tollgate::{Limiter, Policy, Quota, RateLimitLayer};
use tollgate_testkit::shop::Order;
use tonic::Code;

use crate::common::{Waiting, at_a_standstill};
use crate::serving::Served;

/// A server whose decisions wait, for a budget of one.
async fn waiting() -> (Served, Waiting) {
    let (memory, _) = at_a_standstill();
    let backend = Waiting::new(memory);
    let limiter = Limiter::builder()
        .policy(Policy::new("orders", Quota::per_hour(1)))
        .backend(backend.clone())
        .build()
        .unwrap();
    let served = Served::behind(RateLimitLayer::new(limiter)).await;
    (served, backend)
}

/// Waits until so many decisions are pending, for as long as the test may take.
async fn until_pending(backend: &Waiting, pending: usize) {
    let reached = async {
        while backend.pending() != pending {
            tokio::task::yield_now().await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(20), reached).await;
    assert!(in_time.is_ok(), "the decisions neither came nor went");
}

#[tokio::test]
async fn a_client_that_cancels_leaves_nothing_behind() {
    // given a call whose decision waits
    let (served, backend) = waiting().await;
    let mut client = served.client().await;
    let mut other = client.clone();
    let call = tokio::spawn(async move { client.place(Order::default()).await });
    until_pending(&backend, 1).await;

    // when the client gives up
    call.abort();
    until_pending(&backend, 0).await;

    // then the service was not called, and the budget is whole
    assert_eq!(served.shop.calls(), 0);
    backend.gate.add_permits(1);
    other.place(Order::default()).await.unwrap();
    assert_eq!(served.shop.calls(), 1);
}

#[tokio::test]
async fn a_deadline_shorter_than_the_decision_ends_the_wait() {
    // given a call with a deadline that a decision will miss
    let (served, backend) = waiting().await;
    let mut client = served.client().await;
    let mut order = tonic::Request::new(Order::default());
    order.set_timeout(Duration::from_millis(50));

    // when it has passed
    let late = client.place(order).await.unwrap_err();
    until_pending(&backend, 0).await;

    // then the service was not called, and the budget is whole
    assert!(
        matches!(late.code(), Code::Cancelled | Code::DeadlineExceeded),
        "{late:?}"
    );
    assert_eq!(served.shop.calls(), 0);
    backend.gate.add_permits(1);
    served.place().await.unwrap();
}
