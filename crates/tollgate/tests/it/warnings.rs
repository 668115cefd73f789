//! Mistakes in a set-up that only requests show: said once, to the operator.

#![cfg(feature = "axum")]

use crate::common::served::Served;
use axum::Router;
use axum::body::Body;
use axum::routing::{any, get};
use http::{Method, Request, Response, StatusCode};
use tollgate::key::{Global, Header, KeyList};
use tollgate::{
    Block, ClientAddress, Concurrent, Hold, Hops, Limiter, Networks, OnMissing, Policy, Quota,
    Quotas, RateLimitLayer, Tiers,
};
use tollgate_testkit::Log;
use tower::ServiceExt;

const QUOTA: Quota = Quota::per_hour(1_000_000);

fn policy(name: &str) -> Policy {
    Policy::new(name, QUOTA).key(Global)
}

fn app(policies: impl IntoIterator<Item = Policy>) -> Router {
    let limiter = Limiter::builder().policies(policies).build().unwrap();
    let hello = get(|| async { "hello" });
    let app = Router::new().route("/x", hello.clone()).route("/y", hello);
    app.layer(RateLimitLayer::new(limiter))
}

async fn ask(app: &Router, path: &str, times: usize) {
    for _ in 0..times {
        let request = Request::get(path).body(Body::empty()).unwrap();
        app.clone().oneshot(request).await.unwrap();
    }
}

/// A caller who is blocked by a field passes with another content type, unless requests without an identity are refused.
#[test]
fn a_block_list_that_fails_open_is_told_of() {
    let blocked = || KeyList::from_iter(["mallory"]);
    let keyed = |policy: Policy| policy.key(Header::new("x-user"));
    let blocks = |policy: Policy| policy.block_keys(blocked(), Block::Forbidden);
    let stops = |policy: Policy| {
        let tiers = Tiers::by_key([("mallory", "stopped")]);
        policy.tiers(tiers.tier("stopped", Quotas::none()))
    };
    let told = |policy: Policy| {
        let log = Log::default();
        let _listening = log.listen();
        let _limiter = Limiter::from(policy);
        log.text().matches("may pass without an identity").count()
    };
    let named = || Policy::new("users", QUOTA);
    assert_eq!(told(blocks(keyed(named()))), 1);
    assert_eq!(told(stops(keyed(named()))), 1);
    assert_eq!(told(keyed(named())), 0);
    assert_eq!(told(blocks(keyed(named().on_missing(OnMissing::Deny)))), 0);
    assert_eq!(told(blocks(keyed(named().shadow()))), 0);
    let address = std::net::IpAddr::from([192, 0, 2, 1]);
    let of_addresses = named().block_keys(KeyList::from_iter([address]), Block::Forbidden);
    assert_eq!(told(of_addresses), 0);
}

#[tokio::test]
async fn a_route_without_the_prefix_of_its_nest_is_told_of_at_the_first_request() {
    for (nest, path) in [("/in", "/in/x"), ("/in/{id}", "/in/203.0.113.7/x")] {
        // given a limiter within a nest, with the routes that stand there
        let log = Log::default();
        let _listening = log.listen();
        let nested = app([policy("inner").route("/x"), policy("all")]);
        let served = Served::new(Router::new().nest(nest, nested)).await;

        // when requests come for the route
        for _ in 0..3 {
            served.get(path).await;
        }

        // then the log names policy, route, and what to write, once, and nothing that came from the caller
        let text = log.text();
        assert_eq!(text.matches("WARN").count(), 1, "{text}");
        let line = format!("change `.route(\"/x\")` to `.route(\"{nest}/x\")`");
        assert!(text.contains(&line), "{text}");
        assert!(text.contains("policy=\"inner\""), "{text}");
        assert!(!text.contains("203.0.113.7"), "{text}");
    }
}

#[tokio::test]
async fn a_route_with_the_prefix_of_its_nest_is_in_order() {
    let log = Log::default();
    let _listening = log.listen();
    let nested = app([policy("inner").route("/in/x")]);
    let app = Router::new().nest("/in", nested);
    ask(&app, "/in/x", 1).await;
    ask(&app, "/in/y", 2_000).await;
    assert_eq!(log.text(), "");
}

#[tokio::test]
async fn a_policy_whose_routes_meet_none_of_many_requests_is_told_of_once() {
    let log = Log::default();
    let _listening = log.listen();
    let app = app([
        policy("met").route("/x"),
        policy("unmet").route("/z").route("/zz"),
        policy("everywhere"),
        policy("asked-for").route("/z").on_demand(),
    ]);

    ask(&app, "/x", 1).await;
    ask(&app, "/y", 998).await;
    assert_eq!(log.text(), "");

    ask(&app, "/y", 2_000).await;
    let text = log.text();
    assert_eq!(text.matches("WARN").count(), 1, "{text}");
    assert!(text.contains("policy=\"unmet\""), "{text}");
    assert!(text.contains("change `.route(\"/z\")`"), "{text}");
}

/// The log while a peer that names another caller asks twice.
#[tokio::test]
async fn replaced_policies_go_on_with_the_watch_over_the_first_requests() {
    // given a policy whose route no request meets, replaced while the first requests come
    let log = Log::default();
    let _listening = log.listen();
    let policies = || [policy("all"), policy("never").route("/never")];
    let limiter = Limiter::builder().policies(policies()).build().unwrap();
    let app = Router::new().route("/x", get(|| async { "hello" }));
    let app = app.layer(RateLimitLayer::new(limiter.clone()));
    for _ in 0..10 {
        ask(&app, "/x", 100).await;
        limiter.replace(policies()).unwrap();
    }

    // when as many come again, then it was told of once, by name
    ask(&app, "/x", 1_000).await;
    assert_eq!(
        log.text().matches("policy=\"never\"").count(),
        1,
        "{}",
        log.text()
    );

    // when a policy with another route takes its place, then the first requests under it are looked at
    limiter
        .replace([policy("all"), policy("never").route("/ever")])
        .unwrap();
    ask(&app, "/x", 1_000).await;
    assert_eq!(
        log.text().matches("policy=\"never\"").count(),
        2,
        "{}",
        log.text()
    );
}

async fn said_of_a_forwarding_peer(header: &'static str, limiter: Limiter) -> String {
    let log = Log::default();
    let _listening = log.listen();
    let app = Router::new().route("/", get(|| async { "hello" }));
    let served = Served::new(app.layer(RateLimitLayer::new(limiter))).await;
    for _ in 0..2 {
        let request = Request::get(format!("http://{}/", served.0));
        let request = request.header(header, "203.0.113.7").body(Body::empty());
        served.request(request.unwrap()).await;
    }
    log.text()
}

#[tokio::test]
async fn a_forwarding_header_of_a_peer_that_is_not_trusted_is_told_of_once() {
    let elsewhere = || Networks::new(["192.0.2.0/24"]);
    let by_address = || Policy::new("by-address", QUOTA);
    for address in [
        ClientAddress::peer(),
        ClientAddress::x_forwarded_for(elsewhere()),
        ClientAddress::forwarded(elsewhere()),
        ClientAddress::header("x-real-ip", elsewhere()),
    ] {
        for header in ["x-forwarded-for", "forwarded", "x-real-ip"] {
            let limiter = Limiter::builder()
                .client_address(address.clone())
                .policy(by_address());
            let text = said_of_a_forwarding_peer(header, limiter.build().unwrap()).await;
            assert_eq!(text.matches("WARN").count(), 1, "{text}");
            assert!(text.contains(&format!("header=\"{header}\"")), "{text}");
            assert!(text.contains(".client_address("), "{text}");
            for identity in ["203.0.113.7", "127.0.0.1"] {
                assert!(!text.contains(identity), "{text}");
            }
        }
    }

    // A limit at a handler is by address, too.
    let limiter = Limiter::builder().allow_no_policies().build().unwrap();
    let text = said_of_a_forwarding_peer("forwarded", limiter).await;
    assert_eq!(text.matches("WARN").count(), 1, "{text}");
}

#[tokio::test]
async fn a_forwarding_header_that_is_believed_or_not_needed_is_in_order() {
    let here = || Networks::new(["127.0.0.0/8"]);
    for address in [
        ClientAddress::x_forwarded_for(here()),
        ClientAddress::x_forwarded_for(Hops(1)),
        ClientAddress::header("x-real-ip", here()),
    ] {
        let limiter = Limiter::builder().client_address(address);
        let limiter = limiter.policy(Policy::new("by-address", QUOTA));
        let limiter = limiter.build().unwrap();
        assert_eq!(
            said_of_a_forwarding_peer("x-forwarded-for", limiter).await,
            ""
        );
    }
    let by_key = Policy::new("by-key", QUOTA).key(Header::new("x-api-key"));
    let text = said_of_a_forwarding_peer("x-forwarded-for", by_key.into()).await;
    assert_eq!(text, "");
}

/// Two layers, of which the outer one holds, around a handler that answers with this and may keep its hold until the end.
fn opening(code: StatusCode, is_leased: bool) -> Router {
    let handler = any(async move |hold: Hold| {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = code;
        if is_leased {
            response.extensions_mut().insert(hold);
        }
        response
    });
    let held = Policy::new("held", Concurrent::at_most(2)).key(Global);
    Router::new()
        .route("/", handler)
        .layer(RateLimitLayer::new(policy("inner")))
        .layer(RateLimitLayer::new(held))
}

/// A `CONNECT` is how a WebSocket comes over HTTP/2: the answer is an ordinary success, and the stream is the connection. Of an
/// upgrade `concurrency_policies.rs` shows the same.
#[tokio::test]
async fn a_connection_that_connect_opens_without_a_hold_is_told_of_once() {
    // A process says it once.
    if !tollgate_testkit::alone!() {
        return;
    }
    let log = Log::default();
    let _listening = log.listen();
    let open = async |method, code, is_leased| {
        let request = Request::builder().method(method).uri("/");
        let request = request.body(Body::empty()).unwrap();
        opening(code, is_leased).oneshot(request).await.unwrap()
    };

    // given requests that open no connection, and one with a hold
    open(Method::CONNECT, StatusCode::FORBIDDEN, false).await;
    open(Method::GET, StatusCode::OK, false).await;
    drop(open(Method::CONNECT, StatusCode::OK, true).await);
    assert_eq!(log.text(), "");

    // when connections have none
    for _ in 0..3 {
        open(Method::CONNECT, StatusCode::OK, false).await;
    }

    // then one line says what to write
    let text = log.text();
    assert_eq!(text.matches("WARN").count(), 1, "{text}");
    assert!(text.contains("take a `Hold`"), "{text}");
}
