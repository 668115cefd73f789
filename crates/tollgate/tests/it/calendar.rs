//! Quotas by the calendar, wherever a quota is written.

#![cfg(feature = "calendar")]

use std::time::Duration;

use tollgate::{
    Algorithm, Calendar, Limiter, ManualClock, MemoryBackend, OnFailure, Policy, Quota, Share,
    Timestamp, Zone,
};

const HOUR: Duration = Duration::from_secs(3_600);

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn limiter(quotas: &str, time: Timestamp) -> (Limiter, ManualClock) {
    let clock = ManualClock::at(time);
    let backend = MemoryBackend::builder().clock(clock.clone()).build();
    let policy = Policy::new("api", quotas.parse::<Quota>().unwrap());
    let builder = Limiter::builder().policy(policy).backend(backend);
    (builder.build().unwrap(), clock)
}

/// Takes all that there is, and says how long the next request has to wait.
async fn spend(limiter: &Limiter, n: u64) -> Duration {
    let all = limiter.check("api", "alice").cost(n).await.unwrap();
    assert!(all.is_allowed());
    let denied = limiter.check("api", "alice").await.unwrap();
    assert!(!denied.is_allowed());
    denied.retry_after().unwrap()
}

#[tokio::test]
async fn a_day_is_as_long_as_the_clocks_of_its_zone_make_it() {
    // 30 March and 26 October 2025 in Berlin, and the day before the first.
    for (midnight, hours) in [
        (1_743_202_800, 24),
        (1_743_289_200, 23),
        (1_761_429_600, 25),
    ] {
        let (limiter, clock) = limiter("10/day in Europe/Berlin", at(midnight));

        assert_eq!(spend(&limiter, 10).await, hours * HOUR);

        // And the wait is kept.
        clock.advance(hours * HOUR - Duration::from_micros(1));
        assert!(!limiter.check("api", "alice").await.unwrap().is_allowed());
        clock.advance(Duration::from_micros(1));
        assert_eq!(limiter.check("api", "alice").await.unwrap().remaining(), 9);
    }
}

#[tokio::test]
async fn a_month_ends_with_its_last_day_in_its_zone() {
    // 31 January 2024, 23:30 in Berlin: there February has 29 days.
    let (limiter, clock) = limiter("1000/month in Europe/Berlin", at(1_706_740_200));
    assert_eq!(spend(&limiter, 1_000).await, HOUR / 2);
    clock.advance(HOUR / 2);
    assert_eq!(spend(&limiter, 1_000).await, 29 * 24 * HOUR);
}

#[tokio::test]
async fn a_day_that_a_zone_left_out_has_no_window() {
    // 29 December 2011, 12:00 in Samoa, where the next day was the 31st.
    let (limiter, clock) = limiter("5/day in Pacific/Apia", at(1_325_196_000));
    assert_eq!(spend(&limiter, 5).await, 12 * HOUR);
    clock.advance(12 * HOUR);
    assert_eq!(spend(&limiter, 5).await, 24 * HOUR);
}

#[tokio::test]
async fn what_was_used_of_a_window_stays_used_under_another_limit() {
    let (limiter, _) = limiter("10/month in UTC", at(1_700_000_000));
    let taken = limiter.check("api", "alice").cost(10).await.unwrap();
    assert!(taken.is_allowed());

    // when the limit rises
    let raised = Policy::new("api", "15/month in UTC".parse::<Quota>().unwrap());
    limiter.replace([raised]).unwrap();

    // then only what it adds is there
    let checked = limiter.check("api", "alice").await.unwrap();
    assert_eq!(checked.remaining(), 4);
}

#[test]
fn a_calendar_is_an_algorithm_with_its_own_period() {
    let days = Calendar::day(Zone::UTC);
    let quota = Quota::per_calendar(10, days);

    assert_eq!(quota.algorithm(), Algorithm::Calendar(days));
    assert_eq!(quota, Quota::per_day(10).using(Algorithm::Calendar(days)));
    assert_eq!((quota.capacity(), quota.keeping(3).limit()), (10, 7));
    let error = Quota::per_hour(10)
        .try_using(Algorithm::Calendar(days))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "a period of 3600s is not that of the calendar: use Quota::per_calendar"
    );
}

#[test]
fn a_share_of_a_window_is_one_of_its_limit() {
    let quota = Quota::per_calendar(10, Calendar::month(Zone::UTC));
    let policy = Policy::new("api", quota).on_failure(OnFailure::Local(Share::one_in(4)));
    let limiter = Limiter::builder()
        .policy(policy)
        .backend(MemoryBackend::new())
        .build();
    assert!(limiter.is_ok());
}

#[cfg(feature = "serde")]
#[test]
fn a_configuration_has_calendars_and_names_what_is_wrong_with_one() {
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

    assert_eq!(read("5/s; 1000/month in Europe/Berlin from 15"), Ok(()));
    for (quotas, expected) in [
        (
            "1000/month in Europe/Bern",
            "a time zone of the IANA's list",
        ),
        (
            "1000/month in UTC from 30",
            "a day that every month has: 1 to 28",
        ),
        ("1000/year in UTC from 02-30", "a day that every year has"),
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

    #[rate_limit("2/month in Europe/Berlin", key = Global)]
    async fn report() -> &'static str {
        "ready"
    }

    #[tokio::test]
    async fn a_handler_is_limited_by_the_calendar() {
        let all = Policy::new("all", Quota::per_day(1_000)).key(Global);
        let builder = Limiter::builder().policy(all).backend(MemoryBackend::new());
        let layer = RateLimitLayer::new(builder.build().unwrap());
        let router = Router::new().route("/", get(report)).layer(layer);

        let mut statuses = Vec::new();
        for _ in 0..3 {
            let asked = router.clone().oneshot(Request::new(Body::empty()));
            statuses.push(asked.await.unwrap().status());
        }

        let ok = StatusCode::OK;
        assert_eq!(statuses, [ok, ok, StatusCode::TOO_MANY_REQUESTS]);
    }
}
