//! Leased charges beside others: all or nothing.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tollgate::{Lease, Limiter, Policy, Quota};

use crate::leases::far::Far;

fn own() -> Policy {
    Policy::new("own", Quota::per_day(10_000)).lease(Lease::up_to(1_000))
}

async fn ask(limiter: &Limiter, shared: &str) -> bool {
    let checks = [
        limiter.check("own", "alice"),
        limiter.check(shared, "everyone"),
    ];
    limiter.check_all(checks).await.unwrap().is_allowed()
}

async fn ask_for(limiter: &Limiter, shared: &str, millis: u64) -> u64 {
    let mut admitted = 0;
    for _ in 0..millis {
        sleep(Duration::from_millis(1)).await;
        admitted += u64::from(ask(limiter, shared).await);
    }
    admitted
}

/// The rest of the own budget, once all blocks are given back.
async fn left(far: &Far, limiter: Limiter) -> u64 {
    drop(limiter);
    sleep(Duration::from_millis(20)).await;
    let beside = far.beside(Policy::new("own", Quota::per_day(10_000)));
    let probe = beside.check("own", "alice").probe().await.unwrap();
    probe.remaining()
}

#[tokio::test(start_paused = true)]
async fn own_and_shared_budgets_are_leased_together() {
    let far = Far::new();
    let shared = Policy::new("shared", Quota::per_day(10_000)).lease(Lease::up_to(1_000));
    let limiter = far.process([own(), shared]);
    assert_eq!(ask_for(&limiter, "shared", 300).await, 300);
    let _start = far.decisions();

    assert_eq!(ask_for(&limiter, "shared", 500).await, 500);
    assert_eq!(far.decisions(), 0);
    assert_eq!(left(&far, limiter).await, 9_200);
}

/// A budget that is not leased is asked about for each request, and decides for the leased one as well.
#[tokio::test(start_paused = true)]
async fn a_denial_of_another_budget_takes_nothing_of_a_block() {
    let far = Far::new();
    let few = Policy::new("few", Quota::per_day(250));
    let limiter = far.process([own(), few]);
    assert_eq!(ask_for(&limiter, "few", 600).await, 250);
    assert_eq!(far.decisions(), 600);
    assert!(far.blocks() > 0);
    assert_eq!(left(&far, limiter).await, 9_750);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_while_it_is_asked_takes_nothing() {
    let far = Far::new();
    let few = Policy::new("few", Quota::per_day(10_000));
    let limiter = far.process([own(), few]);
    assert_eq!(ask_for(&limiter, "few", 200).await, 200);
    for _ in 0..100 {
        let gone = timeout(Duration::ZERO, ask(&limiter, "few")).await;
        assert!(gone.is_err());
        sleep(Duration::from_millis(1)).await;
    }
    sleep(Duration::from_millis(20)).await;
    assert_eq!(left(&far, limiter).await, 9_800);
}

#[tokio::test(start_paused = true)]
async fn a_policy_on_trial_is_leased_and_charged_whatever_the_others_say() {
    let far = Far::new();
    let few = Policy::new("few", Quota::per_day(250));
    let limiter = far.process([own().shadow(), few]);
    assert_eq!(ask_for(&limiter, "few", 600).await, 250);
    assert_eq!(left(&far, limiter).await, 9_400);
}
