//! Limits on routes, without an annotation.

#![cfg(feature = "axum")]

use std::panic;
use std::sync::mpsc;

use crate::common::header;
use crate::common::served::Served;
use axum::Router;
use axum::http::Method;
use axum::routing::{MethodRouter, any, get, post};
use tollgate::{Concurrent, Limiter, MethodRouterExt, Policy, Quota, RateLimitLayer};

async fn hello() -> &'static str {
    "hello"
}

fn limiter() -> Limiter {
    Limiter::builder()
        .policy(Policy::new("search", Quota::per_hour(2)).on_demand())
        .build()
        .unwrap()
}

#[tokio::test]
async fn a_route_is_charged_and_its_405s_are_not() {
    let app = Router::new()
        .route("/export", get(hello).rate_limit("1/hour"))
        .route("/free", get(hello))
        .layer(RateLimitLayer::new(limiter()));
    let server = Served::new(app).await;

    let statuses = server
        .statuses([
            "POST /export",
            "POST /export",
            "/export",
            "HEAD /export",
            "/free",
            "/free",
        ])
        .await;

    assert_eq!(statuses, [405, 405, 200, 429, 200, 200]);
    let refused = server.get("/export").await;
    assert_eq!(
        header(&refused, "ratelimit-policy"),
        "\"get/export\";q=1;w=3600"
    );
}

#[tokio::test]
async fn a_limit_covers_the_handlers_that_the_route_has_by_then() {
    let app = Router::new()
        .route("/", post(hello).rate_limit("1/hour").get(hello))
        .layer(RateLimitLayer::new(limiter()));
    let server = Served::new(app).await;
    let statuses = server.statuses(["POST /", "POST /", "/", "/"]).await;
    assert_eq!(statuses, [200, 429, 200, 200]);
}

#[tokio::test]
async fn a_route_takes_a_limit_on_how_many_at_once_beside_quotas() {
    let (rate, two) = (Quota::per_hour(9), Concurrent::at_most(2));
    let app = Router::new()
        .route("/alone", get(hello).rate_limit(two))
        .route("/pair", get(hello).rate_limit((rate, two)))
        .route("/three", get(hello).rate_limit(("9/hour", rate, two)))
        .route("/text", get(hello).rate_limit("9/hour; 2 at once"))
        .layer(RateLimitLayer::new(limiter()));
    let server = Served::new(app).await;
    let at_once = |name: &str| format!("\"{name}\";q=2;qu=\"concurrent-requests\"");
    for (path, policy) in [
        ("/alone", at_once("get/alone")),
        ("/pair", at_once("get/pair-2")),
        ("/three", at_once("get/three-3")),
        ("/text", at_once("get/text-2")),
    ] {
        // Held and given back again: more in turn than at once.
        for _ in 0..4 {
            let response = server.get(path).await;
            assert_eq!(response.status(), 200, "{path}");
            let policies = header(&response, "ratelimit-policy");
            assert!(policies.ends_with(&policy), "{policies}");
        }
    }
}

#[tokio::test]
async fn several_quotas_of_a_route_are_one_decision() {
    let quotas = [Quota::per_hour(2), Quota::per_day(9)];
    let app = Router::new()
        .route("/a", get(hello).rate_limit(["2/hour", "9/day"]))
        .route("/b", get(hello).rate_limit(quotas))
        .layer(RateLimitLayer::new(limiter()));
    let server = Served::new(app).await;
    for path in ["/a", "/b"] {
        let response = server.get(path).await;
        assert_eq!(
            header(&response, "ratelimit-policy"),
            format!("\"get{path}\";q=2;w=3600, \"get{path}-2\";q=9;w=86400")
        );
    }
}

#[tokio::test]
async fn routes_share_a_policy_of_the_limiter() {
    let app = Router::new()
        .route("/a", get(hello).rate_limit_by("search"))
        .route("/b", get(hello).rate_limit_by("search"))
        .layer(RateLimitLayer::new(limiter()));
    let server = Served::new(app).await;
    let statuses = server.statuses(["/a", "/b", "/a", "/b"]).await;
    assert_eq!(statuses, [200, 200, 429, 429]);
}

/// The caller chooses the method and writes the host.
#[tokio::test]
async fn pitfall_a_route_is_charged_by_name_whatever_the_policy_covers() {
    let policies = [
        Policy::new("search", Quota::per_hour(2)).host("api.example.com"),
        Policy::new("search", Quota::per_hour(2)).method(Method::POST),
        Policy::new("search", Quota::per_hour(2)).exempt_method(Method::GET),
        Policy::new("search", Quota::per_hour(2)).when(|_| false),
    ];
    for policy in policies {
        let limiter = Limiter::builder().policy(policy.on_demand()).build();
        let app = Router::new()
            .route("/", any(hello).rate_limit_by("search"))
            .layer(RateLimitLayer::new(limiter.unwrap()));
        let server = Served::new(app).await;
        let statuses = server.statuses(["/", "PUT /", "/", "FOO /"]).await;
        assert_eq!(statuses, [200, 200, 429, 429]);
    }
}

#[tokio::test]
async fn a_router_built_again_by_the_same_lines_has_the_same_limits() {
    let limiter = limiter();
    let build = || {
        Router::new()
            .route("/", get(hello).rate_limit("1/hour"))
            .layer(RateLimitLayer::new(&limiter))
    };
    let (one, other) = (Served::new(build()).await, Served::new(build()).await);
    assert_eq!(one.statuses(["/"]).await, [200]);
    assert_eq!(other.statuses(["/"]).await, [429]);
}

#[test]
fn a_text_that_is_no_quota_names_the_line_that_wrote_it() {
    let line = line!() + 1;
    let build = || get::<_, _, ()>(hello).rate_limit(["2/hour", "2/fortnight"]);

    let (said, listener) = mpsc::channel();
    let loud = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let place = info.location().map(|at| (at.file().to_owned(), at.line()));
        // Other tests may panic meanwhile.
        if info.to_string().contains("2/fortnight") {
            said.send(place).unwrap();
        } else {
            loud(info);
        }
    }));

    assert!(panic::catch_unwind(build).is_err());
    assert_eq!(listener.recv(), Ok(Some((file!().to_owned(), line))));
}

#[tokio::test]
async fn a_route_that_answers_every_method_has_one_budget_for_all_of_them() {
    let routes = [
        any(hello).rate_limit("2/min"),
        get(hello).fallback(hello).rate_limit("2/min"),
        get(hello).fallback_service(any(hello)).rate_limit("2/min"),
    ];
    for route in routes {
        let app = Router::new().route("/", route);
        let server = Served::new(app.layer(RateLimitLayer::new(limiter()))).await;
        let statuses = server
            .statuses(["/", "PURGE /", "POST /", "OPTIONS /", "/"])
            .await;
        assert_eq!(statuses, [200, 200, 429, 429, 429]);
    }
}

#[tokio::test]
async fn routes_with_and_without_fallback_are_joined_with_their_limits() {
    let route = get(hello).rate_limit("1/hour");
    let route = route.merge(any(hello).rate_limit("2/hour"));
    let app = Router::new().route("/", route);
    let server = Served::new(app.layer(RateLimitLayer::new(limiter()))).await;
    let statuses = server
        .statuses(["/", "/", "PUT /", "POST /", "PUT /"])
        .await;
    assert_eq!(statuses, [200, 429, 200, 200, 429]);
}

#[test]
#[should_panic(expected = "this one has none: add them before the limit")]
fn a_limit_on_a_route_without_handlers_fails_while_it_is_built() {
    drop(MethodRouter::<()>::new().rate_limit("2/min"));
}
