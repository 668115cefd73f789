//! The real cost of a request, stated afterwards.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{Body, Waiting, at_a_standstill, from, header};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::oneshot;
use tokio_stream::StreamExt;
use tollgate::key::Global;
use tollgate::{
    Admin, Answer, Backend, Call, Cause, Decision, Event, FailureKind, Key, Limiter, MemoryBackend,
    OnFailure, Policy, Quota, RateLimitLayer, RateLimitStatus, SettleError, Settlement, Share,
};
use tower::{Layer, ServiceExt, service_fn};

/// Answers a request after it was settled to each of these costs, one after the other.
async fn send(limiter: &Limiter, costs: &'static [u64]) -> (Response<Body>, Option<SettleError>) {
    let (tell, told) = oneshot::channel();
    let settling = Arc::new(Mutex::new(Some(tell)));
    let service = service_fn(move |request: Request<Body>| {
        let settling = Arc::clone(&settling);
        async move {
            let status: &RateLimitStatus = request.extensions().get().unwrap();
            let results = costs.iter().map(|cost| status.settle("tokens", *cost));
            let failed = results
                .filter_map(Result::err)
                .fold(None, |_, error| Some(error));
            settling
                .lock()
                .unwrap()
                .take()
                .unwrap()
                .send(failed)
                .unwrap();
            Ok::<_, Infallible>(Response::new(Body::default()))
        }
    });
    let service = RateLimitLayer::new(limiter).layer(service);
    let response = service.oneshot(from("10.0.0.1")).await.unwrap();
    (response, told.await.ok().flatten())
}

fn tokens() -> Limiter {
    let (backend, _) = at_a_standstill();
    let calls = Policy::new("calls", Quota::per_hour(10)).key(Global);
    let tokens = Policy::new("tokens", Quota::per_hour(1000))
        .key(Global)
        .cost(100);
    Limiter::builder()
        .policies([calls, tokens])
        .backend(backend)
        .build()
        .unwrap()
}

async fn left(limiter: &Limiter, policy: &str) -> u64 {
    let peek = limiter.check(policy, Key::global()).cost(0);
    peek.await.unwrap().remaining()
}

#[tokio::test]
async fn what_was_charged_too_much_comes_back_and_too_little_is_taken() {
    let cases: [(&[u64], u64); 8] = [
        (&[], 900),
        (&[100], 900),
        (&[40], 960),
        (&[0], 1000),
        (&[250], 750),
        // More is known later on.
        (&[10, 20, 300], 700),
        // Never lowered again, and the headers know.
        (&[250, 40], 750),
        // As it was charged is not raised.
        (&[100, 40], 960),
    ];
    for (costs, expected) in cases {
        let limiter = tokens();
        let (response, failed) = send(&limiter, costs).await;

        assert_eq!(failed, None);
        assert_eq!(left(&limiter, "tokens").await, expected, "{costs:?}");
        assert_eq!(left(&limiter, "calls").await, 9, "{costs:?}");
        // The headers speak of what is left after it.
        if expected < 900 {
            assert!(
                header(&response, "ratelimit").starts_with(&format!("\"tokens\";r={expected};"))
            );
        }
    }
}

/// Counts the corrections that it is asked for.
#[derive(Debug)]
struct Asked {
    backend: MemoryBackend,
    corrections: Arc<AtomicUsize>,
}

impl Backend for Asked {
    fn decide(&self, call: Call<'_>) -> Answer<Decision> {
        self.backend.decide(call)
    }

    fn settle(&self, settlement: Settlement<'_>) {
        self.corrections.fetch_add(1, Ordering::SeqCst);
        self.backend.settle(settlement);
    }

    fn admin(&self) -> &dyn Admin {
        self.backend.admin()
    }
}

#[tokio::test]
async fn a_cost_that_stays_as_it_is_is_heard_of_and_asks_the_backend_nothing() {
    let cases: [(&[u64], usize, usize); 4] = [
        (&[100], 1, 0),
        (&[100, 100], 2, 0),
        (&[250, 250], 2, 1),
        (&[250, 40], 1, 1),
    ];
    for (costs, heard, asked) in cases {
        let (corrections, settled) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (backend, count) = (
            Asked {
                backend: at_a_standstill().0,
                corrections: Arc::clone(&corrections),
            },
            Arc::clone(&settled),
        );
        let policy = Policy::new("tokens", Quota::per_hour(1000)).key(Global);
        let limiter = Limiter::builder()
            .policy(policy.cost(100))
            .backend(backend)
            .observe(move |event: &Event<'_>| {
                count.fetch_add(
                    usize::from(event.cause() == Cause::Settled),
                    Ordering::SeqCst,
                );
            })
            .build()
            .unwrap();

        send(&limiter, costs).await;

        let counted = [settled, corrections].map(|count| count.load(Ordering::SeqCst));
        assert_eq!(counted, [heard, asked], "{costs:?}");
    }
}

#[tokio::test]
async fn a_cost_beyond_what_is_left_is_a_debt() {
    let limiter = tokens();
    send(&limiter, &[3000]).await;

    let denied = limiter.check("tokens", Key::global()).await.unwrap();

    assert!(!denied.is_allowed());
    // 2,000 of debt and 100 for the next: 2,100 at 1,000 an hour.
    assert_eq!(denied.retry_after().unwrap().as_secs(), 2 * 3600 + 360);
}

#[tokio::test]
async fn a_policy_that_took_no_part_cannot_be_settled() {
    let limiter = Limiter::from(Policy::new("calls", Quota::per_hour(10)).key(Global));

    let (_, failed) = send(&limiter, &[5]).await;

    assert_eq!(
        failed.unwrap().to_string(),
        "policy \"tokens\": took no part in this request"
    );
    assert!(RateLimitStatus::default().settle("tokens", 1).is_err());
}

#[tokio::test]
async fn in_an_outage_there_is_nothing_to_be_settled() {
    for rule in [OnFailure::Allow, OnFailure::Local(Share::WHOLE)] {
        let backend = Waiting::new(at_a_standstill().0);
        backend.gate.add_permits(1000);
        backend.fail_with(Some(FailureKind::Unreachable));
        let tokens = Policy::new("tokens", Quota::per_hour(1000))
            .key(Global)
            .cost(100);
        let limiter = Limiter::builder()
            .policy(tokens.on_failure(rule))
            .backend(backend.clone())
            .build()
            .unwrap();

        let (_, failed) = send(&limiter, &[5]).await;

        assert_eq!(failed, None);
        backend.fail_with(None);
        assert_eq!(left(&limiter, "tokens").await, 1000);
    }
}

/// Settles what was sent of a stream when it is dropped, which is when it has ended or its reader has gone.
struct Meter {
    status: RateLimitStatus,
    sent: u64,
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.status.settle("tokens", self.sent).unwrap();
    }
}

#[tokio::test]
async fn a_stream_settles_when_it_has_ended_and_when_nobody_reads_it_any_more() {
    for (read, expected) in [(usize::MAX, 500), (2, 800), (0, 1000)] {
        // given a handler whose stream of five pieces costs a hundred tokens each
        let limiter = tokens();
        let service = service_fn(async |request: Request<Body>| {
            let status = request.extensions().get::<RateLimitStatus>().unwrap();
            let mut meter = Meter {
                status: status.clone(),
                sent: 0,
            };
            let pieces = tokio_stream::iter(0..5).map(move |_| {
                let meter = &mut meter;
                meter.sent += 100;
                Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"piece")))
            });
            Ok::<_, Infallible>(Response::new(UnsyncBoxBody::new(StreamBody::new(pieces))))
        });
        let service = RateLimitLayer::new(&limiter).layer(service);

        // when so much of it is read, long after the layer has done its part
        let response = service.oneshot(from("10.0.0.1")).await.unwrap();
        send(&limiter, &[]).await;
        assert_eq!(left(&limiter, "tokens").await, 800);
        let mut body = response.into_body();
        for _ in 0..read {
            if body.frame().await.is_none() {
                break;
            }
        }
        drop(body);

        // then that is what it has cost, beside the other request
        assert_eq!(left(&limiter, "tokens").await, expected - 100, "{read}");
    }
}
