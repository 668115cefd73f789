//! The callers that are denied most: each limiter counts for itself, goes on after a replacement, and keeps little.

#![cfg(feature = "axum")]

use std::future::IntoFuture;
use std::pin::pin;
use std::task::{Context, Waker};

use crate::common::{at_a_standstill, from};
use allocation_counter::measure;
use axum::Router;
use axum::body::Body;
use axum::routing::get;
use tollgate::{Key, Limiter, LimiterBuilder, MethodRouterExt, Policy, Quota, RateLimitLayer};
use tower::ServiceExt;

fn tracked() -> LimiterBuilder {
    Limiter::builder()
        .backend(at_a_standstill().0)
        .track_offenders()
}

async fn knock(limiter: &Limiter, times: usize) {
    for _ in 0..times {
        let _ruled = limiter.check("api", "mallory").await.unwrap();
    }
}

fn denials(limiter: &Limiter, policy: &str) -> u64 {
    let offenders = limiter.offenders(policy);
    offenders.map_or(0, |offenders| offenders.denials())
}

#[tokio::test]
async fn two_limiters_with_clones_of_one_policy_count_each_for_itself() {
    let policy = Policy::new("api", Quota::per_hour(1));
    let one = tracked().policy(policy.clone()).build().unwrap();
    let other = tracked().policy(policy).build().unwrap();

    knock(&one, 4).await;
    knock(&other, 3).await;

    assert_eq!([denials(&one, "api"), denials(&other, "api")], [3, 2]);
}

#[tokio::test]
async fn a_policy_that_goes_and_comes_back_counts_anew() {
    let limiter = tracked()
        .policy(Policy::new("api", Quota::per_hour(1)))
        .build()
        .unwrap();
    knock(&limiter, 4).await;
    assert_eq!(denials(&limiter, "api"), 3);

    let before = Policy::clone(&limiter.policy("api").unwrap());
    let other = Policy::new("other", Quota::per_hour(1));
    limiter.replace([other]).unwrap();
    limiter.replace([before]).unwrap();

    assert_eq!(denials(&limiter, "api"), 0);
    knock(&limiter, 2).await;
    assert_eq!(denials(&limiter, "api"), 2);
}

#[tokio::test]
async fn a_limit_at_a_route_is_counted_after_a_replacement_too() {
    let policy = Policy::new("all", Quota::per_hour(100));
    let limiter = tracked().policy(policy).build().unwrap();
    let app: Router = Router::new()
        .route("/", get(|| async {}).rate_limit(Quota::per_hour(1)))
        .layer(RateLimitLayer::new(&limiter));
    let ask = async || {
        let request = from("10.0.0.1").map(|_| Body::empty());
        app.clone().oneshot(request).await.unwrap().status()
    };
    assert_eq!([ask().await, ask().await], [200, 429]);
    assert_eq!(denials(&limiter, "get/"), 1);

    let policies = limiter.policies();
    limiter
        .replace(policies.iter().map(|policy| Policy::clone(policy)))
        .unwrap();

    assert_eq!([ask().await, ask().await], [429, 429]);
    assert_eq!(denials(&limiter, "get/"), 2);
}

/// Each caller comes once, and is denied.
#[test]
fn a_flood_of_distinct_callers_takes_forty_kilobytes_and_no_more() {
    let flood = |builder: LimiterBuilder| {
        let policy = Policy::new("api", Quota::per_hour(1));
        let limiter = builder.policy(policy).build().unwrap();
        let knocks = |from: u64, to: u64| {
            for caller in from..to {
                // More than a full budget has, so that the backend keeps nothing.
                let check = limiter.check("api", Key::from(caller.to_string())).cost(2);
                let mut check = pin!(check.into_future());
                let mut context = Context::from_waker(Waker::noop());
                assert!(check.as_mut().poll(&mut context).is_ready());
            }
        };
        let kept = |from, to| measure(|| knocks(from, to)).bytes_current;
        [kept(0, 20_000), kept(20_000, 200_000)]
    };

    let [without, _] = flood(Limiter::builder());
    let [first, later] = flood(Limiter::builder().track_offenders());

    assert!(first - without < 40 * 1_024, "{first}");
    assert!(later.abs() < 8 * 1_024, "{later}");
}
