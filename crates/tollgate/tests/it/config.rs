//! Limiters from plain data: what is written holds.

#![cfg(feature = "serde")]

use crate::common::registry::registry;
use crate::common::{Body, Strict, Waiting, at_a_standstill, from};
use http::{Method, Request};
use serde_json::{Value, json};
use tollgate::config::{LimiterConfig, Registry};
use tollgate::key::KeyList;
use tollgate::{FailureKind, Key, Limiter, NetworkList, Networks, RateLimitLayer};
use tower::{Layer, ServiceExt};

fn limiter(config: Value) -> Limiter {
    let config: LimiterConfig = serde_json::from_value(config).unwrap();
    let (backend, _) = at_a_standstill();
    let builder = config.build(&registry()).unwrap();
    builder.backend(backend).build().unwrap()
}

/// A limiter of one policy, two an hour unless it says otherwise.
fn policy(mut fields: Value) -> Limiter {
    fields["name"] = "p".into();
    if fields["quotas"].is_null() {
        fields["quotas"] = "2/h".into();
    }
    limiter(json!({ "policies": [fields] }))
}

async fn status(limiter: &Limiter, request: Request<Body>) -> u16 {
    let service = RateLimitLayer::new(limiter).layer(Strict::default());
    service.oneshot(request).await.unwrap().status().as_u16()
}

/// The number of requests that pass, of five like this.
async fn passing(limiter: &Limiter, request: &dyn Fn() -> Request<Body>) -> usize {
    let inner = Strict::default();
    for _ in 0..5 {
        let service = RateLimitLayer::new(limiter).layer(inner.clone());
        service.oneshot(request()).await.unwrap();
    }
    inner.calls()
}

fn get(uri: &str) -> Request<Body> {
    let mut request = from("192.0.2.1");
    *request.uri_mut() = uri.parse().unwrap();
    request
}

fn with(name: &'static str, value: &str) -> Request<Body> {
    let mut request = get("/");
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

fn sent_by(method: Method) -> Request<Body> {
    let mut request = get("/");
    *request.method_mut() = method;
    request
}

fn preflight() -> Request<Body> {
    let mut request = with("access-control-request-method", "POST");
    *request.method_mut() = Method::OPTIONS;
    let origin = "https://example.com".parse().unwrap();
    request.headers_mut().insert("origin", origin);
    request
}

fn health_check() -> Request<Body> {
    let mut request = get("/grpc.health.v1.Health/Check");
    *request.method_mut() = Method::POST;
    let grpc = "application/grpc".parse().unwrap();
    request.headers_mut().insert("content-type", grpc);
    request
}

type Case = (Value, fn() -> Request<Body>, usize);

#[tokio::test]
async fn what_is_written_about_a_policy_holds() {
    let cases: [Case; 47] = [
        (json!({}), || get("/"), 2),
        (json!({ "quotas": "3/h" }), || get("/"), 3),
        (
            json!({ "quotas": ["4/h", "3/day sliding-window"] }),
            || get("/"),
            3,
        ),
        (
            json!({ "quotas": { "hour": "4/h", "day": "1/day" } }),
            || get("/"),
            1,
        ),
        (json!({ "quotas": "4 per hour; 3 a day" }), || get("/"), 3),
        (json!({ "quotas": "none" }), || get("/"), 0),
        (json!({ "quotas": "none", "shadow": true }), || get("/"), 5),
        (json!({ "routes": ["/a", "/b/{id}"] }), || get("/b/1"), 2),
        (json!({ "routes": ["/a", "/b/{id}"] }), || get("/c"), 5),
        (
            json!({ "exempt_routes": ["/health"] }),
            || get("/health"),
            5,
        ),
        (
            json!({ "methods": ["GET", "POST"] }),
            || sent_by(Method::POST),
            2,
        ),
        (
            json!({ "methods": ["GET", "POST"] }),
            || sent_by(Method::PUT),
            5,
        ),
        (
            json!({ "exempt_methods": ["PUT"] }),
            || sent_by(Method::PUT),
            5,
        ),
        (
            json!({ "hosts": ["*.example.com"] }),
            || with("host", "a.example.com"),
            2,
        ),
        (
            json!({ "hosts": ["*.example.com"] }),
            || with("host", "example.org"),
            5,
        ),
        (
            json!({ "exempt_networks": ["192.0.2.0/24"] }),
            || get("/"),
            5,
        ),
        (
            json!({ "when": ["always", "internal"] }),
            || with("x-internal", "1"),
            2,
        ),
        (json!({ "when": ["always", "internal"] }), || get("/"), 5),
        (json!({}), preflight, 2),
        (json!({ "exempt_preflights": true }), preflight, 5),
        (json!({ "cost": 2 }), || get("/"), 1),
        (json!({ "cost": "two" }), || get("/"), 1),
        (json!({ "shadow": true }), || get("/"), 5),
        (json!({ "on_demand": true }), || get("/"), 5),
        (
            json!({ "per_message": { "of": "received" } }),
            || get("/"),
            5,
        ),
        (
            json!({ "key": { "header": "x-user" }, "on_missing": "deny" }),
            || get("/"),
            0,
        ),
        (
            json!({ "key": { "header": "x-user" }, "on_missing": "pass" }),
            || get("/"),
            5,
        ),
        (
            json!({ "key": { "header": "x-user" }, "on_missing": "share" }),
            || get("/"),
            2,
        ),
        (
            json!({ "outcome": "failed", "quotas": "2/h fixed-window" }),
            || get("/"),
            5,
        ),
        (
            json!({ "outcome": "fine", "quotas": "2/h fixed-window" }),
            || get("/"),
            5,
        ),
        (
            json!({ "outcome": "three", "quotas": "6/h fixed-window" }),
            || get("/"),
            2,
        ),
        (
            // An empty response costs a unit.
            json!({ "outcome": "bytes", "quotas": "2/h fixed-window" }),
            || get("/"),
            2,
        ),
        (json!({ "exempt_keys": ["192.0.2.1"] }), || get("/"), 5),
        (
            json!({ "block_keys": { "forbidden": ["192.0.2.1"] } }),
            || get("/"),
            0,
        ),
        (
            json!({ "tiers": { "by": { "192.0.2.1": "gold" }, "quotas": { "gold": "4/h" } } }),
            || get("/"),
            4,
        ),
        (
            json!({ "tiers": { "by": { "192.0.2.1": "staff" }, "quotas": { "staff": "unlimited" } } }),
            || get("/"),
            5,
        ),
        (
            json!({ "key": { "registered": "user" },
                    "tiers": { "by": "plan", "quotas": { "gold": ["4/h", "3/day"] } } }),
            || with("x-user", "a"),
            3,
        ),
        (
            json!({ "quotas": "4/h", "classes": { "by": { "header": "x-class" }, "keep_for": ["high 25%", "fair  50 %"] } }),
            || with("x-class", "high"),
            4,
        ),
        (
            json!({ "quotas": "4/h", "classes": { "by": { "header": "x-class" }, "keep_for": ["high 25%", "fair  50 %"] } }),
            || with("x-class", "fair"),
            3,
        ),
        (
            json!({ "quotas": "4/h", "classes": { "by": { "header": "x-class" }, "keep_for": ["high 25%", "fair  50 %"] } }),
            || with("x-class", "low"),
            1,
        ),
        (
            json!({ "key": { "header": "x-user" }, "exempt_keys": ["a"] }),
            || with("x-user", "a"),
            5,
        ),
        (
            json!({ "key": { "header": "x-user" }, "exempt_keys": ["a", { "registered": "partners" }] }),
            || with("x-user", "b"),
            5,
        ),
        (
            json!({ "exempt_networks": ["10.0.0.0/8", { "registered": "offices" }] }),
            || get("/"),
            5,
        ),
        (json!({ "grpc": ["shop.v1.Orders/*"] }), || get("/"), 5),
        (
            json!({ "grpc": ["shop.v1.Orders/*"] }),
            || get("/shop.v1.Orders/Place"),
            2,
        ),
        (json!({}), health_check, 2),
        (json!({ "exempt_health_checks": true }), health_check, 5),
    ];
    for (fields, request, expected) in cases {
        let limiter = policy(fields.clone());
        assert_eq!(passing(&limiter, &request).await, expected, "{fields}");
    }
}

#[tokio::test]
async fn every_key_tells_apart_what_it_names() {
    // Two requests that the key tells apart, on a quota of one.
    type Pair = (Value, fn() -> Request<Body>, fn() -> Request<Body>);
    let cases: [Pair; 13] = [
        (json!("client-ip"), || get("/"), || from("192.0.2.9")),
        (
            json!("host"),
            || with("host", "a.test"),
            || with("host", "b.test"),
        ),
        (json!("method"), || get("/"), || sent_by(Method::POST)),
        (json!("matched-route"), || get("/x/1"), || get("/y/1")),
        (
            json!("bearer-token"),
            || with("authorization", "Bearer a"),
            || with("authorization", "Bearer b"),
        ),
        (
            json!("basic-user"),
            || with("authorization", "Basic YTo="),
            || with("authorization", "Basic Yjo="),
        ),
        (
            json!({ "header": "x-user" }),
            || with("x-user", "a"),
            || with("x-user", "b"),
        ),
        (
            json!({ "cookie": "s" }),
            || with("cookie", "s=a"),
            || with("cookie", "s=b"),
        ),
        (json!({ "query": "q" }), || get("/?q=a"), || get("/?q=b")),
        (
            json!({ "path-param": "id" }),
            || get("/x/1"),
            || get("/x/2"),
        ),
        (
            json!({ "registered": "user" }),
            || with("x-user", "a"),
            || with("x-user", "b"),
        ),
        (
            json!(["global", { "query": "q" }]),
            || get("/?q=a"),
            || get("/?q=b"),
        ),
        (json!([{ "query": "q" }]), || get("/?q=a"), || get("/?q=b")),
    ];
    for (key, one, other) in cases {
        let routes = match key.as_str() {
            Some("matched-route") => json!(["/x/{id}", "/y/{id}"]),
            _ if key.get("path-param").is_some() => json!(["/x/{id}"]),
            _ => json!([]),
        };
        let limiter = policy(json!({ "quotas": "1/h", "key": key, "routes": routes }));
        let mut statuses = Vec::new();
        for request in [one(), one(), other(), other()] {
            statuses.push(status(&limiter, request).await);
        }
        assert_eq!(statuses, [200, 429, 200, 429], "{key}");
    }

    let everybody = policy(json!({ "quotas": "1/h", "key": "global" }));
    assert_eq!(status(&everybody, get("/")).await, 200);
    assert_eq!(status(&everybody, from("192.0.2.9")).await, 429);

    let asked = policy(json!({ "quotas": "1/h", "key": { "registered": "session" } }));
    assert_eq!(status(&asked, get("/")).await, 200);
    assert_eq!(status(&asked, from("192.0.2.9")).await, 429);

    // Of several parts any may have to be waited for.
    let parts = json!([[{ "registered": "session" }, "method"], { "header": "x-user" }]);
    let asked = policy(json!({ "quotas": "1/h", "key": parts, "on_missing": "deny" }));
    assert_eq!(status(&asked, with("x-user", "a")).await, 200);
    assert_eq!(status(&asked, with("x-user", "a")).await, 429);
    assert_eq!(status(&asked, with("x-user", "b")).await, 200);
    assert_eq!(status(&asked, get("/")).await, 403);
}

#[tokio::test]
async fn how_an_identity_is_refused_can_be_chosen() {
    let limiter = policy(json!({
        "key": { "header": "x-user" },
        "block_keys": { "forbidden": ["a"], "too_many_requests": ["b"] },
    }));
    assert_eq!(status(&limiter, with("x-user", "a")).await, 403);
    assert_eq!(status(&limiter, with("x-user", "b")).await, 429);
    assert_eq!(status(&limiter, with("x-user", "c")).await, 200);
}

#[tokio::test]
async fn registered_lists_change_while_they_are_in_use() {
    // given a configuration that names lists of the application
    let (leaked, offices) = (KeyList::new(), NetworkList::default());
    let registry = Registry::new()
        .register_key_list("leaked", &leaked)
        .register_network_list("offices", &offices);
    let written = r#"
        [[policies]]
        name = "p"
        quotas = "1/h"
        key = [{ header = "x-user" }, "method"]
        exempt_networks = [{ registered = "offices" }]
        block_keys = { forbidden = [{ registered = "leaked" }] }
    "#;
    let config: LimiterConfig = toml::from_str(written).unwrap();
    let builder = config.build(&registry).unwrap();
    let limiter = builder.backend(at_a_standstill().0).build().unwrap();
    assert_eq!(status(&limiter, with("x-user", "a")).await, 200);
    assert_eq!(status(&limiter, with("x-user", "a")).await, 429);

    // when the application changes them, then so does the limiter
    leaked.insert(Key::tuple(&["a".into(), "GET".into()]));
    assert_eq!(status(&limiter, with("x-user", "a")).await, 403);
    offices.replace(Networks::new(["192.0.2.0/24"]));
    assert_eq!(status(&limiter, with("x-user", "a")).await, 200);
}

#[tokio::test]
async fn what_is_written_about_a_limiter_holds() {
    let one = json!([{ "name": "p", "quotas": "1/h" }]);
    let through = |proxy: &str, name: &'static str, value: &str| {
        let mut request = from(proxy);
        request.headers_mut().insert(name, value.parse().unwrap());
        request
    };
    let proxies = json!({ "networks": ["10.0.0.0/8"] });
    let cases = [
        (
            json!("peer"),
            "x-forwarded-for",
            ["1.1.1.1", "2.2.2.2"],
            429,
        ),
        (
            json!({ "x-forwarded-for": proxies }),
            "x-forwarded-for",
            ["1.1.1.1", "2.2.2.2"],
            200,
        ),
        (
            json!({ "x-forwarded-for": { "hops": 1 } }),
            "x-forwarded-for",
            ["1.1.1.1", "2.2.2.2"],
            200,
        ),
        (
            json!({ "forwarded": proxies }),
            "forwarded",
            ["for=1.1.1.1", "for=2.2.2.2"],
            200,
        ),
        (
            json!({ "header": { "name": "x-real-ip", "networks": ["10.0.0.0/8"] } }),
            "x-real-ip",
            ["1.1.1.1", "2.2.2.2"],
            200,
        ),
    ];
    for (address, name, [first, second], expected) in cases {
        let limiter = limiter(json!({ "client_address": address, "policies": one }));
        assert_eq!(
            status(&limiter, through("10.0.0.1", name, first)).await,
            200
        );
        let again = status(&limiter, through("10.0.0.1", name, second)).await;
        assert_eq!(again, expected, "{address}");
    }

    let case = limiter(json!({
        "ignore_path_case": true,
        "policies": [{ "name": "p", "quotas": "1/h", "routes": ["/login"] }],
    }));
    assert_eq!(passing(&case, &|| get("/LOGIN")).await, 1);

    let preflights = limiter(json!({ "exempt_preflights": true, "policies": one }));
    assert_eq!(passing(&preflights, &preflight).await, 5);

    let health = limiter(json!({ "exempt_health_checks": true, "policies": one }));
    assert_eq!(passing(&health, &health_check).await, 5);

    // A request cannot wait at all, or would be gone before its turn.
    let waits = json!([{ "name": "p", "quotas": "1/h burst 1 wait 1h", "key": "global" }]);
    let nobody = limiter(json!({ "max_waiting": 0, "policies": waits }));
    assert_eq!(passing(&nobody, &|| get("/")).await, 1);
    let deadline = limiter(json!({ "deadline_header": "x-timeout-ms", "policies": waits }));
    assert_eq!(passing(&deadline, &|| with("x-timeout-ms", "50")).await, 1);

    let none = limiter(json!({ "allow_no_policies": true }));
    assert_eq!(none.policies().len(), 0);
}

#[tokio::test]
async fn a_listed_address_is_the_network_that_the_limiter_groups_it_in() {
    let limiter = limiter(json!({
        "client_address": { "x-forwarded-for": { "hops": 1 } },
        "ipv6_prefix": 48,
        "policies": [{
            "name": "p", "quotas": "1/h", "block_keys": { "forbidden": ["2001:db8:1:ffff::1"] },
        }],
    }));
    assert_eq!(
        status(&limiter, with("x-forwarded-for", "2001:db8:1:2::3")).await,
        403
    );
    assert_eq!(
        status(&limiter, with("x-forwarded-for", "2001:db8:2:2::3")).await,
        200
    );
}

#[tokio::test]
async fn the_rule_for_failures_holds() {
    let cases = [
        (json!("allow"), [200, 200, 200]),
        (json!("deny"), [503, 503, 503]),
        (json!("local"), [200, 200, 429]),
        (json!({ "local-one-in": 2 }), [200, 429, 429]),
    ];
    for (rule, expected) in cases {
        // given a backend that fails
        let backend = Waiting::new(at_a_standstill().0);
        backend.gate.add_permits(1000);
        backend.fail_with(Some(FailureKind::Unreachable));
        let config = json!({ "policies": [{ "name": "p", "quotas": "2/h", "on_failure": rule }] });
        let config: LimiterConfig = serde_json::from_value(config).unwrap();
        let builder = config.build(&registry()).unwrap();
        let limiter = builder.backend(backend).build().unwrap();

        // when three requests come
        let mut statuses = Vec::new();
        for _ in 0..3 {
            statuses.push(status(&limiter, get("/")).await);
        }

        // then the policy's rule says what becomes of them
        assert_eq!(statuses, expected, "{rule}");
    }
}

#[tokio::test]
async fn a_check_may_name_anybody_where_the_key_is_left_out_and_no_text_where_it_is_said_to_be_the_address()
 {
    let unstated = policy(json!({}));
    assert!(unstated.check("p", "alice").await.unwrap().is_allowed());
    unstated.reset("p", "alice").await.unwrap();

    let stated = policy(json!({ "key": "client-ip" }));
    let refused = stated.reset("p", "alice").await.unwrap_err().to_string();
    assert!(
        refused.contains("its key is the client's address"),
        "{refused}"
    );
}

#[tokio::test]
async fn quotas_may_be_what_a_registered_lookup_states() {
    let limiter = policy(json!({ "quotas_by": "rows", "key": { "header": "x-api-key" } }));
    for (key, stated) in [("a", 4), ("b", 2)] {
        let checked = limiter.check("p", key).cost(0).await.unwrap();
        assert_eq!(checked.remaining(), stated, "{key}");
    }
}

#[tokio::test]
async fn limits_on_how_many_at_once_stand_beside_quotas_and_in_tiers() {
    let text = r#"
        [[policies]]
        name = "exports"
        quotas = "30/min; 2 at once"
        key = { header = "x-api-key" }

        [policies.tiers]
        by = { partner = "gold", intern = "trial" }
        quotas = { gold = "300/min; 4 at once", trial = "1 at once" }
    "#;
    let config: LimiterConfig = toml::from_str(text).unwrap();
    let limiter = config.build(&registry()).unwrap().build().unwrap();
    for (key, at_once) in [("anybody", 2), ("partner", 4), ("intern", 1)] {
        for _turn in 0..3 {
            let mut held = Vec::new();
            for _ in 0..at_once {
                let checked = limiter.check("exports", key).await.unwrap();
                assert!(checked.is_allowed(), "{key}: {} are held", held.len());
                held.push(checked);
            }
            let refused = limiter.check("exports", key).await.unwrap();
            assert!(
                !refused.is_allowed() && refused.retry_after().is_none(),
                "{key}"
            );
        }
    }
}
