//! Messages that are charged as they pass, over sockets.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio_stream::Stream;
use tollgate::key::{self, Global, Metadata};
use tollgate::{
    FailureKind, Key, Limiter, LimiterBuilder, MessageLimitLayer, Messages, OnFailure, OnMissing,
    Policy, Quota, RateLimitLayer, Tiers,
};
use tollgate_testkit::shop::{Order, OrdersClient, OrdersServer, Receipt, Shop};
use tonic::transport::{Channel, Server};
use tonic::{Code, Status, Streaming};
use tonic_types::StatusExt;
use tonic_web::{GrpcWebClientLayer, GrpcWebLayer};
use tower::ServiceBuilder;

use crate::common::log::Log;
use crate::common::{Waiting, at_a_standstill};
use crate::serving::{Served, client, incoming, raw};

mod small;

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

/// Three an hour, of everybody.
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

#[tokio::test]
async fn bytes_are_those_on_the_wire() {
    // given messages of 102 bytes, two of them for their note, and five before each
    let note = vec![7; 100];
    let order = Order {
        note,
        ..Order::default()
    };
    let orders = move |count| tokio_stream::iter(vec![order.clone(); count]);
    let policy = |bytes| {
        Policy::new("messages", Quota::per_hour(bytes))
            .key(Global)
            .per_message(Messages::received().by_bytes().end_stream())
    };

    // when there is room for ten, and for one byte less
    let enough = limiter(policy(1_070));
    let (mut client, _, _) = served(&enough).await;
    assert_eq!(
        client.upload(orders(10)).await.unwrap().into_inner().count,
        10
    );
    let left = enough
        .check("messages", Key::global())
        .cost(0)
        .await
        .unwrap();
    assert!(
        left.remaining() < 3,
        "what an hour's budget refills meanwhile"
    );

    let (mut client, _, _) = served(&limiter(policy(1_069))).await;
    let denied = client.upload(orders(10)).await.unwrap_err();
    assert_eq!(denied.code(), Code::ResourceExhausted);
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

#[tokio::test]
async fn calls_and_messages_are_charged_by_whom_they_concern() {
    let limiter = Limiter::builder()
        .policy(Policy::new("calls", Quota::per_hour(2)).key(Global))
        .policy(three(Messages::received().end_stream()).grpc("shop.v1.Orders/Upload"))
        .build()
        .unwrap();
    let (mut client, _, _) = served(&limiter).await;
    let left = async |policy| {
        let asked = limiter.check(policy, Key::global()).cost(0).await;
        asked.unwrap().remaining()
    };

    client.upload(orders(2)).await.unwrap();
    assert_eq!((left("calls").await, left("messages").await), (1, 1));
    // Another method, which the messages' policy does not cover.
    client.place(Order::default()).await.unwrap();
    assert_eq!((left("calls").await, left("messages").await), (0, 1));
}

#[tokio::test]
async fn names_keys_tiers_lists_trial_and_costs_are_as_for_requests() {
    let tenant = |policy: Policy| {
        policy
            .key(Metadata::new("tenant"))
            .on_missing(OnMissing::Deny)
    };
    let gold = Tiers::by_key([("golden", "gold")]).tier("gold", Quota::per_hour(8));
    let cases = [
        (tenant(three(Messages::received())), "a", 3),
        (tenant(three(Messages::received())).tiers(gold), "golden", 8),
        (tenant(three(Messages::received())).cost(2), "a", 1),
        (tenant(three(Messages::received())).shadow(), "a", 20),
        (tenant(three(Messages::received())).on_demand(), "a", 20),
        (
            three(Messages::received())
                .key_async(key::from_async_fn(|_| async { Some("somebody") })),
            "a",
            3,
        ),
    ];
    for (policy, tenant, passes) in cases {
        let policy = policy.per_message(Messages::received().end_stream());
        let case = format!("{policy:?}");
        let limiter = limiter(policy);
        let call = async |count| {
            let (mut client, _, _) = served(&limiter).await;
            let mut request = tonic::Request::new(orders(count));
            request
                .metadata_mut()
                .insert("tenant", tenant.parse().unwrap());
            let receipt = client.upload(request).await;
            receipt.map_or_else(|status| status.code(), |_| Code::Ok)
        };
        assert_eq!(call(passes).await, Code::Ok, "{case}");
        if passes < 20 {
            assert_eq!(call(1).await, Code::ResourceExhausted, "{case}");
        }
    }

    // Whoever does not say who they are is refused at once.
    let limiter = limiter(tenant(three(Messages::received())));
    let (mut client, shop, _) = served(&limiter).await;
    let refused = client.upload(orders(1)).await.unwrap_err();
    assert_eq!((refused.code(), shop.calls()), (Code::PermissionDenied, 0));
}

#[tokio::test]
async fn a_policy_on_trial_is_in_nobodys_way_whether_the_backend_waits_or_not() {
    let waiting = Waiting::new(at_a_standstill().0);
    waiting.gate.add_permits(10_000);
    for backend in [None, Some(waiting)] {
        let mut limiter = Limiter::builder()
            .policy(twenty_ms(Messages::received()))
            .policy(
                // It would end the stream at the second message.
                Policy::new("trial", Quota::per_hour(1))
                    .per_message(Messages::received().end_stream())
                    .shadow(),
            );
        let messages = if let Some(backend) = backend {
            limiter = limiter.backend(backend);
            // Its clock stands still.
            5
        } else {
            10
        };
        let (mut client, _, _) = served(&limiter.build().unwrap()).await;
        let received = client.upload(orders(messages)).await.unwrap();
        assert_eq!(received.into_inner().count as usize, messages);
    }
}

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

#[tokio::test]
async fn messages_within_tonic_web_are_charged_and_outside_of_it_refused() {
    let web = async |outside: bool| {
        let shop = Shop::default();
        let policy = three(Messages::both().end_stream());
        let messages = MessageLimitLayer::new(policy);
        let server = || Server::builder().accept_http1(true);
        let (address, incoming) = incoming().await;
        let orders = OrdersServer::new(shop.clone());
        if outside {
            let mut server = server().layer(messages).layer(GrpcWebLayer::new());
            tokio::spawn(server.add_service(orders).serve_with_incoming(incoming));
        } else {
            let mut server = server().layer(GrpcWebLayer::new()).layer(messages);
            tokio::spawn(server.add_service(orders).serve_with_incoming(incoming));
        }
        let http = Client::builder(TokioExecutor::new()).build_http();
        let http = ServiceBuilder::new()
            .layer(GrpcWebClientLayer::new())
            .service(http);
        let uri = format!("http://{address}").parse().unwrap();
        (OrdersClient::with_origin(http, uri), shop)
    };

    let (mut client, _) = web(false).await;
    let order = Order {
        count: 9,
        ..Order::default()
    };
    let watched = client.watch(order).await.unwrap().into_inner();
    let (count, end) = receipts(watched).await;
    assert_eq!(count, 2, "one of three was the question");
    assert_says_why(&end.unwrap());

    let (mut client, shop) = web(true).await;
    let closed = client.place(Order::default()).await.unwrap_err();
    assert_eq!((closed.code(), shop.calls()), (Code::Internal, 0));
    assert!(
        closed.message().contains("MessageLimitLayer goes inside"),
        "{closed:?}"
    );
}

#[tokio::test]
async fn a_prefix_that_lies_or_is_cut_off_ends_its_stream_and_takes_no_more_than_came() {
    for messages in [Messages::received(), Messages::received().by_bytes()] {
        let policy = Policy::new("messages", Quota::per_hour(1_000))
            .key(Global)
            .per_message(messages);
        let limiter = limiter(policy);
        let (mut client, _, address) = served(&limiter).await;
        let internal = "13";
        let out_of_range = "11";

        for (body, expected) in [
            (&[0, 0, 0][..], internal),
            (&[0, 0, 0, 0, 0, 0, 0], internal),
            (&[0, 0, 0, 0, 9, 1, 2], internal),
            (&[0, 0xff, 0xff, 0xff, 0xff, 1, 2], out_of_range),
        ] {
            let (status, message) = raw(address, "Upload", &[], body).await;
            assert_eq!(status, expected, "{body:?}: {message}");
        }

        // Everybody else goes on.
        assert_eq!(
            client.upload(orders(2)).await.unwrap().into_inner().count,
            2
        );
        let left = limiter.check("messages", Key::global()).cost(0).await;
        assert!(left.unwrap().remaining() >= 1_000 - 36, "{messages:?}");
    }
}

#[tokio::test]
async fn whatever_is_not_grpc_passes_as_it_is() {
    let app = axum::Router::new()
        .route("/echo", axum::routing::post(async |body: String| body))
        .layer(MessageLimitLayer::new(three(Messages::both()).cost(3)));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, app).await });

    let client = Client::builder(TokioExecutor::new()).build_http();
    let request = Request::post(format!("http://{address}/echo"));
    let request = request.body(Full::new(Bytes::from_static(b"\0\0\0\0\x01hello")));
    let response = client.request(request.unwrap()).await.unwrap();

    assert_eq!(response.headers()["content-length"], "10");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(&body[..], b"\0\0\0\0\x01hello");
}

#[test]
fn policies_that_make_no_sense_for_messages_are_refused() {
    let built = |builder: LimiterBuilder| builder.build().unwrap_err().to_string();
    let policy = three(Messages::received()).free_if(|_| true);
    assert_eq!(
        built(Limiter::builder().policy(policy)),
        "policy \"messages\": charges messages, for which no response can say what they cost"
    );
    let many = (0..33).map(|n| {
        Policy::new(&format!("p{n}"), Quota::per_hour(1)).per_message(Messages::received())
    });
    assert!(built(Limiter::builder().policies(many)).starts_with("33 quotas could meet"));
}

#[tokio::test]
async fn a_policy_for_messages_that_nobody_charges_is_warned_of_once() {
    let log = Log::default();
    let _guard = log.listen();
    let warned = |log: &Log| log.text().matches("messages pass uncharged").count();

    let forgotten = limiter(three(Messages::received()));
    let served = Served::behind(RateLimitLayer::new(&forgotten)).await;
    served.place().await.unwrap();
    served.place().await.unwrap();
    assert_eq!(warned(&log), 1, "{}", log.text());

    let (mut client, _, _) = self::served(&limiter(three(Messages::received()))).await;
    client.place(Order::default()).await.unwrap();
    assert_eq!(warned(&log), 1, "{}", log.text());
}
