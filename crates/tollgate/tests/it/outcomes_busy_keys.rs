//! Charges of one busy key that come back by their responses, in memory while time stands still, and on a real Redis, whose calls have
//! one time for many charges and refunds.

use std::convert::Infallible;
use std::time::Duration;

use crate::common::{at_a_standstill, in_redis};
use axum::body::Body;
use http::{Request, Response, StatusCode};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tollgate::key::Global;
use tollgate::{Algorithm, Backend, Key, Limiter, Policy, Quota, RateLimitLayer, RateLimitStatus};
use tollgate_testkit::Standalone;
use tower::{Layer, ServiceExt, service_fn};

const IN_FLIGHT: u64 = 32;
const PATIENCE: Duration = Duration::from_secs(30);

fn every_algorithm(quota: Quota) -> [Quota; 6] {
    let offset = Duration::ZERO;
    [
        quota,
        quota.using(Algorithm::FixedWindow { offset }),
        quota.using(Algorithm::SlidingWindow),
        quota.using(Algorithm::RollingWindow { buckets: 10 }),
        quota.using(Algorithm::SlidingLog),
        quota.using(Algorithm::IntervalRefill { offset }),
    ]
}

fn limiter(policy: Policy, backend: impl Backend) -> Limiter {
    let limiter = Limiter::builder().policy(policy.key(Global));
    limiter.backend(backend).build().unwrap()
}

/// Sends so many requests, one after the other by each of those in flight. Returns the number of refusals.
async fn refused(limiter: &Limiter, each: u64) -> u64 {
    let serve =
        service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
    let service = RateLimitLayer::new(limiter).layer(serve);
    let mut all = JoinSet::new();
    for _ in 0..IN_FLIGHT {
        let service = service.clone();
        all.spawn(async move {
            let mut refused = 0;
            for _ in 0..each {
                let request = Request::new(Body::empty());
                let response = service.clone().oneshot(request).await.unwrap();
                refused += u64::from(response.status() == StatusCode::TOO_MANY_REQUESTS);
            }
            refused
        });
    }
    all.join_all().await.into_iter().sum()
}

async fn until_left(limiter: &Limiter, left: u64) {
    let mut found = 0;
    let so = async {
        while found < left {
            let probe = limiter.check("api", Key::global()).probe();
            found = probe.await.unwrap().remaining();
            sleep(Duration::from_millis(5)).await;
        }
    };
    let came = timeout(PATIENCE, so).await;
    assert!(came.is_ok(), "{found} are left, and not {left}");
}

#[tokio::test]
async fn pitfall_while_time_stands_still_a_success_costs_nothing() {
    for quota in every_algorithm(Quota::per_minute(5)) {
        let policy = Policy::new("api", quota).count_if(|response| response.status() == 401);
        let limiter = limiter(policy, at_a_standstill().0);
        let serve = service_fn(|_: Request<Body>| async {
            Ok::<_, Infallible>(Response::new(Body::empty()))
        });
        let service = RateLimitLayer::new(&limiter).layer(serve);
        for _ in 0..30 {
            let response = service.clone().oneshot(Request::new(Body::empty())).await;
            assert_eq!(response.unwrap().status(), 200, "{quota}");
        }
        until_left(&limiter, 5).await;
    }
}

#[tokio::test]
async fn successes_cost_nothing_on_a_busy_key() {
    let server = Standalone::start();
    for (number, quota) in every_algorithm(Quota::per_hour(1_000))
        .into_iter()
        .enumerate()
    {
        let policy = Policy::new("api", quota).count_if(|response| response.status() == 401);
        let backend = tollgate::RedisBackend::builder(&server.url());
        let backend = backend.prefix(format!("busy-{number}")).deadline(PATIENCE);
        let limiter = limiter(policy, backend.connect().await.unwrap());

        assert_eq!(refused(&limiter, 156).await, 0, "{quota}");
        // A bucket knows only the latest refunds one by one, and may keep a unit for each request in flight until it drains.
        let kept = match quota.algorithm() {
            Algorithm::Gcra => IN_FLIGHT,
            _ => 0,
        };
        until_left(&limiter, 1_000 - kept).await;
    }
}

#[tokio::test]
async fn concurrent_handlers_pay_what_they_settle() {
    let server = Standalone::start();
    let policy = Policy::new("api", Quota::per_day(100_000)).cost(1_000);
    let limiter = limiter(policy, in_redis(&server.url()).await);
    let serve = service_fn(|request: Request<Body>| async move {
        let status = request.extensions().get::<RateLimitStatus>().unwrap();
        status.settle("api", 50).unwrap();
        Ok::<_, Infallible>(Response::new(Body::empty()))
    });
    let service = RateLimitLayer::new(&limiter).layer(serve);

    let mut all = JoinSet::new();
    for _ in 0..64 {
        let service = service.clone();
        all.spawn(async move {
            let response = service.oneshot(Request::new(Body::empty())).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
        });
    }
    all.join_all().await;

    until_left(&limiter, 100_000 - 64 * 50).await;
    let probe = limiter.check("api", Key::global()).probe();
    // A unit drains in 864 ms.
    assert!(probe.await.unwrap().remaining() < 100_000 - 64 * 45);
}

#[tokio::test]
async fn a_settled_cost_is_what_a_busy_key_pays() {
    let server = Standalone::start();
    let quota = Quota::per_day(1_000_000);
    let policy = Policy::new("api", quota).cost(100).settle_by(|_| Some(50));
    let limiter = limiter(policy, in_redis(&server.url()).await);

    assert_eq!(refused(&limiter, 10).await, 0);

    let used = 50 * 10 * IN_FLIGHT;
    until_left(&limiter, 1_000_000 - used).await;
    let probe = limiter.check("api", Key::global()).probe();
    // A unit drains in 86 ms.
    assert!(probe.await.unwrap().remaining() < 1_000_000 - used / 2);
}
