//! Limits on one service of a server: by an interceptor, or by the layer around it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::config::{PolicyConfig, Registry};
use tollgate::key::{Global, Metadata};
use tollgate::{
    Cause, ClientAddress, ClientIp, Event, GrpcAnswers, Key, Limiter, MemoryBackend, Messages,
    OnMissing, Policy, Quota, QuotaLookup, RateLimitInterceptor, RateLimitLayer, Share, Tiers, key,
};
use tollgate_testkit::shop::{Order, OrdersServer, Shop};
use tonic::Code;
use tonic::service::Interceptor;
use tonic::transport::Server;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;
use tower_layer::Layer;

use crate::grpc::serving::{client, incoming, place};

const QUOTA: Quota = Quota::per_hour(1);

fn of(policy: Policy) -> RateLimitInterceptor {
    RateLimitInterceptor::new(Limiter::builder().policy(policy), MemoryBackend::new()).unwrap()
}

#[tokio::test]
async fn an_interceptor_refuses_as_the_layer_does() {
    // given
    let shop = Shop::default();
    let orders = OrdersServer::with_interceptor(shop.clone(), of(Policy::new("orders", QUOTA)));
    let (address, incoming) = incoming().await;
    tokio::spawn(
        Server::builder()
            .add_service(orders)
            .serve_with_incoming(incoming),
    );
    let mut client = client(address).await;

    // when
    place(&mut client).await.unwrap();
    let denied = place(&mut client).await.unwrap_err();

    // then
    assert_eq!(shop.calls(), 1);
    assert_eq!(denied.code(), Code::ResourceExhausted);
    assert!(denied.metadata().contains_key("grpc-retry-pushback-ms"));
    let details = denied.get_error_details();
    assert_eq!(details.quota_failure().unwrap().violations.len(), 1);
    let delay = details.retry_info().unwrap().retry_delay.unwrap();
    assert!(delay > Duration::from_secs(3_500), "{delay:?}");
}

#[tokio::test]
async fn an_observer_hears_of_the_calls_under_an_interceptor() {
    let denials = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&denials);
    let limiter = Limiter::builder()
        .policy(Policy::new("orders", QUOTA).key(Global))
        .observe(move |event: &Event<'_>| {
            let is_denied = event.verdict().unwrap().is_denied();
            heard.lock().unwrap().push((event.cause(), is_denied));
        });
    let mut interceptor = RateLimitInterceptor::new(limiter, MemoryBackend::new()).unwrap();

    interceptor.call(tonic::Request::new(())).unwrap();
    interceptor.call(tonic::Request::new(())).unwrap_err();

    let expected = [(Cause::Backend, false), (Cause::Backend, true)];
    assert_eq!(*denials.lock().unwrap(), expected);
}

#[tokio::test]
async fn interceptors_and_layers_of_one_backend_share_budgets() {
    let backend = Arc::new(MemoryBackend::new());
    let limiter =
        || Limiter::builder().policy(Policy::new("orders", Quota::per_hour(2)).key(Global));
    let mut interceptor = RateLimitInterceptor::new(limiter(), Arc::clone(&backend)).unwrap();
    let elsewhere = limiter().backend(backend).build().unwrap();

    interceptor.call(tonic::Request::new(())).unwrap();
    let checked = elsewhere.check("orders", Key::global()).await;
    let denied = interceptor.call(tonic::Request::new(())).unwrap_err();

    assert!(checked.unwrap().is_allowed());
    assert_eq!(denied.code(), Code::ResourceExhausted);
}

#[test]
fn an_interceptor_obeys_the_policies_that_were_replaced_last() {
    let one = |name| Policy::new(name, Quota::per_hour(1)).key(Global);
    let interceptor = of(one("before"));
    let passes = || interceptor.clone().call(tonic::Request::new(())).is_ok();
    assert_eq!([passes(), passes()], [true, false]);

    interceptor.limiter().replace([one("after")]).unwrap();

    assert_eq!([passes(), passes()], [true, false]);
}

#[test]
fn metadata_and_extensions_pass_an_interceptor_as_they_are() {
    #[derive(Clone, Debug, PartialEq)]
    struct Mark(u8);

    let mut interceptor = of(Policy::new("orders", QUOTA).key(Global));
    let mut call = tonic::Request::new(());
    call.metadata_mut().insert("x-a", "1".parse().unwrap());
    call.metadata_mut().append("x-a", "2".parse().unwrap());
    call.extensions_mut().insert(Mark(7));

    let passed = interceptor.call(call).unwrap();

    let values: Vec<_> = passed.metadata().get_all("x-a").iter().collect();
    assert_eq!(values, ["1", "2"]);
    assert_eq!(passed.extensions().get(), Some(&Mark(7)));
    assert!(
        passed
            .extensions()
            .get::<tollgate::RateLimitStatus>()
            .is_some()
    );
}

#[test]
fn a_caller_is_found_in_metadata_and_answers_can_be_chosen() {
    let policy = Policy::new("orders", QUOTA)
        .key(Metadata::new("tenant"))
        .on_missing(OnMissing::Deny);
    let mut interceptor = of(policy).grpc(GrpcAnswers::new().without_details());

    let refused = interceptor.call(tonic::Request::new(())).unwrap_err();
    let mut named = tonic::Request::new(());
    named.metadata_mut().insert("tenant", "a".parse().unwrap());

    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.details().is_empty());
    assert!(interceptor.call(named).is_ok());
}

#[test]
fn what_an_interceptor_cannot_do_is_refused_while_it_is_built() {
    let policy = || Policy::new("orders", QUOTA);
    let asked = Tiers::by_async(Duration::from_secs(1), async |_| {
        Ok::<_, String>(None::<String>)
    });
    let lookup = QuotaLookup::new(Duration::from_secs(1), async |_: Key| {
        Ok::<_, String>(QUOTA)
    });
    let file =
        r#"{ "name": "orders", "quotas": "9/s", "key": ["client-ip", { "query": "user" }] }"#;
    let config: PolicyConfig = serde_json::from_str(file).unwrap();
    let of_a_file = config.build(&Registry::new(), &ClientAddress::peer());
    let cases = [
        (of_a_file.unwrap(), "has a key in the path"),
        (policy().grpc("shop.v1.Orders/Place"), "has a route or host"),
        (policy().exempt_route("/x"), "has a route or host"),
        (policy().host("shop.example.com"), "has a route or host"),
        (
            policy().key_async(key::from_async_fn(|_| async { None::<u64> })),
            "has an async key",
        ),
        (policy().tiers(asked), "has tiers that are asked for"),
        (
            policy().quota_by_async(lookup),
            "has quotas that are asked for",
        ),
        (policy().free_if(|_| true), "charges by the response"),
        (
            policy().method(http::Method::PUT),
            "has a condition on the HTTP method",
        ),
        (
            policy().exempt_method(http::Method::GET),
            "has a condition on the HTTP method",
        ),
        (policy().when(|_| true), "has a condition of its own"),
        (policy().cost_by(|_| 1), "has a cost of its own"),
        (policy().key(key::Host), "has a key in the path"),
        (policy().key(key::MatchedRoute), "has a key in the path"),
        (
            policy().key(key::PathParam::new("id")),
            "has a key in the path",
        ),
        (policy().key(key::Query::new("id")), "has a key in the path"),
        (
            policy().key(key::FormField::new("id")),
            "has a key in the path",
        ),
        (policy().key((Global, key::Host)), "has a key in the path"),
        (
            Policy::new("orders", Quota::per_hour(10))
                .class_by(key::MatchedRoute)
                .keep_for("a", Share::percent(20)),
            "has classes by the path",
        ),
        (
            policy().per_message(Messages::received()),
            "charges messages",
        ),
    ];
    for (policy, reason) in cases {
        let limiter = Limiter::builder().policy(policy);
        let error = RateLimitInterceptor::new(limiter, MemoryBackend::new());
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with("policy \"orders\": "), "{error}");
        assert!(error.contains(reason), "{error}");
        assert!(error.ends_with("; use RateLimitLayer"), "{error}");
    }
}

#[test]
fn what_an_interceptor_can_do_is_not_refused() {
    let policy = || Policy::new("orders", QUOTA);
    let tiers = Tiers::by_key([("a", "gold")]).tier("gold", Quota::per_hour(2));
    for policy in [
        policy(),
        policy().shadow().cost(1),
        policy().key((ClientIp, Metadata::new("tenant"))),
        policy().key(key::Extension::new(|user: &u64| *user)),
        policy().key(key::from_fn(|_| Some("a"))).tiers(tiers),
    ] {
        let limiter = Limiter::builder().policy(policy);
        let built = RateLimitInterceptor::new(limiter, MemoryBackend::new());
        assert!(built.is_ok(), "{built:?}");
    }
}

#[test]
fn a_call_under_an_interceptor_has_the_class_that_its_metadata_names() {
    let policy = Policy::new("orders", Quota::per_hour(4)).key(Global);
    let policy = policy.class_by(Metadata::new("class"));
    let mut interceptor = of(policy.keep_for("urgent", Share::percent(50)));
    let mut code = |class: Option<&str>| {
        let mut call = tonic::Request::new(());
        if let Some(class) = class {
            call.metadata_mut().insert("class", class.parse().unwrap());
        }
        interceptor.call(call).err().map(|refused| refused.code())
    };

    assert_eq!([code(None), code(None)], [None, None]);
    assert_eq!(code(None), Some(Code::ResourceExhausted));
    assert_eq!([code(Some("urgent")), code(Some("urgent"))], [None, None]);
    assert_eq!(code(Some("urgent")), Some(Code::ResourceExhausted));
}

/// Base64 of `urgent` and of `idle`: a proxy sets the second line, or the caller does.
#[test]
fn lines_that_differ_name_no_class() {
    let policy = Policy::new("orders", Quota::per_hour(10)).key(Global);
    let policy = policy.class_by(Metadata::new("class-bin"));
    let mut interceptor = of(policy.keep_for("urgent", Share::percent(50)));
    let passed = (0..10).filter(|_| {
        let mut call = tonic::Request::new(());
        for class in ["urgent", "idle"] {
            let class = tonic::metadata::MetadataValue::from_bytes(class.as_bytes());
            call.metadata_mut().append_bin("class-bin", class);
        }
        interceptor.call(call).is_ok()
    });
    assert_eq!(passed.count(), 5);
}

#[tokio::test]
async fn the_layer_goes_around_one_service_of_a_server() {
    // given a server of two services, of which one is limited
    let shop = Shop::default();
    let limited = Policy::new("orders", QUOTA);
    let orders = RateLimitLayer::new(limited).layer(OrdersServer::new(shop.clone()));
    let (_, health) = tonic_health::server::health_reporter();
    let (address, incoming) = incoming().await;
    let server = Server::builder().add_service(orders).add_service(health);
    tokio::spawn(server.serve_with_incoming(incoming));

    // when the limited one is over its quota
    let mut orders = client(address).await;
    place(&mut orders).await.unwrap();
    let denied = orders.watch(Order::default()).await.unwrap_err();

    // then the other is not concerned
    assert_eq!(denied.code(), Code::ResourceExhausted);
    let endpoint = tonic::transport::Endpoint::new(format!("http://{address}")).unwrap();
    let mut health = HealthClient::new(endpoint.connect().await.unwrap());
    health.check(HealthCheckRequest::default()).await.unwrap();
    assert_eq!(shop.calls(), 1);
}
