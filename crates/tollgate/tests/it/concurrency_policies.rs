//! Held limits under policies that change, differ by tier, weigh, fail, or charge by the response as well.

#![cfg(feature = "axum")]

use std::convert::Infallible;
use std::time::Duration;

use crate::common::held::{Held, Streams, TWO};
use crate::common::served::Served;
use crate::common::{Waiting, at_a_standstill};
use axum::Router;
use axum::body::Body;
use axum::routing::{any, get, post};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use tollgate::key::Global;
use tollgate::{
    Cause, CheckOutcome, Concurrent, FailureKind, Hold, Key, Limiter, OnFailure, Policy, Quota,
    RateLimitLayer, Share, Tiers,
};
use tollgate_testkit::Log;
use tower::{Layer, ServiceExt, service_fn};

fn request() -> Request<Body> {
    Request::new(Body::empty())
}

fn at_once(limit: u64) -> Policy {
    Policy::new("held", Concurrent::at_most(limit)).key(Global)
}

#[tokio::test]
async fn what_is_held_counts_under_whatever_limit_replaces_the_one_it_was_taken_under() {
    let held = Held::two();
    let (first, second) = (held.take().await, held.take().await);

    // A higher limit lets more in, and a lower one no request until fewer are in.
    held.limiter.replace([at_once(3)]).unwrap();
    assert_eq!(held.free().await, 1);
    held.limiter.replace([at_once(1)]).unwrap();
    assert_eq!(held.free().await, 0);
    drop(first);
    assert_eq!(held.free().await, 0);
    let refused = held.limiter.check("held", Key::global()).await.unwrap();
    assert!(!refused.is_allowed() && refused.retry_after().is_none());

    // A policy that is gone still takes back what was held under it.
    let other = Policy::new("other", Quota::per_hour(1)).key(Global);
    held.limiter.replace([other]).unwrap();
    drop(second);
    held.limiter.replace([at_once(2)]).unwrap();
    assert_eq!((held.free().await, held.released()), (2, 2));
}

#[tokio::test]
async fn a_limiter_that_comes_to_hold_by_a_replacement_gives_back_as_any_other() {
    let limiter = Limiter::from(Policy::new("page", Quota::per_hour(100)).key(Global));
    let streams = Streams::default();
    let opened = streams.clone();
    let service = RateLimitLayer::new(&limiter)
        .without_headers()
        .without_status()
        .layer(service_fn(move |_: Request<Body>| {
            let body = Body::from_stream(opened.open());
            async move { Ok::<_, Infallible>(Response::new(body)) }
        }));
    let before = service.clone().oneshot(request()).await.unwrap();
    limiter.replace([at_once(1)]).unwrap();
    let free = async || {
        let probe = limiter.check("held", Key::global()).cost(0);
        probe.await.unwrap().remaining()
    };
    assert_eq!(free().await, 1);
    let after = service.clone().oneshot(request()).await.unwrap();
    assert_eq!(free().await, 0);
    drop(before);
    assert_eq!(free().await, 0);
    drop(after);
    assert_eq!(free().await, 1);
}

#[tokio::test]
async fn tiers_of_a_policy_share_one_count_and_each_has_its_own_limit() {
    // The tier of a caller changes between two requests.
    let paid = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let tier = std::sync::Arc::clone(&paid);
    let plan = move |_: Key| {
        let is_gold = tier.load(std::sync::atomic::Ordering::SeqCst);
        std::future::ready(Ok::<_, Infallible>(is_gold.then_some("gold")))
    };
    let tiers =
        Tiers::by_async(Duration::from_secs(300), plan).tier("gold", Concurrent::at_most(3));
    let held = Held::under(Policy::new("held", Concurrent::at_most(1)).tiers(tiers));
    let pay = |now: bool| {
        paid.store(now, std::sync::atomic::Ordering::SeqCst);
        held.limiter.forget_tier("held", Key::global()).unwrap();
    };

    let free = held.take().await;
    assert_eq!(held.free().await, 0);
    pay(true);
    assert_eq!(held.free().await, 2);
    let gold = [held.take().await, held.take().await];
    pay(false);
    assert_eq!(held.free().await, 0);
    drop(gold);
    assert_eq!(held.free().await, 0);
    drop(free);
    assert_eq!((held.free().await, held.released()), (1, 3));
}

#[tokio::test]
async fn weights_are_held_whole_and_what_weighs_nothing_holds_nothing() {
    let held = Held::under(Policy::new("held", Concurrent::at_most(5)));
    let ask = |cost| held.limiter.check("held", Key::global()).cost(cost);
    let heavy: CheckOutcome = ask(3).await.unwrap();
    assert!(heavy.is_allowed());
    assert!(!ask(3).await.unwrap().is_allowed());
    let never = ask(6).await.unwrap();
    assert!(!never.is_allowed() && never.verdicts()[0].never_passes());
    let light = ask(2).await.unwrap();
    assert_eq!(held.free().await, 0);

    // A cost of nothing and a probe pass or not, and hold nothing.
    assert!(ask(0).await.unwrap().is_allowed());
    assert!(!ask(1).probe().await.unwrap().is_allowed());
    drop(light);
    assert!(ask(2).probe().await.unwrap().is_allowed());
    assert_eq!((held.free().await, held.released()), (2, 1));
    drop(heavy);
    assert_eq!((held.free().await, held.released()), (5, 2));
}

#[tokio::test]
async fn what_was_held_before_a_reset_gives_nothing_back_of_what_is_held_since() {
    let (backend, clock) = at_a_standstill();
    let held = Held::on(Policy::new("held", TWO), backend);
    let before = held.take().await;
    clock.advance(Duration::from_micros(1));
    held.limiter.reset("held", Key::global()).await.unwrap();
    assert_eq!(held.free().await, 2);
    let since = [held.take().await, held.take().await];
    drop(before);
    assert_eq!(held.free().await, 0);
    drop(since);
    assert_eq!(held.free().await, 2);
}

#[tokio::test]
async fn each_outage_has_places_of_its_own_and_each_is_given_back_where_it_was_taken() {
    let backend = Waiting::new(at_a_standstill().0);
    backend.gate.add_permits(1_000);
    let local = OnFailure::Local(Share::WHOLE);
    let held = Held::on(Policy::new("held", TWO).on_failure(local), backend.clone());

    // given one that was taken before an outage, and two during it
    let before = held.take().await;
    backend.fail_with(Some(FailureKind::Unreachable));
    assert_eq!(held.free().await, 2);
    let (during, still) = (held.take().await, held.take().await);
    let refused = held.limiter.check("held", Key::global()).await.unwrap();
    assert!(!refused.is_allowed());
    drop(during);
    assert_eq!(held.free().await, 1);

    // when it is over, what was held in it is not the backend's to give back
    backend.fail_with(None);
    assert_eq!(held.free().await, 1);
    drop(still);
    assert_eq!(held.free().await, 1);
    drop(before);
    assert_eq!((held.free().await, held.released()), (2, 3));

    // and in the next outage all places are there
    backend.fail_with(Some(FailureKind::Unreachable));
    assert_eq!(held.free().await, 2);
    let receipts = held.take().await.into_receipts();
    assert!(receipts.is_empty(), "{receipts:?}");
    assert_eq!(held.free().await, 2);
}

#[tokio::test]
async fn quotas_beside_it_are_settled_by_the_response_and_what_is_held_is_not() {
    let both = || Policy::new("held", (Quota::per_hour(1_000), TWO)).key(Global);
    let left = async |limiter: &Limiter| {
        let probe = limiter.check("held", Key::global()).cost(0);
        let verdicts = probe.await.unwrap().verdicts().to_vec();
        [verdicts[0].remaining(), verdicts[1].remaining()]
    };
    let answer = |streams: &Streams| {
        let streams = streams.clone();
        service_fn(move |_: Request<Body>| {
            let body = Body::from_stream(streams.open());
            async move { Ok::<_, Infallible>(Response::new(body)) }
        })
    };
    for (policy, settled, at_its_end) in [
        (both().count_if(|_| false), 1_000, 1_000),
        (both().settle_by(|_| Some(40)), 960, 960),
        (both().settle_by_bytes(|sent| sent), 999, 995),
    ] {
        let (limiter, streams) = (Limiter::from(policy), Streams::default());
        let service = RateLimitLayer::new(&limiter).layer(answer(&streams));
        let response = service.oneshot(request()).await.unwrap();
        assert_eq!(left(&limiter).await, [settled, 1]);
        for sender in streams.0.lock().unwrap().iter() {
            let _sent = sender.try_send(Ok(Bytes::from_static(b"bytes")));
        }
        streams.close();
        let body = http_body_util::BodyExt::collect(response.into_body());
        assert_eq!(body.await.unwrap().to_bytes().len(), 5);
        assert_eq!(left(&limiter).await, [at_its_end, 2]);
    }
}

#[tokio::test]
async fn the_operator_hears_how_much_is_left_when_something_is_given_back() {
    let heard: std::sync::Arc<std::sync::Mutex<Vec<(Cause, u64, u64)>>> = Default::default();
    let log = std::sync::Arc::clone(&heard);
    let limiter = Limiter::builder()
        .policy(at_once(5))
        .observe(move |event: &tollgate::Event<'_>| {
            let verdict = event.verdict().unwrap();
            let line = (event.cause(), verdict.taken(), verdict.remaining());
            log.lock().unwrap().push(line);
        })
        .build()
        .unwrap();
    drop(limiter.check("held", Key::global()).cost(3).await.unwrap());
    let lines = heard.lock().unwrap().clone();
    assert_eq!(lines, [(Cause::Backend, 3, 2), (Cause::Released, 0, 5)]);
}

#[tokio::test]
async fn heads_redirects_fallbacks_and_unread_requests_give_back() {
    let held = Held::two();
    let nested = Router::new()
        .route("/x", get(|| async { "hello" }))
        .fallback(|| async { StatusCode::NOT_FOUND });
    let app = Router::new()
        .nest("/in", nested)
        .route("/text", get(|| async { "hello" }))
        .route(
            "/moved",
            get(async || axum::response::Redirect::to("/text")),
        )
        .route("/unread", post(|| async { StatusCode::PAYLOAD_TOO_LARGE }))
        .fallback(|| async { "nothing here" })
        .layer(held.layer());
    let served = Served::new(app).await;
    let large = "x".repeat(100_000);
    let mut sent = 0;
    for (method, path, body, expected) in [
        ("HEAD", "/text", "", 200),
        ("GET", "/moved", "", 303),
        ("GET", "/in/x", "", 200),
        ("GET", "/in/none", "", 404),
        ("GET", "/none", "", 200),
        ("DELETE", "/text", "", 405),
        ("POST", "/unread", large.as_str(), 413),
        ("POST", "/unread", "short", 413),
    ] {
        let answer = served.send(method.parse().unwrap(), path, body).await;
        assert_eq!(answer.status().as_u16(), expected, "{method} {path}");
        sent += 1;
        held.comes_to(2).await;
        assert_eq!(held.released(), sent, "{method} {path}");
    }
}

#[tokio::test]
async fn a_connection_that_is_upgraded_without_a_hold_is_told_of_once() {
    let switching = || {
        let mut answer = Response::new(Body::empty());
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        answer
    };
    let log = Log::default();
    let _listening = log.listen();

    // given a limiter of quotas, and a handler that keeps a hold
    let quotas = RateLimitLayer::new(Policy::new("page", Quota::per_hour(10)).key(Global));
    let plain = Router::new().route("/", any(async move || switching()));
    let _answer = plain.clone().layer(quotas).oneshot(request()).await;
    let held = Held::two();
    let kept_on = any(async move |hold: Hold| {
        let _kept = tokio::spawn(async move {
            tokio::task::yield_now().await;
            drop(hold);
        });
        switching()
    });
    let kept_on = Router::new().route("/", kept_on).layer(held.layer());
    let answer = kept_on.oneshot(request()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
    held.comes_to(2).await;
    assert_eq!(log.text(), "");

    // when handlers keep none
    for _ in 0..3 {
        let app = plain.clone().layer(held.layer());
        let _answer = app.oneshot(request()).await.unwrap();
        assert_eq!(held.free().await, 2);
    }

    // then the log says what is wrong, once
    let text = log.text();
    assert_eq!(text.matches("WARN").count(), 1, "{text}");
    assert!(text.contains("take a `Hold`"), "{text}");
}
