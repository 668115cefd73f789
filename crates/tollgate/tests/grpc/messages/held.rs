//! What is too much is held back.

use std::time::{Duration, Instant};

use tollgate::{Messages, Policy, Quota};
use tollgate_testkit::shop::Order;
use tonic::Code;
use tonic_types::StatusExt;

use super::{limiter, orders, receipts, served, twenty_ms};

#[tokio::test]
async fn what_is_too_much_is_held_back_in_either_direction_and_nothing_is_lost() {
    // given streams of twenty messages, of which five pass at once and the others every twenty milliseconds
    let start = Instant::now();
    let (mut up, _, _) = served(&limiter(twenty_ms(Messages::received()))).await;
    let (mut down, _, _) = served(&limiter(twenty_ms(Messages::sent()))).await;

    // when they are sent at once
    let uploaded = up.upload(orders(20));
    let watched = async {
        let order = Order {
            count: 20,
            ..Order::default()
        };
        receipts(down.watch(order).await.unwrap().into_inner()).await
    };
    let (uploaded, (watched, end)) = tokio::join!(uploaded, watched);

    // then all of them arrive, and not too early
    assert_eq!(uploaded.unwrap().into_inner().count, 20);
    assert_eq!(watched, 20);
    assert!(end.is_none());
    assert!(start.elapsed() >= Duration::from_millis(300));
}

#[tokio::test]
async fn a_message_larger_than_a_full_budget_passes_in_parts_or_ends_the_stream() {
    let large = || Order {
        note: vec![7; 20_000],
        ..Order::default()
    };
    let bytes = |messages: Messages| {
        let quota = Quota::per_second(100_000).burst(5_000);
        Policy::new("bytes", quota).per_message(messages.by_bytes())
    };

    // What is received is paced: 15,000 bytes at 100,000 a second.
    let start = Instant::now();
    let (mut client, _, _) = served(&limiter(bytes(Messages::received()))).await;
    assert_eq!(client.place(large()).await.unwrap().into_inner().count, 1);
    assert!(start.elapsed() >= Duration::from_millis(150));

    // What is sent never stops within a message: one of two bytes and five does not fit into six.
    let policy =
        Policy::new("bytes", Quota::per_second(6)).per_message(Messages::sent().by_bytes());
    let (mut client, _, _) = served(&limiter(policy)).await;
    let denied = client.place(large()).await.unwrap_err();
    assert_eq!(denied.code(), Code::ResourceExhausted);
    assert!(
        denied.get_error_details().retry_info().is_none(),
        "no waiting helps"
    );
}
