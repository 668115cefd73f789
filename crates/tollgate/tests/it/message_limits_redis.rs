//! Messages of real streams, out of a budget in a real Redis.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tollgate::key::Global;
use tollgate::{Key, Limiter, MessageLimitLayer, Messages, Policy, Quota};
use tollgate_redis::RedisBackend;
use tollgate_testkit::Standalone;
use tollgate_testkit::shop::{Order, OrdersClient, OrdersServer, Shop};
use tonic::Code;
use tonic::transport::{Endpoint, Server};

/// Messages a second, and the burst: a block is a sixteenth of that.
const RATE: u64 = 100_000;
const BURST: u64 = 4_096;
const BLOCK: u64 = 256;

async fn served(
    quota: Quota,
) -> (
    Standalone,
    Arc<RedisBackend>,
    Limiter,
    OrdersClient<tonic::transport::Channel>,
) {
    let redis = Standalone::start();
    let backend = RedisBackend::builder(&redis.url()).deadline(Duration::from_secs(20));
    let backend = Arc::new(backend.connect().await.unwrap());
    let policy = Policy::new("messages", quota)
        .key(Global)
        .per_message(Messages::received());
    let limiter = Limiter::builder()
        .policy(policy)
        .backend(Arc::clone(&backend))
        .build()
        .unwrap();
    let server = Server::builder()
        .layer(MessageLimitLayer::new(&limiter))
        .add_service(OrdersServer::new(Shop::default()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let channel = Endpoint::new(url).unwrap().connect().await.unwrap();
    (redis, backend, limiter, OrdersClient::new(channel))
}

#[tokio::test]
async fn a_stream_holds_its_rate_to_a_block_and_asks_for_blocks() {
    const MESSAGES: u32 = 200_000;

    let (_redis, backend, limiter, mut client) = served(Quota::per_second(RATE).burst(BURST)).await;
    // Of seven bytes, which a tonic client puts into frames of 32.
    let orders = (0..MESSAGES).map(|count| Order {
        count: 1 + count % 100,
        ..Order::default()
    });

    let start = Instant::now();
    let received = client.upload(tokio_stream::iter(orders)).await.unwrap();
    let took = start.elapsed();

    assert_eq!(received.into_inner().count, MESSAGES);
    assert_eq!(limiter.failures(), 0);
    let refilled = u64::try_from(took.as_micros()).unwrap() * RATE / 1_000_000;
    assert!(u64::from(MESSAGES) <= BURST + refilled + BLOCK, "{took:?}");
    let calls = backend.stats().calls;
    assert!(calls < u64::from(MESSAGES) / 100, "{calls} calls");
}

#[tokio::test]
async fn more_tiny_messages_than_may_wait_end_their_stream_and_no_other() {
    // given a conversation on the same connection
    let (_redis, _, limiter, client) = served(Quota::per_second(1_000).burst(500)).await;
    let (sender, to_send) = mpsc::channel(1);
    sender.send(Order::default()).await.unwrap();
    let chat = client.clone().chat(ReceiverStream::new(to_send)).await;
    let mut chat = chat.unwrap().into_inner();
    chat.message().await.unwrap().unwrap();

    // when a stream sends faster than that, in frames of one message each
    let (flood, to_send) = mpsc::channel(1);
    tokio::spawn(async move { while flood.send(Order::default()).await.is_ok() {} });
    let mut flooding = client.clone();
    let upload = flooding.upload(ReceiverStream::new(to_send));
    let ended = tokio::time::timeout(Duration::from_secs(120), upload).await;

    // then it ends, and the conversation goes on
    let refused = ended.unwrap().unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    sender.send(Order::default()).await.unwrap();
    chat.message().await.unwrap().unwrap();
    assert_eq!(limiter.failures(), 0);
}

#[tokio::test]
async fn what_was_taken_ahead_is_there_again_when_the_stream_has_ended() {
    let (_redis, _, limiter, mut client) = served(Quota::per_day(16 * BLOCK)).await;
    let orders = (0..1_000).map(|_| Order::default());

    client.upload(tokio_stream::iter(orders)).await.unwrap();

    let left = async || {
        let asked = limiter.check("messages", Key::global()).cost(0).await;
        asked.unwrap().remaining()
    };
    let expected = 16 * BLOCK - 1_000;
    // A credit is sent after the answer. A day's quota refills almost nothing meanwhile.
    let came_back = async {
        while !(expected..=expected + 2).contains(&left().await) {
            tokio::task::yield_now().await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(20), came_back).await;
    assert!(in_time.is_ok(), "{} left of {expected}", left().await);
}
