//! Calls that end while their decision waits.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tollgate::key::{self, Global};
use tollgate::{Limiter, MessageLimitLayer, Messages, Policy, Quota, RateLimitLayer};
use tollgate_testkit::shop::{Order, OrdersServer, Shop};
use tonic::Code;
use tonic::service::Routes;
use tonic::transport::Server;
use tower::{Layer, ServiceExt};

use crate::common::{Body, Strict, Waiting, at_a_standstill};
use crate::grpc::serving::{Served, client, incoming, raw};

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

/// A policy whose callers are asked for and never found, and what each question holds for as long as it waits.
fn never_found() -> (Policy, Arc<()>) {
    let asked = Arc::new(());
    let held = Arc::clone(&asked);
    let key = key::from_async_fn(move |_| {
        let held = Arc::clone(&held);
        async move {
            let _held = held;
            pending::<Option<u64>>().await
        }
    });
    let policy = Policy::new("orders", Quota::per_hour(1)).key_async(key);
    (policy, asked)
}

/// Waits until so many questions wait.
async fn until_asked(asked: &Arc<()>, questions: usize) {
    // The test and the policy hold it as well.
    let reached = async {
        while Arc::strong_count(asked) != 2 + questions {
            tokio::task::yield_now().await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(20), reached).await;
    assert!(in_time.is_ok(), "the questions neither came nor went");
}

#[tokio::test]
async fn a_client_that_cancels_before_it_is_known_leaves_nothing_behind() {
    let (of_calls, calls_asked) = never_found();
    let (of_messages, messages_asked) = never_found();
    let of_messages = of_messages.per_message(Messages::received());
    for (policy, asked) in [(of_calls, calls_asked), (of_messages, messages_asked)] {
        // given a call that waits for its identity
        let limiter = Limiter::from(policy);
        let shop = Shop::default();
        let server = Server::builder()
            .layer(RateLimitLayer::new(&limiter))
            .layer(MessageLimitLayer::new(&limiter))
            .add_service(OrdersServer::new(shop.clone()));
        let (address, incoming) = incoming().await;
        tokio::spawn(server.serve_with_incoming(incoming));
        let mut client = client(address).await;
        let call = tokio::spawn(async move { client.place(Order::default()).await });
        until_asked(&asked, 1).await;

        // when the client gives up
        call.abort();

        // then the question is dropped, and the service was not called
        until_asked(&asked, 0).await;
        assert_eq!(shop.calls(), 0);
    }
}

#[tokio::test]
async fn a_client_that_cancels_while_its_messages_wait_leaves_nothing_behind() {
    // given a stream that waits for a block
    let backend = Waiting::new(at_a_standstill().0);
    let policy = Policy::new("messages", Quota::per_hour(1_600))
        .key(Global)
        .per_message(Messages::received());
    let limiter = Limiter::builder().policy(policy).backend(backend.clone());
    let limiter = limiter.build().unwrap();
    let server = Server::builder()
        .layer(MessageLimitLayer::new(&limiter))
        .add_service(OrdersServer::new(Shop::default()));
    let (address, incoming) = incoming().await;
    tokio::spawn(server.serve_with_incoming(incoming));
    let mut client = client(address).await;
    let orders = tokio_stream::iter(vec![Order::default(); 100]);
    let call = tokio::spawn(async move { client.upload(orders).await });
    until_pending(&backend, 1).await;

    // when the client gives up
    call.abort();
    until_pending(&backend, 0).await;

    // then the budget is whole
    backend.gate.add_permits(1);
    let left = limiter.check("messages", tollgate::Key::global()).cost(0);
    assert_eq!(left.await.unwrap().remaining(), 1_600);
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn a_deadline_ends_the_wait_for_who_is_calling_in_a_router_of_axums_as_well() {
    let (of_calls, calls_asked) = never_found();
    let (of_messages, messages_asked) = never_found();
    let of_messages = of_messages.per_message(Messages::received());
    for (policy, asked) in [(of_calls, calls_asked), (of_messages, messages_asked)] {
        let limiter = Limiter::from(policy);
        let shop = Shop::default();
        let routes = Routes::new(OrdersServer::new(shop.clone())).into_axum_router();
        let app = axum::Router::new()
            .merge(routes)
            .layer(MessageLimitLayer::new(&limiter))
            .layer(RateLimitLayer::new(&limiter));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async { axum::serve(listener, app).await });

        let place = raw(address, "Place", &[("grpc-timeout", "50m")], &[0; 5]);
        let place = tokio::time::timeout(Duration::from_secs(20), place).await;

        let (late, message) = place.unwrap();
        assert_eq!(late, "4", "{message}");
        until_asked(&asked, 0).await;
        assert_eq!(shop.calls(), 0);
    }
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn a_deadline_is_kept_by_a_router_of_axums_as_well() {
    // given services in a plain router, whose decisions wait behind a budget that does not
    let backend = Waiting::new(at_a_standstill().0);
    let of = |backend: Waiting| {
        let policy = Policy::new("orders", Quota::per_hour(1));
        Limiter::builder().policy(policy).backend(backend).build()
    };
    let outer = Limiter::builder()
        .policy(Policy::new("all", Quota::per_hour(9)).key(Global))
        .build()
        .unwrap();
    let shop = Shop::default();
    let routes = Routes::new(OrdersServer::new(shop.clone())).into_axum_router();
    let app = axum::Router::new()
        .merge(routes)
        .layer(RateLimitLayer::new(of(backend.clone()).unwrap()))
        .layer(RateLimitLayer::new(&outer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, app).await });
    let place = async |timeout: &'static str| {
        // tonic's client would keep a timeout of its own.
        raw(address, "Place", &[("grpc-timeout", timeout)], &[0; 5]).await
    };

    // when one passes
    let (late, message) = place("50m").await;
    until_pending(&backend, 0).await;

    // then the caller is told, the service was not called, and both budgets are whole
    assert_eq!(late, "4", "{message}");
    assert!(message.contains("deadline"), "{message}");
    assert_eq!(shop.calls(), 0);
    let left = outer.check("all", tollgate::Key::global()).cost(0).await;
    assert_eq!(left.unwrap().remaining(), 9);
    backend.gate.add_permits(1);
    assert_eq!(place("20S").await.0, "0");
}

/// A cache would give it to others who ask for the page.
#[tokio::test]
async fn an_answer_after_the_deadline_is_stored_by_no_cache() {
    let backend = Waiting::new(at_a_standstill().0);
    let policy = Policy::new("pages", Quota::per_hour(1)).key(Global);
    let limiter = Limiter::builder().policy(policy).backend(backend);
    let pages = RateLimitLayer::new(limiter.build().unwrap()).layer(Strict::default());
    let request = http::Request::post("/shop.v1.Pages/Get")
        .header("content-type", "application/grpc")
        .header("grpc-timeout", "1n");

    let answer = pages.oneshot(request.body(Body::default()).unwrap());
    let answer = answer.await.unwrap();

    assert_eq!(answer.headers()["grpc-status"], "4");
    assert_eq!(answer.headers()["cache-control"], "no-store");
}

/// It would be an empty page with status 200, which is an error to gRPC clients alone.
#[tokio::test]
async fn a_page_is_refused_in_http_whatever_content_type_its_caller_claims() {
    let limiter = Limiter::builder().policy(Policy::new("pages", Quota::per_hour(1)).key(Global));
    let pages = RateLimitLayer::new(limiter.build().unwrap()).layer(Strict::default());
    let get = || {
        let request = http::Request::get("/users/7")
            .header("content-type", "application/grpc")
            .header("grpc-timeout", "1n");
        pages
            .clone()
            .oneshot(request.body(Body::default()).unwrap())
    };

    assert_eq!(get().await.unwrap().status(), 200);
    let refused = get().await.unwrap();

    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers().get("grpc-status"), None);
    assert!(refused.headers().contains_key("retry-after"));
}
