//! Quotas that warm up, wherever a quota is written.

use std::time::Duration;

use tollgate::{Limiter, ManualClock, MemoryBackend, Policy, Quota, Timestamp};

const MS: Duration = Duration::from_millis(1);

fn limiter(quota: &str) -> (Limiter, ManualClock) {
    let clock = ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000));
    let backend = MemoryBackend::builder().clock(clock.clone()).build();
    let policy = Policy::new("api", quota.parse::<Quota>().unwrap());
    let builder = Limiter::builder().policy(policy).backend(backend);
    (builder.build().unwrap(), clock)
}

/// Passes as soon as may be, and returns the time that it took.
async fn pass(limiter: &Limiter, clock: &ManualClock) -> Duration {
    let denied = limiter.check("api", "alice").await.unwrap();
    let Some(wait) = denied.retry_after() else {
        return Duration::ZERO;
    };
    clock.advance(wait);
    assert!(limiter.check("api", "alice").await.unwrap().is_allowed());
    wait
}

/// The figures of Guava's `RateLimiter.create(2, 4, SECONDS)`: it stores eight permits, of which the last four cost more.
#[tokio::test]
async fn a_cold_budget_begins_gently_and_is_warm_after_the_stated_time() {
    let (limiter, clock) = limiter("2/s burst 1 warm up 4s");
    let mut waits = Vec::new();
    for _ in 0..8 {
        waits.push(pass(&limiter, &clock).await);
    }
    assert_eq!(
        waits,
        [0, 1_375, 1_125, 875, 625, 500, 500, 500].map(|ms| ms * MS)
    );

    // After a pause as long as the warm-up it is cold again.
    clock.advance(4_500 * MS);
    assert_eq!(pass(&limiter, &clock).await, Duration::ZERO);
    assert_eq!(pass(&limiter, &clock).await, 1_375 * MS);
}

#[tokio::test]
async fn a_key_that_memory_forgot_is_as_cold_as_it_was() {
    let (limiter, clock) = limiter("2/s burst 1 warm up 4s");
    for _ in 0..6 {
        pass(&limiter, &clock).await;
    }
    // Long after its bucket is empty, a part of the store is warm.
    clock.advance(2_600 * MS);
    pass(&limiter, &clock).await;
    let lukewarm = pass(&limiter, &clock).await;
    assert!(500 * MS < lukewarm && lukewarm < 1_375 * MS, "{lukewarm:?}");
}

#[tokio::test]
async fn what_is_owed_stays_owed_when_a_warm_up_is_added() {
    let (limiter, clock) = limiter("2/s burst 1");
    pass(&limiter, &clock).await;
    let gentle = "2/s burst 1 warm up 4s".parse::<Quota>().unwrap();

    limiter.replace([Policy::new("api", gentle)]).unwrap();

    // The unit that was taken before was a plain one, and the first since is cold.
    assert_eq!(pass(&limiter, &clock).await, 500 * MS);
    assert_eq!(pass(&limiter, &clock).await, 1_375 * MS);
}

#[cfg(feature = "serde")]
#[test]
fn a_configuration_has_warm_ups_and_names_what_is_wrong_with_one() {
    let read = |quotas: &str| {
        let policy = serde_json::json!({ "name": "api", "quotas": quotas, "key": "global" });
        let config = serde_json::json!({ "policies": [policy] });
        serde_json::from_value::<tollgate::config::LimiterConfig>(config)
            .map_err(|error| error.to_string())
            .and_then(|config| {
                let builder = config.build(&tollgate::config::Registry::new());
                builder.map(drop).map_err(|error| error.to_string())
            })
    };

    assert_eq!(read("100/s burst 1 warm up 10s; 1000/day"), Ok(()));
    for (quotas, expected) in [
        (
            "100/s warm up 2h",
            "a warm-up of 7200s is longer than an hour",
        ),
        (
            "100/s warm up 1ms",
            "a warm-up of 1ms is over before one request has passed at this rate",
        ),
        (
            "100/s warm up 10s wait 1s",
            "requests cannot wait for their turn under a quota that warms up",
        ),
        (
            "100/s warm up 10s sliding-log",
            "a window, a log or a refill does not warm up: use gcra",
        ),
        (
            "100/s warm up 10s cold factor 1",
            "a cold factor of 1 is not between 2 and 100",
        ),
        (
            "100/s cold factor 2",
            "a cold factor has no meaning without a warm-up",
        ),
    ] {
        let error = read(quotas).unwrap_err();
        for part in ["api", quotas, expected] {
            assert!(error.contains(part), "{error}");
        }
    }
}

#[cfg(feature = "macros")]
mod annotated {
    use axum::Router;
    use axum::body::Body;
    use axum::routing::get;
    use http::{Request, StatusCode};
    use tollgate::key::Global;
    use tollgate::{Limiter, MemoryBackend, Policy, Quota, RateLimitLayer, rate_limit};
    use tower::ServiceExt;

    #[rate_limit("1/min burst 1 warm up 10min", key = Global)]
    async fn report() -> &'static str {
        "ready"
    }

    #[tokio::test]
    async fn a_handler_warms_up() {
        let all = Policy::new("all", Quota::per_day(1_000)).key(Global);
        let builder = Limiter::builder().policy(all).backend(MemoryBackend::new());
        let layer = RateLimitLayer::new(builder.build().unwrap());
        let router = Router::new().route("/", get(report)).layer(layer);
        let ask = || router.clone().oneshot(Request::new(Body::empty()));

        let first = ask().await.unwrap();
        let second = ask().await.unwrap();

        assert_eq!(first.status(), StatusCode::OK);
        assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
        // Three minutes less the slope of the first unit.
        let retry_after = second.headers()["retry-after"].to_str().unwrap();
        let seconds: u64 = retry_after.parse().unwrap();
        assert!((150..=180).contains(&seconds), "{seconds}");
    }
}
