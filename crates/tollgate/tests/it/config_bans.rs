//! Bans from plain data: what is written holds, and what makes no sense is refused with the policy, the field and the value.

#![cfg(feature = "serde")]

use std::convert::Infallible;
use std::time::Duration;

use crate::common::registry::registry;
use crate::common::{Body, at_a_standstill, from, header};
use http::Response;
use serde_json::{Value, json};
use tollgate::config::{LimiterConfig, PolicyConfig};
use tollgate::{ClientAddress, Limiter, ManualClock, RateLimitLayer};
use tower::{Layer, ServiceExt, service_fn};

/// A limiter of one policy, two a minute, with this ban.
fn limiter(ban: &Value) -> (Limiter, ManualClock) {
    let login = json!({ "name": "login", "quotas": "2/min", "key": "client-ip", "ban": ban });
    let config = json!({ "policies": [login] });
    let config: LimiterConfig = serde_json::from_value(config).unwrap();
    let (backend, clock) = at_a_standstill();
    let builder = config.build(&registry()).unwrap();
    (builder.backend(backend).build().unwrap(), clock)
}

/// The answer to one caller behind the limiter, if the service answers with this status.
async fn answer(limiter: &Limiter, status: u16) -> Response<Body> {
    let inner = service_fn(move |_: http::Request<Body>| {
        let answer = Response::builder().status(status).body(Body::default());
        std::future::ready(Ok::<_, Infallible>(answer.unwrap()))
    });
    let service = RateLimitLayer::new(limiter).layer(inner);
    service.oneshot(from("10.0.0.1")).await.unwrap()
}

async fn statuses<const N: usize>(limiter: &Limiter, status: u16) -> [u16; N] {
    let mut statuses = [0; N];
    for told in &mut statuses {
        *told = answer(limiter, status).await.status().as_u16();
    }
    statuses
}

#[tokio::test]
async fn a_ban_in_a_configuration_begins_lasts_and_doubles_as_it_says() {
    let after = "2 in 10min for 15min doubling to 1h forgiven after 1day";
    let (limiter, clock) = limiter(&json!({ "after": after }));
    for wait in ["900", "1800", "3600", "3600"] {
        assert_eq!(statuses(&limiter, 200).await, [200, 200, 429]);
        let struck = answer(&limiter, 200).await;
        assert_eq!(
            (struck.status().as_u16(), header(&struck, "retry-after")),
            (429, wait)
        );
        clock.advance(Duration::from_secs(wait.parse().unwrap()));
    }
}

#[tokio::test]
async fn a_ban_in_a_configuration_is_answered_as_it_says() {
    for (how, status, wait) in [("forbidden", 403, ""), ("too-many-requests", 429, "900")] {
        let (limiter, _clock) = limiter(&json!({ "after": "2 in 10min for 15min", "answer": how }));
        assert_eq!(statuses(&limiter, 200).await, [200, 200, 429, status]);
        let banned = answer(&limiter, 200).await;
        assert_eq!(
            (banned.status().as_u16(), header(&banned, "retry-after")),
            (status, wait)
        );
    }
}

#[tokio::test]
async fn responses_that_a_configuration_names_are_strikes() {
    // given an outcome that holds for 401
    let (limiter, clock) =
        limiter(&json!({ "after": "3 in 10min for 15min", "strike_if": "failed" }));
    for status in [401, 200] {
        assert_eq!(statuses(&limiter, status).await, [status]);
    }
    clock.advance(Duration::from_secs(60));
    assert_eq!(statuses(&limiter, 401).await, [401, 401]);
    assert_eq!(statuses(&limiter, 200).await, [429]);
    assert_eq!(header(&answer(&limiter, 200).await, "retry-after"), "900");
}

#[test]
fn a_ban_that_could_not_be_is_refused_where_it_is_read() {
    let refusal = |ban: Value| {
        let policy = json!({ "name": "p", "quotas": "1/s", "ban": ban });
        let error = serde_json::from_value::<PolicyConfig>(policy).unwrap_err();
        error.to_string()
    };
    for (after, expected) in [
        ("0 in 10min", "a ban after 0 strikes: a ban counts 1 to 64"),
        (
            "65 in 10min",
            "a ban after 65 strikes: a ban counts 1 to 64",
        ),
        ("5", "expected in and a period, found the end"),
        ("5 in 10min for 0s", "a period of 0 has no rate"),
        (
            "5 in 10min for 1h doubling to 1min",
            "a ban that lasts 3600s at first cannot double up to 60s, which is less",
        ),
        (
            "5 in 10min for 1h forgiven after 1day",
            "`forgiven after` needs `doubling to`: a ban that never doubles has no doubling to forgive",
        ),
        (
            "5 in 10min for ever",
            "expected a period, such as s, 10s, min, h or day, found \"ever\"",
        ),
        (
            "5 in 10min forgiven after 999day",
            "a period of 86313600s is longer than 366 days",
        ),
    ] {
        let said = refusal(json!({ "after": after }));
        assert_eq!(said, format!("ban {after:?}: {expected}"));
    }
    for (ban, expected) in [
        (json!({ "strike_if": "failed" }), "missing field `after`"),
        (
            json!({ "after": "5 in 10min", "answer": "teapot" }),
            "unknown variant `teapot`, expected `forbidden` or `too-many-requests`",
        ),
        (
            json!({ "after": "5 in 10min", "lasting": "1h" }),
            "unknown field `lasting`, expected one of `after`, `answer`, `strike_if`",
        ),
    ] {
        assert_eq!(refusal(ban), expected);
    }
}

#[test]
fn a_ban_that_its_policy_or_the_registry_cannot_have_is_refused_with_its_field() {
    let sets_a_cost =
        "the outcome of this name sets a cost: a strike is one of `register_count_if`";
    for (strike_if, expected) in [
        (
            "flops",
            "is not registered; registered are bytes, failed, fine, three",
        ),
        ("three", sets_a_cost),
        ("bytes", sets_a_cost),
    ] {
        let ban = json!({ "after": "5 in 10min", "strike_if": strike_if });
        let policy = json!({ "name": "p", "quotas": "2/h", "ban": ban });
        let policy: PolicyConfig = serde_json::from_value(policy).unwrap();
        let error = policy.build(&registry(), &ClientAddress::peer());
        assert_eq!(
            error.unwrap_err().to_string(),
            format!("policy \"p\": strike_if {strike_if:?}: {expected}")
        );
    }

    let messages = json!({
        "name": "p", "quotas": "2/h", "per_message": { "of": "sent" }, "ban": { "after": "5 in 10min" },
    });
    let messages: PolicyConfig = serde_json::from_value(messages).unwrap();
    let messages = messages.build(&registry(), &ClientAddress::peer());
    let error = Limiter::builder().policy(messages.unwrap()).build();
    assert_eq!(
        error.unwrap_err().to_string(),
        "policy \"p\": charges messages, which ban no caller; a ban belongs to a policy for calls"
    );
}
