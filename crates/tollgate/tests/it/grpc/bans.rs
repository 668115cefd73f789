//! Banned callers are told so in gRPC.

use std::time::Duration;

use tollgate::key::Metadata;
use tollgate::{Ban, Block, Limiter, Policy, Quota, RateLimitLayer};
use tollgate_testkit::shop::Order;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

use crate::common::at_a_standstill;
use crate::grpc::serving::Served;

const QUARTER: Duration = Duration::from_secs(900);

fn metadata<'a>(status: &'a Status, name: &str) -> Option<&'a str> {
    let value = status.metadata().get(name)?;
    Some(value.to_str().unwrap())
}

/// The answers to a caller whose second denial bans: to that call, and to one after a quarter of the ban.
async fn banned(answer: Block) -> [Status; 2] {
    let ban = Ban::after(2, Duration::from_secs(600)).lasting(QUARTER);
    let orders = Policy::new("orders", Quota::per_minute(1)).key(Metadata::new("account"));
    let (backend, clock) = at_a_standstill();
    let limiter = Limiter::builder().policy(orders.ban(ban).answer_banned(answer));
    let limiter = limiter.backend(backend).build().unwrap();
    let served = Served::behind(RateLimitLayer::new(limiter)).await;
    let call = async |account: &str| {
        let mut order = Request::new(Order::default());
        order
            .metadata_mut()
            .insert("account", account.parse().unwrap());
        served.client().await.place(order).await
    };
    call("mallory").await.unwrap();
    let denied = call("mallory").await.unwrap_err();
    let details = denied.get_error_details();
    assert_eq!(details.error_info().unwrap().reason, "RATE_LIMIT_EXCEEDED");

    let struck = call("mallory").await.unwrap_err();
    clock.advance(QUARTER / 4);
    let knocked = call("mallory").await.unwrap_err();

    call("alice").await.unwrap();
    assert_eq!(served.shop.calls(), 2);
    [struck, knocked]
}

#[tokio::test]
async fn a_banned_caller_is_told_when_the_ban_ends() {
    for (status, left) in banned(Block::TooManyRequests)
        .await
        .into_iter()
        .zip([QUARTER, QUARTER * 3 / 4])
    {
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(status.message(), "the caller is banned for a time");
        let pushback = metadata(&status, "grpc-retry-pushback-ms").unwrap();
        let pushback = Duration::from_millis(pushback.parse().unwrap());
        assert!((left..=left * 11 / 10).contains(&pushback), "{pushback:?}");
        let told = left.as_secs().to_string();
        assert_eq!(metadata(&status, "retry-after"), Some(&*told));
        let details = status.get_error_details();
        assert_eq!(details.retry_info().unwrap().retry_delay, Some(left));
        let info = details.error_info().unwrap();
        assert_eq!(
            (&*info.reason, &*info.domain),
            ("CALLER_BANNED", "tollgate")
        );
        assert!(details.quota_failure().is_none());
    }
}

#[tokio::test]
async fn a_banned_caller_may_be_denied_for_good_and_is_told_no_time() {
    for status in banned(Block::Forbidden).await {
        assert_eq!(status.code(), Code::PermissionDenied);
        assert_eq!(status.message(), "the caller is banned");
        assert_eq!(metadata(&status, "grpc-retry-pushback-ms"), Some("-1"));
        assert_eq!(metadata(&status, "retry-after"), None);
        let details = status.get_error_details();
        assert!(details.retry_info().is_none() && details.quota_failure().is_none());
        let info = details.error_info().unwrap();
        assert_eq!(
            (&*info.reason, &*info.domain),
            ("CALLER_BANNED", "tollgate")
        );
    }
}
