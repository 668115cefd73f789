//! A message over the quota ends its stream.

use tollgate::Messages;
use tollgate_testkit::shop::Order;

use super::{assert_says_why, limiter, orders, receipts, served, three};

#[tokio::test]
async fn a_caller_who_sends_too_much_is_answered_before_the_service_has_seen_it() {
    let policy = three(Messages::received().end_stream());
    let (mut client, shop, _) = served(&limiter(policy)).await;

    let denied = client.upload(orders(10)).await.unwrap_err();

    assert_says_why(&denied);
    assert_eq!(shop.calls(), 1, "the call itself was open");
    assert!(denied.metadata().contains_key("grpc-retry-pushback-ms"));
}

#[tokio::test]
async fn a_stream_of_answers_ends_in_its_trailers() {
    let (mut client, _, _) = served(&limiter(three(Messages::sent().end_stream()))).await;
    let order = Order {
        count: 10,
        ..Order::default()
    };

    let watched = client.watch(order).await.unwrap().into_inner();
    let (count, end) = receipts(watched).await;

    assert_eq!(count, 3);
    assert_says_why(&end.unwrap());
}

#[tokio::test]
async fn a_conversation_ends_in_its_trailers_whichever_side_says_too_much() {
    for (messages, answered) in [
        (Messages::received(), 3),
        (Messages::sent(), 3),
        // One budget for both.
        (Messages::both(), 1),
    ] {
        let (mut client, _, _) = served(&limiter(three(messages.end_stream()))).await;
        // One after the other, each when the one before has been answered: both directions are open.
        let (sender, to_send) = tokio::sync::mpsc::channel(1);
        let to_send = tokio_stream::wrappers::ReceiverStream::new(to_send);
        sender.send(Order::default()).await.unwrap();
        let mut chat = client.chat(to_send).await.unwrap().into_inner();
        let mut count = 0;
        let end = loop {
            match chat.message().await {
                Ok(Some(_)) => {
                    count += 1;
                    sender.send(Order::default()).await.unwrap();
                }
                Ok(None) => panic!("it ended as if nothing had been"),
                Err(end) => break end,
            }
        };
        assert_eq!(count, answered, "{messages:?}");
        assert_says_why(&end);
    }
}
