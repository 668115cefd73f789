//! A request that passes while the backend fails holds all the same: a backend that can count it later is told of it, and of its
//! end, exactly once.

#![cfg(feature = "axum")]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use axum::routing::get;
use axum::{Extension, Router};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use tollgate::key::Global;
use tollgate::{
    Admin, Answer, Backend, BackendError, Call, Capabilities, Capability, Concurrent, Decision,
    FailureKind, Key, Limiter, OnFailure, PeerAddr, Policy, Quota, RateLimitLayer, Scope,
    Settlement, Timestamp,
};
use tower::ServiceExt;

/// Decides nothing, and counts what it is to assume.
#[derive(Clone, Debug, Default)]
struct Away(Arc<AtomicU64>);

impl Away {
    fn assumed(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl Backend for Away {
    fn decide(&self, _call: Call<'_>) -> Answer<Decision> {
        Answer::now(Err(BackendError::new(FailureKind::Unreachable, "away")))
    }

    fn settle(&self, settlement: Settlement<'_>) {
        match settlement {
            Settlement::Refund(receipt, n) => {
                assert_eq!(receipt.at(), Timestamp::default());
                assert!(receipt.quota().is_held());
                assert!(self.0.fetch_sub(n, Ordering::SeqCst) >= n);
            }
            Settlement::Assume(charge) => {
                assert!(charge.quota.is_held());
                self.0.fetch_add(charge.cost, Ordering::SeqCst);
            }
            _ => {}
        }
    }

    fn admin(&self) -> &dyn Admin {
        self
    }
}

impl Admin for Away {
    fn reset(&self, _scope: Scope, _key: &Key) -> Answer<()> {
        Answer::now(Ok(()))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
            .with(Capability::Held)
            .with(Capability::Assumes)
    }
}

fn limiter(away: &Away, on_failure: OnFailure) -> Limiter {
    let quotas = (Quota::per_second(10), Concurrent::at_most(5));
    let policy = Policy::new("held", quotas).key(Global).cost(2);
    Limiter::builder()
        .policy(policy.on_failure(on_failure))
        .backend(away.clone())
        .build()
        .unwrap()
}

async fn ask(app: &Router) -> http::Response<Body> {
    let request = Request::new(Body::empty());
    app.clone().oneshot(request).await.unwrap()
}

#[tokio::test]
async fn a_request_that_passes_undecided_is_assumed_until_its_response_is_over() {
    for headers in [true, false] {
        let away = Away::default();
        let layer = RateLimitLayer::new(limiter(&away, OnFailure::Allow));
        let layer = match headers {
            true => layer,
            false => layer.without_headers().without_status(),
        };
        let stream = || async {
            let (sender, chunks) = tokio::sync::mpsc::channel::<Result<&str, Infallible>>(1);
            sender.send(Ok("chunk")).await.unwrap();
            Body::from_stream(tokio_stream::wrappers::ReceiverStream::new(chunks))
        };
        let app = Router::new()
            .route("/", get(stream))
            .layer(layer)
            .layer(Extension(PeerAddr("10.0.0.1:1".parse().unwrap())));

        let first = ask(&app).await;
        let second = ask(&app).await;
        assert_eq!(first.status(), StatusCode::OK);
        // The state of the budgets is unknown, so no caller is told.
        assert_eq!(first.headers().get("ratelimit"), None);
        assert_eq!(away.assumed(), 4);
        drop(first);
        assert_eq!(away.assumed(), 2);
        second.into_body().collect().await.unwrap();
        assert_eq!(away.assumed(), 0);
    }
}

#[tokio::test]
async fn a_check_that_passes_undecided_is_assumed_while_its_guard_lives() {
    let away = Away::default();
    let allowing = limiter(&away, OnFailure::Allow);
    let first = allowing.check("held", Key::global()).await.unwrap();
    let second = allowing.check("held", Key::global()).await.unwrap();
    assert!(first.is_allowed() && first.undecided().is_some());
    assert_eq!(away.assumed(), 4);
    drop(first);
    assert_eq!(away.assumed(), 2);
    for receipt in second.into_receipts() {
        allowing.refund(receipt, 2);
    }
    assert_eq!(away.assumed(), 0);

    // Not for what takes nothing, and not for what is refused.
    let ask = || allowing.check("held", Key::global());
    let (peek, probe) = (ask().cost(0).await.unwrap(), ask().probe().await.unwrap());
    let denying = limiter(&away, OnFailure::Deny);
    assert!(denying.check("held", Key::global()).await.is_err());
    assert_eq!(away.assumed(), 0);
    drop((peek, probe));
}
