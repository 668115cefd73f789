//! Identities that are exempt or refused outright, while the lists of them change.

use std::thread;

use crate::common::{Body, Strict, from, header};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use tollgate::key::{Cookie, Global, Header, KeyList};
use tollgate::{Block, ClientIp, Key, Limiter, OnMissing, Policy, Quota, RateLimitLayer, key};
use tower::{Layer, ServiceExt};

async fn send(layer: &RateLimitLayer, request: Request<Body>) -> Response<Body> {
    layer
        .layer(Strict::default())
        .oneshot(request)
        .await
        .unwrap()
}

async fn status(layer: &RateLimitLayer, request: Request<Body>) -> u16 {
    send(layer, request).await.status().as_u16()
}

fn with_key(key: &str) -> Request<Body> {
    let mut request = from("10.0.0.1");
    request
        .headers_mut()
        .insert("x-api-key", key.parse().unwrap());
    request
}

fn api() -> Policy {
    Policy::new("api", Quota::per_hour(1)).key(Header::new("x-api-key"))
}

#[tokio::test]
async fn who_is_exempt_is_not_counted_for_as_long_as_that_is_so() {
    let partners = KeyList::new();
    let layer = RateLimitLayer::new(api().exempt_keys(&partners));
    assert_eq!(status(&layer, with_key("a")).await, 200);
    assert_eq!(status(&layer, with_key("a")).await, 429);

    partners.insert("a");
    let exempt = send(&layer, with_key("a")).await;
    assert_eq!(
        (exempt.status().as_u16(), header(&exempt, "ratelimit")),
        (200, "")
    );

    partners.remove("a");
    assert_eq!(status(&layer, with_key("a")).await, 429);
}

#[tokio::test]
async fn paths_and_methods_are_exempt_for_as_long_as_they_are_on_a_list() {
    let (paths, methods) = (KeyList::new(), KeyList::new());
    let path = key::from_fn(|request| Some(request.uri().path().to_owned()));
    let policy = Policy::new("api", Quota::per_hour(1)).key(Global);
    let layer = RateLimitLayer::new(
        policy
            .exempt_by(path, &paths)
            .exempt_by(key::Method, &methods),
    );
    let ask = async |method: Method, path: &str| {
        let mut request = from("10.0.0.1");
        (*request.method_mut(), *request.uri_mut()) = (method, path.parse().unwrap());
        status(&layer, request).await
    };

    assert_eq!(ask(Method::GET, "/reports").await, 200);
    assert_eq!(ask(Method::GET, "/reports").await, 429);
    paths.insert("/reports");
    assert_eq!(ask(Method::GET, "/reports").await, 200);
    assert_eq!(ask(Method::DELETE, "/else").await, 429);
    methods.insert("DELETE");
    assert_eq!(ask(Method::DELETE, "/else").await, 200);

    paths.remove("/reports");
    methods.remove("DELETE");
    assert_eq!(ask(Method::GET, "/reports").await, 429);
    assert_eq!(ask(Method::DELETE, "/else").await, 429);
}

#[tokio::test]
async fn who_is_blocked_is_refused_whatever_is_left_and_costs_nobody_anything() {
    let (leaked, abusive) = (KeyList::new(), KeyList::new());
    let limiter = Limiter::builder()
        .policy(Policy::new("address", Quota::per_hour(1)))
        .policy(
            api()
                .block_keys(&leaked, Block::Forbidden)
                .block_keys(&abusive, Block::TooManyRequests),
        )
        .build()
        .unwrap();
    let layer = RateLimitLayer::new(limiter);
    leaked.insert("leaked");
    abusive.insert("abusive");

    for (key, status, kind) in [
        ("leaked", 403, "about:blank"),
        ("abusive", 429, "http-problem-types#abnormal-usage-detected"),
    ] {
        let refused = send(&layer, with_key(key)).await;
        assert_eq!(refused.status(), status);
        assert_eq!(header(&refused, "retry-after"), "");
        assert_eq!(header(&refused, "cache-control"), "no-store");
        let body = refused.into_body().collect().await.unwrap().to_bytes();
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(problem["status"], status);
        assert!(problem["type"].as_str().unwrap().ends_with(kind));
    }
    // The budget of the address is untouched.
    assert_eq!(status(&layer, with_key("good")).await, 200);
}

#[tokio::test]
async fn an_identity_that_cannot_be_told_is_on_no_list_and_a_policy_may_refuse_it() {
    let leaked = KeyList::from_iter(["leaked"]);
    let policy = || {
        let policy = Policy::new("api", Quota::per_hour(2)).key(Cookie::new("sid"));
        policy.block_keys(&leaked, Block::Forbidden)
    };
    let ask = |cookies: &str| {
        let mut request = from("10.0.0.1");
        let cookies = cookies.parse().unwrap();
        request.headers_mut().insert("cookie", cookies);
        request
    };

    // All such requests share one budget.
    for on_missing in [OnMissing::Share, OnMissing::Pass] {
        let layer = RateLimitLayer::new(policy().on_missing(on_missing));
        assert_eq!(status(&layer, ask("sid=leaked")).await, 403);
        assert_eq!(status(&layer, ask("sid=leaked; sid=a")).await, 200);
        assert_eq!(status(&layer, ask("sid=b; sid=leaked")).await, 200);
        assert_eq!(status(&layer, ask("sid=c; sid=leaked")).await, 429);
    }
    let strict = RateLimitLayer::new(policy().on_missing(OnMissing::Deny));
    assert_eq!(status(&strict, ask("sid=leaked; sid=a")).await, 403);
    assert_eq!(status(&strict, ask("sid=a")).await, 200);
}

#[tokio::test]
async fn to_a_grpc_caller_a_block_is_permission_denied_or_resource_exhausted() {
    for (how, expected) in [(Block::Forbidden, "7"), (Block::TooManyRequests, "8")] {
        let blocked: KeyList = ["bad"].into_iter().collect();
        let layer = RateLimitLayer::new(api().block_keys(&blocked, how));
        let mut request = with_key("bad");
        *request.method_mut() = Method::POST;
        *request.uri_mut() = "/shop.v1.Orders/Place".parse().unwrap();
        let kind = "application/grpc".parse().unwrap();
        request.headers_mut().insert("content-type", kind);

        let refused = send(&layer, request).await;

        assert_eq!(header(&refused, "grpc-status"), expected);
        assert_eq!(refused.status(), 200);
    }
}

#[tokio::test]
async fn a_policy_on_trial_blocks_nobody_and_exemption_goes_before_a_block() {
    let list: KeyList = ["a"].into_iter().collect();
    let trial = RateLimitLayer::new(api().block_keys(&list, Block::Forbidden).shadow());
    assert_eq!(status(&trial, with_key("a")).await, 200);

    let both = api().block_keys(&list, Block::Forbidden).exempt_keys(&list);
    assert_eq!(status(&RateLimitLayer::new(both), with_key("a")).await, 200);
}

#[tokio::test]
async fn an_address_is_listed_as_the_limiter_groups_it() {
    let blocked = KeyList::new();
    let policy = Policy::new("ip", Quota::per_hour(9))
        .key(ClientIp)
        .block_keys(&blocked, Block::Forbidden);
    let limiter = Limiter::from(policy);
    blocked.insert(limiter.client_key("2001:db8::1".parse().unwrap()));
    let layer = RateLimitLayer::new(limiter);

    assert_eq!(status(&layer, from("[2001:db8::2]")).await, 403);
    assert_eq!(status(&layer, from("[2001:db8:0:1::1]")).await, 200);
    assert!(!blocked.contains(&Key::from("2001:db8::1")));
}

#[tokio::test]
async fn a_check_by_hand_obeys_the_lists() {
    let (partners, leaked, abusive) = (KeyList::new(), KeyList::new(), KeyList::new());
    let policy = || {
        api()
            .exempt_keys(&partners)
            .block_keys(&leaked, Block::Forbidden)
            .block_keys(&abusive, Block::TooManyRequests)
    };
    let limiter = Limiter::from(policy());
    let check = async |key: &str| limiter.check("api", key).await.unwrap();

    // No key is listed.
    for key in ["a", "b", "c"] {
        let checked = check(key).await;
        assert!(checked.is_allowed() && checked.blocked().is_none());
        assert!(!check(key).await.is_allowed());
    }

    partners.insert("a");
    leaked.insert("b");
    abusive.insert("c");

    for _ in 0..3 {
        let exempt = check("a").await;
        assert!(exempt.is_allowed() && exempt.verdicts().is_empty());
        assert_eq!(exempt.remaining(), u64::MAX);
    }
    for (key, how) in [("b", Block::Forbidden), ("c", Block::TooManyRequests)] {
        let blocked = check(key).await;
        assert!(!blocked.is_allowed());
        assert_eq!(
            (blocked.blocked(), blocked.retry_after()),
            (Some(how), None)
        );
        assert_eq!(blocked.remaining(), 0);
        assert!(blocked.into_receipts().is_empty());
    }
    let trial = Limiter::from(policy().shadow());
    assert!(trial.check("api", "b").await.unwrap().is_allowed());
}

#[test]
fn clones_of_a_list_are_one_list() {
    let list: KeyList = ["a", "b"].into_iter().collect();
    let other = list.clone();

    other.insert("c");
    other.remove("a");
    let has = |key: &str| list.contains(&Key::from(key));
    assert_eq!([has("a"), has("b"), has("c")], [false, true, true]);

    other.replace(["d"]);
    assert_eq!([has("b"), has("c"), has("d")], [false, false, true]);
}

#[test]
fn no_change_of_a_list_made_at_the_same_time_is_lost() {
    let list = KeyList::new();
    thread::scope(|scope| {
        for part in 0_u64..4 {
            let list = &list;
            scope.spawn(move || (0..50).for_each(|n| list.insert(part * 50 + n)));
        }
    });
    assert!((0_u64..200).all(|n| list.contains(&Key::from(n))));
}
