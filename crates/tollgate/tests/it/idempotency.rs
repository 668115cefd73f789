//! Requests and checks with an id are charged once.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::common::failing::Failing;
use crate::common::quotas_only::QuotasOnly;
use crate::common::{Strict, at_a_standstill, from};
use tollgate::key::Header;
use tollgate::{
    Ban, Concurrent, Limiter, ManualClock, OnFailure, Once, Policy, Quota, QuotaError,
    RateLimitLayer, Share,
};
use tower::{Layer, Service, ServiceExt};

fn over(policy: Policy) -> (Limiter, ManualClock) {
    let (backend, clock) = at_a_standstill();
    let limiter = Limiter::builder().policy(policy).backend(backend);
    (limiter.build().unwrap(), clock)
}

fn orders() -> Policy {
    Policy::new("orders", Quota::per_hour(10)).once(Once::default())
}

/// The units left after a check with this id.
async fn left(limiter: &Limiter, id: &str) -> u64 {
    let checked = limiter.check("orders", "alice").id(id).await.unwrap();
    assert!(checked.is_allowed());
    checked.remaining()
}

#[tokio::test]
async fn a_retry_takes_nothing_and_a_constant_id_is_no_way_around() {
    let (limiter, _) = over(orders());
    // Every third is charged.
    for remaining in [9, 9, 9, 8, 8, 8, 7] {
        assert_eq!(left(&limiter, "order-7").await, remaining);
    }
    // So no more than thirty pass of a budget of ten.
    let mut passed = 7;
    while limiter
        .check("orders", "alice")
        .id("order-7")
        .await
        .unwrap()
        .is_allowed()
    {
        passed += 1;
    }
    assert_eq!(passed, 30);
}

#[tokio::test]
async fn an_id_is_forgotten_after_its_life() {
    let (limiter, clock) = over(Policy::new("orders", Quota::per_day(10)).once(Once::default()));
    assert_eq!(left(&limiter, "order-7").await, 9);
    clock.advance(Duration::from_secs(30) - Duration::from_micros(1));
    assert_eq!(left(&limiter, "order-7").await, 9);
    clock.advance(Duration::from_micros(1));
    assert_eq!(left(&limiter, "order-7").await, 8);
}

#[tokio::test]
async fn an_id_of_another_key_or_cost_is_another_id() {
    let (limiter, _) = over(orders());
    let check = |key: &str, cost| limiter.check("orders", key).id("order-7").cost(cost);
    assert_eq!(check("alice", 2).await.unwrap().remaining(), 8);
    assert_eq!(check("bob", 2).await.unwrap().remaining(), 8);
    assert_eq!(check("alice", 3).await.unwrap().remaining(), 5);
    assert_eq!(check("alice", 2).await.unwrap().remaining(), 5);
    // An id of a megabyte is its digest.
    let long = "7".repeat(1 << 20);
    assert_eq!(left(&limiter, &long).await, 4);
    assert_eq!(left(&limiter, &long).await, 4);
    assert_eq!(left(&limiter, &long[1..]).await, 3);
}

#[tokio::test]
async fn denials_are_not_remembered_and_replays_pass_an_empty_budget() {
    let (limiter, clock) = over(orders());
    assert_eq!(
        limiter
            .check("orders", "alice")
            .cost(9)
            .await
            .unwrap()
            .remaining(),
        1
    );
    assert_eq!(left(&limiter, "last").await, 0);
    let denied = limiter.check("orders", "alice").id("late").await.unwrap();
    assert!(!denied.is_allowed());
    let denied = limiter.check("orders", "alice").id("late").await.unwrap();
    assert!(!denied.is_allowed());
    let replay = limiter.check("orders", "alice").id("last").await.unwrap();
    assert!(replay.is_allowed() && replay.into_receipts().is_empty());
    clock.advance(Duration::from_secs(360));
    assert_eq!(left(&limiter, "late").await, 0);
}

#[tokio::test]
async fn a_credit_forgets_the_id() {
    let (limiter, clock) = over(orders());
    let first = limiter
        .check("orders", "alice")
        .id("order-7")
        .await
        .unwrap();
    let mut receipts = first.into_receipts();
    assert_eq!(receipts.len(), 1);
    limiter.refund(receipts.pop().unwrap(), 1);
    // The clock stands still, and the next charge is made in the microsecond of the first.
    clock.advance(Duration::from_micros(1));
    assert_eq!(left(&limiter, "order-7").await, 9);
    assert_eq!(left(&limiter, "order-7").await, 9);
}

#[tokio::test]
async fn each_request_holds_its_place_retry_or_not() {
    let quotas = (Quota::per_hour(10), Concurrent::at_most(2));
    let (limiter, _) = over(Policy::new("orders", quotas).once(Once::default()));
    let check = || limiter.check("orders", "alice").id("order-7");
    let first = check().await.unwrap();
    let retry = check().await.unwrap();
    assert!(first.is_allowed() && retry.is_allowed());
    assert_eq!(retry.verdicts()[0].remaining(), 9);
    assert!(!check().await.unwrap().is_allowed());
    drop(retry);
    assert!(check().await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_ban_keeps_out_retries_as_well_and_they_take_nothing_while_it_lasts() {
    let ban = Ban::after(2, Duration::from_secs(600)).lasting(Duration::from_secs(20));
    let (limiter, clock) = over(orders().ban(ban));
    let check = || limiter.check("orders", "alice").id("order-7");
    assert_eq!(left(&limiter, "order-7").await, 9);
    let length = Duration::from_secs(20);
    limiter.ban("orders", "alice", length).await.unwrap();

    // A retry would pass by its id alone.
    for _ in 0..3 {
        let retry = check().await.unwrap();
        assert!(!retry.is_allowed());
        assert_eq!(retry.retry_after(), Some(length));
    }

    // No replay was counted: two are still free, within the life of the id.
    clock.advance(length);
    for remaining in [9, 9, 8] {
        assert_eq!(left(&limiter, "order-7").await, remaining);
    }
}

#[tokio::test]
async fn a_probe_takes_no_replay_and_a_policy_on_trial_counts_once() {
    let (limiter, _) = over(Policy::new("orders", Quota::per_hour(1)).once(Once::default()));
    assert_eq!(left(&limiter, "order-7").await, 0);
    for _ in 0..5 {
        let probe = limiter.check("orders", "alice").id("order-7").probe();
        assert!(probe.await.unwrap().is_allowed());
    }
    assert_eq!(left(&limiter, "order-7").await, 0);
    let (trial, _) = over(orders().shadow());
    for remaining in [9, 9, 9, 8] {
        assert_eq!(left(&trial, "order-7").await, remaining);
    }
}

#[tokio::test]
async fn requests_have_their_id_in_a_header() {
    let policy = orders().once_by(Header::new("idempotency-key"));
    let (limiter, _) = over(policy);
    let mut service = RateLimitLayer::new(&limiter).layer(Strict::default());
    let mut charged = Vec::new();
    for id in [
        Some("a"),
        Some("a"),
        None,
        Some("b"),
        Some("a"),
        Some("a"),
        None,
    ] {
        let mut request = from("203.0.113.7");
        if let Some(id) = id {
            let id = id.parse().unwrap();
            request.headers_mut().insert("idempotency-key", id);
        }
        let response = service.ready().await.unwrap().call(request).await.unwrap();
        assert_eq!(response.status(), 200);
        let caller = limiter.client_key("203.0.113.7".parse().unwrap());
        let probe = limiter.check("orders", caller).probe().await.unwrap();
        charged.push(probe.remaining());
    }
    assert_eq!(charged, [9, 9, 8, 7, 7, 6, 5]);
}

#[test]
fn terms_that_cannot_be_are_errors_that_say_why() {
    for (terms, error) in [
        (Once::try_within(Duration::ZERO), "a period of 0 never ends"),
        (
            Once::try_within(Duration::from_secs(86_401)),
            "a life of 86401s: an id is remembered for a day at most",
        ),
        (
            Once::default().try_replays(0),
            "0 replays: an id has 1 to 100 replays, and then its request is charged",
        ),
        (
            Once::default().try_replays(101),
            "101 replays: an id has 1 to 100 replays, and then its request is charged",
        ),
    ] {
        let refused: QuotaError = terms.unwrap_err();
        if refused != QuotaError::ZeroPeriod {
            assert_eq!(refused.to_string(), error);
        }
    }
    let waits = Quota::per_hour(10).wait_up_to(Duration::from_secs(1));
    let refused = Limiter::builder()
        .policy(Policy::new("orders", waits).once(Once::default()))
        .build();
    assert_eq!(
        refused.unwrap_err().to_string(),
        "policy \"orders\": once: its quotas let requests wait for their turn, and a retry would not"
    );
    let refused = Limiter::builder()
        .policy(orders())
        .backend(QuotasOnly::new())
        .build();
    assert_eq!(
        refused.unwrap_err().to_string(),
        "policy \"orders\": the backend does not support charges that count once"
    );
}

#[tokio::test]
async fn a_check_with_an_id_that_cannot_be_is_an_error_that_says_why() {
    let (limiter, _) = over(Policy::new("plain", Quota::per_hour(10)));
    let error = limiter.check("plain", "alice").id("a").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "policy \"plain\": it charges no id once: add `.once(..)` or `.once_by(..)`"
    );
    let (limiter, _) = over(orders());
    let error = limiter
        .check("orders", "alice")
        .id("a")
        .up_to(5)
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "policy \"orders\": up to 5: it has an id as well, and a retry has no amount"
    );
}

#[tokio::test]
async fn while_the_backend_fails_each_rule_has_its_own_answer_to_a_retry() {
    for (rule, left) in [
        (OnFailure::Allow, [Some(0), Some(0)]),
        (OnFailure::Deny, [None, None]),
        // Half of ten in this process, which remembers the id.
        (OnFailure::Local(Share::one_in(2)), [Some(4), Some(4)]),
    ] {
        let (backend, _) = at_a_standstill();
        let failing = Failing(backend, Arc::new(AtomicBool::new(true)));
        let limiter = Limiter::builder().policy(orders().on_failure(rule));
        let limiter = limiter.backend(failing).build().unwrap();
        for left in left {
            let checked = limiter.check("orders", "alice").id("order-7").await;
            assert_eq!(checked.ok().map(|it| it.remaining()), left, "{rule:?}");
        }
    }
}
