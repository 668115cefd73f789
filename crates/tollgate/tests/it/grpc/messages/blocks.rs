//! On a backend that waits, which is asked for blocks, and on one that fails.

use std::time::Duration;

use tollgate::key::Global;
use tollgate::{FailureKind, Key, Limiter, Messages, OnFailure, Policy, Quota};
use tollgate_testkit::shop::Order;
use tonic::Code;
use tonic_types::StatusExt;

use super::{orders, served, three};
use crate::common::{Waiting, at_a_standstill};

#[tokio::test]
async fn a_backend_that_fails_ends_a_stream_or_lets_it_pass_as_the_policy_says() {
    let served_by = async |policy: Policy| {
        let backend = Waiting::new(at_a_standstill().0);
        backend.gate.add_permits(100);
        backend.fail_with(Some(FailureKind::Unreachable));
        let limiter = Limiter::builder().policy(policy).backend(backend);
        let (client, _, _) = served(&limiter.build().unwrap()).await;
        client
    };

    let mut closed = served_by(three(Messages::received()).on_failure(OnFailure::Deny)).await;
    let refused = closed.upload(orders(9)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    let info = refused.get_error_details().error_info().cloned().unwrap();
    assert_eq!(info.reason, "RATE_LIMITER_UNAVAILABLE");

    let mut open = served_by(three(Messages::received())).await;
    assert_eq!(open.upload(orders(9)).await.unwrap().into_inner().count, 9);
}

#[tokio::test]
async fn what_a_call_took_ahead_comes_back_when_it_ends_and_when_the_caller_has_gone() {
    // given a backend that waits, and a budget of 1,600, of which a block is at most 100
    let backend = Waiting::new(at_a_standstill().0);
    backend.gate.add_permits(10_000);
    let policy = Policy::new("messages", Quota::per_hour(1_600))
        .key(Global)
        .per_message(Messages::received());
    let limiter = Limiter::builder().policy(policy).backend(backend.clone());
    let limiter = limiter.build().unwrap();
    let (mut client, _, _) = served(&limiter).await;
    let left = async || {
        let asked = limiter.check("messages", Key::global()).cost(0).await;
        asked.unwrap().remaining()
    };

    // when a stream ends
    let before = backend.gate.available_permits();
    assert_eq!(
        client
            .upload(orders(1_000))
            .await
            .unwrap()
            .into_inner()
            .count,
        1_000
    );
    let asked = before - backend.gate.available_permits();

    // then it has paid for what it sent, in blocks
    assert_eq!(left().await, 600);
    assert!(asked < 30, "{asked} questions for 1,000 messages");

    // when a caller goes away after 200 more
    let (sender, to_send) = tokio::sync::mpsc::channel(1);
    let to_send = tokio_stream::wrappers::ReceiverStream::new(to_send);
    let mut chat = client.chat(to_send).await.unwrap().into_inner();
    for _ in 0..200 {
        sender.send(Order::default()).await.unwrap();
        chat.message().await.unwrap().unwrap();
    }
    assert!(left().await < 400, "some of it is ahead");
    drop((sender, chat));

    // then the rest comes back
    let came_back = async {
        while left().await != 400 {
            tokio::task::yield_now().await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(20), came_back).await;
    assert!(in_time.is_ok(), "{} left", left().await);
}

#[tokio::test]
async fn a_block_never_takes_more_than_there_is() {
    let backend = Waiting::new(at_a_standstill().0);
    backend.gate.add_permits(10_000);
    let policy = Policy::new("messages", Quota::per_hour(1_600))
        .key(Global)
        .per_message(Messages::received().end_stream());
    let limiter = Limiter::builder().policy(policy).backend(backend);
    let (mut client, _, _) = served(&limiter.build().unwrap()).await;

    // To the last message of the budget, and not one more.
    assert_eq!(
        client
            .upload(orders(1_600))
            .await
            .unwrap()
            .into_inner()
            .count,
        1_600
    );
    let denied = client.upload(orders(1)).await.unwrap_err();
    assert_eq!(denied.code(), Code::ResourceExhausted);
    let delay = denied.get_error_details().retry_info().unwrap().retry_delay;
    // For one message, and not for a block.
    assert_eq!(delay, Some(Duration::from_millis(2_250)));
}
