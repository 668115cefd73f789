//! The shapes of configurations: they are written as they were read, and none makes the limiter panic.

#![cfg(feature = "serde")]

use crate::common::registry::registry;
use proptest::prelude::*;
use serde_json::{Value, json};
use tollgate::LimiterBuilder;
use tollgate::config::LimiterConfig;

/// Every field, and every way to write it.
fn everything() -> Vec<Value> {
    let mut all = vec![
        json!({
            "client_address": { "x-forwarded-for": { "networks": ["10.0.0.0/8"] } },
            "ipv6_prefix": 56,
            "ignore_path_case": true,
            "exempt_preflights": true,
            "exempt_health_checks": true,
            "max_waiting": 500,
            "max_waiting_per_key": 50,
            "deadline_header": "x-timeout-ms",
            "shed": {
                "classes": ["user", "batch"],
                "by": { "registered": "user" },
                "signals": ["cpu", "memory", { "lag-ms": 100 }, { "registered": "queue" }],
                "at": ["batch 70%"],
                "margin": "10%",
                "retry_after": 10,
                "shadow": true,
            },
            "allow_no_policies": true,
            "policies": [{
                "name": "p",
                "quotas": { "day": "9/day", "second": "1/s burst 2" },
                "key": ["client-ip", { "cookie": "s" }],
                "routes": ["/a"],
                "grpc": ["shop.v1.Orders/Place"],
                "exempt_routes": ["/b"],
                "methods": ["GET"],
                "exempt_methods": ["PUT"],
                "hosts": ["example.com"],
                "exempt_networks": ["192.0.2.0/24", { "registered": "offices" }],
                "when": ["always"],
                "exempt_preflights": true,
                "exempt_health_checks": true,
                "cost": 2,
                "outcome": "failed",
                "tiers": { "by": "plan", "quotas": { "gold": ["40/day"], "staff": "unlimited" } },
                "classes": { "by": "method", "keep_for": ["critical 20%", "normal 10%"] },
                "shadow": true,
                "on_demand": true,
                "on_missing": "deny",
                "on_failure": { "local-one-in": 4 },
            }, {
                "name": "r",
                "quotas": "1/s",
                "quotas_by": "rows",
            }, {
                "name": "q",
                "quotas": ["1/s", "9/day"],
                "key": { "header": "x-user" },
                "cost": "two",
                "tiers": { "by": { "a": "gold" }, "quotas": { "gold": "4/s" } },
                "exempt_keys": ["a", { "registered": "partners" }],
                "block_keys": { "forbidden": ["b"], "too_many_requests": ["c"] },
                "per_message": { "of": "both", "by_bytes": true, "end_stream": true },
                "on_missing": "pass",
                "on_failure": { "local-percent": 30 },
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
        json!("bearer-token"),
        json!("basic-user"),
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
        let built = config.build(&registry());
        assert!(built.is_ok(), "{built:?}");
    }
}

#[test]
fn what_was_not_written_is_not_written_back() {
    let written = json!({ "policies": [{ "name": "p", "quotas": "1/s" }] });
    let spelt_out = json!({
        "client_address": "peer",
        "policies": [{
            "name": "p", "quotas": "1/s", "cost": 1, "on_missing": "share", "on_failure": "allow",
        }],
    });
    let read = |value: &Value| serde_json::from_value::<LimiterConfig>(value.clone()).unwrap();
    assert_eq!(read(&written), read(&spelt_out));
    assert_eq!(serde_json::to_value(read(&spelt_out)).unwrap(), written);

    // A key that is stated is another matter than one that is not: see `PolicyConfig::key`.
    let stated = json!({ "policies": [{ "name": "p", "quotas": "1/s", "key": "client-ip" }] });
    assert_eq!(serde_json::to_value(read(&stated)).unwrap(), stated);
}

/// Values in configurations, right and wrong.
fn words() -> impl Strategy<Value = Value> {
    let known = prop::sample::select(vec![
        "p",
        "1/s",
        "0/s",
        "9/day sliding-log",
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
        "gold",
        "unlimited",
        "",
    ]);
    prop_oneof![4 => known.prop_map(Value::from), 1 => any::<String>().prop_map(Value::from)]
}

/// JSON of any shape, with names that mean something.
fn documents() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        4 => words(),
        1 => any::<i64>().prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::from),
        1 => Just(Value::Null),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        let fields = prop::sample::select(vec![
            "client_address",
            "policies",
            "name",
            "quotas",
            "key",
            "routes",
            "cost",
            "tiers",
            "by",
            "header",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(fields, inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

fn keys() -> impl Strategy<Value = Value> {
    let kinds = prop::sample::select(vec![
        "header",
        "cookie",
        "query",
        "path-param",
        "form-field",
        "registered",
    ]);
    let one = prop_oneof![
        prop::sample::select(vec![
            "client-ip",
            "global",
            "host",
            "method",
            "matched-route",
            "bearer-token",
            "basic-user"
        ])
        .prop_map(Value::from),
        (kinds, words()).prop_map(|(kind, name)| json!({ kind: name })),
    ];
    one.prop_recursive(3, 10, 4, |inner| {
        prop::collection::vec(inner, 0..4).prop_map(Value::from)
    })
}

/// A field of a policy, and a value of the right shape.
fn fields() -> impl Strategy<Value = (&'static str, Value)> {
    let lists = prop::sample::select(vec![
        "quotas",
        "routes",
        "exempt_routes",
        "methods",
        "exempt_methods",
        "hosts",
        "exempt_networks",
        "when",
        "exempt_keys",
    ]);
    let texts = prop::sample::select(vec!["name", "quotas", "quotas_by", "cost", "outcome"]);
    let map = || {
        prop::collection::vec((any::<String>(), words()), 0..3)
            .prop_map(|pairs| pairs.into_iter().collect::<Value>())
    };
    prop_oneof![
        4 => (lists, prop::collection::vec(words(), 0..3)).prop_map(|(field, list)| (field, list.into())),
        2 => (texts, words()),
        2 => keys().prop_map(|key| ("key", key)),
        1 => map().prop_map(|quotas| ("quotas", quotas)),
        1 => any::<u64>().prop_map(|cost| ("cost", cost.into())),
        1 => (1_u64..).prop_map(|n| ("on_failure", json!({ "local-one-in": n }))),
        1 => (prop_oneof![words(), map()], map()).prop_map(|(by, quotas)| ("tiers", json!({ "by": by, "quotas": quotas }))),
        1 => (keys(), prop::collection::vec("[a-z]{0,3} ?[0-9]{0,3}%?", 0..3))
            .prop_map(|(by, keep_for)| ("classes", json!({ "by": by, "keep_for": keep_for }))),
        1 => prop::collection::vec(words(), 0..3).prop_map(|keys| ("block_keys", json!({ "forbidden": keys }))),
    ]
}

fn policies() -> impl Strategy<Value = Value> {
    prop::collection::vec(fields(), 0..4).prop_map(|fields| {
        let mut policy = json!({ "name": "p", "quotas": "1/s" });
        for (field, value) in fields {
            policy[field] = value;
        }
        policy
    })
}

proptest! {
    #[test]
    fn no_document_makes_it_panic(document in documents()) {
        if let Ok(config) = serde_json::from_value::<LimiterConfig>(document) {
            drop(config.build(&registry()).map(LimiterBuilder::build));
        }
    }

    #[test]
    fn what_is_wrong_with_a_policy_is_said_with_its_name(written in policies(), prefix in any::<Option<u8>>()) {
        let document = json!({ "policies": [written], "ipv6_prefix": prefix });
        let config: LimiterConfig = serde_json::from_value(document).unwrap();
        let built = config.build(&registry()).and_then(LimiterBuilder::build);
        if let Err(error) = built {
            let expected = matches!(prefix, Some(0 | 129..)) || error.to_string().starts_with("policy \"");
            prop_assert!(expected, "{error}");
        }
        let read = serde_json::to_value(&config).unwrap();
        prop_assert_eq!(serde_json::from_value::<LimiterConfig>(read).unwrap(), config);
    }
}
