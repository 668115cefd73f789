//! The rules while the backend cannot decide: a failure is never mistaken for a denial, nor the other way round.

use std::time::Duration;

use crate::common::{Body, Strict, Waiting, at_a_standstill, from, header};
use http::Response;
use http_body_util::BodyExt;
use tollgate::{CheckError, FailureKind, Limiter, OnFailure, Policy, Quota, RateLimitLayer, Share};
use tollgate_testkit::Log;
use tower::{Layer, ServiceExt};

const DOWN: Option<FailureKind> = Some(FailureKind::Unreachable);

/// A limiter whose backend answers at once and fails as long as the test says so.
fn failing(policies: impl IntoIterator<Item = Policy>) -> (Limiter, Waiting) {
    let backend = Waiting::new(at_a_standstill().0);
    backend.gate.add_permits(1000);
    backend.fail_with(DOWN);
    let limiter = Limiter::builder()
        .policies(policies)
        .backend(backend.clone())
        .build()
        .unwrap();
    (limiter, backend)
}

fn policy(name: &str, rule: OnFailure) -> Policy {
    Policy::new(name, Quota::per_hour(4)).on_failure(rule)
}

async fn send(limiter: &Limiter) -> Response<Body> {
    let layer = RateLimitLayer::new(limiter.clone());
    layer
        .layer(Strict::default())
        .oneshot(from("10.0.0.1"))
        .await
        .unwrap()
}

async fn statuses(limiter: &Limiter, n: usize) -> Vec<u16> {
    let mut all = Vec::new();
    for _ in 0..n {
        all.push(send(limiter).await.status().as_u16());
    }
    all
}

#[tokio::test]
async fn a_policy_that_allows_lets_requests_pass_undecided() {
    let (limiter, _) = failing([policy("open", OnFailure::Allow)]);

    let response = send(&limiter).await;
    let checked = limiter.check("open", "anyone").await.unwrap();

    assert_eq!(
        (response.status().as_u16(), header(&response, "ratelimit")),
        (200, "")
    );
    assert!(checked.is_allowed());
    assert_eq!(
        checked.undecided().unwrap().kind(),
        FailureKind::Unreachable
    );
    assert!(checked.verdicts().is_empty());
}

#[tokio::test]
async fn a_policy_that_denies_answers_503_and_not_429() {
    let (limiter, backend) = failing([policy("closed", OnFailure::Deny)]);

    let response = send(&limiter).await;
    let checked = limiter.check("closed", "anyone").await;

    assert_eq!(response.status(), 503);
    // The time is unknown, and none is promised.
    assert!(!response.headers().contains_key("retry-after"));
    assert_eq!(
        (
            header(&response, "retry-after"),
            header(&response, "cache-control")
        ),
        ("", "no-store")
    );
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        problem["type"],
        "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
    );
    assert!(matches!(checked, Err(CheckError::Unavailable(_))));

    // Once the backend is well again so are decisions, without a restart.
    backend.fail_with(None);
    assert_eq!(statuses(&limiter, 5).await, [200, 200, 200, 200, 429]);
}

#[tokio::test]
async fn any_policy_that_denies_denies_else_local_decides_else_it_passes() {
    let (allow, deny, local) = (
        OnFailure::Allow,
        OnFailure::Deny,
        OnFailure::Local(Share::one_in(2)),
    );
    let cases = [
        (vec![allow, allow], [200, 200, 200]),
        (vec![allow, deny], [503, 503, 503]),
        (vec![local, deny], [503, 503, 503]),
        (vec![allow, local], [200, 200, 429]),
        (vec![local, local], [200, 200, 429]),
    ];
    for (rules, expected) in cases {
        let policies = rules
            .iter()
            .enumerate()
            .map(|(n, rule)| policy(&format!("p{n}"), *rule));
        let (limiter, _) = failing(policies);
        assert_eq!(statuses(&limiter, 3).await, expected, "{rules:?}");
    }
}

#[tokio::test]
async fn a_policy_on_trial_has_no_say_in_a_failure() {
    let (limiter, _) = failing([
        policy("trial", OnFailure::Deny).shadow(),
        policy("open", OnFailure::Allow),
    ]);

    assert_eq!(statuses(&limiter, 1).await, [200]);
}

#[tokio::test]
async fn pitfall_fallback_used_when_the_limit_was_exceeded_not_only_when_the_store_failed() {
    let (limiter, backend) = failing([policy("local", OnFailure::Local(Share::WHOLE))]);
    backend.fail_with(None);

    assert_eq!(statuses(&limiter, 6).await, [200, 200, 200, 200, 429, 429]);

    // No local budget was touched by that: the whole of it is there when the backend fails.
    backend.fail_with(DOWN);
    assert_eq!(statuses(&limiter, 5).await, [200, 200, 200, 200, 429]);
}

#[tokio::test]
async fn a_backend_that_flaps_does_not_hand_out_a_local_budget_each_time() {
    let (limiter, backend) = failing([policy("local", OnFailure::Local(Share::one_in(2)))]);
    let mut passed_locally = 0;

    for _ in 0..10 {
        backend.fail_with(DOWN);
        passed_locally += statuses(&limiter, 3)
            .await
            .iter()
            .filter(|status| **status == 200)
            .count();
        backend.fail_with(None);
        statuses(&limiter, 1).await;
    }

    assert_eq!(passed_locally, 2);
}

#[tokio::test]
async fn a_local_denial_is_a_denial_with_its_own_promise() {
    let (limiter, _) = failing([policy("local", OnFailure::Local(Share::one_in(4)))]);

    assert_eq!(send(&limiter).await.status(), 200);
    let refused = send(&limiter).await;

    assert_eq!(refused.status(), 429);
    assert_eq!(header(&refused, "retry-after"), "3600");
    let checked = limiter.check("local", "another").await.unwrap();
    assert!(checked.is_allowed());
    // A charge of a local budget is not credited to the backend.
    assert!(checked.into_receipts().is_empty());
}

#[tokio::test]
async fn a_cost_above_a_process_s_share_is_a_failure_and_not_never() {
    let (limiter, _) = failing([policy("local", OnFailure::Local(Share::one_in(4)))]);

    let above_the_share = limiter.check("local", "anyone").cost(3).await;
    let above_the_budget = limiter.check("local", "anyone").cost(5).await.unwrap();

    assert!(matches!(above_the_share, Err(CheckError::Unavailable(_))));
    assert!(!above_the_budget.is_allowed() && above_the_budget.retry_after().is_none());
}

#[tokio::test]
async fn what_happened_can_be_read_from_the_error() {
    let deadline = Duration::from_millis(50);
    let (limiter, backend) = failing([policy("closed", OnFailure::Deny)]);
    backend.fail_with(Some(FailureKind::TimedOut { deadline }));

    let error = limiter.check("closed", "anyone").await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();

    assert_eq!(error.to_string(), "the limiter cannot decide");
    assert_eq!(
        source,
        "no answer from the backend within 50ms: as the test said"
    );
}

#[tokio::test]
async fn the_log_tells_of_an_outage_once_and_of_its_end() {
    // given a backend that is about to fail
    let log = Log::default();
    let (limiter, backend) = failing([policy("open", OnFailure::Allow)]);
    let _guard = log.listen();

    // when it fails, recovers, and fails again at once, like one that flaps
    for _ in 0..5 {
        backend.fail_with(DOWN);
        statuses(&limiter, 3).await;
        backend.fail_with(None);
        statuses(&limiter, 1).await;
    }

    // then the first outage is told, and those that follow at once are only counted
    let text = log.text();
    let count = |words: &str| text.matches(words).count();
    assert_eq!(count("the backend cannot decide"), 1, "{text}");
    assert_eq!(count("backend unreachable: as the test said"), 1, "{text}");
    assert_eq!(count("the backend decides again"), 1, "{text}");
    assert_eq!(limiter.failures(), 15);
}

/// Slashes, doubled and encoded, are read in several ways, and each may lead to a route of its own.
#[tokio::test]
async fn a_path_of_more_quotas_than_a_call_may_have_is_refused_whatever_the_rule() {
    for rule in [OnFailure::Allow, OnFailure::Local(Share::WHOLE)] {
        let routes = ["/{p}/a%2Fb/", "/a%2Fb", "/a/b"];
        let policies = routes.iter().zip(["one", "two", "three"]);
        let policies = policies.map(|(route, name)| {
            let quotas: Vec<_> = (1..=11)
                .map(|seconds| Quota::new(99, Duration::from_secs(seconds)))
                .collect();
            Policy::new(name, quotas).route(route).on_failure(rule)
        });
        let layer = RateLimitLayer::new(Limiter::builder().policies(policies).build().unwrap());
        let status = async |path: &str| {
            let mut request = from("10.0.0.1");
            *request.uri_mut() = path.parse().unwrap();
            let response = layer.layer(Strict::default()).oneshot(request).await;
            response.unwrap().status()
        };

        assert_eq!(status("//a%2Fb/").await, 503, "{rule:?}");
        for path in ["/a/b", "/a//b", "/a%2Fb", "/x/a%2Fb/"] {
            assert_eq!(status(path).await, 200, "{rule:?} {path}");
        }
    }
}
