//! Which calls a policy covers.

use tollgate::{ClientAddress, Limiter, Networks, Policy, Quota, RateLimitLayer};
use tollgate_testkit::shop::Order;
use tonic::Code;

use crate::serving::Served;

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
