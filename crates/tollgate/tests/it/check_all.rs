//! Several checks as one decision.

#![cfg(feature = "redis")]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use crate::common::failing::Failing;
use crate::common::{Waiting, at_a_standstill, in_redis};
use tollgate::key::KeyList;
use tollgate::{
    Ban, Block, Check, CheckError, Concurrent, JointOutcome, Key, Limiter, OnFailure, OnUnknown,
    Once, Policy, PressureGauge, Quota, Switch, Tiers, key,
};
use tollgate_testkit::Standalone;

fn over(policies: impl IntoIterator<Item = Policy>) -> Limiter {
    let (backend, _) = at_a_standstill();
    let limiter = Limiter::builder().policies(policies).backend(backend);
    limiter.build().unwrap()
}

fn account() -> Policy {
    Policy::new("account", Quota::per_hour(10))
}

fn user() -> Policy {
    Policy::new("user", Quota::per_hour(2))
}

async fn called(limiter: &Limiter, cost: u64) -> JointOutcome {
    let account = limiter.check("account", "acme").cost(cost);
    let user = limiter.check("user", "alice");
    limiter.check_all([account, user]).await.unwrap()
}

async fn left(limiter: &Limiter, policy: &str, key: &str) -> u64 {
    let probed = limiter.check(policy, key).probe().await.unwrap();
    probed.remaining()
}

/// The error that these checks are.
async fn wrong<'a>(limiter: &'a Limiter, checks: impl IntoIterator<Item = Check<'a>>) -> String {
    let error = limiter.check_all(checks).await.unwrap_err();
    error.to_string()
}

async fn all_or_nothing(limiter: Limiter) {
    for left in [7, 4] {
        let allowed = called(&limiter, 3).await;
        assert!(allowed.is_allowed() && allowed.retry_after().is_none());
        assert_eq!(allowed.verdicts(0)[0].remaining(), left);
    }

    let denied = called(&limiter, 3).await;

    assert!(!denied.is_allowed());
    assert_eq!([denied.refuses(0), denied.refuses(1)], [false, true]);
    assert!(denied.retry_after() > Some(Duration::from_secs(25 * 60)));
    assert!(denied.undecided().is_none() && denied.blocked().is_none() && !denied.is_shed());
    assert_eq!(left(&limiter, "account", "acme").await, 4);

    // Both have too little.
    let denied = called(&limiter, 5).await;
    assert_eq!([denied.refuses(0), denied.refuses(1)], [true, true]);
    // There is no third.
    assert!(!denied.refuses(2) && denied.verdicts(2).is_empty());
}

#[tokio::test]
async fn all_checks_are_charged_or_none() {
    all_or_nothing(over([account(), user()])).await;
}

#[tokio::test]
async fn all_checks_are_charged_or_none_in_redis() {
    let redis = Standalone::start();
    let backend = in_redis(&redis.url()).await;
    let limiter = Limiter::builder().policies([account(), user()]);
    all_or_nothing(limiter.backend(backend).build().unwrap()).await;
}

#[tokio::test]
async fn identities_of_one_policy_are_checks_of_their_own() {
    let limiter = over([user()]);
    limiter.check("user", "bob").cost(2).await.unwrap();
    let both = [limiter.check("user", "alice"), limiter.check("user", "bob")];

    let denied = limiter.check_all(both).await.unwrap();

    assert_eq!([denied.refuses(0), denied.refuses(1)], [false, true]);
    assert_eq!(left(&limiter, "user", "alice").await, 2);
}

#[tokio::test]
async fn receipts_are_in_the_order_of_the_checks() {
    let limiter = over([account(), user()]);
    let receipts = called(&limiter, 4).await.into_receipts();
    assert_eq!(receipts.len(), 2);

    limiter.refund(receipts.into_iter().next().unwrap(), 4);

    assert_eq!(left(&limiter, "account", "acme").await, 10);
    assert_eq!(left(&limiter, "user", "alice").await, 1);
}

#[tokio::test]
async fn probes_take_nothing_and_policies_on_trial_refuse_nothing() {
    let limiter = over([account(), user().shadow()]);
    let probe = || {
        let checks = [("account", "acme", 11), ("user", "alice", 3)];
        checks.map(|(policy, key, cost)| limiter.check(policy, key).cost(cost).probe())
    };

    let probed = limiter.check_all(probe()).await.unwrap();

    assert!(!probed.is_allowed());
    assert_eq!([probed.refuses(0), probed.refuses(1)], [true, false]);
    assert!(probed.verdicts(1)[0].is_denied());
    assert_eq!(left(&limiter, "account", "acme").await, 10);
    for _ in 0..3 {
        assert!(called(&limiter, 1).await.is_allowed());
    }
    assert_eq!(left(&limiter, "account", "acme").await, 7);
}

#[tokio::test]
async fn retries_with_an_id_take_nothing() {
    let limiter = over([account().once(Once::default()), user()]);
    let order = async || {
        let account = limiter.check("account", "acme").cost(6).id("order-7");
        let checks = [account, limiter.check("user", "alice")];
        limiter.check_all(checks).await.unwrap().is_allowed()
    };

    assert!(order().await && order().await);
    assert_eq!(left(&limiter, "account", "acme").await, 4);
}

#[tokio::test]
async fn places_are_held_until_the_outcome_is_dropped() {
    let exports = Policy::new("exports", Concurrent::at_most(1));
    let limiter = over([account(), exports]);
    let begin = async || {
        let checks = ["account", "exports"].map(|policy| limiter.check(policy, "acme"));
        limiter.check_all(checks).await.unwrap()
    };

    let first = begin().await;
    let second = begin().await;
    assert!(first.is_allowed() && !second.is_allowed() && second.retry_after().is_none());
    drop(first);
    assert!(begin().await.is_allowed());
    // Only callers that got a place have paid.
    assert_eq!(left(&limiter, "account", "acme").await, 8);
}

#[tokio::test]
async fn quotas_that_let_requests_wait_are_decided_at_once() {
    let patient = Quota::per_minute(1).wait_up_to(Duration::from_secs(100));
    let limiter = over([account(), Policy::new("patient", patient)]);
    let ask = async || {
        let checks = ["account", "patient"].map(|policy| limiter.check(policy, "acme"));
        limiter.check_all(checks).await.unwrap()
    };

    assert!(ask().await.is_allowed());
    let denied = ask().await;
    assert!(denied.refuses(1) && denied.retry_after().is_some());
    assert_eq!(left(&limiter, "account", "acme").await, 9);
}

#[tokio::test]
async fn lists_tiers_and_switches_decide_without_a_quota() {
    let blocked = user().block_keys(KeyList::from_iter(["mallory"]), Block::Forbidden);
    let tiers = Tiers::by_key([("acme", "gold")]).unlimited("gold");
    let limiter = over([account().tiers(tiers), blocked]);

    let refused = limiter.check_all([
        limiter.check("account", "acme"),
        limiter.check("user", "mallory"),
    ]);
    let refused = refused.await.unwrap();
    assert_eq!(refused.blocked(), Some(Block::Forbidden));
    assert!(!refused.is_allowed() && refused.refuses(1) && refused.retry_after().is_none());

    // An unlimited account has no verdict, and the user's is found beside it.
    let allowed = called(&limiter, 99).await;
    assert!(allowed.is_allowed() && allowed.verdicts(0).is_empty());
    let left = [0, 1, 2].map(|check| allowed.remaining(check));
    assert_eq!(left, [u64::MAX, 1, 0]);

    limiter.switch_all(Switch::Off);
    let allowed = called(&limiter, 99).await;
    assert!(allowed.is_allowed() && allowed.verdicts(1).is_empty());
}

#[tokio::test]
async fn a_failing_backend_is_met_by_the_strictest_rule() {
    let (backend, _) = at_a_standstill();
    let fails = Arc::new(AtomicBool::new(true));
    let backend = Failing(backend, Arc::clone(&fails));
    let strict = user().on_failure(OnFailure::Deny);
    let limiter = Limiter::builder().policies([account(), strict, user_of("free")]);
    let limiter = limiter.backend(backend).build().unwrap();

    let refused = [limiter.check("account", "acme"), limiter.check("user", "a")];
    let refused = limiter.check_all(refused).await;
    assert!(matches!(refused, Err(CheckError::Unavailable(_))));
    let passed = [limiter.check("account", "acme"), limiter.check("free", "a")];
    let passed = limiter.check_all(passed).await.unwrap();
    assert!(passed.is_allowed() && passed.undecided().is_some());
    assert!(passed.verdicts(0).is_empty() && !passed.refuses(0));

    fails.store(false, Ordering::Relaxed);
    assert_eq!(left(&limiter, "account", "acme").await, 10);
}

fn user_of(name: &str) -> Policy {
    Policy::new(name, Quota::per_minute(2))
}

#[tokio::test]
async fn the_most_important_class_of_the_checks_is_the_one_that_counts_under_pressure() {
    let queue = PressureGauge::new();
    let limiter = Limiter::builder()
        .policies([account(), user()])
        .classes(["critical", "normal"], key::Header::new("x-class"))
        .shed(&queue, [("normal", 0.9)])
        .build()
        .unwrap();
    queue.set(0.95);

    let refused = called(&limiter, 1).await;
    assert!(refused.is_shed() && !refused.is_allowed() && refused.refuses(0));
    assert!(refused.retry_after().is_some());
    let urgent = limiter.check("account", "acme").class("critical");
    let let_in = limiter.check_all([urgent, limiter.check("user", "alice")]);
    assert!(let_in.await.unwrap().is_allowed());
    // Nothing is asked for, and nothing refused.
    assert!(limiter.check_all([]).await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_ban_keeps_out_all_of_the_work_and_has_its_place_among_the_verdicts() {
    let ban = Ban::after(1, Duration::from_secs(60)).lasting(Duration::from_secs(600));
    let limiter = over([user().ban(ban), account()]);
    let ask = async |cost| {
        let user = limiter.check("user", "alice").cost(cost);
        let checks = [user, limiter.check("account", "acme")];
        limiter.check_all(checks).await.unwrap()
    };

    // The quota, the ban, and the account's quota.
    let allowed = ask(1).await;
    assert_eq!([0, 1].map(|check| allowed.verdicts(check).len()), [2, 1]);
    assert_eq!([0, 1].map(|check| allowed.remaining(check)), [1, 9]);
    // A denial is the strike that bans.
    assert!(!ask(2).await.is_allowed());
    let banned = ask(1).await;
    assert_eq!([banned.refuses(0), banned.refuses(1)], [true, false]);
    assert_eq!([0, 1].map(|check| banned.remaining(check)), [0, 9]);
    assert!(banned.retry_after() > Some(Duration::from_secs(590)));
}

#[tokio::test]
async fn tiers_that_have_to_be_asked_for_are_awaited_before_anything_is_charged() {
    let tiers = Tiers::by_async(Duration::from_secs(60), |key: Key| async move {
        tokio::task::yield_now().await;
        match key.text() {
            Some("acme") => Ok(Some("gold")),
            _ => Err("a database that is away"),
        }
    });
    let tiers = tiers.tier("gold", Quota::per_minute(100));
    let tiers = tiers.on_unknown(OnUnknown::Deny);
    let limiter = over([account().tiers(tiers), user()]);

    let allowed = called(&limiter, 60).await;
    assert_eq!([0, 1].map(|check| allowed.remaining(check)), [40, 1]);

    let unknown = limiter.check("account", "other");
    let refused = limiter.check_all([limiter.check("user", "alice"), unknown]);
    let error = refused.await.unwrap_err().to_string();
    let says = "policy \"account\": the tier or quota of the identity is not known";
    assert_eq!(error, says);
    assert_eq!(left(&limiter, "user", "alice").await, 1);
}

#[tokio::test]
async fn checks_that_nobody_waits_for_any_more_take_nothing() {
    let (memory, _) = at_a_standstill();
    let backend = Waiting::new(memory);
    let limiter = Limiter::builder().policies([account(), user()]);
    let limiter = limiter.backend(backend.clone()).build().unwrap();
    let checks = || {
        [
            limiter.check("account", "acme"),
            limiter.check("user", "alice"),
        ]
    };

    {
        let mut asked = pin!(limiter.check_all(checks()));
        let mut cx = Context::from_waker(Waker::noop());
        let polled = asked.as_mut().poll(&mut cx);
        assert!(polled.is_pending() && backend.pending() == 1);
    }
    assert_eq!(backend.pending(), 0);
    // A future that is never polled asks nothing.
    drop(limiter.check_all(checks()));

    backend.gate.add_permits(1);
    let allowed = limiter.check_all(checks()).await.unwrap();
    assert_eq!(allowed.verdicts(0)[0].remaining(), 9);
}

#[tokio::test]
async fn checks_that_cannot_be_one_decision_are_errors() {
    let limiter = over([account(), user()]);
    let other = over([account()]);
    let check = |policy: &str| limiter.check(policy, "alice");

    let cases = [
        (
            wrong(&limiter, [check("user"), check("none")]).await,
            "policy \"none\": there is no policy of this name",
        ),
        (
            wrong(&limiter, [check("user"), other.check("account", "acme")]).await,
            "policy \"account\": the check belongs to another limiter",
        ),
        (
            wrong(&limiter, [check("user"), check("account").probe()]).await,
            "some of the checks are probes and others charge: probe all of them, or none",
        ),
        (
            wrong(&limiter, [check("user"), check("user").cost(2)]).await,
            "policy \"user\": two checks ask about the same identity: make one of them, with the sum of the costs",
        ),
        (
            wrong(&limiter, [check("user"), check("account").up_to(5)]).await,
            "policy \"account\": up to 5: several checks are all or nothing; ask for it alone",
        ),
    ];

    for (error, expected) in cases {
        assert_eq!(error, expected);
    }
    assert_eq!(left(&limiter, "user", "alice").await, 2);
    // The work that nothing limits may go on.
    let none = limiter.check_all([]).await.unwrap();
    assert!(none.is_allowed() && none.into_receipts().is_empty());
}

#[tokio::test]
async fn a_decision_has_at_most_32_charges_and_reads_six_full_logs() {
    let limiter = over([
        user(),
        Policy::new("log", "1024/h sliding-log".parse::<Quota>().unwrap()),
    ]);
    let of = |policy: &'static str, callers: usize| {
        let limiter = &limiter;
        (0..callers).map(move |n| limiter.check(policy, format!("{n}")))
    };

    let most = limiter.check_all(of("user", 32)).await.unwrap();
    assert!(most.is_allowed() && most.into_receipts().len() == 32);
    assert_eq!(
        wrong(&limiter, of("user", 33)).await,
        "the checks could charge 33 quotas, and at most 32 are decided together"
    );
    assert!(limiter.check_all(of("log", 6)).await.unwrap().is_allowed());
    assert_eq!(
        wrong(&limiter, of("log", 7)).await,
        "the sliding logs of the checks have 7168 entries, and one decision reads at most 6144"
    );
}

#[tokio::test]
async fn a_check_may_state_its_quotas() {
    let tiers = Tiers::by(|_, _| Some("paid")).tier("paid", Quota::per_hour(5));
    let limiter = over([
        account(),
        user().tiers(tiers),
        Policy::new("gate", Quota::per_hour(1)).shadow(),
    ]);
    let stated = |policy: &'static str, quotas: &'static str| {
        let check = limiter.check(policy, "alice");
        check.quotas(quotas)
    };

    // Another limit of the same algorithm finds the state of the policy's own: a half that is spent is a half of the other.
    limiter.check("account", "alice").cost(5).await.unwrap();
    let call = limiter.check_all([stated("account", "100/h").cost(10), stated("user", "3/h")]);
    let call = call.await.unwrap();
    assert!(call.is_allowed());
    assert_eq!((call.remaining(0), call.remaining(1)), (40, 2));
    assert_eq!(left(&limiter, "account", "alice").await, 4);
    // All else of the policy holds: one on trial refuses nothing.
    let trial = stated("gate", "2/h").cost(3).await.unwrap();
    assert!(trial.is_allowed() && trial.verdicts()[0].is_denied());
    // A limit of nothing refuses.
    let none = stated("account", "none").await.unwrap();
    assert_eq!(none.blocked(), Some(Block::Forbidden));

    let words = [
        (
            "5 at once",
            "policy \"account\": the quotas of the check: 5 at once: limits how many at once, and only the policy itself may: \
             give that a policy of its own",
        ),
        (
            "1/s; 2/s; 3/s; 4/s; 5/s",
            "policy \"account\": the quotas of the check: 5 quotas are more than the 4 that fit",
        ),
        (
            "soon",
            "policy \"account\": the quotas of the check: \"soon\": ",
        ),
    ];
    for (quotas, expected) in words {
        let error = stated("account", quotas).await.unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}
