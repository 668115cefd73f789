//! Annotations that cannot be enforced: the handler is closed, and says why.

#![cfg(feature = "macros")]

use crate::common::served::{Served, Whole};
use axum::Router;
use axum::http::Method;
use axum::routing::{get, post};
use tollgate::{Limiter, MethodRouterExt, Policy, Quota, RateLimitLayer, Tiers, rate_limit};
use tollgate_testkit::Log;

#[rate_limit("9/hour")]
async fn login() -> &'static str {
    "let in"
}

#[rate_limit(policy = "serach")]
async fn search() -> &'static str {
    "let in"
}

#[rate_limit("9/hour", name = "taken")]
async fn first() {}

#[rate_limit("9/hour", name = "taken")]
async fn second() {}

#[rate_limit("9/hour", name = "twice")]
#[rate_limit("99/day", name = "twice")]
async fn twice() {}

#[rate_limit("9/hour", name = "taken-by-policy")]
async fn like_a_policy() {}

#[rate_limit("9/hour", name = "taken-by-policy-hourly")]
async fn like_a_quota() {}

fn limiter() -> Limiter {
    Limiter::builder()
        // Its name is in no header, and is where its budgets are.
        .policy(
            Policy::new(
                "taken-by-policy",
                [
                    ("hourly", Quota::per_hour(9)),
                    ("daily", Quota::per_day(90)),
                ],
            )
            .on_demand(),
        )
        .policy(Policy::new("login/policy", Quota::per_hour(9)).on_demand())
        .build()
        .unwrap()
}

async fn served(app: Router) -> Served {
    Served::new(app.layer(RateLimitLayer::new(limiter()))).await
}

/// The answer is complete, and no cache keeps it.
#[track_caller]
fn assert_closed(response: &Whole, says: &[&str]) {
    assert_eq!(response.status(), 500, "{response:?}");
    assert_eq!(response.headers()["cache-control"], "no-store");
    for part in says {
        assert!(response.body().contains(part), "{part:?}: {response:?}");
    }
}

#[tokio::test]
async fn without_a_layer_the_handler_is_closed_and_names_itself_and_the_line_to_add() {
    let log = Log::default();
    let _guard = log.listen();
    let server = Served::new(Router::new().route("/login", get(login))).await;

    let response = server.get("/login").await;

    let says = [
        "handler `login` on /login",
        ".layer(RateLimitLayer::new(limiter))",
    ];
    assert_closed(&response, &says);
    let logged = log.text();
    assert!(says.iter().all(|part| logged.contains(part)), "{logged}");
    // The place is for readers of the log.
    assert!(logged.contains("annotations_misused.rs:"), "{logged}");
    assert!(!response.body().contains("annotations_misused.rs"));
}

#[tokio::test]
async fn under_a_layer_that_leaves_requests_alone_it_is_closed_as_well() {
    let layer = RateLimitLayer::new(limiter()).without_status();
    let app = Router::new().route("/", get(login)).layer(layer);
    let server = Served::new(app).await;
    assert_closed(&server.get("/").await, &["without_status"]);
}

#[tokio::test]
async fn a_policy_that_the_limiter_does_not_have_is_named() {
    let server = served(Router::new().route("/", get(search))).await;
    let says = ["handler `search`", "\"serach\"", "expects"];
    assert_closed(&server.get("/").await, &says);

    let error = limiter().expects(["login/policy", "serach"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "policy \"serach\": there is no policy of this name"
    );
}

#[tokio::test]
async fn two_limits_of_one_name_are_an_error_of_the_second_which_names_both() {
    let log = Log::default();
    let _guard = log.listen();
    let app = Router::new()
        .route("/first", get(first))
        .route("/second", get(second))
        .route("/twice", get(twice))
        .route("/policy", get(like_a_policy))
        .route("/quota", get(like_a_quota));
    let server = served(app).await;

    assert_eq!(server.get("/first").await.status(), 200);
    let says = [
        "handler `second` on /second",
        "handler `first` on /first",
        "\"taken\"",
        "name = ",
    ];
    let closed = server.get("/second").await;
    assert_closed(&closed, &says);
    let places = |text: &str| text.matches("annotations_misused.rs:").count();
    assert_eq!((places(closed.body()), places(&log.text())), (0, 2));
    assert_eq!(server.get("/first").await.status(), 200);
    assert_closed(
        &server.get("/twice").await,
        &["handler `twice`", "\"twice\""],
    );
    for (path, name) in [
        ("/policy", "\"taken-by-policy\""),
        ("/quota", "\"taken-by-policy-hourly\""),
    ] {
        assert_closed(
            &server.get(path).await,
            &[name, "like a policy of the limiter"],
        );
    }
}

#[tokio::test]
async fn routes_that_make_one_name_are_told_apart_or_refused() {
    let app = Router::new()
        .route("/users/{id}", get(login))
        .route("/users/_id_", get(login))
        .route("/policy", get(login));
    let server = served(app).await;

    assert_eq!(server.get("/users/7").await.status(), 200);
    let says = ["handler `login`", "\"login/users/_id_\""];
    assert_closed(&server.get("/users/_id_").await, &says);
    assert_closed(&server.get("/policy").await, &["\"login/policy\""]);
}

#[tokio::test]
async fn a_limit_that_can_have_no_name_asks_for_one() {
    let long = format!("/{}", "x".repeat(64));
    let app = Router::new().route(&long, get(login)).fallback(login);
    let server = served(app).await;
    assert_closed(&server.get(&long).await, &["too long", "name = "]);
    assert_closed(&server.get("/nowhere").await, &["no route", "name = "]);
}

#[tokio::test]
async fn a_route_says_what_is_wrong_as_a_handler_does() {
    let unknown = get(|| async {}).rate_limit_by("serach");
    let app = Router::new().route("/unknown", unknown);
    let server = served(app.clone()).await;

    let says = ["the handler on /unknown", "\"serach\""];
    assert_closed(&server.get("/unknown").await, &says);
    let bare = Served::new(app).await;
    assert_closed(&bare.get("/unknown").await, &["RateLimitLayer"]);
}

#[tokio::test]
async fn methods_of_a_route_have_limits_of_their_own_if_they_are_joined_and_else_say_how() {
    let limited = get(|| async {}).rate_limit("9/hour");
    let chained = limited.clone().post(|| async {}).rate_limit("1/hour");
    let joined = limited.merge(post(|| async {}).rate_limit("1/hour"));
    let app = Router::new()
        .route("/chained", chained)
        .route("/joined", joined);
    let server = served(app).await;

    let says = ["the handler on /chained", "limited twice", ".merge(post(b)"];
    assert_closed(&server.get("/chained").await, &says);
    for _ in 0..2 {
        assert_eq!(server.get("/joined").await.status(), 200);
    }
    assert_eq!(server.send(Method::POST, "/joined", "").await.status(), 200);
    assert_eq!(server.send(Method::POST, "/joined", "").await.status(), 429);
}

#[rate_limit(policy = "search", cost = 10)]
async fn costly() {}

#[tokio::test]
async fn a_cost_that_never_passes_closes_the_handler() {
    let limiter = Limiter::from(Policy::new("search", Quota::per_hour(9)).on_demand());
    let app = Router::new().route("/", get(costly));
    let server = Served::new(app.layer(RateLimitLayer::new(limiter))).await;
    assert_closed(&server.get("/").await, &["a cost of 10 never passes"]);
}

#[rate_limit(policy = "tiered")]
#[rate_limit("9/hour")]
async fn tiered() {}

#[tokio::test]
async fn more_quotas_than_are_decided_together_are_counted_in_the_largest_tier() {
    let most = vec![Quota::per_hour(9); 32];
    let tiers = Tiers::by_key([("somebody", "gold")]).tier("gold", most);
    let policy = Policy::new("tiered", Quota::per_hour(9)).tiers(tiers);
    let limiter = Limiter::from(policy.on_demand());
    let app = Router::new().route("/", get(tiered));
    let server = Served::new(app.layer(RateLimitLayer::new(limiter))).await;
    assert_closed(&server.get("/").await, &["33 quotas", "at most 32"]);
}

#[tokio::test]
async fn what_is_wrong_is_logged_once_and_said_each_time() {
    let log = Log::default();
    let _guard = log.listen();
    let server = served(Router::new().route("/", get(search))).await;

    for _ in 0..3 {
        assert_closed(&server.get("/").await, &["\"serach\""]);
    }

    assert_eq!(log.text().matches("ERROR").count(), 1, "{}", log.text());
}
