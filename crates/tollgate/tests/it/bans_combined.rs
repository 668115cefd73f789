//! Bans beside the rest: requests that wait, outages, and limits further in.

use std::convert::Infallible;
use std::time::Duration;

use crate::common::{Body, Waiting, at_a_standstill, from};
use http::{Request, Response};
use tollgate::key::Global;
use tollgate::{
    Ban, CheckError, CheckOutcome, Concurrent, FailureKind, Key, Limiter, OnFailure, Policy, Quota,
    RateLimitLayer, Share,
};
use tower::{Layer, ServiceExt, service_fn};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// Three strikes within ten minutes.
const BAN: Ban = Ban::after(3, Duration::from_secs(600));

fn limiter(policy: Policy) -> Limiter {
    let builder = Limiter::builder().policy(policy);
    builder.backend(at_a_standstill().0).build().unwrap()
}

/// One at once, for whose place a request waits a second, and a quota with room.
fn exports() -> Limiter {
    let one = Concurrent::at_most(1).wait_up_to(SECOND);
    let quotas = (one, Quota::per_hour(100));
    limiter(Policy::new("exports", quotas).key(Global).ban(BAN))
}

async fn acquire(limiter: &Limiter, policy: &str) -> CheckOutcome {
    limiter.acquire(policy, Key::global()).await.unwrap()
}

async fn strikes_left(limiter: &Limiter, policy: &str) -> u64 {
    let asked = limiter.check(policy, Key::global()).probe().await.unwrap();
    asked.verdicts().last().unwrap().remaining()
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_a_place_and_gets_none_is_one_strike() {
    let limiter = exports();
    let held = acquire(&limiter, "exports").await;
    for left in [2, 1, 3] {
        // It asks ten times while it waits.
        let refused = acquire(&limiter, "exports").await;
        assert!(!refused.is_allowed());
        if left < 3 {
            assert_eq!(strikes_left(&limiter, "exports").await, left);
            assert_eq!(
                limiter.banned("exports", Key::global()).await.unwrap(),
                None
            );
        }
    }
    let banned = limiter.banned("exports", Key::global()).await.unwrap();
    assert_eq!(banned, Some(10 * MINUTE));
    drop(held);
    // A banned caller waits for nothing, and takes no place.
    let before = tokio::time::Instant::now();
    assert!(!acquire(&limiter, "exports").await.is_allowed());
    assert_eq!(before.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_a_place_and_gets_it_is_no_strike() {
    let limiter = exports();
    let held = acquire(&limiter, "exports").await;
    let (placed, ()) = tokio::join!(acquire(&limiter, "exports"), async {
        tokio::time::sleep(SECOND / 2).await;
        drop(held);
    });
    assert!(placed.is_allowed());
    assert_eq!(strikes_left(&limiter, "exports").await, 3);
    // One that does not wait is refused at once, which is a strike.
    let refused = limiter.check("exports", Key::global()).await.unwrap();
    assert!(!refused.is_allowed());
    assert_eq!(strikes_left(&limiter, "exports").await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_ban_that_begins_while_a_request_waits_for_a_place_refuses_it() {
    let limiter = exports();
    let held = acquire(&limiter, "exports").await;
    let (placed, ()) = tokio::join!(acquire(&limiter, "exports"), async {
        tokio::time::sleep(SECOND / 2).await;
        let ban = limiter.ban("exports", Key::global(), MINUTE);
        ban.await.unwrap();
        drop(held);
    });
    assert!(!placed.is_allowed());
    assert_eq!(placed.retry_after(), Some(MINUTE));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_has_waited_for_its_turn_and_finds_no_place_is_a_strike() {
    let turns = Quota::per_second(1).burst(1).wait_up_to(2 * SECOND);
    let policy = Policy::new("exports", (turns, Concurrent::at_most(1)));
    let limiter = limiter(policy.key(Global).ban(BAN));
    let held = acquire(&limiter, "exports").await;
    // It is there when the request comes, and taken when its turn has come.
    drop(held);
    let (refused, other) = tokio::join!(acquire(&limiter, "exports"), async {
        tokio::time::sleep(SECOND / 2).await;
        acquire(&limiter, "exports").await
    });
    let denied = [refused.is_allowed(), other.is_allowed()];
    assert_eq!(denied.iter().filter(|allowed| !**allowed).count(), 1);
    assert_eq!(strikes_left(&limiter, "exports").await, 2);
}

/// Lets a request wait in vain for the place of `exports`, beside this policy `login`, which was asked once before.
async fn refused_beside(policy: Policy) -> Limiter {
    let one = Concurrent::at_most(1).wait_up_to(SECOND);
    let exports = Policy::new("exports", one).key(Global);
    let builder = Limiter::builder().policy(exports).policy(policy);
    let limiter = builder.backend(at_a_standstill().0).build().unwrap();
    let _held = acquire(&limiter, "exports").await;
    limiter.check("login", Key::global()).await.unwrap();
    let answer = RateLimitLayer::new(limiter.clone())
        .layer(service_fn(async |_: Request<Body>| {
            Ok::<_, Infallible>(Response::new(Body::default()))
        }))
        .oneshot(from("192.0.2.1"));
    assert_eq!(answer.await.unwrap().status(), 429);
    limiter
}

#[tokio::test(start_paused = true)]
async fn the_refusal_of_another_policy_after_a_wait_is_no_strike() {
    let login = Policy::new("login", Quota::per_minute(100)).key(Global);
    let limiter = refused_beside(login.ban(BAN)).await;

    assert_eq!(strikes_left(&limiter, "login").await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_denial_on_trial_is_one_strike_however_often_a_request_asks_for_a_place() {
    let login = Policy::new("login", Quota::per_minute(1)).key(Global);
    let limiter = refused_beside(login.ban(BAN).shadow()).await;

    assert_eq!(strikes_left(&limiter, "login").await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_knock_that_could_wait_extends_a_ban_that_is_extended() {
    let one = Concurrent::at_most(1).wait_up_to(SECOND);
    let exports = Policy::new("exports", one).key(Global);
    let (backend, clock) = at_a_standstill();
    let builder = Limiter::builder().policy(exports.ban(BAN.extending()));
    let limiter = builder.backend(backend).build().unwrap();
    let held = acquire(&limiter, "exports").await;
    for _ in 0..3 {
        assert!(!acquire(&limiter, "exports").await.is_allowed());
    }
    drop(held);
    clock.advance(MINUTE);

    assert!(!acquire(&limiter, "exports").await.is_allowed());

    let banned = limiter.banned("exports", Key::global()).await.unwrap();
    assert_eq!(banned, Some(10 * MINUTE));
}

/// The status of the answer to a request that passes this layer, where the service answers 401.
async fn guess(layer: &RateLimitLayer) -> u16 {
    let service = service_fn(async |_: Request<Body>| {
        let answer = Response::builder().status(401).body(Body::default());
        Ok::<_, Infallible>(answer.unwrap())
    });
    let answer = layer.layer(service).oneshot(from("192.0.2.1")).await;
    answer.unwrap().status().as_u16()
}

#[tokio::test]
async fn responses_are_strikes_in_an_outage_as_well() {
    let backend = Waiting::new(at_a_standstill().0);
    let policy = Policy::new("login", Quota::per_minute(100))
        .key(Global)
        .on_failure(OnFailure::Local(Share::one_in(2)))
        .strike_if(|response| response.status() == 401)
        .ban(BAN);
    let limiter = Limiter::builder().policy(policy).backend(backend.clone());
    let layer = RateLimitLayer::new(limiter.build().unwrap());
    backend.gate.add_permits(100);
    backend.fail_with(Some(FailureKind::Unreachable));
    let mut statuses = [0; 5];
    for status in &mut statuses {
        *status = guess(&layer).await;
    }
    assert_eq!(statuses, [401, 401, 401, 429, 429]);
}

#[tokio::test]
async fn in_an_outage_a_banned_caller_has_the_answer_of_the_failure_rule_and_the_ban_stays() {
    for (rule, in_outage) in [(OnFailure::Allow, 401), (OnFailure::Deny, 503)] {
        let backend = Waiting::new(at_a_standstill().0);
        backend.gate.add_permits(100);
        let policy = Policy::new("login", Quota::per_minute(100)).key(Global);
        let policy = policy.on_failure(rule).ban(BAN);
        let limiter = Limiter::builder().policy(policy).backend(backend.clone());
        let limiter = limiter.build().unwrap();
        let layer = RateLimitLayer::new(limiter.clone());
        let ban = limiter.ban("login", Key::global(), MINUTE);
        ban.await.unwrap();
        assert_eq!(guess(&layer).await, 429);

        // Neither the ban nor its end is known meanwhile.
        backend.fail_with(Some(FailureKind::Unreachable));
        for _ in 0..5 {
            assert_eq!(guess(&layer).await, in_outage, "{rule:?}");
        }
        let unknown = limiter.banned("login", Key::global()).await;
        assert!(matches!(unknown, Err(CheckError::Unavailable(_))));

        backend.fail_with(None);
        assert_eq!(guess(&layer).await, 429);
        let left = limiter.banned("login", Key::global()).await.unwrap();
        assert_eq!(left, Some(MINUTE));
    }
}

#[tokio::test]
async fn the_refusal_of_a_limit_further_in_is_no_strike() {
    let outer = limiter(
        Policy::new("api", Quota::per_minute(100))
            .key(Global)
            .strike_if(|response| response.status().is_client_error())
            .ban(BAN),
    );
    let inner = limiter(Policy::new("search", Quota::per_minute(2)).key(Global));
    let service = service_fn(async |_: Request<Body>| {
        let answer = Response::builder().status(404).body(Body::default());
        Ok::<_, Infallible>(answer.unwrap())
    });
    let service = RateLimitLayer::new(&inner).layer(service);
    let service = RateLimitLayer::new(&outer).layer(service);
    let mut statuses = [0; 8];
    for status in &mut statuses {
        let answer = service.clone().oneshot(from("192.0.2.1")).await.unwrap();
        *status = answer.status().as_u16();
    }
    assert_eq!(statuses, [404, 404, 429, 429, 429, 429, 429, 429]);
    // Two answers of the service's own, and no more.
    assert_eq!(strikes_left(&outer, "api").await, 1);
}
