//! Annotated methods of a service, over sockets.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio_stream::StreamExt;
use tollgate::key::{Global, KeyExtractor, KeyMissing};
use tollgate::{
    Guard, Key, Limiter, Policy, Quota, RateLimitHeaders, RateLimitLayer, RateLimitStatus,
    RequestView, rate_limit,
};
use tollgate_testkit::shop::{Order, Orders, OrdersClient, OrdersServer, Receipt, Receipts};
use tonic::service::Routes;
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_types::StatusExt;

use crate::common::{Waiting, at_a_standstill};
use crate::grpc::serving::{client, incoming, place};

/// A shop whose every method is limited.
#[derive(Clone, Debug, Default)]
struct Shop {
    calls: Arc<AtomicUsize>,
}

impl Shop {
    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    fn called(&self) {
        self.calls.fetch_add(1, Ordering::SeqCst);
    }
}

/// The tenant that metadata names, as long as a test is enough to trust it.
#[derive(Default)]
struct Tenant;

impl KeyExtractor for Tenant {
    fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        let tenant = request.headers().get("tenant");
        tenant
            .map(|tenant| Key::bytes(tenant.as_bytes()))
            .ok_or(KeyMissing::new("tenant"))
    }
}

#[tonic::async_trait]
impl Orders for Shop {
    type WatchStream = Receipts;
    type ChatStream = Receipts;

    #[rate_limit("2/hour")]
    async fn place(&self, request: Request<Order>) -> Result<Response<Receipt>, Status> {
        self.called();
        let count = request.into_inner().count;
        Ok(Response::new(Receipt { count }))
    }

    #[rate_limit(policy = "uploads", cost = 3)]
    #[rate_limit("1/hour", key = Tenant, name = "per-tenant")]
    async fn upload(
        &self,
        mut request: Request<Streaming<Order>>,
    ) -> Result<Response<Receipt>, Status> {
        self.called();
        let mut count = 0;
        while request.get_mut().message().await?.is_some() {
            count += 1;
        }
        Ok(Response::new(Receipt { count }))
    }

    #[rate_limit("1/hour", key = Global)]
    async fn watch(&self, _: Request<Order>) -> Result<Response<Receipts>, Status> {
        self.called();
        let receipts = (1..=2).map(|count| Ok(Receipt { count }));
        Ok(Response::new(Box::pin(tokio_stream::iter(receipts))))
    }

    #[rate_limit(policy = "chats")]
    async fn chat(&self, request: Request<Streaming<Order>>) -> Result<Response<Receipts>, Status> {
        self.called();
        let counts = request.into_inner().map(|order| {
            let count = order?.count;
            Ok(Receipt { count })
        });
        Ok(Response::new(Box::pin(counts)))
    }
}

fn limiter() -> Limiter {
    Limiter::builder()
        .policy(Policy::new("everything", Quota::per_hour(100)).key(Global))
        .policy(
            Policy::new("uploads", Quota::per_hour(7))
                .key(Global)
                .on_demand(),
        )
        .policy(Policy::new("chats", Quota::per_hour(1)).on_demand())
        .build()
        .unwrap()
}

async fn served(layer: RateLimitLayer) -> (OrdersClient<Channel>, Shop) {
    let shop = Shop::default();
    let server = Server::builder()
        .layer(layer)
        .add_service(OrdersServer::new(shop.clone()));
    let (address, incoming) = incoming().await;
    tokio::spawn(server.serve_with_incoming(incoming));
    (client(address).await, shop)
}

/// The budget that all callers have left.
async fn left(limiter: &Limiter, policy: &str) -> u64 {
    let asked = limiter.check(policy, Key::global()).cost(0).await;
    asked.unwrap().remaining()
}

fn from(tenant: &str) -> Request<impl tokio_stream::Stream<Item = Order> + use<>> {
    let mut request = Request::new(tokio_stream::iter(vec![Order::default(); 2]));
    request
        .metadata_mut()
        .insert("tenant", tenant.parse().unwrap());
    request
}

#[tokio::test]
async fn a_refused_call_is_answered_as_by_the_layer_and_costs_nothing() {
    // given a method whose budget of two is spent
    let limiter = limiter();
    let (mut client, shop) = served(RateLimitLayer::new(&limiter)).await;
    place(&mut client).await.unwrap();
    place(&mut client).await.unwrap();

    // when it is called once more
    let denied = place(&mut client).await.unwrap_err();

    // then its body has not run, the caller is told everything, and what the layer took came back
    assert_eq!(shop.calls(), 2);
    assert_eq!(denied.code(), Code::ResourceExhausted);
    assert_eq!(denied.message(), "quota exceeded");
    let value = |name: &str| {
        denied
            .metadata()
            .get(name)
            .map(|value| value.to_str().unwrap())
    };
    assert_eq!(value("retry-after"), Some("1800"));
    let pushback_ms: u64 = value("grpc-retry-pushback-ms").unwrap().parse().unwrap();
    assert!(
        (1_700_000..=1_980_000).contains(&pushback_ms),
        "{pushback_ms}"
    );
    let details = denied.get_error_details();
    let [violation] = &details.quota_failure().unwrap().violations[..] else {
        panic!("{details:?}");
    };
    assert_eq!(violation.quota_id, "shop.v1.orders/place");
    assert!(details.retry_info().is_some());
    assert_eq!(details.error_info().unwrap().reason, "RATE_LIMIT_EXCEEDED");
    assert_eq!(left(&limiter, "everything").await, 98);
}

#[tokio::test]
async fn each_kind_of_method_is_limited_and_has_a_budget_of_its_own() {
    let (mut client, shop) = served(RateLimitLayer::new(limiter())).await;
    let orders = || {
        tokio_stream::iter(vec![
            Order {
                count: 5,
                ..Order::default()
            };
            2
        ])
    };

    // Each once, and what came of it is what the method made of its messages.
    let order = Order {
        count: 5,
        ..Order::default()
    };
    assert_eq!(
        client
            .place(order.clone())
            .await
            .unwrap()
            .into_inner()
            .count,
        5
    );
    assert_eq!(
        client.upload(from("a")).await.unwrap().into_inner().count,
        2
    );
    let watched = client.watch(order).await.unwrap().into_inner();
    assert_eq!(watched.collect::<Vec<_>>().await.len(), 2);
    let chatted = client.chat(orders()).await.unwrap().into_inner();
    let chatted: Vec<_> = chatted
        .map(|receipt| receipt.unwrap().count)
        .collect()
        .await;
    assert_eq!(chatted, [5, 5]);

    // Once more is once too often, but for the first.
    let refused = [
        client.upload(from("a")).await.map(drop),
        client.watch(Order::default()).await.map(drop),
        client.chat(orders()).await.map(drop),
    ];
    for refused in refused {
        assert_eq!(refused.unwrap_err().code(), Code::ResourceExhausted);
    }
    place(&mut client).await.unwrap();
    assert_eq!(shop.calls(), 5);
}

#[tokio::test]
async fn several_annotations_are_one_decision_and_keys_find_metadata() {
    let limiter = limiter();
    let (mut client, _) = served(RateLimitLayer::new(&limiter)).await;

    // Of seven each costs three, so that two tenants pass, and one only once.
    client.upload(from("a")).await.unwrap();
    let again = client.upload(from("a")).await.unwrap_err();
    assert_eq!(left(&limiter, "uploads").await, 4);
    client.upload(from("b")).await.unwrap();
    let third = client.upload(from("c")).await.unwrap_err();

    let violated = |status: Status| {
        let details = status.get_error_details();
        let violations = details.quota_failure().unwrap().violations.clone();
        violations
            .into_iter()
            .map(|one| one.quota_id)
            .collect::<Vec<_>>()
    };
    assert_eq!(violated(again), ["per-tenant"]);
    assert_eq!(violated(third), ["uploads"]);
    // The third tenant has its budget still.
    limiter.reset("uploads", Key::global()).await.unwrap();
    client.upload(from("c")).await.unwrap();
}

#[tokio::test]
async fn the_fields_of_all_that_took_part_are_written_when_they_are_asked_for() {
    let headers = RateLimitHeaders::default().of_all_policies().over_grpc();
    let (mut client, _) = served(RateLimitLayer::new(limiter()).headers(headers)).await;

    let passed = client.place(Order::default()).await.unwrap();
    place(&mut client).await.unwrap();
    let denied = place(&mut client).await.unwrap_err();

    for metadata in [passed.metadata(), denied.metadata()] {
        let value = |name: &str| {
            metadata
                .get(name)
                .map_or("", |value| value.to_str().unwrap())
        };
        assert_eq!(
            value("ratelimit-policy"),
            "\"everything\";q=100;w=3600, \"shop.v1.orders/place\";q=2;w=3600"
        );
        assert!(value("ratelimit").contains("\"shop.v1.orders/place\";r="));
    }
}

#[tokio::test]
async fn a_method_waits_for_a_backend_that_waits() {
    let backend = Waiting::new(at_a_standstill().0);
    let limiter = Limiter::builder()
        .allow_no_policies()
        .backend(backend.clone())
        .build()
        .unwrap();
    let (mut client, shop) = served(RateLimitLayer::new(limiter)).await;
    let mut patient = client.clone();

    let waits = tokio::spawn(async move { place(&mut patient).await });
    while backend.pending() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(shop.calls(), 0);
    backend.gate.add_permits(1);

    waits.await.unwrap().unwrap();
    assert_eq!(shop.calls(), 1);

    // No longer than the caller does.
    let mut order = Request::new(Order::default());
    order.set_timeout(std::time::Duration::from_millis(50));
    client.place(order).await.unwrap_err();
    while backend.pending() != 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(shop.calls(), 1);
}

#[tokio::test]
async fn without_a_layer_or_its_policy_a_method_is_closed_and_says_why() {
    // given a server without a layer, and one whose limiter lacks a policy
    let shop = Shop::default();
    let bare = Server::builder().add_service(OrdersServer::new(shop.clone()));
    let (address, incoming) = incoming().await;
    tokio::spawn(bare.serve_with_incoming(incoming));
    let mut bare = client(address).await;
    let (mut poor, poor_shop) = served(RateLimitLayer::new(Quota::per_hour(9))).await;

    // when methods are called
    let bare = place(&mut bare).await.unwrap_err();
    let poor = poor.chat(tokio_stream::empty()).await.unwrap_err();

    // then they have not run, and say so
    assert_eq!((shop.calls(), poor_shop.calls()), (0, 0));
    assert_eq!((bare.code(), poor.code()), (Code::Internal, Code::Internal));
    for (status, says) in [
        (
            bare,
            [
                "method `place` on shop.v1.Orders",
                ".layer(RateLimitLayer::new(limiter))",
            ],
        ),
        (poor, ["method `chat` on shop.v1.Orders", "\"chats\""]),
    ] {
        let message = status.message();
        assert!(says.iter().all(|part| message.contains(part)), "{message}");
        assert!(!message.contains("annotations.rs"), "{message}");
    }
}

#[tokio::test]
async fn conditions_of_a_policy_see_the_call_as_it_was_sent() {
    let on_path = Policy::new("chats", Quota::per_hour(2))
        .key(Global)
        .when(|call| call.uri().path().starts_with("/shop.v1"))
        .on_demand();
    let limiter = Limiter::builder().policy(on_path).build().unwrap();
    let (mut client, shop) = served(RateLimitLayer::new(limiter)).await;
    for _ in 0..6 {
        drop(client.chat(tokio_stream::empty()).await);
    }
    assert_eq!(shop.calls(), 2);
}

/// tonic runs a method by PUT too.
#[tokio::test]
async fn a_policy_for_some_methods_of_http_closes_a_method_of_grpc() {
    for policy in [
        Policy::new("chats", Quota::per_hour(2)).method(http::Method::PUT),
        Policy::new("chats", Quota::per_hour(2)).exempt_method(http::Method::POST),
    ] {
        let policy = policy.key(Global).on_demand();
        let limiter = Limiter::builder().policy(policy).build().unwrap();
        let (mut client, shop) = served(RateLimitLayer::new(limiter)).await;
        for _ in 0..6 {
            let closed = client.chat(tokio_stream::empty()).await.unwrap_err();
            assert_eq!(closed.code(), Code::Internal);
            let says = "policy \"chats\": gRPC method \"chat\": runs whatever the HTTP method of a call is";
            assert!(closed.message().contains(says), "{closed}");
        }
        assert_eq!(shop.calls(), 0);
    }
}

#[tokio::test]
async fn routes_merged_into_an_axum_router_are_named_alike() {
    let routes = Routes::new(OrdersServer::new(Shop::default())).into_axum_router();
    let app = axum::Router::new()
        .merge(routes)
        .layer(RateLimitLayer::new(limiter()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = {
        let address = listener.local_addr().unwrap();
        tokio::spawn(async { axum::serve(listener, app).await });
        client(address).await
    };

    place(&mut client).await.unwrap();
    place(&mut client).await.unwrap();
    let denied = place(&mut client).await.unwrap_err();

    let details = denied.get_error_details();
    let violations = &details.quota_failure().unwrap().violations;
    assert_eq!(violations[0].quota_id, "shop.v1.orders/place");
}

#[tokio::test]
async fn a_method_can_be_called_without_a_server() {
    let shop = Shop::default();
    let order = || {
        Request::new(Order {
            count: 7,
            ..Order::default()
        })
    };

    let closed = shop.place(order()).await.unwrap_err();
    let mut let_in = order();
    let_in.extensions_mut().insert(Guard::<()>::unlimited());
    let receipt = shop.place(let_in).await.unwrap();

    assert_eq!(closed.code(), Code::Internal);
    assert_eq!(receipt.into_inner().count, 7);
}

/// Methods that `async_trait` has not touched.
#[derive(Clone, Copy, Debug)]
struct ByHand;

type Answer = Result<Response<u32>, Status>;

impl ByHand {
    #[rate_limit("1/hour")]
    async fn plain(&self, Request { .. }: Request<u32>) -> Answer {
        Ok(Response::new(1))
    }

    #[rate_limit("1/hour")]
    fn unboxed(self, request: Request<u32>) -> impl Future<Output = Answer> + Send {
        let number = request.into_inner();
        async move { Ok(Response::new(number)) }
    }

    #[rate_limit("1/hour")]
    fn boxed<'a>(
        &'a self,
        request: Request<u32>,
    ) -> Pin<Box<dyn Future<Output = Answer> + Send + 'a>> {
        if *request.get_ref() == 0 {
            return Box::pin(async { Err(Status::invalid_argument("nothing")) });
        }
        Box::pin(async move { self.plain(request).await })
    }
}

#[tokio::test]
async fn methods_of_any_form_are_limited() {
    let let_in = |number| {
        let mut request = Request::new(number);
        request.extensions_mut().insert(Guard::<()>::unlimited());
        request
    };

    assert_eq!(ByHand.unboxed(let_in(4)).await.unwrap().into_inner(), 4);
    assert_eq!(ByHand.boxed(let_in(1)).await.unwrap().into_inner(), 1);
    let early = ByHand.boxed(let_in(0)).await.unwrap_err();
    assert_eq!(early.code(), Code::InvalidArgument);

    // A handle that no layer has made lets no call in.
    let mut forged = Request::new(1);
    forged.extensions_mut().insert(RateLimitStatus::default());
    for closed in [
        ByHand.plain(forged).await,
        ByHand.unboxed(Request::new(1)).await,
        ByHand.boxed(Request::new(1)).await,
    ] {
        assert_eq!(closed.unwrap_err().code(), Code::Internal);
    }
}
