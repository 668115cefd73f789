//! Configurations that make no sense: refused, with the policy, the field and the value.

#![cfg(feature = "serde")]

use crate::common::registry::registry;
use serde_json::{Value, json};
use tollgate::ClientAddress;
use tollgate::config::{LimiterConfig, PolicyConfig, Registry};

fn refusal(mut fields: Value) -> String {
    if fields["name"].is_null() {
        fields["name"] = "p".into();
    }
    if fields["quotas"].is_null() {
        fields["quotas"] = "2/h".into();
    }
    let policy: PolicyConfig = serde_json::from_value(fields).unwrap();
    let built = policy.build(&registry(), &ClientAddress::peer());
    built.unwrap_err().to_string()
}

#[test]
fn what_makes_no_sense_is_refused_with_policy_field_and_value() {
    let cases = [
        (json!({ "quotas": [] }), "policy \"p\": no quota"),
        (json!({ "quotas": "0/s" }), "policy \"p\": quotas \"0/s\": "),
        (
            json!({ "quotas": { "Day": "1/s" } }),
            "policy \"p\": quotas \"Day\": invalid name for a quota",
        ),
        (
            json!({ "key": { "query": "user" }, "exempt_keys": ["007"], "block_keys": { "forbidden": ["7"] } }),
            "policy \"p\": block_keys \"7\": is in exempt_keys too",
        ),
        (
            json!({ "key": { "cookie": "sid" }, "exempt_keys": ["a%20b"], "block_keys": { "forbidden": ["a b"] } }),
            "policy \"p\": block_keys \"a b\": is in exempt_keys too",
        ),
        (
            json!({ "key": "host", "exempt_keys": ["API.example"], "block_keys": { "forbidden": ["api.example"] } }),
            "policy \"p\": block_keys \"api.example\": is in exempt_keys too",
        ),
        // Entries that no request ever meets.
        (
            json!({ "key": { "header": "k" }, "exempt_keys": ["a"], "tiers": { "by": { "a": "t" }, "quotas": { "t": "none" } } }),
            "policy \"p\": tiers \"a\": is in exempt_keys too, which lets it pass",
        ),
        (
            json!({ "exempt_networks": ["10.0.0.0/8"], "block_keys": { "forbidden": ["10.1.2.3"] } }),
            "policy \"p\": block_keys \"10.1.2.3\": is in exempt_networks too, which let it pass",
        ),
        (
            json!({ "exempt_networks": ["10.0.0.0/8"], "tiers": { "by": { "10.1.2.3": "t" }, "quotas": { "t": "none" } } }),
            "policy \"p\": tiers \"10.1.2.3\": is in exempt_networks too, which let it pass",
        ),
        (
            json!({ "key": "method", "exempt_methods": ["POST"], "block_keys": { "forbidden": ["POST"] } }),
            "policy \"p\": block_keys \"POST\": is a method that the policy does not cover",
        ),
        (
            json!({ "key": "bearer-token", "block_keys": { "forbidden": ["Bearer abc"] } }),
            "policy \"p\": block_keys \"Bearer abc\": has a scheme, but the key is the token alone",
        ),
        (
            json!({ "routes": ["x"] }),
            "policy \"p\": route \"x\": does not start with /",
        ),
        (
            json!({ "exempt_routes": ["x"] }),
            "policy \"p\": route \"x\": does not start with /",
        ),
        (
            json!({ "methods": ["post"] }),
            "policy \"p\": methods \"post\": is not in upper case",
        ),
        (
            json!({ "methods": ["A B"] }),
            "policy \"p\": methods \"A B\": not a method",
        ),
        (
            json!({ "exempt_methods": [""] }),
            "policy \"p\": exempt_methods \"\": not a method",
        ),
        (
            json!({ "hosts": ["a:80"] }),
            "policy \"p\": host \"a:80\": not a name or address without a port",
        ),
        (
            json!({ "exempt_networks": ["x"] }),
            "policy \"p\": exempt_networks \"x\": not an address",
        ),
        (
            json!({ "when": ["x"] }),
            "policy \"p\": when \"x\": is not registered; registered are always, internal",
        ),
        (
            json!({ "cost": "x" }),
            "policy \"p\": cost \"x\": is not registered; registered are two",
        ),
        (
            json!({ "outcome": "x" }),
            "policy \"p\": outcome \"x\": is not registered; registered are bytes, failed, fine, three",
        ),
        (
            json!({ "key": { "registered": "x" } }),
            "policy \"p\": key \"x\": is not registered; registered are session, user",
        ),
        (
            json!({ "key": { "header": "a b" } }),
            "policy \"p\": key \"a b\": invalid header name",
        ),
        (
            json!({ "key": [] }),
            "policy \"p\": key \"[]\": is a list of nothing",
        ),
        (
            json!({ "quotas_by": "x" }),
            "policy \"p\": quotas_by \"x\": is not registered; registered are rows",
        ),
        (
            json!({ "tiers": { "by": "x" } }),
            "policy \"p\": tiers \"x\": is not registered; registered are plan",
        ),
        (
            json!({ "tiers": { "by": { "192.0.2.1": "gold" } } }),
            "policy \"p\": tier \"gold\": an identity is in it, but there is no tier of this name",
        ),
        (
            json!({ "tiers": { "by": { "2001:db8::1": "a", "2001:db8::2": "b" } } }),
            "policy \"p\": tiers \"2001:db8::2\": is in another tier too, as the same caller in other words",
        ),
        (
            json!({ "tiers": { "by": "plan", "quotas": { "": "1/s" } } }),
            "policy \"p\": tier \"\": a tier needs a name: the policy's own quotas",
        ),
        (
            json!({ "tiers": { "by": "plan", "quotas": { "gold": "x" } } }),
            "policy \"p\": tier \"gold\": quota \"x\": ",
        ),
        (
            json!({ "classes": { "by": { "registered": "x" }, "keep_for": ["high 20%"] } }),
            "policy \"p\": classes.by \"x\": is not registered; registered are session, user",
        ),
        (
            json!({ "classes": { "by": { "registered": "session" }, "keep_for": ["high 20%"] } }),
            "policy \"p\": classes.by \"session\": has to be waited for, and a class is found at once",
        ),
        (
            json!({ "classes": { "by": "global", "keep_for": ["high 20%"] } }),
            "policy \"p\": classes.by \"global\": is alike for all requests, and names no class; a header would: ",
        ),
        (
            json!({ "classes": { "by": "method", "keep_for": ["high 20"] } }),
            "policy \"p\": keep_for \"high 20\": expected a class and its share in whole percent, such as \"critical 20%\"",
        ),
        (
            json!({ "classes": { "by": "method", "keep_for": ["20%"] } }),
            "policy \"p\": keep_for \"20%\": expected a class and its share",
        ),
        (
            json!({ "classes": { "by": "method", "keep_for": ["high 120%"] } }),
            "policy \"p\": keep_for \"high 120%\": expected a class and its share",
        ),
        (
            json!({ "exempt_keys": ["x"] }),
            "policy \"p\": exempt_keys \"x\": not an address, but the key is client-ip",
        ),
        (
            json!({ "key": "global", "block_keys": { "forbidden": ["x"] } }),
            "policy \"p\": block_keys \"x\": names no caller: the key is global",
        ),
        (
            json!({ "key": ["host", "method"], "block_keys": { "too_many_requests": ["x"] } }),
            "policy \"p\": block_keys \"x\": names no caller: the key has several parts",
        ),
        // One caller in two spellings.
        (
            json!({ "exempt_keys": ["::ffff:192.0.2.1"], "block_keys": { "forbidden": ["192.0.2.1"] } }),
            "policy \"p\": block_keys \"192.0.2.1\": is in exempt_keys too, which lets it pass",
        ),
        (
            json!({ "key": { "header": "x-api-key" }, "exempt_keys": ["b", "a"], "block_keys": { "too_many_requests": ["a"] } }),
            "policy \"p\": block_keys \"a\": is in exempt_keys too, which lets it pass",
        ),
        (
            json!({ "exempt_keys": [{ "registered": "x" }] }),
            "policy \"p\": exempt_keys \"x\": is not registered; registered are partners",
        ),
        (
            json!({ "block_keys": { "forbidden": [{ "registered": "x" }] } }),
            "policy \"p\": block_keys \"x\": is not registered; registered are partners",
        ),
        (
            json!({ "exempt_networks": [{ "registered": "x" }] }),
            "policy \"p\": exempt_networks \"x\": is not registered; registered are offices",
        ),
        (
            json!({ "grpc": ["x"] }),
            "policy \"p\": gRPC method \"x\": names no methods",
        ),
        (json!({ "name": "P" }), "policy \"P\": invalid name"),
    ];
    for (fields, expected) in cases {
        let error = refusal(fields);
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn what_is_said_of_an_empty_registry_is_that() {
    let policy: PolicyConfig =
        serde_json::from_value(json!({ "name": "p", "quotas": "1/s", "when": ["x"] })).unwrap();
    let error = policy.build(&Registry::new(), &ClientAddress::peer());
    assert_eq!(
        error.unwrap_err().to_string(),
        "policy \"p\": when \"x\": is not registered; nothing is"
    );
}

#[test]
fn what_a_limiter_cannot_mean_is_refused() {
    let header = json!({ "header": { "name": "a b", "networks": [] } });
    let network = json!({ "x-forwarded-for": { "networks": ["10.1.2.3/8"] } });
    let cases = [
        (
            json!({ "client_address": header }),
            "client_address: header \"a b\": invalid header name",
        ),
        (
            json!({ "deadline_header": "a b" }),
            "deadline_header: \"a b\": invalid header name",
        ),
        (
            json!({ "client_address": network }),
            "network \"10.1.2.3/8\": is an address within a network",
        ),
        (
            json!({ "ipv6_prefix": 0 }),
            "IPv6 prefix 0: is not between 1 and 128",
        ),
    ];
    for (config, expected) in cases {
        let config: LimiterConfig = serde_json::from_value(config).unwrap();
        let error = config.build(&registry()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn what_has_the_wrong_shape_is_refused_with_the_field_and_what_was_expected() {
    let cases = [
        (
            r#"{ "qoutas": "1/s" }"#,
            "unknown field `qoutas`, expected one of `name`, `quotas`",
        ),
        (r#"{ "quotas": "1/s" }"#, "missing field `name`"),
        (
            r#"{ "name": "p", "quotas": 1 }"#,
            "quotas are a text such as \"10/s\", a list",
        ),
        (
            r#"{ "name": "p", "key": "client_ip" }"#,
            "a key is \"client-ip\", ",
        ),
        (
            r#"{ "name": "p", "key": { "heder": "x" } }"#,
            "a key is \"client-ip\", ",
        ),
        (
            r#"{ "name": "p", "cost": -1 }"#,
            "a cost is a whole number from 0",
        ),
        (
            r#"{ "name": "p", "on_missing": "ignore" }"#,
            "unknown variant `ignore`, expected one of `share`",
        ),
        (
            r#"{ "name": "p", "on_failure": "open" }"#,
            "unknown variant `open`, expected one of `allow`",
        ),
        (
            r#"{ "name": "p", "on_failure": { "local-one-in": 0 } }"#,
            "invalid value: integer `0`",
        ),
        (
            r#"{ "name": "p", "on_failure": { "local-percent": 0 } }"#,
            "local-percent 0: is not between 1 and 100",
        ),
        (
            r#"{ "name": "p", "tiers": { "by": 1 } }"#,
            "tiers are by a registered name, or by a map",
        ),
        (
            r#"{ "name": "p", "tiers": { "quotas": {} } }"#,
            "missing field `by`",
        ),
        (
            r#"{ "name": "p", "block_keys": ["a"] }"#,
            "invalid type: string \"a\"",
        ),
    ];
    for (text, expected) in cases {
        let error = serde_json::from_str::<PolicyConfig>(text)
            .unwrap_err()
            .to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let error = serde_json::from_str::<LimiterConfig>(r#"{ "policy": [] }"#).unwrap_err();
    assert!(
        error.to_string().starts_with("unknown field `policy`"),
        "{error}"
    );
}

/// Wrong fields of a policy, as TOML and as JSON, with the error for each.
const SHAPES: [[&str; 3]; 12] = [
    [
        "qoutas = 1",
        r#""qoutas": 1"#,
        "policy \"p\": qoutas: unknown field `qoutas`, expected one of `name`, `quotas`",
    ],
    [
        "shadow = 'yes'",
        r#""shadow": "yes""#,
        "policy \"p\": shadow: invalid type: string \"yes\", expected a boolean",
    ],
    [
        "routes = '/a'",
        r#""routes": "/a""#,
        "policy \"p\": routes: invalid type: string \"/a\", expected a sequence",
    ],
    [
        "methods = ['GET', 7]",
        r#""methods": ["GET", 7]"#,
        "policy \"p\": methods[1]: invalid type: integer `7`, expected a string",
    ],
    [
        "cost = -1",
        r#""cost": -1"#,
        "policy \"p\": cost: a cost is a whole number from 0",
    ],
    [
        "key = 'client_ip'",
        r#""key": "client_ip""#,
        "policy \"p\": key: a key is \"client-ip\"",
    ],
    [
        "on_missing = 'ignore'",
        r#""on_missing": "ignore""#,
        "policy \"p\": on_missing: unknown variant `ignore`",
    ],
    [
        "tiers = { by = 1 }",
        r#""tiers": { "by": 1 }"#,
        "policy \"p\": tiers.by: tiers are by a registered name",
    ],
    [
        "tiers = { by = 'x', quotas = { gold = 1 } }",
        r#""tiers": { "by": "x", "quotas": { "gold": 1 } }"#,
        "policy \"p\": tiers.quotas.gold: quotas are a text such as",
    ],
    [
        "block_keys = { forbiden = [] }",
        r#""block_keys": { "forbiden": [] }"#,
        "policy \"p\": block_keys.forbiden: unknown field `forbiden`",
    ],
    [
        "exempt_keys = [{ register = 'x' }]",
        r#""exempt_keys": [{ "register": "x" }]"#,
        "policy \"p\": exempt_keys[0]: a list holds texts",
    ],
    [
        "exempt_networks = [{ registered = 'x', or = 'y' }]",
        r#""exempt_networks": [{ "registered": "x", "or": "y" }]"#,
        "policy \"p\": exempt_networks[0]: a list holds texts",
    ],
];

#[test]
fn what_has_the_wrong_shape_in_a_limiter_is_refused_with_policy_and_field_in_every_format() {
    for [toml, json, expected] in SHAPES {
        // The name stands last, so that it is not known yet when the field is read.
        let toml = format!(
            "[[policies]]\nname = 'other'\nquotas = '1/s'\n[[policies]]\n{toml}\nquotas = '1/s'\nname = 'p'\n"
        );
        let error = toml::from_str::<LimiterConfig>(&toml).unwrap_err();
        assert!(error.message().starts_with(expected), "{error}");
        assert!(error.to_string().contains("at line 4"), "{error}");

        let json = format!(
            r#"{{ "policies": [{{ "name": "other", "quotas": "1/s" }}, {{ {json}, "quotas": "1/s", "name": "p" }}] }}"#
        );
        let error = serde_json::from_str::<LimiterConfig>(&json).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}

#[test]
fn a_policy_without_name_is_told_by_its_place() {
    let cases = [
        (
            r#"{ "quotas": "1/s" }"#,
            "policy number 2: missing field `name`",
        ),
        (
            r#"{ "name": 7, "quotas": "1/s" }"#,
            "policy number 2: name: invalid type: integer `7`, expected a string",
        ),
        (
            r#"7"#,
            "invalid type: integer `7`, expected policy number 2 as a map of fields",
        ),
        (
            r#"{ "name": "p", "shadow": true, "shadow": false }"#,
            "\"shadow\" is given twice",
        ),
        (
            r#"{ "name": "p", "tiers": { "by": "x", "by": "y" } }"#,
            "\"by\" is given twice",
        ),
    ];
    for (policy, expected) in cases {
        let json = format!(r#"{{ "policies": [{{ "name": "p", "quotas": "1/s" }}, {policy}] }}"#);
        let error = serde_json::from_str::<LimiterConfig>(&json).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}
