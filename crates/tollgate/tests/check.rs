//! A limiter without any request.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod common;

use std::time::Duration;

use common::at_a_standstill;
use tollgate::{CheckError, Limiter, Policy, Quota};

fn limiter() -> (Limiter, tollgate::ManualClock) {
    let (backend, clock) = at_a_standstill();
    let limiter = Limiter::builder()
        .policy(Policy::new(
            "mail",
            [Quota::per_minute(2), Quota::per_day(3)],
        ))
        .policy(Policy::new("trial", Quota::per_minute(1)).shadow())
        .backend(backend)
        .build()
        .unwrap();
    (limiter, clock)
}

#[tokio::test]
async fn a_check_takes_from_every_quota_of_its_policy_or_from_none() {
    let (limiter, clock) = limiter();

    assert_eq!(limiter.check("mail", "alice").await.unwrap().remaining(), 1);
    assert_eq!(limiter.check("mail", "alice").await.unwrap().remaining(), 0);
    let denied = limiter.check("mail", "alice").await.unwrap();
    assert!(!denied.is_allowed());
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(30)));
    assert_eq!(denied.verdicts()[1].remaining(), 1);

    clock.advance(Duration::from_secs(60));
    assert!(limiter.check("mail", "alice").await.unwrap().is_allowed());
    assert!(!limiter.check("mail", "alice").await.unwrap().is_allowed());
    assert!(limiter.check("mail", "bob").await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_probe_and_a_cost_of_0_take_nothing() {
    let (limiter, _) = limiter();

    for _ in 0..5 {
        assert!(
            limiter
                .check("mail", 42_u64)
                .cost(2)
                .probe()
                .await
                .unwrap()
                .is_allowed()
        );
        assert_eq!(
            limiter
                .check("mail", 42_u64)
                .cost(0)
                .await
                .unwrap()
                .remaining(),
            2
        );
    }
    let probe = limiter.check("mail", 42_u64).cost(3).probe().await.unwrap();
    assert!(!probe.is_allowed() && probe.retry_after().is_none());
}

#[tokio::test]
async fn a_policy_on_trial_always_allows() {
    let (limiter, _) = limiter();

    for denied in [false, true, true] {
        let checked = limiter.check("trial", "alice").await.unwrap();
        assert!(checked.is_allowed());
        assert_eq!(checked.verdicts()[0].is_denied(), denied);
    }
}

#[tokio::test]
async fn what_was_taken_can_be_given_back_and_added_to() {
    let (limiter, _) = limiter();

    for receipt in limiter
        .check("mail", "alice")
        .cost(2)
        .await
        .unwrap()
        .into_receipts()
    {
        limiter.credit(receipt, 1);
    }
    let peek = limiter.check("mail", "alice").cost(0).await.unwrap();
    assert_eq!(
        peek.verdicts()
            .iter()
            .map(tollgate::Verdict::remaining)
            .collect::<Vec<_>>(),
        [1, 2]
    );

    for receipt in limiter
        .check("mail", "alice")
        .await
        .unwrap()
        .into_receipts()
    {
        limiter.debit(&receipt, 1);
    }
    let denied = limiter.check("mail", "alice").await.unwrap();
    // One minute's budget full, one unit of debt behind it, and the next request: two intervals of 30 s.
    assert_eq!(
        denied.verdicts()[0].retry_after(),
        Some(Duration::from_secs(60))
    );
}

#[tokio::test]
async fn a_reset_fills_every_quota_of_the_policy() {
    let (limiter, _) = limiter();
    limiter.check("mail", "alice").cost(2).await.unwrap();

    limiter.reset("mail", "alice").await.unwrap();

    assert_eq!(
        limiter
            .check("mail", "alice")
            .cost(0)
            .await
            .unwrap()
            .remaining(),
        2
    );
}

#[tokio::test]
async fn a_policy_that_does_not_exist_is_named() {
    let (limiter, _) = limiter();

    let error = limiter.check("email", "alice").await.unwrap_err();

    assert!(matches!(error, CheckError::UnknownPolicy { .. }));
    assert_eq!(
        error.to_string(),
        "policy \"email\": there is none of this name"
    );
    assert!(limiter.reset("email", "alice").await.is_err());
}

#[tokio::test]
async fn a_check_that_nobody_awaits_spends_nothing() {
    use std::future::IntoFuture;

    let (limiter, _) = limiter();

    for _ in 0..5 {
        drop(limiter.check("mail", "alice").into_future());
    }

    assert_eq!(
        limiter
            .check("mail", "alice")
            .cost(0)
            .await
            .unwrap()
            .remaining(),
        2
    );
}
