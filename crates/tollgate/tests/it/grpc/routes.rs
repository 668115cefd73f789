//! The calls that a policy covers.

use tollgate::{ClientAddress, Limiter, Networks, Policy, Quota, RateLimitLayer};
use tollgate_testkit::shop::Order;
use tonic::Code;

use crate::grpc::serving::Served;

#[tokio::test]
async fn services_are_routed_and_callers_told_apart_as_over_http() {
    // given a limit on one service, behind a proxy on this machine
    let proxies = Networks::new(["127.0.0.0/8"]);
    let limiter = Limiter::builder()
        .client_address(ClientAddress::x_forwarded_for(proxies))
        .policy(Policy::new("orders", Quota::per_hour(1)).route("/shop.v1.Orders/{method}"))
        .policy(Policy::new("other", Quota::per_hour(1)).route("/other.{*rest}"))
        .build()
        .unwrap();
    let served = Served::behind(RateLimitLayer::new(limiter)).await;
    let client = served.client().await;
    let from = async |caller: &'static str| {
        let mut request = tonic::Request::new(Order::default());
        let caller = caller.parse().unwrap();
        request.metadata_mut().insert("x-forwarded-for", caller);
        let receipt = client.clone().place(request).await;
        receipt.map_or_else(|status| status.code(), |_| Code::Ok)
    };

    // when callers call, one of them twice
    // then it is refused the second time
    assert_eq!(from("203.0.113.7").await, Code::Ok);
    assert_eq!(from("6.6.6.6, 203.0.113.7").await, Code::ResourceExhausted);
    assert_eq!(from("203.0.113.8").await, Code::Ok);
}

#[tokio::test]
async fn methods_services_and_packages_have_budgets_of_their_own() {
    let cases = [
        ("shop.v1.Orders/Place", [true, false]),
        ("shop.v1.Orders/*", [true, true]),
        ("shop.v1.*", [true, true]),
        ("shop.*", [true, true]),
        ("shop.v2.*", [false, false]),
        ("sho.*", [false, false]),
        ("shop.v1.Orders/place", [false, false]),
    ];
    for (methods, covers) in cases {
        let policy = Policy::new("none", Quota::per_hour(1))
            .cost_by(|_| 2)
            .grpc(methods);
        let served = Served::behind(RateLimitLayer::new(policy)).await;
        let mut client = served.client().await;

        let place = client.place(Order::default()).await.err();
        let watch = client.watch(Order::default()).await.err();

        let is_denied = |status: Option<tonic::Status>| {
            status.is_some_and(|status| status.code() == Code::ResourceExhausted)
        };
        assert_eq!([is_denied(place), is_denied(watch)], covers, "{methods}");
    }
}

#[tokio::test]
async fn a_refused_stream_never_opens_whichever_side_streams() {
    // given a budget that nothing fits into
    let served = Served::behind(RateLimitLayer::new(
        Policy::new("none", Quota::per_hour(1)).cost_by(|_| 2),
    ))
    .await;
    let mut client = served.client().await;
    let orders = || tokio_stream::iter(vec![Order::default(); 3]);

    // when each kind of method is called
    let refusals = [
        client.place(Order::default()).await.unwrap_err(),
        client.upload(orders()).await.unwrap_err(),
        client.watch(Order::default()).await.map(drop).unwrap_err(),
        client.chat(orders()).await.map(drop).unwrap_err(),
    ];

    // then the status is there at once, and the service has seen none
    for refusal in refusals {
        assert_eq!(refusal.code(), Code::ResourceExhausted);
        assert!(refusal.metadata().contains_key("grpc-retry-pushback-ms"));
    }
    assert_eq!(served.shop.calls(), 0);
}
