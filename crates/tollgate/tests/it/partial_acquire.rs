//! Checks that ask for as much as there is.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::common::at_a_standstill;
use crate::common::failing::Failing;
use crate::common::quotas_only::QuotasOnly;
use tollgate::{
    Ban, Block, CheckError, Concurrent, Limiter, OnFailure, Policy, Quota, Quotas, Share, Tiers,
    key, key::KeyList,
};

fn over(policy: Policy) -> Limiter {
    let (backend, _) = at_a_standstill();
    let limiter = Limiter::builder().policy(policy).backend(backend);
    limiter.build().unwrap()
}

async fn granted(limiter: &Limiter, most: u64) -> u64 {
    let checked = limiter.check("mail", "alice").up_to(most).await.unwrap();
    assert_eq!(checked.is_allowed(), checked.granted() > 0);
    checked.granted()
}

#[tokio::test]
async fn a_check_is_granted_what_every_quota_has() {
    let (minute, day) = (Quota::per_minute(10), Quota::per_day(12));
    let limiter = over(Policy::new("mail", [minute, day]));

    assert_eq!(granted(&limiter, 7).await, 7);
    let second = limiter.check("mail", "alice").up_to(7).await.unwrap();
    assert_eq!((second.granted(), second.remaining()), (3, 0));
    // The day's quota has lost no more than was granted.
    assert_eq!(second.verdicts()[1].remaining(), 2);
    let denied = limiter.check("mail", "alice").up_to(7).await.unwrap();
    assert!(!denied.is_allowed());
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(6)));
    assert_eq!(denied.verdicts()[1].remaining(), 2);
}

#[tokio::test]
async fn less_than_the_least_is_a_denial_that_says_when_the_least_is_granted() {
    let limiter = over(Policy::new("mail", Quota::per_minute(10)));
    assert_eq!(granted(&limiter, 7).await, 7);

    let check = || limiter.check("mail", "alice").up_to(20);
    let denied = check().at_least(5).await.unwrap();

    assert!(!denied.is_allowed() && denied.granted() == 0);
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(12)));
    let never = check().at_least(11).await.unwrap();
    assert!(!never.is_allowed() && never.retry_after().is_none());
    assert_eq!(check().at_least(3).await.unwrap().granted(), 3);
}

#[tokio::test]
async fn a_probe_says_what_would_be_granted_and_takes_nothing() {
    let limiter = over(Policy::new("mail", Quota::per_minute(10)));
    for _ in 0..2 {
        let probe = limiter.check("mail", "alice").up_to(20).probe();
        assert_eq!(probe.await.unwrap().granted(), 10);
    }
    let little = limiter.check("mail", "alice").up_to(4).probe();
    assert_eq!(little.await.unwrap().granted(), 4);
    assert_eq!(granted(&limiter, 20).await, 10);
    let none = limiter.check("mail", "alice").up_to(20).probe();
    assert_eq!(none.await.unwrap().granted(), 0);
}

#[tokio::test]
async fn a_class_is_not_granted_what_is_kept_from_it() {
    let policy = Policy::new("mail", Quota::per_minute(10)).class_by(key::Method);
    let limiter = over(policy.keep_for("receipt", Share::percent(30)));
    assert_eq!(granted(&limiter, 20).await, 7);
    let receipt = limiter.check("mail", "alice").class("receipt").up_to(20);
    assert_eq!(receipt.await.unwrap().granted(), 3);
}

#[tokio::test]
async fn places_are_granted_and_held_until_the_outcome_is_dropped() {
    let limiter = over(Policy::new(
        "mail",
        (Concurrent::at_most(5), Quota::per_minute(100)),
    ));
    let three = limiter.check("mail", "alice").up_to(3).await.unwrap();
    let rest = limiter.check("mail", "alice").up_to(3).await.unwrap();
    assert_eq!((three.granted(), rest.granted()), (3, 2));
    assert_eq!(granted(&limiter, 3).await, 0);
    drop(rest);
    let again = limiter.check("mail", "alice").up_to(9).await.unwrap();
    assert_eq!(again.granted(), 2);
    // The places came back, the units did not.
    assert_eq!(again.verdicts()[1].remaining(), 93);
}

#[tokio::test]
async fn receipts_of_a_grant_give_back_what_was_granted() {
    let limiter = over(Policy::new("mail", Quota::per_minute(10)));
    let batch = limiter.check("mail", "alice").up_to(20).await.unwrap();
    let mut receipts = batch.into_receipts();
    // Four of the ten mails were sent.
    limiter.refund(receipts.remove(0), 6);
    assert_eq!(granted(&limiter, 20).await, 6);
}

#[tokio::test]
async fn denials_of_the_least_are_strikes() {
    let ban = Ban::after(2, Duration::from_secs(60)).lasting(Duration::from_secs(600));
    let limiter = over(Policy::new("mail", Quota::per_minute(10)).ban(ban));
    assert_eq!(granted(&limiter, 20).await, 10);
    assert_eq!(granted(&limiter, 20).await, 0);
    let struck = limiter.check("mail", "alice").up_to(20).await.unwrap();
    assert_eq!(struck.retry_after(), Some(Duration::from_secs(600)));
    assert_eq!((struck.granted(), struck.remaining()), (0, 0));
}

#[tokio::test]
async fn callers_without_a_quota_are_granted_all_or_nothing() {
    let policy =
        |name: &str| Policy::new(name, Quota::per_minute(10)).key(key::Header::new("x-user"));
    let free = Tiers::by(|_, _| Some("free")).unlimited("free");
    let (backend, _) = at_a_standstill();
    let limiter = Limiter::builder()
        .policy(policy("free").tiers(free))
        .policy(policy("exempt").exempt_keys(KeyList::from_iter(["alice"])))
        .policy(policy("blocked").block_keys(KeyList::from_iter(["alice"]), Block::Forbidden))
        .policy(Policy::new("closed", Quotas::none()))
        .policy(policy("trial").shadow())
        .backend(backend)
        .build()
        .unwrap();
    for (name, amount) in [
        ("free", 50),
        ("exempt", 50),
        ("blocked", 0),
        ("closed", 0),
        ("trial", 50),
    ] {
        let checked = limiter.check(name, "alice").up_to(50).await.unwrap();
        assert_eq!(checked.granted(), amount, "{name}");
    }
    // The policy on trial has taken what there was.
    let trial = limiter.check("trial", "alice").up_to(50).await.unwrap();
    assert!(trial.verdicts()[0].is_denied());
}

#[tokio::test]
async fn each_failure_rule_has_an_outcome() {
    for (rule, first, second) in [
        (OnFailure::Allow, Some(8), Some(8)),
        (OnFailure::Deny, None, None),
        // Half of ten in this process.
        (OnFailure::Local(Share::one_in(2)), Some(5), Some(0)),
    ] {
        let (backend, _) = at_a_standstill();
        let failing = Failing(backend, Arc::new(AtomicBool::new(true)));
        let policy = Policy::new("mail", Quota::per_minute(10)).on_failure(rule);
        let limiter = Limiter::builder().policy(policy).backend(failing);
        let limiter = limiter.build().unwrap();
        for amount in [first, second] {
            let checked = limiter.check("mail", "alice").up_to(8).await;
            assert_eq!(checked.ok().map(|it| it.granted()), amount, "{rule:?}");
        }
        // More than a share, and no more than the budget: it might have been granted.
        if let OnFailure::Local(_) = rule {
            let large = limiter.check("mail", "alice").up_to(8).at_least(6).await;
            assert!(matches!(large, Err(CheckError::Unavailable(_))));
        }
    }
}

#[tokio::test]
async fn a_grant_that_cannot_be_is_an_error_that_says_why() {
    let waits = Quota::per_minute(10).wait_up_to(Duration::from_secs(1));
    let limiter = over(Policy::new("mail", Quota::per_minute(10)));
    let waiting = over(Policy::new("mail", waits));
    let whole = Limiter::builder()
        .policy(Policy::new("mail", Quota::per_minute(10)))
        .backend(QuotasOnly::new())
        .build()
        .unwrap();
    let check = || limiter.check("mail", "alice");
    for (check, error) in [
        (
            check().up_to(5).cost(2),
            "policy \"mail\": up to 5: a cost is stated as well; leave one of the two out",
        ),
        (
            check().up_to(5).at_least(0),
            "policy \"mail\": up to 5: at least 0: a grant of nothing is a denial; ask for at least 1",
        ),
        (
            check().at_least(6).up_to(5),
            "policy \"mail\": up to 5: at least 6: that is more than the most",
        ),
        (
            check().up_to(0),
            "policy \"mail\": up to 0: at least 1: that is more than the most",
        ),
        (
            waiting.check("mail", "alice").up_to(5),
            "policy \"mail\": up to 5: its quotas let requests wait, and a grant is decided at once; use another policy, or \
             `acquire`",
        ),
        (
            whole.check("mail", "alice").up_to(5),
            "policy \"mail\": up to 5: the backend does not support grants of as much as there is",
        ),
    ] {
        assert_eq!(check.await.unwrap_err().to_string(), error);
    }
    // Nothing was taken by any.
    assert_eq!(granted(&limiter, 20).await, 10);
}
