//! A quota that is refilled in intervals behaves alike wherever it is written down: in code, as text, in a configuration and at a
//! handler. That `.proto` files take it is shown in `proto.rs`.

#![cfg(all(feature = "macros", feature = "serde"))]

use std::time::Duration;

use crate::common::registry::registry;
use crate::common::served::Served;
use crate::common::{at_a_standstill, header};
use axum::Router;
use axum::routing::get;
use serde_json::json;
use tollgate::config::LimiterConfig;
use tollgate::{
    Algorithm, ClientIp, Limiter, LimiterBuilder, ManualClock, Policy, Quota, RateLimitLayer,
    rate_limit,
};

const TEXT: &str = "10/min interval-refill burst 30";

#[rate_limit("10/min interval-refill burst 30")]
async fn hello() -> &'static str {
    "hello"
}

/// A server whose clock stands at 20 s of a minute.
async fn serve(builder: LimiterBuilder, app: Router) -> (Served, ManualClock) {
    let (backend, clock) = at_a_standstill();
    let limiter = builder.backend(backend).build().unwrap();
    let app = app.layer(RateLimitLayer::new(&limiter));
    (Served::new(app).await, clock)
}

#[tokio::test]
async fn a_refill_in_intervals_is_the_same_in_code_as_text_in_a_configuration_and_at_a_handler() {
    // given
    let offset = Duration::ZERO;
    let quota = Quota::per_minute(10).using(Algorithm::IntervalRefill { offset });
    let in_code = Policy::new("hello/hello", quota.burst(30)).key(ClientIp);
    let as_text = Policy::new("hello/hello", TEXT).key(ClientIp);
    let config =
        json!({ "policies": [{ "name": "hello/hello", "quotas": TEXT, "key": "client-ip" }] });
    let config: LimiterConfig = serde_json::from_value(config).unwrap();
    let plain = || Router::new().route("/hello", get(|| async { "hello" }));
    let annotated = Router::new().route("/hello", get(hello));
    let places = [
        ("code", Limiter::builder().policy(in_code), plain()),
        ("text", Limiter::builder().policy(as_text), plain()),
        ("configuration", config.build(&registry()).unwrap(), plain()),
        ("handler", Limiter::builder().allow_no_policies(), annotated),
    ];
    for (place, builder, app) in places {
        let (server, clock) = serve(builder, app).await;

        // when a new caller comes: then it has the burst, and is told what refills, and when
        let first = server.get("/hello").await;
        assert_eq!(first.status(), 200, "{place}");
        assert_eq!(
            header(&first, "ratelimit-policy"),
            "\"hello/hello\";q=30;w=180",
            "{place}"
        );
        assert_eq!(header(&first, "ratelimit"), "\"hello/hello\";r=29;t=40");
        assert_eq!(server.statuses(["/hello"; 29]).await, [200; 29], "{place}");
        let refused = server.get("/hello").await;
        assert_eq!(refused.status(), 429, "{place}");
        assert_eq!(header(&refused, "retry-after"), "40", "{place}");

        // when the next minute begins: then ten have come, and not one earlier
        clock.advance(Duration::from_micros(39_999_999));
        assert_eq!(server.get("/hello").await.status(), 429, "{place}");
        clock.advance(Duration::from_micros(1));
        assert_eq!(server.statuses(["/hello"; 10]).await, [200; 10], "{place}");
        let refused = server.get("/hello").await;
        assert_eq!(header(&refused, "retry-after"), "60", "{place}");
    }
}
