//! Callers that go on sending small messages, each in a frame of its own, into a stream that is held back. h2 closes a connection
//! with too many small frames that are not read, and flow control lets far more of them come.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tollgate::key::Global;
use tollgate::{Limiter, MessageLimitLayer, Messages, Policy, Quota};
use tollgate_testkit::shop::{Order, OrdersClient, OrdersServer, Receipt, Shop};
use tonic::transport::{Channel, Server};
use tonic::{Code, Streaming};
use tonic_types::StatusExt;

use super::assert_says_why;
use crate::common::{Waiting, at_a_standstill};
use crate::grpc::serving::{client, incoming};

/// The charges of uploads.
fn uploads(quota: Quota) -> Policy {
    Policy::new("messages", quota)
        .key(Global)
        .grpc("shop.v1.Orders/Upload")
        .per_message(Messages::received())
}

async fn serve(limiter: Limiter, layer: fn(MessageLimitLayer) -> MessageLimitLayer) -> SocketAddr {
    let server = Server::builder()
        .layer(layer(MessageLimitLayer::new(limiter)))
        .add_service(OrdersServer::new(Shop::default()));
    let (address, incoming) = incoming().await;
    tokio::spawn(server.serve_with_incoming(incoming));
    address
}

async fn served(policy: Policy) -> OrdersClient<Channel> {
    let limiter = Limiter::builder().policy(policy).build().unwrap();
    client(serve(limiter, |layer| layer).await).await
}

/// Messages of ten bytes, and five before each.
fn small() -> Order {
    Order {
        note: vec![7; 8],
        ..Order::default()
    }
}
const SMALL: usize = 15;

/// A stream of `count` orders, one after the other as fast as they are taken, and the number that was taken.
fn flood(order: Order, count: usize) -> (ReceiverStream<Order>, Arc<AtomicUsize>) {
    let (sender, to_send) = mpsc::channel(1);
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&taken);
    tokio::spawn(async move {
        for _ in 0..count {
            if sender.send(order.clone()).await.is_err() {
                break;
            }
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    (ReceiverStream::new(to_send), taken)
}

/// The end of a flood, which has no end of its own.
async fn in_time<T>(becomes: impl Future<Output = T>) -> T {
    let in_time = timeout(Duration::from_secs(120), becomes).await;
    in_time.unwrap_or_else(|_elapsed| {
        panic!("a stream that nobody ends is neither ended nor slowed down")
    })
}

/// A conversation on the same connection, which is over if the connection is: a client would open another one for a new call.
struct Neighbour {
    sender: mpsc::Sender<Order>,
    chat: Streaming<Receipt>,
}

impl Neighbour {
    async fn of(client: &OrdersClient<Channel>) -> Self {
        let (sender, to_send) = mpsc::channel(1);
        sender.send(Order::default()).await.unwrap();
        let chat = client.clone().chat(ReceiverStream::new(to_send)).await;
        let chat = chat.unwrap().into_inner();
        let mut neighbour = Self { sender, chat };
        neighbour.chat.message().await.unwrap().unwrap();
        neighbour
    }

    async fn says(&mut self) {
        self.sender.send(Order::default()).await.unwrap();
        self.chat.message().await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn small_messages_wait_for_their_turn_and_neighbours_go_on() {
    // given four thousand a second
    let client = served(uploads(Quota::per_second(4_000).burst(5))).await;
    let mut neighbour = Neighbour::of(&client).await;
    let (messages, taken) = flood(small(), 4_000);

    // when a second's worth comes at once
    let start = Instant::now();
    let mut flooding = client.clone();
    let upload = tokio::spawn(async move { flooding.upload(messages).await });
    while !upload.is_finished() {
        neighbour.says().await;
    }

    // then all of it passes, and not too early
    let uploaded = upload.await.unwrap().unwrap();
    assert_eq!(uploaded.into_inner().count, 4_000);
    assert!(start.elapsed() >= Duration::from_millis(998));
    assert_eq!(taken.load(Ordering::SeqCst), 4_000);
    neighbour.says().await;
}

#[tokio::test]
async fn more_small_messages_than_may_wait_end_their_stream_and_no_other() {
    // given streams that are held back for an hour, and as many messages as are taken
    let client = served(uploads(Quota::per_hour(3))).await;
    let mut neighbour = Neighbour::of(&client).await;

    for _ in 0..10 {
        let (messages, taken) = flood(small(), usize::MAX);
        let denied = in_time(client.clone().upload(messages)).await.unwrap_err();

        // then a stream ends with what has come, and its neighbour goes on
        assert_says_why(&denied);
        let taken = taken.load(Ordering::SeqCst) * SMALL;
        assert!((65_536..131_072).contains(&taken), "{taken} bytes");
        neighbour.says().await;
    }
}

#[tokio::test]
async fn how_much_may_wait_can_be_chosen() {
    let limiter = Limiter::builder().policy(uploads(Quota::per_hour(3)));
    let address = serve(limiter.build().unwrap(), |layer| layer.read_ahead(1_500)).await;

    let (messages, taken) = flood(small(), usize::MAX);
    let mut client = client(address).await;
    let denied = in_time(client.upload(messages)).await.unwrap_err();

    assert_says_why(&denied);
    let taken = taken.load(Ordering::SeqCst) * SMALL;
    assert!((1_500..15_000).contains(&taken), "{taken} bytes");
}

#[tokio::test]
async fn who_sends_larger_messages_is_slowed_down() {
    // given messages that a frame is not too much for
    let order = Order {
        note: vec![7; 400],
        ..Order::default()
    };
    let client = served(uploads(Quota::per_hour(3))).await;
    let mut neighbour = Neighbour::of(&client).await;
    let (messages, taken) = flood(order, usize::MAX);
    let mut flooding = client.clone();
    let upload = tokio::spawn(async move { flooding.upload(messages).await });

    // when nothing more is taken
    let before = in_time(async {
        let mut before = 0;
        loop {
            for _ in 0..100 {
                neighbour.says().await;
            }
            let now = taken.load(Ordering::SeqCst);
            if now == before && now > 0 {
                return now;
            }
            before = now;
        }
    })
    .await;

    // then it was the window, which is a megabyte, and what may wait beside it
    assert!(!upload.is_finished());
    let taken = before * 400;
    assert!((1_000_000..1_300_000).contains(&taken), "{taken} bytes");
    neighbour.says().await;
    upload.abort();
}

#[tokio::test]
async fn small_messages_wait_for_a_backend_as_well() {
    // given a backend that is slow to answer
    let backend = Waiting::new(at_a_standstill().0);
    let limiter = Limiter::builder()
        .policy(uploads(Quota::per_hour(10_000_000)))
        .backend(backend.clone());
    let address = serve(limiter.build().unwrap(), |layer| layer).await;
    let client = client(address).await;
    let mut neighbour = Neighbour::of(&client).await;

    // when four thousand have come before it does
    let (messages, taken) = flood(small(), 4_000);
    let mut flooding = client.clone();
    let upload = tokio::spawn(async move { flooding.upload(messages).await });
    while taken.load(Ordering::SeqCst) < 4_000 {
        neighbour.says().await;
    }
    assert_eq!(backend.pending(), 1);
    backend.gate.add_permits(10_000);

    // then all of them pass
    let uploaded = upload.await.unwrap().unwrap();
    assert_eq!(uploaded.into_inner().count, 4_000);
    neighbour.says().await;
}

/// The messages wait because of the quota, and not because the backend is being asked once more.
#[tokio::test]
async fn a_stream_that_was_held_back_is_told_of_its_quota_though_the_backend_is_asked_again() {
    // given a backend that lets one message pass and refuses the next, and answers no more
    let backend = Waiting::new(at_a_standstill().0);
    let quota = Quota::per_second(1_000).burst(1);
    let limiter = Limiter::builder()
        .policy(uploads(quota))
        .backend(backend.clone());
    let address = serve(limiter.build().unwrap(), |layer| layer).await;
    let client = client(address).await;
    backend.gate.add_permits(2);

    // when more come than may wait, which takes longer than the millisecond after which the backend is asked again
    let (messages, _) = flood(small(), usize::MAX);
    let denied = in_time(client.clone().upload(messages)).await.unwrap_err();

    assert_eq!(denied.code(), Code::ResourceExhausted, "{denied:?}");
}

#[tokio::test]
async fn a_backend_that_is_too_slow_for_what_comes_ends_the_stream() {
    let backend = Waiting::new(at_a_standstill().0);
    let limiter = Limiter::builder()
        .policy(uploads(Quota::per_hour(1_000)))
        .backend(backend.clone());
    let address = serve(limiter.build().unwrap(), |layer| layer).await;
    let client = client(address).await;
    let mut neighbour = Neighbour::of(&client).await;

    let (messages, _) = flood(small(), usize::MAX);
    let ended = in_time(client.clone().upload(messages)).await.unwrap_err();

    assert_eq!(ended.code(), Code::Unavailable);
    let info = ended.get_error_details().error_info().cloned().unwrap();
    assert_eq!(info.reason, "RATE_LIMITER_UNAVAILABLE");
    neighbour.says().await;
    while backend.pending() > 0 {
        yield_now().await;
    }
}
