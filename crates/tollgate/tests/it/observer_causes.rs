//! The observer hears also of what is not decided: policies on trial that were not asked, requests that left, charges that were
//! corrected by hand, and requests with an id that repeat another.

#![cfg(feature = "axum")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::tokio_clock::in_tokio_time;
use crate::common::{Body, Strict, Waiting, at_a_standstill, from};
use http::{Request, StatusCode};
use tokio::task::yield_now;
use tollgate::key::{Header, KeyList};
use tollgate::{
    Block, Cause, Concurrent, Event, Limiter, LimiterBuilder, OnMissing, Once, Policy, Quota,
    Quotas, RateLimitLayer, Tiers, Verdict,
};
use tower::{Layer, ServiceExt};

/// The quota or policy, the cause, the identity, and whether it was denied if it was asked.
type Heard = (String, Cause, Option<String>, Option<bool>);

#[derive(Clone, Default)]
struct Ear(Arc<Mutex<Vec<Heard>>>);

impl Ear {
    fn listening(&self) -> LimiterBuilder {
        let heard = Arc::clone(&self.0);
        Limiter::builder().observe(move |event: &Event<'_>| {
            let name = event.quota().unwrap_or(event.policy()).to_owned();
            let key = event.key().and_then(|key| Some(key.text()?.to_owned()));
            let denied = event.verdict().map(Verdict::is_denied);
            heard
                .lock()
                .unwrap()
                .push((name, event.cause(), key, denied));
        })
    }

    fn take(&self) -> Vec<Heard> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn heard(name: &str, cause: Cause, key: Option<&str>, denied: Option<bool>) -> Heard {
    (name.to_owned(), cause, key.map(str::to_owned), denied)
}

fn by_caller(name: &str) -> Policy {
    Policy::new(name, Quota::per_hour(5)).key(Header::new("x-caller"))
}

fn as_caller(caller: Option<&str>) -> Request<Body> {
    let mut request = from("10.0.0.1");
    if let Some(caller) = caller {
        let caller = caller.parse().unwrap();
        request.headers_mut().insert("x-caller", caller);
    }
    request
}

async fn send(limiter: &Limiter, request: Request<Body>) -> StatusCode {
    let service = RateLimitLayer::new(limiter).layer(Strict::default());
    service.oneshot(request).await.unwrap().status()
}

/// Policies on trial on both sides of one that refuses without asking its quota.
fn around(ear: &Ear, refuses: Policy) -> Limiter {
    let trial = |name| by_caller(name).shadow();
    ear.listening()
        .policies([
            trial("before"),
            refuses,
            by_caller("enforced"),
            trial("after"),
        ])
        .policy(trial("elsewhere").route("/elsewhere"))
        .backend(at_a_standstill().0)
        .build()
        .unwrap()
}

#[tokio::test]
async fn a_trial_says_that_it_was_not_asked_when_another_policy_refuses_by_a_list_or_an_identity() {
    let ear = Ear::default();
    let listed = || ["mallory"].into_iter().collect::<KeyList>();
    let closed = Tiers::by_key([("mallory", "closed")]).tier("closed", Quotas::none());
    for (refuses, caller, cause) in [
        (
            by_caller("refuses").block_keys(listed(), Block::Forbidden),
            Some("mallory"),
            Cause::Blocked,
        ),
        (
            by_caller("refuses").tiers(closed),
            Some("mallory"),
            Cause::Blocked,
        ),
        (
            by_caller("refuses").on_missing(OnMissing::Deny),
            None,
            Cause::Unidentified,
        ),
    ] {
        let limiter = around(&ear, refuses);

        assert_ne!(send(&limiter, as_caller(caller)).await, 200);

        assert_eq!(
            ear.take(),
            [
                heard("refuses", cause, caller, None),
                heard("before", Cause::Unasked, caller, None),
                // Its identity was not looked for.
                heard("after", Cause::Unasked, None, None),
            ]
        );
        // Nothing was charged to it, as nothing will be when it is on trial no more.
        for trial in ["before", "after"] {
            let left = limiter.check(trial, "mallory").probe().await.unwrap();
            assert_eq!(left.remaining(), 5);
        }
        ear.take();

        // Any other request is decided, and the trials are asked.
        assert_eq!(send(&limiter, as_caller(Some("alice"))).await, 200);
        let asked = ear.take();
        let asked = asked.iter().filter(|one| one.1 == Cause::Backend);
        assert_eq!(asked.count(), 4);
    }
}

#[tokio::test]
async fn a_trial_among_joint_checks_says_so_too() {
    let ear = Ear::default();
    let listed = ["mallory"].into_iter().collect::<KeyList>();
    let limiter = around(
        &ear,
        by_caller("refuses").block_keys(listed, Block::Forbidden),
    );

    let checks = ["before", "refuses", "enforced", "after"];
    let checks = checks.map(|policy| limiter.check(policy, "mallory"));
    let outcome = limiter.check_all(checks).await.unwrap();

    assert!(!outcome.is_allowed());
    let mallory = Some("mallory");
    assert_eq!(
        ear.take(),
        [
            heard("refuses", Cause::Blocked, mallory, None),
            heard("before", Cause::Unasked, mallory, None),
            heard("after", Cause::Unasked, mallory, None),
        ]
    );
}

/// The tier of a caller is asked for, and comes while the trials wait for theirs or are ready.
#[tokio::test]
async fn a_trial_says_so_when_the_other_policy_refuses_after_an_answer() {
    let ear = Ear::default();
    let closed = Tiers::by_async(Duration::from_secs(60), |_| async {
        yield_now().await;
        Ok::<_, std::io::Error>(Some("closed"))
    });
    let limiter = around(
        &ear,
        by_caller("refuses").tiers(closed.tier("closed", Quotas::none())),
    );

    assert_ne!(send(&limiter, as_caller(Some("mallory"))).await, 200);

    let mallory = Some("mallory");
    assert_eq!(
        ear.take(),
        [
            heard("refuses", Cause::Blocked, mallory, None),
            heard("before", Cause::Unasked, mallory, None),
            heard("after", Cause::Unasked, mallory, None),
        ]
    );
}

#[tokio::test]
async fn what_the_application_credits_and_debits_is_heard_of() {
    let ear = Ear::default();
    let gold =
        Tiers::by_key([("alice", "gold")]).tier("gold", [("hour", "9/h"), ("day", "90/day")]);
    let limiter = ear
        .listening()
        .policy(
            Policy::new("api", [("hour", "5/h"), ("day", "50/day")])
                .key(Header::new("x-caller"))
                .tiers(gold),
        )
        .build()
        .unwrap();
    for caller in ["alice", "bob"] {
        let receipts = limiter.check("api", caller).cost(2).await.unwrap();
        let mut receipts = receipts.into_receipts();
        ear.take();

        limiter.debit(&receipts[0], 1);
        limiter.refund(receipts.remove(0), 2);

        assert_eq!(
            ear.take(),
            [
                heard("api-hour", Cause::Debited, Some(caller), None),
                heard("api-hour", Cause::Credited, Some(caller), None),
            ]
        );
    }
    // The policy of a receipt may be there no more.
    let receipt = limiter.check("api", "bob").await.unwrap().into_receipts();
    limiter
        .replace([Policy::new("other", Quota::per_hour(1))])
        .unwrap();
    ear.take();
    limiter.debit(&receipt[0], 1);
    assert_eq!(
        ear.take(),
        [heard("api", Cause::Debited, Some("bob"), None)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_leaves_the_line_for_a_place_is_heard_of_once() {
    let ear = Ear::default();
    let places = Concurrent::at_most(1).wait_up_to(Duration::from_secs(9));
    let limiter = ear
        .listening()
        .policy(Policy::new("places", places))
        .backend(in_tokio_time())
        .build()
        .unwrap();
    let holds = limiter.check("places", "alice").await.unwrap();
    ear.take();

    // One stands because it was refused, and one because another stands before it.
    let first = {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.acquire("places", "alice").await.map(drop) })
    };
    yield_now().await;
    let second = {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.acquire("places", "alice").await.map(drop) })
    };
    yield_now().await;
    assert_eq!((limiter.waiting(), ear.take()), (2, Vec::new()));
    for leaves in [second, first] {
        leaves.abort();
        assert!(leaves.await.unwrap_err().is_cancelled());
        assert_eq!(
            ear.take(),
            [heard("places", Cause::Left, Some("alice"), None)]
        );
    }

    // One that gets its place did not leave.
    let limiter_of_third = limiter.clone();
    let third =
        tokio::spawn(async move { limiter_of_third.acquire("places", "alice").await.unwrap() });
    yield_now().await;
    drop(holds);
    let third = third.await.unwrap();
    assert!(third.is_allowed());
    let causes: Vec<_> = ear.take().into_iter().map(|one| one.1).collect();
    assert_eq!(causes, [Cause::Released, Cause::Backend]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_leaves_while_the_backend_is_asked_is_heard_of() {
    let ear = Ear::default();
    let backend = Waiting::new(in_tokio_time());
    let smooth = Quota::per_second(1).wait_up_to(Duration::from_secs(5));
    let limiter = ear
        .listening()
        .policies([by_caller("api"), Policy::new("smooth", smooth)])
        .backend(backend.clone())
        .build()
        .unwrap();

    for policy in ["api", "smooth"] {
        let asking = limiter.clone();
        let asks = tokio::spawn(async move { asking.check(policy, "alice").await.map(drop) });
        yield_now().await;
        assert_eq!((backend.pending(), ear.take()), (1, Vec::new()));

        asks.abort();
        assert!(asks.await.unwrap_err().is_cancelled());

        assert_eq!(
            ear.take(),
            [heard(policy, Cause::Left, Some("alice"), None)]
        );
        assert_eq!(backend.pending(), 0);

        // One that is answered did not leave.
        backend.gate.add_permits(1);
        assert!(limiter.check(policy, "alice").await.unwrap().is_allowed());
        assert_eq!(
            ear.take(),
            [heard(policy, Cause::Backend, Some("alice"), Some(false))]
        );
    }
}

#[tokio::test]
async fn a_replay_of_an_id_is_heard_of_as_one() {
    let ear = Ear::default();
    let orders = || Policy::new("orders", Quota::per_hour(1)).once(Once::default());
    for (orders, is_trial) in [(orders(), false), (orders().shadow(), true)] {
        let limiter = ear
            .listening()
            .policies([orders, Policy::new("all", Quota::per_hour(9))])
            .backend(at_a_standstill().0)
            .build()
            .unwrap();
        let ask = |id: &str| {
            let order = limiter.check("orders", "alice").id(id);
            limiter.check_all([order, limiter.check("all", "alice")])
        };
        let one = |name, cause, denied| heard(name, cause, Some("alice"), Some(denied));

        // The first, two retries, and one too many, which is charged like the first.
        for (id, cause, denied) in [
            ("7", Cause::Backend, false),
            ("7", Cause::Replayed, false),
            ("8", Cause::Backend, true),
            ("7", Cause::Replayed, false),
            ("7", Cause::Backend, true),
        ] {
            let is_allowed = ask(id).await.unwrap().is_allowed();
            assert_eq!(is_allowed, !denied || is_trial);
            assert_eq!(
                ear.take(),
                [
                    one("orders", cause, denied),
                    one("all", Cause::Backend, false)
                ]
            );
        }
    }
}
