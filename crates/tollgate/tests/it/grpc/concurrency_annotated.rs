//! Limits on how many calls at once that stand at a method: they hold as the layer's do, and under an interceptor, which cannot
//! hold, the method is closed.

use std::pin::Pin;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tollgate::key::Global;
use tollgate::rate_limit;
use tollgate::{Limiter, MemoryBackend, Policy, Quota, RateLimitInterceptor, RateLimitLayer};
use tollgate_testkit::shop::{Order, Orders, OrdersServer, Receipt, Receipts};
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::grpc::serving::{client, incoming, place};

#[derive(Clone, Copy, Debug)]
struct Shop;

#[tonic::async_trait]
impl Orders for Shop {
    type WatchStream = Receipts;
    type ChatStream = Receipts;

    async fn place(&self, _: Request<Order>) -> Result<Response<Receipt>, Status> {
        Ok(Response::new(Receipt { count: 1 }))
    }

    #[rate_limit("1 at once", key = Global)]
    async fn upload(&self, orders: Request<Streaming<Order>>) -> Result<Response<Receipt>, Status> {
        let mut orders = orders.into_inner();
        let mut count = 0;
        while orders.message().await?.is_some() {
            count += 1;
        }
        Ok(Response::new(Receipt { count }))
    }

    #[rate_limit("30/min; 2 at once", key = Global)]
    async fn watch(&self, _: Request<Order>) -> Result<Response<Receipts>, Status> {
        let first = tokio_stream::once(Ok(Receipt { count: 1 }));
        Ok(Response::new(Box::pin(
            first.chain(tokio_stream::pending()),
        )))
    }

    #[rate_limit(policy = "chats")]
    async fn chat(&self, orders: Request<Streaming<Order>>) -> Result<Response<Receipts>, Status> {
        let receipts = orders
            .into_inner()
            .map(|order| order.map(|_| Receipt { count: 1 }));
        let receipts: Pin<Box<dyn Stream<Item = _> + Send>> = Box::pin(receipts);
        Ok(Response::new(receipts))
    }
}

/// The result of the first attempt that is not refused for being one too many, since the server hears of the end of a call a
/// moment after the client.
async fn admitted<T, F: Future<Output = Result<T, Status>>>(attempt: impl Fn() -> F) -> T {
    for _ in 0..5_000 {
        match attempt().await {
            Ok(answer) => return answer,
            Err(status) => assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}"),
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("held for ever");
}

#[tokio::test]
async fn an_annotated_method_holds_until_its_call_is_over() {
    let chats = Policy::new("chats", "1 at once").key(Global).on_demand();
    let limiter = Limiter::builder()
        .policy(Policy::new("everything", Quota::per_second(100_000)).key(Global))
        .policy(chats)
        .build()
        .unwrap();
    let server = Server::builder()
        .layer(RateLimitLayer::new(limiter))
        .add_service(OrdersServer::new(Shop));
    let (address, incoming) = incoming().await;
    tokio::spawn(server.serve_with_incoming(incoming));
    let client = client(address).await;

    // A stream of answers, by a limit beside a quota.
    let watch = async || client.clone().watch(Order::default()).await;
    let (one, other) = (watch().await.unwrap(), watch().await.unwrap());
    let refused = watch().await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(
        !refused.metadata().contains_key("grpc-retry-pushback-ms"),
        "{refused:?}"
    );
    drop(one);
    drop(admitted(async || watch().await).await);
    drop(other);

    // Both directions, by a policy of the limiter.
    let chat = async || {
        let (orders, sent) = mpsc::channel(1);
        orders.send(Order::default()).await.unwrap();
        let receipts = client.clone().chat(ReceiverStream::new(sent)).await?;
        Ok::<_, Status>((orders, receipts))
    };
    let open = chat().await.unwrap();
    assert_eq!(chat().await.unwrap_err().code(), Code::ResourceExhausted);
    drop(open);
    admitted(async || chat().await).await;

    // A stream of requests.
    let (orders, sent) = mpsc::channel(1);
    let mut uploading = client.clone();
    let upload = tokio::spawn(async move { uploading.upload(ReceiverStream::new(sent)).await });
    // The second is taken when the method has begun to read, and so holds.
    for _ in 0..3 {
        orders.send(Order::default()).await.unwrap();
    }
    let another = async || client.clone().upload(tokio_stream::empty()).await;
    let refused = async {
        while another().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), refused)
        .await
        .unwrap();
    drop(orders);
    let _ended = upload.await.unwrap();
    admitted(async || another().await).await;
}

#[tokio::test]
async fn under_an_interceptor_a_method_that_holds_is_closed_and_says_why() {
    let limiter = Limiter::builder().policy(Policy::new("orders", Quota::per_second(1_000)));
    let interceptor = RateLimitInterceptor::new(limiter, MemoryBackend::new()).unwrap();
    let orders = OrdersServer::with_interceptor(Shop, interceptor);
    let (address, incoming) = incoming().await;
    tokio::spawn(
        Server::builder()
            .add_service(orders)
            .serve_with_incoming(incoming),
    );
    let mut client = client(address).await;

    // A method without such a limit is served.
    place(&mut client).await.unwrap();
    for closed in [
        client.watch(Order::default()).await.map(drop).unwrap_err(),
        client
            .upload(tokio_stream::empty())
            .await
            .map(drop)
            .unwrap_err(),
    ] {
        assert_eq!(closed.code(), Code::Internal);
        let says = "limits how many at once, and an interceptor does not see when a call is over";
        assert!(closed.message().contains(says), "{closed:?}");
    }
}
