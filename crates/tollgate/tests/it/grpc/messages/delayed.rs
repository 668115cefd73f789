//! A message over the quota is held back.

use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::yield_now;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tollgate::{Key, Messages, Policy, Quota};
use tollgate_testkit::shop::{Order, OrdersClient, Receipt};
use tonic::transport::Channel;
use tonic::{Code, Streaming};
use tonic_types::StatusExt;

use super::{limiter, orders, receipts, served, three, twenty_ms};

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

    // Received messages are paced: 15,000 bytes at 100,000 a second.
    let start = Instant::now();
    let (mut client, _, _) = served(&limiter(bytes(Messages::received()))).await;
    assert_eq!(client.place(large()).await.unwrap().into_inner().count, 1);
    assert!(start.elapsed() >= Duration::from_millis(150));

    // Sent messages never stop half-way: one of two bytes and five does not fit into six.
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

/// A conversation in which so many orders were answered.
async fn chat(
    client: &mut OrdersClient<Channel>,
    answered: usize,
) -> (Sender<Order>, Streaming<Receipt>) {
    let (sender, to_send) = channel(1);
    let chat = client.chat(ReceiverStream::new(to_send)).await;
    let mut chat = chat.unwrap().into_inner();
    for _ in 0..answered {
        sender.send(Order::default()).await.unwrap();
        chat.message().await.unwrap().unwrap();
    }
    (sender, chat)
}

#[tokio::test]
async fn a_caller_who_goes_away_while_held_back_leaves_nothing_behind() {
    for messages in [Messages::received(), Messages::sent()] {
        // given a connection that has been used
        let limiter = limiter(three(messages));
        let (mut client, _, _) = served(&limiter).await;
        let tasks = || Handle::current().metrics().num_alive_tasks();
        drop(chat(&mut client, 0).await);
        let mut before = tasks();
        for _ in 0..1_000 {
            yield_now().await;
            before = before.min(tasks());
        }

        // when the fourth message of a conversation waits for twenty minutes, and its caller goes away
        let (sender, mut held) = chat(&mut client, 3).await;
        sender.send(Order::default()).await.unwrap();
        let answer = timeout(Duration::from_millis(100), held.message()).await;
        assert!(answer.is_err(), "{answer:?}");
        assert!(tasks() > before);
        drop((sender, held));

        // then no task waits any more, and the messages that were held back are not charged
        let gone = async {
            while tasks() > before {
                yield_now().await;
            }
        };
        let in_time = timeout(Duration::from_secs(20), gone).await;
        assert!(in_time.is_ok(), "{} tasks, {before} before", tasks());
        let asked = limiter.check("messages", Key::global()).cost(0).await;
        assert_eq!(asked.unwrap().remaining(), 0);
    }
}
