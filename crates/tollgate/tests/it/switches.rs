//! Switches of operators: off and on trial, for one policy and for all, while requests come.

#![cfg(feature = "axum")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Strict, at_a_standstill, from};
use axum::Router;
use axum::routing::get;
use http::StatusCode;
use tollgate::key::Global;
use tollgate::{
    Ban, Cause, CheckError, Event, Key, Limiter, LimiterBuilder, MethodRouterExt, Policy, Quota,
    QuotaLookup, RateLimitLayer, Switch,
};
use tollgate_testkit::Log;
use tower::{Layer, ServiceExt};

type Heard = (String, Cause, bool);

#[derive(Clone, Default)]
struct Ear(Arc<Mutex<Vec<Heard>>>);

impl Ear {
    fn listening(&self) -> LimiterBuilder {
        let heard = Arc::clone(&self.0);
        let backend = at_a_standstill().0;
        Limiter::builder()
            .backend(backend)
            .observe(move |event: &Event<'_>| {
                let heard = &mut *heard.lock().unwrap();
                heard.push((
                    event.policy().to_owned(),
                    event.cause(),
                    event.is_enforced(),
                ));
            })
    }

    fn take(&self) -> Vec<Heard> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

async fn send(limiter: &Limiter) -> StatusCode {
    let service = RateLimitLayer::new(limiter).layer(Strict::default());
    service.oneshot(from("10.0.0.1")).await.unwrap().status()
}

fn once(name: &str) -> Policy {
    Policy::new(name, Quota::per_hour(1)).key(Global)
}

#[tokio::test]
async fn a_policy_that_is_off_lets_requests_pass_uncharged_and_is_heard_of() {
    // given a policy that has been spent, beside another
    let ear = Ear::default();
    let limiter = ear.listening().policy(once("api"));
    let other = Policy::new("other", Quota::per_hour(9));
    let limiter = limiter.policy(other).build().unwrap();
    let layer = limiter.clone();
    assert_eq!([send(&layer).await, send(&layer).await], [200, 429]);
    ear.take();

    // when
    limiter.switch("api", Switch::Off).unwrap();

    // then
    assert_eq!(send(&layer).await, 200);
    let off = ("api".to_owned(), Cause::Off, true);
    assert_eq!(
        ear.take(),
        [off, ("other".to_owned(), Cause::Backend, true)]
    );
    assert_eq!(limiter.switch_of("api"), Switch::Off);
    assert_eq!(limiter.switch_of("other"), Switch::On);

    // when
    limiter.switch("api", Switch::On).unwrap();

    // then it is as full as it was
    assert_eq!(send(&layer).await, 429);
}

#[tokio::test]
async fn a_policy_that_is_switched_to_trial_denies_no_request_and_is_charged_on() {
    let ear = Ear::default();
    let limiter = ear.listening().policy(once("api")).build().unwrap();
    limiter.switch("api", Switch::Shadow).unwrap();

    assert_eq!([send(&limiter).await, send(&limiter).await], [200, 200]);
    let trial = || ("api".to_owned(), Cause::Backend, false);
    assert_eq!(ear.take(), [trial(), trial()]);

    limiter.switch("api", Switch::On).unwrap();
    assert_eq!(send(&limiter).await, 429);
}

#[tokio::test]
async fn a_policy_that_is_on_trial_by_itself_stays_so_when_it_is_switched_on() {
    let limiter = Limiter::from(once("api").shadow());
    for to in [Switch::Off, Switch::Shadow, Switch::On] {
        limiter.switch("api", to).unwrap();
        assert_eq!([send(&limiter).await, send(&limiter).await], [200, 200]);
    }
    // Nor does one that comes back through `replace` forget what it says of itself.
    let limiter = Limiter::from(once("api"));
    limiter.switch("api", Switch::Shadow).unwrap();
    let policies = limiter.policies();
    limiter
        .replace(policies.iter().map(|policy| Policy::clone(policy)))
        .unwrap();
    limiter.switch("api", Switch::On).unwrap();
    assert_eq!([send(&limiter).await, send(&limiter).await], [200, 429]);
}

#[tokio::test]
async fn all_policies_are_switched_those_of_routes_included() {
    let (limiter, backend) = (Limiter::builder().allow_no_policies(), at_a_standstill().0);
    let limiter = limiter.backend(backend).build().unwrap();
    let route = get(|| async {}).rate_limit(Quota::per_hour(1));
    let router = Router::new()
        .route("/", route)
        .layer(RateLimitLayer::new(&limiter));
    let ask = async || {
        let request = from("10.0.0.1").map(axum::body::Body::new);
        router.clone().oneshot(request).await.unwrap().status()
    };
    assert_eq!([ask().await, ask().await], [200, 429]);

    for (to, status) in [
        (Switch::Off, 200),
        (Switch::On, 429),
        (Switch::Shadow, 200),
        (Switch::On, 429),
    ] {
        limiter.switch_all(to);
        assert_eq!(ask().await, status, "{to:?}");
    }
}

#[tokio::test]
async fn a_switch_of_all_is_heard_of_for_each_policy() {
    let ear = Ear::default();
    let everything = Policy::new("all", Quota::per_hour(9)).key(Global);
    let limiter = ear.listening().policy(everything).build().unwrap();
    let route = get(|| async {}).rate_limit(Quota::per_hour(9));
    let router = Router::new()
        .route("/", route)
        .layer(RateLimitLayer::new(&limiter));
    for (to, cause, is_enforced) in [
        (Switch::Off, Cause::Off, true),
        (Switch::Shadow, Cause::Backend, false),
        (Switch::On, Cause::Backend, true),
    ] {
        limiter.switch_all(to);
        let request = from("10.0.0.1").map(axum::body::Body::new);
        let _answer = router.clone().oneshot(request).await.unwrap();
        let heard = ["all", "get/"].map(|policy| (policy.to_owned(), cause, is_enforced));
        assert_eq!(ear.take(), heard, "{to:?}");
    }
}

#[tokio::test]
async fn of_two_switches_the_one_holds_that_limits_less() {
    let limiter = Limiter::builder().policy(once("a")).policy(once("b"));
    let limiter = limiter.build().unwrap();
    limiter.switch("a", Switch::Off).unwrap();
    limiter.switch_all(Switch::Shadow);
    assert_eq!(limiter.switch_of("a"), Switch::Off);
    assert_eq!(limiter.switch_of("b"), Switch::Shadow);
    limiter.switch_all(Switch::On);
    assert_eq!(limiter.switch_of("a"), Switch::Off);
    assert_eq!(limiter.switch_of("b"), Switch::On);
}

#[tokio::test]
async fn a_switch_holds_for_the_policies_that_replace_and_is_forgotten_with_the_name() {
    let limiter = Limiter::from(once("api"));
    limiter.switch("api", Switch::Off).unwrap();

    limiter
        .replace([Policy::new("api", Quota::per_hour(1)), once("b")])
        .unwrap();
    assert_eq!(limiter.switch_of("api"), Switch::Off);
    limiter.replace([once("b")]).unwrap();
    limiter.replace([once("api")]).unwrap();
    assert_eq!(limiter.switch_of("api"), Switch::On);
}

#[tokio::test]
async fn bans_and_block_lists_of_a_policy_that_is_off_keep_no_caller_out() {
    let minute = Duration::from_secs(60);
    let guarded = once("login").ban(Ban::after(1, minute));
    let limiter = Limiter::from(guarded);
    limiter.ban("login", Key::global(), minute).await.unwrap();
    assert_eq!(send(&limiter).await, 429);

    limiter.switch("login", Switch::Off).unwrap();
    assert_eq!(send(&limiter).await, 200);
    limiter.switch("login", Switch::On).unwrap();
    assert_eq!(send(&limiter).await, 429);
}

#[tokio::test]
async fn quotas_that_were_asked_for_before_the_switch_follow_it() {
    let lookup = QuotaLookup::new(Duration::from_secs(300), async |_: Key| {
        Ok::<_, String>(Some(Quota::per_hour(1)))
    });
    let policy = Policy::new("api", Quota::per_hour(9)).quota_by_async(lookup);
    let limiter = Limiter::from(policy);
    let ask = async || limiter.check("api", "alice").await.unwrap().is_allowed();
    assert_eq!([ask().await, ask().await], [true, false]);

    limiter.switch("api", Switch::Shadow).unwrap();
    assert!(ask().await);
    limiter.switch("api", Switch::On).unwrap();
    assert!(!ask().await);
}

#[tokio::test]
async fn a_name_that_is_no_policy_is_refused_and_a_switch_is_logged() {
    let log = Log::default();
    let _listening = log.listen();
    let limiter = Limiter::from(once("api"));

    let refused = limiter.switch("apy", Switch::Off).unwrap_err();
    assert!(matches!(refused, CheckError::UnknownPolicy { policy } if policy == "apy"));
    assert_eq!(log.text(), "");
    limiter.switch("api", Switch::Off).unwrap();
    limiter.switch_all(Switch::Shadow);

    let text = log.text();
    assert!(
        text.contains("an operator has switched a policy policy=\"api\" switch=Off"),
        "{text}"
    );
    assert!(
        text.contains("an operator has switched all policies switch=Shadow"),
        "{text}"
    );
}

#[test]
fn thousands_of_switches_lose_no_request_and_leave_the_budget_exact() {
    const ASKED: u64 = 20_000;
    let limiter = Limiter::from(Policy::new("api", Quota::per_day(ASKED * 2)).key(Global));
    let asking = limiter.clone();
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_done = Arc::clone(&done);
    let turning = std::thread::spawn(move || {
        let mut turns = 0;
        while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
            for to in [Switch::Shadow, Switch::On] {
                limiter.switch("api", to).unwrap();
                turns += 1;
            }
        }
        turns
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let left = runtime.block_on(async {
        let mut left = 0;
        for _ in 0..ASKED {
            let asked = asking.check("api", Key::global()).await.unwrap();
            assert!(asked.is_allowed());
            left = asked.verdicts()[0].remaining();
        }
        left
    });
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(turning.join().unwrap() > 0);
    // At most one unit of a two-per-day drains back in each two seconds.
    assert!((ASKED..ASKED + 1_000).contains(&left), "{left}");
}
