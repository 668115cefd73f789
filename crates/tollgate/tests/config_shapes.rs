//! What configurations look like: they are written as they were read, and nothing that is read makes the limiter panic.

#![cfg(feature = "serde")]
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod common;

use common::registry::registry;
use proptest::prelude::*;
use serde_json::{Value, json};
use tollgate::config::{LimiterConfig, PolicyConfig};
use tollgate::{ClientAddress, LimiterBuilder};

/// Every field, and every way to write it.
fn everything() -> Vec<Value> {
    let mut all = vec![
        json!({
            "client_address": { "x-forwarded-for": { "networks": ["10.0.0.0/8"] } },
            "ipv6_prefix": 56,
            "ignore_path_case": true,
            "charge_preflights": true,
            "allow_no_policies": true,
            "policies": [{
                "name": "p",
                "quotas": { "day": "9/day", "second": "1/s burst 2" },
                "key": ["client-ip", { "cookie": "s" }],
                "routes": ["/a"],
                "exempt_routes": ["/b"],
                "methods": ["GET"],
                "exempt_methods": ["PUT"],
                "hosts": ["example.com"],
                "exempt_networks": ["192.0.2.0/24"],
                "when": ["always"],
                "charge_preflights": true,
                "cost": 2,
                "outcome": "failed",
                "tiers": { "by": "plan", "quotas": { "gold": ["4/h"], "staff": "unlimited" } },
                "shadow": true,
                "on_demand": true,
                "on_missing": "deny",
                "on_failure": { "local-one-in": 4 },
            }, {
                "name": "q",
                "quotas": ["1/s", "9/day"],
                "key": { "header": "x-user" },
                "cost": "two",
                "tiers": { "by": { "a": "gold" }, "quotas": { "gold": "4/h" } },
                "exempt_keys": ["a"],
                "block_keys": { "forbidden": ["b"], "too_many_requests": ["c"] },
                "on_missing": "pass",
                "on_failure": "local",
            }],
        }),
        json!({ "client_address": { "forwarded": { "hops": 2 } }, "policies": [] }),
        json!({ "client_address": { "header": { "name": "x", "networks": [] } }, "policies": [] }),
    ];
    for key in [
        json!("global"),
        json!("host"),
        json!("method"),
        json!("matched-route"),
        json!({ "query": "x" }),
        json!({ "path-param": "x" }),
        json!({ "form-field": "x" }),
        json!({ "registered": "user" }),
        #[cfg(feature = "json")]
        json!({ "json-field": "a.b" }),
    ] {
        let policy = json!({ "name": "p", "quotas": "1/s", "key": key, "on_failure": "deny" });
        all.push(json!({ "policies": [policy] }));
    }
    all
}

#[test]
fn what_is_read_is_written_as_it_was() {
    for written in everything() {
        let config: LimiterConfig = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(serde_json::to_value(&config).unwrap(), written);
        config.build(&registry()).unwrap();
    }
}

#[test]
fn what_was_not_written_is_not_written_back() {
    let written = json!({ "policies": [{ "name": "p", "quotas": "1/s" }] });
    let spelt_out = json!({
        "client_address": "peer",
        "policies": [{
            "name": "p", "quotas": "1/s", "key": "client-ip", "cost": 1, "on_missing": "share", "on_failure": "allow",
        }],
    });
    let read = |value: &Value| serde_json::from_value::<LimiterConfig>(value.clone()).unwrap();
    assert_eq!(read(&written), read(&spelt_out));
    assert_eq!(serde_json::to_value(read(&spelt_out)).unwrap(), written);
}

/// JSON of any shape, of which much looks like a configuration.
fn documents() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec![
        "p",
        "1/s",
        "0/s",
        "9/day sliding-log",
        "client-ip",
        "global",
        "user",
        "session",
        "/a",
        "/{*x}",
        "/{",
        "GET",
        "*.a",
        "::1",
        "10.0.0.0/8",
        "always",
        "two",
        "plan",
        "failed",
        "deny",
        "local",
        "unlimited",
        "peer",
        "",
    ]);
    let leaf = prop_oneof![
        8 => words.prop_map(Value::from),
        1 => any::<String>().prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::from),
        1 => Just(Value::Null),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        let fields = prop::sample::select(vec![
            "client_address",
            "ipv6_prefix",
            "policies",
            "key",
            "routes",
            "methods",
            "hosts",
            "when",
            "cost",
            "exempt_networks",
            "outcome",
            "tiers",
            "exempt_keys",
            "block_keys",
            "on_failure",
            "by",
            "header",
            "x-forwarded-for",
            "networks",
            "forbidden",
            "local-one-in",
            "registered",
        ]);
        let policy = prop::collection::btree_map(fields.clone(), inner.clone(), 0..3);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(fields, inner, 0..3).prop_map(|map| json!(map)),
            policy.prop_map(|map| {
                let mut policy = json!(map);
                policy["name"] = "p".into();
                policy["quotas"] = "1/s".into();
                policy
            }),
        ]
    })
}

proptest! {
    #[test]
    fn no_document_makes_it_panic(document in documents()) {
        // Most are no limiter, and some of what is in them is a policy.
        if let Ok(config) = serde_json::from_value::<LimiterConfig>(document.clone()) {
            drop(config.build(&registry()).map(LimiterBuilder::build));
        }
        if let Ok(policy) = serde_json::from_value::<PolicyConfig>(document) {
            drop(policy.build(&registry(), &ClientAddress::peer()));
        }
    }

    #[test]
    fn no_text_in_a_field_makes_it_panic(
        text in any::<String>(),
        field in prop::sample::select(vec![
            "name", "quotas", "routes", "exempt_routes", "methods", "exempt_methods", "hosts", "exempt_networks",
            "when", "cost", "outcome", "exempt_keys",
        ]),
        listed in any::<bool>(),
    ) {
        let mut policy = json!({ "name": "p", "quotas": "1/s" });
        policy[field] = if listed { json!([text]) } else { json!(text) };
        if let Ok(policy) = serde_json::from_value::<PolicyConfig>(policy) {
            let built = policy.build(&registry(), &ClientAddress::peer());
            prop_assert!(built.is_ok() || built.unwrap_err().to_string().starts_with("policy \""));
        }
    }
}
