//! Requests that wait beside trials, other limits, failures and other limiters.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::failing::Failing;
use crate::common::tokio_clock::in_tokio_time;
use crate::common::{Body, from};
use http::{HeaderName, Request, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep};
use tollgate::key::{Global, Header};
use tollgate::{
    Cause, Concurrent, Event, Key, Limiter, OnFailure, Outcome, Policy, Quota, RateLimitLayer,
    RateLimitStatus, RetryAfter, Tiers, Verdict,
};
use tower::{Layer, ServiceExt, service_fn};

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn limiter(policies: impl IntoIterator<Item = Policy>) -> Limiter {
    let limiter = Limiter::builder().policies(policies);
    limiter.backend(in_tokio_time()).build().unwrap()
}

/// A request of this user whose handler works for so long.
fn send(limiter: &Limiter, user: &'static str, works: Duration) -> JoinHandle<StatusCode> {
    let service =
        RateLimitLayer::new(limiter).layer(service_fn(move |_: Request<Body>| async move {
            sleep(works).await;
            Ok::<_, std::convert::Infallible>(Response::new(Body::default()))
        }));
    let mut request = from("203.0.113.7");
    drop(request.headers_mut().insert("user", user.parse().unwrap()));
    tokio::spawn(async move { service.oneshot(request).await.unwrap().status() })
}

async fn remaining(limiter: &Limiter, policy: &str) -> u64 {
    let probe = limiter.check(policy, Key::global()).probe().await.unwrap();
    probe.remaining()
}

/// These places, with a held limit and a quota that are on trial.
fn beside_trials(places: Concurrent) -> [Policy; 3] {
    let on_trial = |policy: Policy| policy.key(Global).shadow();
    [
        Policy::new("places", places).key(Global),
        on_trial(Policy::new("held-on-trial", Concurrent::at_most(50))),
        on_trial(Policy::new("quota-on-trial", Quota::per_hour(100))),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_a_place_is_charged_once_under_a_policy_on_trial() {
    let places = Concurrent::at_most(1).wait_up_to(millis(1_000));
    for leaves in [false, true] {
        let limiter = limiter(beside_trials(places));
        let first = send(&limiter, "a", millis(450));
        yield_now().await;
        let second = send(&limiter, "a", millis(10));
        if leaves {
            sleep(millis(250)).await;
            second.abort();
            assert!(second.await.is_err());
        } else {
            assert_eq!(second.await.unwrap(), StatusCode::OK);
        }
        assert_eq!(first.await.unwrap(), StatusCode::OK);
        sleep(millis(1_000)).await;

        assert_eq!(limiter.waiting(), 0);
        assert_eq!(remaining(&limiter, "held-on-trial").await, 50, "{leaves}");
        let charged = if leaves { 99 } else { 98 };
        assert_eq!(remaining(&limiter, "quota-on-trial").await, charged);
    }
}

/// The request is refused at last, after the backend was asked about it many times.
#[tokio::test(start_paused = true)]
async fn a_request_that_found_no_place_is_charged_once_under_a_policy_on_trial() {
    let places = Concurrent::at_most(1).wait_up_to(millis(300));
    let limiter = limiter(beside_trials(places));
    let first = send(&limiter, "a", millis(450));
    yield_now().await;
    let second = send(&limiter, "a", millis(10));
    assert_eq!(second.await.unwrap(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(first.await.unwrap(), StatusCode::OK);

    assert_eq!(remaining(&limiter, "held-on-trial").await, 50);
    assert_eq!(remaining(&limiter, "quota-on-trial").await, 98);
}

/// A policy on trial keeps no request from waiting.
#[tokio::test(start_paused = true)]
async fn a_request_that_a_policy_on_trial_would_refuse_waits_for_a_place() {
    let places = Concurrent::at_most(1).wait_up_to(millis(1_000));
    let limiter = limiter([
        Policy::new("on-trial", Quota::per_hour(1))
            .key(Global)
            .shadow(),
        Policy::new("places", places).key(Global),
    ]);
    let began = Instant::now();
    let first = send(&limiter, "a", millis(40));
    yield_now().await;
    let second = send(&limiter, "a", millis(10));
    assert_eq!(first.await.unwrap(), StatusCode::OK);
    assert_eq!(second.await.unwrap(), StatusCode::OK);
    assert_eq!(began.elapsed(), millis(50));
}

/// Of a place under a policy on trial, the verdict says only that none was free: when one would have been is unknown.
#[tokio::test(start_paused = true)]
async fn a_request_waits_for_no_place_under_a_policy_on_trial() {
    let places = Concurrent::at_most(1).wait_up_to(millis(1_000));
    let limiter = limiter([Policy::new("on-trial", places).shadow()]);
    let began = Instant::now();
    let held = limiter.acquire("on-trial", "a").await.unwrap();
    let next = limiter.acquire("on-trial", "a").await.unwrap();

    assert_eq!((began.elapsed(), limiter.waiting()), (Duration::ZERO, 0));
    assert!(next.is_allowed());
    assert_eq!(next.waited(), Duration::ZERO);
    let [verdict] = next.verdicts() else {
        panic!("it has one quota");
    };
    assert_eq!(verdict.outcome(), Outcome::Deny(RetryAfter::Unknown));
    assert_eq!(verdict.wait(), Duration::ZERO);
    drop(held);
}

/// The handler and the observer hear of a wait for a place as they do of one for a turn.
#[tokio::test(start_paused = true)]
async fn the_time_that_a_request_waited_for_a_place_is_told() {
    let heard: Arc<Mutex<Vec<_>>> = Arc::default();
    let hears = Arc::clone(&heard);
    let places = Concurrent::at_most(1).wait_up_to(millis(100));
    let policies = [
        Policy::new("places", places).key(Global),
        Policy::new("beside", Quota::per_hour(9)).key(Global),
    ];
    let limiter = Limiter::builder().policies(policies);
    let limiter = limiter
        .observe(move |event: &Event<'_>| {
            let is_denied = event.verdict().is_some_and(Verdict::is_denied);
            let one = (event.policy().to_owned(), event.cause(), is_denied);
            if event.cause() != Cause::Released {
                hears.lock().unwrap().push((one, event.waited()));
            }
        })
        .backend(in_tokio_time())
        .build()
        .unwrap();
    let service = RateLimitLayer::new(&limiter).layer(service_fn(|request: Request<Body>| {
        let status = request.extensions().get::<RateLimitStatus>().cloned();
        async move {
            let waited = status.unwrap().waited();
            sleep(millis(200)).await;
            Ok::<_, std::convert::Infallible>(Response::new(Body::from(
                waited.as_millis().to_string(),
            )))
        }
    }));
    let send = || tokio::spawn(service.clone().oneshot(from("203.0.113.7")));

    let held = limiter.check("places", Key::global()).await.unwrap();
    let waits = send();
    sleep(millis(40)).await;
    drop(held);
    let late = send();
    assert_eq!(
        late.await.unwrap().unwrap().status(),
        StatusCode::TOO_MANY_REQUESTS
    );
    let answer = waits.await.unwrap().unwrap().into_body();
    assert_eq!(answer.collect().await.unwrap().to_bytes(), "40");

    let one = |policy: &str, cause, is_denied, waited| {
        ((policy.to_owned(), cause, is_denied), millis(waited))
    };
    assert_eq!(
        *heard.lock().unwrap(),
        [
            one("places", Cause::Backend, false, 0),
            one("places", Cause::Backend, false, 40),
            one("beside", Cause::Backend, false, 40),
            one("places", Cause::NoPlace, true, 100),
            one("beside", Cause::NoPlace, false, 100),
        ]
    );
}

/// The tier of a request is looked up first. Others have begun to wait meanwhile, and it stands behind them.
#[tokio::test(start_paused = true)]
async fn a_request_whose_tier_is_asked_for_stands_behind_those_who_wait_for_a_place() {
    let asked = |_: Key| async {
        sleep(millis(10)).await;
        Ok::<_, &'static str>(Some("any"))
    };
    let tiers = Tiers::by_async(Duration::from_secs(60), asked).tier("any", Quota::per_hour(99));
    let limiter = limiter([
        Policy::new("all", Concurrent::at_most(2).wait_up_to(millis(1_000))).key(Global),
        Policy::new("own", Quota::per_hour(9))
            .key(Header::new("user"))
            .tiers(tiers),
    ]);
    let began = Instant::now();
    let held = limiter.check("all", Key::global()).await.unwrap();
    let light = send(&limiter, "a", millis(10));
    // One place is left, and two are asked for.
    let heavy = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire("all", Key::global()).cost(2).await.unwrap() }
    });
    sleep(millis(100)).await;
    drop(held);

    assert_eq!(heavy.await.unwrap().waited(), millis(100));
    assert_eq!(light.await.unwrap(), StatusCode::OK);
    assert_eq!(began.elapsed(), millis(110));
}

/// A caller that has used up a limit of its own does not keep others from the places of all.
#[tokio::test(start_paused = true)]
async fn who_lacks_a_place_of_its_own_lets_others_pass() {
    let user = || Header::new("user");
    let limiter = limiter([
        Policy::new("all", Concurrent::at_most(2).wait_up_to(millis(5_000))).key(Global),
        Policy::new("own", Concurrent::at_most(1).wait_up_to(millis(5_000))).key(user()),
    ]);
    let began = Instant::now();
    let first = send(&limiter, "a", millis(2_000));
    yield_now().await;
    let other = send(&limiter, "b", millis(100));
    yield_now().await;
    let second = send(&limiter, "a", millis(10));
    yield_now().await;
    let third = send(&limiter, "c", millis(10));
    yield_now().await;
    assert_eq!(limiter.waiting(), 2);

    assert_eq!(other.await.unwrap(), StatusCode::OK);
    assert_eq!(third.await.unwrap(), StatusCode::OK);
    assert_eq!(began.elapsed(), millis(110));
    assert_eq!(first.await.unwrap(), StatusCode::OK);
    assert_eq!(second.await.unwrap(), StatusCode::OK);
    assert_eq!(began.elapsed(), millis(2_010));
    assert_eq!(limiter.waiting(), 0);
}

/// The wait for a place does not shorten the one that the quota beside it allows.
#[tokio::test(start_paused = true)]
async fn a_request_that_found_a_place_may_wait_for_its_turn_as_long_as_others() {
    let quota = Quota::per_second(1).wait_up_to(millis(5_000));
    let places = Concurrent::at_most(1).wait_up_to(millis(200));
    let limiter = limiter([Policy::new("both", (quota, places))]);
    let began = Instant::now();
    let first = limiter.acquire("both", "a").await.unwrap();
    drop(tokio::spawn(async move {
        sleep(millis(50)).await;
        drop(first);
    }));
    let second = limiter.acquire("both", "a").await.unwrap();
    assert!(second.is_allowed());
    assert_eq!(began.elapsed(), millis(1_000));
    assert_eq!(second.waited(), millis(1_000));
    assert_eq!(limiter.waiting(), 0);
}

/// The backend fails when the turn has come and a place is asked for: a request that is refused then gives its
/// turn back.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_refused_undecided_gives_its_turn_back() {
    let fails = Arc::new(AtomicBool::new(false));
    let quota = Quota::per_second(10).burst(1).wait_up_to(millis(2_000));
    let policy = Policy::new("both", (quota, Concurrent::at_most(1)));
    let limiter = Limiter::builder()
        .policy(policy.on_failure(OnFailure::Deny))
        .backend(Failing(in_tokio_time(), Arc::clone(&fails)))
        .build()
        .unwrap();
    drop(limiter.acquire("both", "a").await.unwrap());
    let waits = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire("both", "a").await.is_err() }
    });
    sleep(millis(50)).await;
    fails.store(true, Ordering::Relaxed);
    assert!(waits.await.unwrap());
    fails.store(false, Ordering::Relaxed);

    let next = limiter.acquire("both", "a").await.unwrap();
    assert_eq!(next.waited(), Duration::ZERO);
}

/// A limiter further in counts the deadline from when the request came, and not from when it reads it.
#[tokio::test(start_paused = true)]
async fn limiters_one_in_another_keep_one_deadline() {
    let header = HeaderName::from_static("x-timeout-ms");
    let slow = |name| {
        let quota = Quota::per_second(1).wait_up_to(millis(5_000));
        let limiter = Limiter::builder().policy(Policy::new(name, quota).key(Global));
        let limiter = limiter
            .deadline_header(header.clone())
            .backend(in_tokio_time());
        limiter.build().unwrap()
    };
    let (outer, inner) = (slow("outer"), slow("inner"));
    assert!(
        outer
            .acquire("outer", Key::global())
            .await
            .unwrap()
            .is_allowed()
    );
    let service = service_fn(|_: Request<Body>| async {
        Ok::<_, std::convert::Infallible>(Response::new(Body::default()))
    });
    let service = RateLimitLayer::new(&outer).layer(RateLimitLayer::new(&inner).layer(service));
    let began = Instant::now();
    // Taken a little before the turn of the outer one, so that the inner one would wait almost a second more.
    let spent = tokio::spawn({
        let inner = inner.clone();
        async move {
            sleep(millis(900)).await;
            inner
                .acquire("inner", Key::global())
                .await
                .unwrap()
                .is_allowed()
        }
    });
    let mut request = from("203.0.113.7");
    drop(
        request
            .headers_mut()
            .insert(header, "1200".parse().unwrap()),
    );
    let answer = service.oneshot(request).await.unwrap();
    assert!(spent.await.unwrap());
    assert_eq!(
        (answer.status(), began.elapsed()),
        (StatusCode::TOO_MANY_REQUESTS, millis(1_000))
    );
}
