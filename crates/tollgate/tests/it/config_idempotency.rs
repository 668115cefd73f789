//! The ids of a policy in a configuration.

#![cfg(feature = "serde")]

use crate::common::registry::registry;
use crate::common::{Strict, at_a_standstill, from};
use serde_json::{Value, json};
use tollgate::config::{LimiterConfig, Registry};
use tollgate::{Limiter, RateLimitLayer};
use tower::{Layer, Service, ServiceExt};

fn config(once: &Value) -> Result<LimiterConfig, serde_json::Error> {
    let orders = json!({ "name": "orders", "quotas": "10/h", "once": once });
    serde_json::from_value(json!({ "policies": [orders] }))
}

fn limiter(once: &Value) -> Limiter {
    let builder = config(once).unwrap().build(&Registry::new()).unwrap();
    builder.backend(at_a_standstill().0).build().unwrap()
}

#[tokio::test]
async fn ids_in_a_configuration_have_the_replays_that_it_says() {
    for (once, left) in [
        (json!({}), [9, 9, 9, 8]),
        (json!({ "replays": 1 }), [9, 9, 8, 8]),
        (json!({ "replays": 3, "life": 86_400 }), [9, 9, 9, 9]),
    ] {
        let limiter = limiter(&once);
        for left in left {
            let checked = limiter.check("orders", "alice").id("order-7").await;
            assert_eq!(checked.unwrap().remaining(), left, "{once}");
        }
    }
}

#[tokio::test]
async fn requests_have_their_id_where_the_configuration_says() {
    let limiter = limiter(&json!({ "by": { "header": "idempotency-key" } }));
    let mut service = RateLimitLayer::new(&limiter).layer(Strict::default());
    for _ in 0..3 {
        let mut request = from("203.0.113.7");
        let id = "order-7".parse().unwrap();
        request.headers_mut().insert("idempotency-key", id);
        let _response = service.ready().await.unwrap().call(request).await.unwrap();
    }
    let caller = limiter.client_key("203.0.113.7".parse().unwrap());
    let probe = limiter.check("orders", caller).probe().await.unwrap();
    assert_eq!(probe.remaining(), 9);
}

#[test]
fn terms_that_cannot_be_are_refused_with_policy_field_and_value() {
    for (once, error) in [
        (
            json!({ "life": 0 }),
            "policy \"orders\": once.life \"0\": a period of 0 has no rate",
        ),
        (
            json!({ "life": 86_401 }),
            "policy \"orders\": once.life \"86401\": a life of 86401s: an id is remembered for a day at most",
        ),
        (
            json!({ "replays": 0 }),
            "policy \"orders\": once.replays \"0\": 0 replays: an id has 1 to 100 replays, and then its request is charged",
        ),
        (
            json!({ "by": { "header": "no header" } }),
            "policy \"orders\": key \"no header\": invalid header name",
        ),
        (
            json!({ "by": "method" }),
            "policy \"orders\": once.by \"method\": is the same in other requests of a caller, and names none; a header would: { header = \"idempotency-key\" }",
        ),
        (
            json!({ "by": { "registered": "session" } }),
            "policy \"orders\": once.by \"session\": is asynchronous, and an id is read from the request alone",
        ),
    ] {
        let refused = config(&once).unwrap().build(&registry()).unwrap_err();
        assert_eq!(refused.to_string(), error);
    }
    for once in [
        json!({ "lives": 9 }),
        json!({ "life": -1 }),
        json!("idempotency-key"),
    ] {
        assert!(config(&once).is_err(), "{once}");
    }
}
