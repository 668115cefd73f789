//! Annotations and the layer around them: which callers are charged when, and the answers that tell it.

#![cfg(feature = "macros")]

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::common::served::Served;
use crate::common::{Waiting, at_a_standstill, header};
use axum::Router;
use axum::routing::get;
use tollgate::key::Global;
use tollgate::{
    Algorithm, FailureKind, Limiter, Policy, Quota, RateLimitHeaders, RateLimitLayer,
    RateLimitStatus, rate_limit,
};

#[rate_limit("2/hour")]
async fn hello() -> &'static str {
    "hello"
}

#[rate_limit(policy = "search")]
async fn search() {}

#[rate_limit(policy = "search", cost = 3)]
async fn search_deeply() {}

#[tokio::test]
async fn a_policy_on_demand_is_charged_where_it_is_asked_for_and_nowhere_else() {
    let limiter = Limiter::builder()
        .policy(Policy::new("search", Quota::per_hour(5)).on_demand())
        .build()
        .unwrap();
    limiter.expects(["search"]).unwrap();
    let app = Router::new()
        .route("/search", get(search))
        .route("/deep", get(search_deeply))
        .route("/free", get(|| async {}))
        .layer(RateLimitLayer::new(limiter));
    let server = Served::new(app).await;

    assert_eq!(server.statuses(["/free"; 9]).await, [200; 9]);
    let requests = ["/search", "/deep", "/deep", "/search", "/search"];
    assert_eq!(server.statuses(requests).await, [200, 200, 429, 200, 429]);
}

#[tokio::test]
async fn a_policy_on_demand_beside_others_is_left_out_by_the_layer() {
    let limiter = Limiter::builder()
        .policy(Policy::new("search", Quota::per_hour(1)).on_demand())
        .policy(Policy::new("page", Quota::per_hour(9)).route("/{page}"))
        .policy(Policy::new("all", Quota::per_hour(20)))
        .build()
        .unwrap();
    let app = Router::new()
        .route("/page", get(|| async {}))
        .route("/search", get(search))
        .layer(RateLimitLayer::new(limiter));
    let server = Served::new(app).await;

    let page = server.get("/page").await;
    let both = server.get("/search").await;

    assert_eq!(
        header(&page, "ratelimit-policy"),
        "\"page\";q=9;w=3600, \"all\";q=20;w=3600"
    );
    assert_eq!(
        header(&both, "ratelimit-policy"),
        "\"page\";q=9;w=3600, \"all\";q=20;w=3600, \"search\";q=1;w=3600"
    );
}

#[rate_limit("1/hour")]
#[rate_limit(policy = "daily")]
#[tollgate::rate_limit("1000/day", key = Global)]
async fn several(status: RateLimitStatus) -> String {
    let verdicts = status.verdicts();
    let left = verdicts
        .iter()
        .map(|one| format!("{}={}", one.policy(), one.verdict().remaining()));
    left.collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn several_annotations_are_one_decision() {
    let limiter = Limiter::builder()
        .policy(Policy::new("daily", Quota::per_day(9)).on_demand())
        .build()
        .unwrap();
    let app = Router::new()
        .route("/", get(several))
        .layer(RateLimitLayer::new(&limiter));
    let server = Served::new(app).await;

    let first = server.get("/").await;
    let then = server.statuses(["/", "/", "/"]).await;

    assert_eq!(first.body(), "several/=0 daily=8 several/-2=999");
    assert_eq!(then, [429; 3]);
    assert_eq!(left(&limiter, "daily").await, 8);
}

/// The budget that the client on this machine has left.
async fn left(limiter: &Limiter, policy: &str) -> u64 {
    let client = limiter.client_key(Ipv4Addr::LOCALHOST.into());
    let asked = limiter.check(policy, client).cost(0).await.unwrap();
    asked.remaining()
}

#[tokio::test]
async fn what_the_layer_took_comes_back_when_a_handler_refuses() {
    let limiter = Limiter::builder()
        .policy(Policy::new("all", Quota::per_hour(10)))
        .build()
        .unwrap();
    let app = Router::new()
        .route("/", get(hello))
        .layer(RateLimitLayer::new(&limiter));
    let server = Served::new(app).await;

    assert_eq!(server.statuses(["/"; 5]).await, [200, 200, 429, 429, 429]);

    assert_eq!(left(&limiter, "all").await, 8);
}

#[tokio::test]
async fn the_fields_of_all_that_took_part_are_written_once() {
    let app = Router::new()
        .route("/", get(hello))
        .layer(RateLimitLayer::new(Quota::per_hour(10)));
    let server = Served::new(app).await;

    for status in [200, 200, 429] {
        let response = server.get("/").await;
        assert_eq!(response.status(), status);
        let lines = |name| response.headers().get_all(name).iter().count();
        assert_eq!((lines("ratelimit"), lines("ratelimit-policy")), (1, 1));
        assert_eq!(
            header(&response, "ratelimit-policy"),
            "\"default\";q=10;w=3600, \"hello/\";q=2;w=3600"
        );
        assert!(header(&response, "ratelimit").starts_with("\"hello/\";r="));
        assert_eq!(lines("retry-after"), usize::from(status == 429));
    }
}

#[tokio::test]
async fn a_policy_that_the_layer_charges_too_is_charged_twice_and_written_once() {
    let limiter = Limiter::from(Policy::new("search", Quota::per_hour(10)));
    let app = Router::new()
        .route("/", get(search_deeply))
        .layer(RateLimitLayer::new(&limiter));
    let server = Served::new(app).await;

    let response = server.get("/").await;

    assert_eq!(
        header(&response, "ratelimit-policy"),
        "\"search\";q=10;w=3600"
    );
    assert!(header(&response, "ratelimit").starts_with("\"search\";r=6;t="));
    assert_eq!(left(&limiter, "search").await, 6);
}

#[tokio::test]
async fn of_all_policies_each_is_told_once_as_it_stands_after_all_charges() {
    let limiter = Limiter::from(Policy::new("search", Quota::per_hour(10)));
    let headers = RateLimitHeaders::default().of_all_policies();
    let app = Router::new()
        .route("/", get(search_deeply))
        .layer(RateLimitLayer::new(&limiter).headers(headers));
    let server = Served::new(app).await;

    let response = server.get("/").await;

    assert!(header(&response, "ratelimit").starts_with("\"search\";r=6;t="));
    assert!(
        !header(&response, "ratelimit").contains(','),
        "{response:?}"
    );
}

#[tokio::test]
async fn a_handler_waits_for_a_backend_that_waits_and_passes_when_it_fails() {
    let backend = Waiting::new(at_a_standstill().0);
    let limiter = Limiter::builder()
        .allow_no_policies()
        .backend(backend.clone())
        .build()
        .unwrap();
    let app = Router::new()
        .route("/", get(hello))
        .layer(RateLimitLayer::new(limiter));
    let server = Served::new(app).await;

    let waits = tokio::spawn(server.get("/"));
    while backend.pending() == 0 {
        tokio::task::yield_now().await;
    }
    assert!(!waits.is_finished());
    backend.gate.add_permits(4);
    assert_eq!(waits.await.unwrap().status(), 200);
    assert_eq!(server.statuses(["/", "/"]).await, [200, 429]);

    backend.fail_with(Some(FailureKind::Unreachable));
    assert_eq!(server.statuses(["/"]).await, [200]);
}

/// A layer of another limiter for everything, around a layer with the policy that handlers name.
async fn within(all: &Limiter, own: &Limiter) -> Served {
    let app = Router::new()
        .route("/", get(search))
        .route("/deep", get(search_deeply))
        .route("/hello", get(hello))
        .layer(RateLimitLayer::new(own))
        .layer(RateLimitLayer::new(all));
    Served::new(app).await
}

#[tokio::test]
async fn of_several_layers_the_nearest_one_has_the_policies_that_a_handler_names() {
    let all = Limiter::from(Policy::new("all", Quota::per_hour(9)));
    let own = Limiter::from(Policy::new("search", Quota::per_hour(5)).on_demand());
    let server = within(&all, &own).await;

    let response = server.get("/deep").await;

    assert_eq!(response.status(), 200);
    assert_eq!(
        header(&response, "ratelimit-policy"),
        "\"all\";q=9;w=3600, \"search\";q=5;w=3600"
    );
    assert!(header(&response, "ratelimit").starts_with("\"search\";r=2;"));

    // Both charges are credited when a handler refuses.
    assert_eq!(
        server
            .statuses(["/deep", "/hello", "/hello", "/hello"])
            .await,
        [429, 200, 200, 429]
    );
    assert_eq!(
        (left(&all, "all").await, left(&own, "search").await),
        (6, 2)
    );
}

#[tokio::test]
async fn what_a_handler_s_refusal_gave_back_the_response_does_not_give_back_once_more() {
    // given a layer that charges by outcome within another one, and a handler whose own budget is spent
    let all = Limiter::from(Policy::new("all", Quota::per_hour(9)));
    let own = standing(by_outcome("own"));
    let server = within(&all, &own).await;
    assert_eq!(server.statuses(["/hello", "/hello"]).await, [200; 2]);
    assert_eq!(left(&own, "own").await, 7);

    // when it refuses, then what that charged comes back once
    assert_eq!(server.statuses(["/hello", "/hello"]).await, [429; 2]);
    assert_eq!(left(&own, "own").await, 7);
}

#[tokio::test]
async fn a_policy_that_a_handler_names_may_charge_by_outcome_within_another_layer() {
    for layers in [1, 2] {
        let all = Limiter::builder().allow_no_policies().build().unwrap();
        let own = standing(by_outcome("search").free_if(|_| true).on_demand());
        let server = if layers == 2 {
            within(&all, &own).await
        } else {
            Served::new(
                Router::new()
                    .route("/", get(search))
                    .layer(RateLimitLayer::new(&own)),
            )
            .await
        };

        let response = server.get("/").await;

        assert_eq!(left(&own, "search").await, 9, "{layers}");
        assert!(header(&response, "ratelimit").starts_with("\"search\";r=9;"));
    }
}

/// A limiter whose clock stands still, so that no window ends.
fn standing(policy: Policy) -> Limiter {
    let builder = Limiter::builder().policy(policy);
    builder.backend(at_a_standstill().0).build().unwrap()
}

/// Nine an hour for requests that are served, counted in a window, so that what is given back shows to the unit.
fn by_outcome(name: &str) -> Policy {
    let hours = Algorithm::FixedWindow {
        offset: Duration::ZERO,
    };
    Policy::new(name, Quota::per_hour(9).using(hours)).count_if(|response| response.status() == 200)
}

#[rate_limit("10/hour", cost = 2)]
async fn settled(status: RateLimitStatus) -> &'static str {
    match status.settle("settled/", 5) {
        Ok(()) => "settled",
        Err(_) => "unknown",
    }
}

#[tokio::test]
async fn a_handler_settles_what_its_own_annotation_charged() {
    let limiter = Limiter::builder().allow_no_policies().build().unwrap();
    let app = Router::new()
        .route("/", get(settled))
        .layer(RateLimitLayer::new(limiter));
    let server = Served::new(app).await;

    let response = server.get("/").await;

    assert_eq!(response.body(), "settled");
    assert!(header(&response, "ratelimit").starts_with("\"settled/\";r=5;t="));
}
