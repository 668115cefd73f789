//! Credits, resets, failures and other quotas, while others wait for their turn.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use crate::common::tokio_clock::in_tokio_time;
use crate::common::{Body, Waiting, at_a_standstill, from};
use http::{Request, Response};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep, timeout};
use tollgate::key::{ClientIp, Global};
use tollgate::{
    CheckOutcome, FailureKind, Limiter, OnFailure, Policy, RateLimitLayer, RateLimitStatus, Share,
    Timestamp,
};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn limiter(policy: Policy) -> Limiter {
    let limiter = Limiter::builder().policy(policy).backend(in_tokio_time());
    limiter.build().unwrap()
}

fn smooth() -> Limiter {
    limiter(Policy::new("smooth", "10/s burst 1 wait 2s"))
}

async fn acquire(limiter: &Limiter) -> CheckOutcome {
    limiter.acquire("smooth", "alice").await.unwrap()
}

/// A request that has been decided when this returns, and waits.
async fn one_waits(limiter: &Limiter) -> JoinHandle<Duration> {
    let before = limiter.waiting();
    let waiting = limiter.clone();
    let waits = tokio::spawn(async move { acquire(&waiting).await.waited() });
    yield_now().await;
    assert_eq!(limiter.waiting(), before + 1);
    waits
}

#[tokio::test(start_paused = true)]
async fn while_anybody_waits_a_request_that_has_passed_gives_nothing_back() {
    for somebody_waits in [true, false] {
        let limiter = smooth();
        let first = acquire(&limiter).await;
        let waits = if somebody_waits {
            Some(one_waits(&limiter).await)
        } else {
            None
        };

        for receipt in first.into_receipts() {
            limiter.refund(receipt, 1);
        }

        let next = acquire(&limiter).await.waited();
        match waits {
            Some(waits) => {
                assert_eq!(waits.await.unwrap(), millis(100));
                assert_eq!(next, millis(200));
            }
            None => assert_eq!(next, Duration::ZERO),
        }
    }
}

/// Two requests of five tokens each. The first states afterwards that it has cost one.
#[tokio::test(start_paused = true)]
async fn while_anybody_waits_a_request_that_is_settled_gives_nothing_back_and_what_it_lacks_is_charged()
 {
    // The next request of five waits until as many tokens are there.
    for (somebody_waits, real_cost, next) in [
        (false, 1, 100),
        (true, 1, 1_000),
        (false, 7, 700),
        (true, 7, 1_200),
    ] {
        let tokens = Policy::new("smooth", "10/s burst 5 wait 2s")
            .key(Global)
            .cost(5);
        let limiter = limiter(tokens);
        let states: Arc<Mutex<Option<RateLimitStatus>>> = Arc::default();
        let handed = Arc::clone(&states);
        let service =
            RateLimitLayer::new(&limiter).layer(service_fn(move |request: Request<Body>| {
                let status = request.extensions().get::<RateLimitStatus>().cloned();
                *handed.lock().unwrap() = status;
                async { Ok::<_, Infallible>(Response::new(Body::default())) }
            }));
        drop(service.clone().oneshot(from("203.0.113.7")).await.unwrap());
        let first = states.lock().unwrap().take().unwrap();
        let ask = || tokio::spawn(service.clone().oneshot(from("203.0.113.7")));
        let began = Instant::now();
        let waits = somebody_waits.then(ask);
        yield_now().await;
        assert_eq!(limiter.waiting(), usize::from(somebody_waits));

        first.settle("smooth", real_cost).unwrap();

        let last = ask();
        if let Some(waits) = waits {
            drop(waits.await.unwrap().unwrap());
            assert_eq!(began.elapsed(), millis(500), "{real_cost}");
        }
        drop(last.await.unwrap().unwrap());
        assert_eq!(
            began.elapsed(),
            millis(next),
            "{somebody_waits} {real_cost}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_keeps_the_turns_of_those_who_wait_and_lets_others_pass() {
    let limiter = smooth();
    assert!(acquire(&limiter).await.is_allowed());
    let (second, third) = (one_waits(&limiter).await, one_waits(&limiter).await);

    limiter.reset("smooth", "alice").await.unwrap();

    assert_eq!(acquire(&limiter).await.waited(), Duration::ZERO);
    assert_eq!(second.await.unwrap(), millis(100));
    assert_eq!(third.await.unwrap(), millis(200));
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_in_the_local_share_of_a_budget() {
    let backend = Waiting::new(at_a_standstill().0);
    backend.fail_with(Some(FailureKind::Unreachable));
    backend.gate.add_permits(10);
    let policy = Policy::new("smooth", "10/s burst 1 wait 2s");
    let limiter = Limiter::builder()
        .policy(policy.on_failure(OnFailure::Local(Share::WHOLE)))
        .backend(backend);
    let limiter = limiter.build().unwrap();

    let answers = [acquire(&limiter).await, acquire(&limiter).await];

    let allowed = answers.each_ref().map(CheckOutcome::is_allowed);
    assert_eq!(allowed, [true, false]);
    assert_eq!(answers.map(|answer| answer.waited()), [Duration::ZERO; 2]);
    assert_eq!(limiter.waiting(), 0);
}

/// tower finds the service ready before the request is there, so that a limit right behind the limiter counts waiting
/// requests.
#[tokio::test(start_paused = true)]
async fn who_waits_holds_a_permit_of_towers_limit_right_behind() {
    let limiter = limiter(Policy::new("smooth", "10/s burst 1 wait 2s").key(Global));
    let answer = async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::default()));
    let service = ServiceBuilder::new()
        .layer(RateLimitLayer::new(&limiter))
        .concurrency_limit(1)
        .service_fn(answer);
    let get = || service.clone().oneshot(from("203.0.113.7"));
    drop(get().await.unwrap());
    let waits = tokio::spawn(get());
    yield_now().await;
    assert_eq!(limiter.waiting(), 1);

    assert!(timeout(millis(50), service.clone().ready()).await.is_err());
    drop(waits.await.unwrap().unwrap());
    assert!(service.clone().ready().await.is_ok());
}

/// The wait is in the answer's future: the service stays ready for others, which matters where a connection has only one.
#[tokio::test(start_paused = true)]
async fn while_a_request_waits_the_service_is_ready_and_serves_others() {
    let limiter = limiter(Policy::new("smooth", "10/s burst 1 wait 2s").key(ClientIp));
    let answer = async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::default()));
    let mut service = RateLimitLayer::new(&limiter).layer(service_fn(answer));
    let began = Instant::now();
    let first = service.ready().await.unwrap().call(from("203.0.113.7"));
    assert!(first.await.is_ok());
    let mut waits = pin!(service.ready().await.unwrap().call(from("203.0.113.7")));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waits.as_mut().poll(&mut context).is_pending());
    assert_eq!(limiter.waiting(), 1);

    let other = service.ready().await.unwrap().call(from("203.0.113.8"));

    assert!(other.await.is_ok());
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert!(waits.await.is_ok());
    assert_eq!(began.elapsed(), millis(100));
}

/// Waiting requests keep their turns. The next passes behind them, if the new quota lets it wait so long, or at once if a
/// larger burst has room beside them. Another algorithm knows nothing of the line: its full budget passes beside the
/// waiting requests.
#[tokio::test(start_paused = true)]
async fn replaced_quotas_keep_the_turns_of_those_who_wait() {
    for (quota, at_once, next) in [
        ("10/s burst 1 wait 3s", 0, Some(300)),
        ("10/s burst 1", 0, None),
        ("20/s burst 1 wait 2s", 0, Some(300)),
        ("5/s burst 1 wait 3s", 0, Some(300)),
        ("10/s burst 3 wait 2s", 0, Some(100)),
        ("10/s burst 5 wait 2s", 2, Some(100)),
        ("10/s burst 5", 2, None),
        ("10/s sliding-window", 10, None),
    ] {
        let limiter = smooth();
        assert!(acquire(&limiter).await.is_allowed());
        let (second, third) = (one_waits(&limiter).await, one_waits(&limiter).await);

        limiter.replace([Policy::new("smooth", quota)]).unwrap();

        let mut passed = 0;
        while (limiter.check("smooth", "alice").await.unwrap()).is_allowed() {
            passed += 1;
        }
        assert_eq!(passed, at_once, "{quota}");
        if let Some(next) = next {
            let acquired = acquire(&limiter).await;
            assert_eq!(acquired.waited(), millis(next), "{quota}");
        }
        assert_eq!(second.await.unwrap(), millis(100), "{quota}");
        assert_eq!(third.await.unwrap(), millis(200), "{quota}");
    }
}

/// A request that waits for a place asks again every 100 ms, by the limit under which it came. Meanwhile no newcomer passes it,
/// unless the new limits hold no places.
#[tokio::test(start_paused = true)]
async fn a_reset_or_replaced_limit_meets_a_request_that_waits_for_a_place() {
    for (change, newcomers, waited) in [
        ("reset", 0, 100),
        ("3 at once wait 1s", 0, 310),
        ("1 at once wait 3s", 0, 310),
        ("2 at once", 0, 310),
        ("10/s burst 1 wait 2s", 1, 310),
    ] {
        let limiter = limiter(Policy::new("smooth", "2 at once wait 1s"));
        let held = [acquire(&limiter).await, acquire(&limiter).await];
        let waits = one_waits(&limiter).await;
        sleep(millis(10)).await;

        if change == "reset" {
            limiter.reset("smooth", "alice").await.unwrap();
        } else {
            limiter.replace([Policy::new("smooth", change)]).unwrap();
        }

        let mut passed = Vec::new();
        loop {
            let next = limiter.check("smooth", "alice").await.unwrap();
            if !next.is_allowed() {
                break;
            }
            passed.push(next);
        }
        assert_eq!(passed.len(), newcomers, "{change}");
        sleep(millis(300)).await;
        drop((held, passed));
        assert_eq!(waits.await.unwrap(), millis(waited), "{change}");
    }
}

/// Each process counts a wait for a place by its own clock, and a step of the backend's moves none.
#[tokio::test(start_paused = true)]
async fn a_step_of_the_clock_moves_no_wait_for_a_place() {
    const DAY_US: u64 = 86_400_000_000;
    for day in [0, 2] {
        let (backend, clock) = at_a_standstill();
        clock.set(Timestamp::from_micros(DAY_US));
        let policy = Policy::new("smooth", "1 at once wait 1s");
        let limiter = Limiter::builder().policy(policy).backend(backend);
        let limiter = limiter.build().unwrap();
        let held = acquire(&limiter).await;
        let waits = one_waits(&limiter).await;

        sleep(millis(10)).await;
        clock.set(Timestamp::from_micros(day * DAY_US));
        sleep(millis(300)).await;
        drop(held);

        assert_eq!(waits.await.unwrap(), millis(310));
    }
}
