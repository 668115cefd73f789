//! Charging by what came of a request.

use std::convert::Infallible;
use std::time::Duration;

use crate::common::header;
use axum::body::Body;
use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tollgate::key::Global;
use tollgate::{Key, Limiter, Policy, Quota, RateLimitLayer};
use tower::{Layer, ServiceExt, service_fn};

fn limiter(policy: Policy) -> Limiter {
    let policy = policy.key(Global);
    Limiter::builder().policy(policy).build().unwrap()
}

/// Answers with the status that the path names, and what it says about its cost.
async fn serve(request: Request<Body>) -> Result<Response<Body>, Infallible> {
    let path = request.uri().path().trim_start_matches('/').to_owned();
    let (status, cost) = path.split_once('/').unwrap_or((&path, ""));
    let mut response = Response::new(Body::from("0123456789"));
    *response.status_mut() = status.parse().unwrap();
    if !cost.is_empty() {
        response
            .headers_mut()
            .insert("x-cost", cost.parse().unwrap());
    }
    Ok(response)
}

async fn send(limiter: &Limiter, path: &str) -> Response<Body> {
    let layer = RateLimitLayer::new(limiter);
    let request = Request::get(path).body(Body::empty()).unwrap();
    layer
        .layer(service_fn(serve))
        .oneshot(request)
        .await
        .unwrap()
}

async fn left(limiter: &Limiter) -> u64 {
    limiter
        .check("api", Key::global())
        .cost(0)
        .await
        .unwrap()
        .remaining()
}

#[tokio::test]
async fn only_failed_logins_count() {
    let policy =
        Policy::new("api", Quota::per_hour(2)).count_if(|response| response.status() == 401);
    let limiter = limiter(policy);

    for _ in 0..20 {
        assert_eq!(send(&limiter, "/200").await.status(), 200);
    }
    assert_eq!(send(&limiter, "/401").await.status(), 401);
    let second = send(&limiter, "/401").await;
    assert_eq!(
        (second.status(), header(&second, "ratelimit")),
        (StatusCode::UNAUTHORIZED, "\"api\";r=0;t=3600")
    );
    // Even with the right password now: the limiter does not know the answer yet.
    assert_eq!(send(&limiter, "/200").await.status(), 429);
}

#[tokio::test]
async fn a_thousand_logins_at_once_do_not_slip_through() {
    // given a service that is slow to say that a login has failed
    let policy =
        Policy::new("api", Quota::per_hour(5)).count_if(|response| response.status() == 401);
    let layer = RateLimitLayer::new(limiter(policy));
    let service = layer.layer(service_fn(|request| async move {
        tokio::time::sleep(Duration::from_millis(20)).await;
        serve(request).await
    }));

    // when a thousand come before the first has failed
    let mut attempts = tokio::task::JoinSet::new();
    for _ in 0..1000 {
        let request = Request::get("/401").body(Body::empty()).unwrap();
        attempts.spawn(service.clone().oneshot(request));
    }

    // then no more reach it than may fail
    let statuses = attempts
        .join_all()
        .await
        .into_iter()
        .map(|response| response.unwrap().status());
    assert_eq!(statuses.filter(|status| *status == 401).count(), 5);
}

#[tokio::test]
async fn a_server_s_own_errors_are_free_and_the_headers_know() {
    let policy = Policy::new("api", Quota::per_hour(3))
        .free_if(|response| response.status().is_server_error());
    let limiter = limiter(policy);

    let failed = send(&limiter, "/503").await;
    assert!(header(&failed, "ratelimit").starts_with("\"api\";r=3;"));
    assert_eq!(left(&limiter).await, 3);
    let served = send(&limiter, "/200").await;
    assert_eq!(header(&served, "ratelimit"), "\"api\";r=2;t=1200");
}

#[tokio::test]
async fn the_response_says_what_it_cost() {
    let cost = |response: &tollgate::ResponseView<'_>| {
        response
            .headers()
            .get("x-cost")?
            .to_str()
            .ok()?
            .parse()
            .ok()
    };
    let limiter = limiter(
        Policy::new("api", Quota::per_hour(1000))
            .cost(100)
            .settle_by(cost),
    );

    send(&limiter, "/200/40").await;
    assert_eq!(left(&limiter).await, 960);
    send(&limiter, "/200/260").await;
    assert_eq!(left(&limiter).await, 700);
    // A response that states no cost costs what was charged.
    send(&limiter, "/200").await;
    assert_eq!(left(&limiter).await, 600);
}

#[tokio::test]
async fn without_headers_and_status_outcomes_count_all_the_same() {
    let limiter = limiter(Policy::new("api", Quota::per_hour(2)).count_if(|_| false));
    let layer = RateLimitLayer::new(&limiter)
        .without_headers()
        .without_status();

    for _ in 0..5 {
        let request = Request::get("/200").body(Body::empty()).unwrap();
        let response = layer
            .layer(service_fn(serve))
            .oneshot(request)
            .await
            .unwrap();
        assert_eq!(response.status(), 200);
    }
}

#[tokio::test]
async fn what_was_sent_is_charged_when_the_body_has_ended() {
    let limiter =
        limiter(Policy::new("api", Quota::per_hour(1000)).settle_by_bytes(|bytes| bytes * 2));

    let response = send(&limiter, "/200").await;
    // The body's hints do not show that it is watched.
    assert_eq!(response.body().size_hint().exact(), Some(10));
    assert!(!response.body().is_end_stream());
    assert_eq!(left(&limiter).await, 999);
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "0123456789"
    );

    assert_eq!(left(&limiter).await, 980);
}

#[tokio::test]
async fn a_watched_body_that_is_empty_says_so_and_costs_one_unit() {
    let limiter = limiter(Policy::new("api", Quota::per_hour(1000)).settle_by_bytes(|bytes| bytes));
    let service =
        service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty())));
    let service = RateLimitLayer::new(&limiter).layer(service);

    let response = service.oneshot(Request::new(Body::empty())).await.unwrap();

    // As a server asks that sends no body then, and never reads it.
    assert!(response.body().is_end_stream());
    drop(response);
    // The service has run, as it does for HEAD.
    assert_eq!(left(&limiter).await, 999);
}

#[tokio::test]
async fn a_stream_that_nobody_reads_to_its_end_is_charged_for_what_was_sent() {
    // given an endless stream
    let limiter = limiter(Policy::new("api", Quota::per_hour(1000)).settle_by_bytes(|bytes| bytes));
    let (sender, receiver) = mpsc::channel::<Result<Bytes, Infallible>>(10);
    let stream = std::sync::Mutex::new(Some(ReceiverStream::new(receiver)));
    let stream = std::sync::Arc::new(stream);
    let service = RateLimitLayer::new(&limiter).layer(service_fn(move |_: Request<Body>| {
        let stream = stream.lock().unwrap().take().unwrap();
        async move { Ok::<_, Infallible>(Response::new(Body::from_stream(stream))) }
    }));
    let response = service.oneshot(Request::new(Body::empty())).await.unwrap();
    assert_eq!(response.headers().get(CONTENT_LENGTH), None);

    // when the caller goes away after three pieces
    let mut body = response.into_body().into_data_stream();
    for _ in 0..3 {
        sender.send(Ok(Bytes::from_static(&[7; 50]))).await.unwrap();
        body.next().await.unwrap().unwrap();
    }
    assert_eq!(left(&limiter).await, 999);
    drop(body);

    // then that is what it pays
    assert_eq!(left(&limiter).await, 850);
}

#[tokio::test]
async fn who_goes_away_before_there_is_a_response_stays_charged() {
    // given a policy that counts failures, and a service that takes its time
    let policy =
        Policy::new("api", Quota::per_hour(3)).count_if(|response| response.status() == 401);
    let limiter = limiter(policy);
    let service = service_fn(async |_: Request<Body>| {
        std::future::pending::<Result<Response<Body>, Infallible>>().await
    });
    let service = RateLimitLayer::new(&limiter).layer(service);

    // when a caller goes away before it has heard the outcome
    let request = Request::get("/").body(Body::empty()).unwrap();
    let waits = tokio::time::timeout(Duration::from_millis(10), service.oneshot(request));
    assert!(waits.await.is_err());

    // then a caller cannot try for free by going away
    assert_eq!(left(&limiter).await, 2);
}

#[tokio::test]
async fn a_service_that_fails_without_a_response_leaves_what_was_charged() {
    let limiter = limiter(Policy::new("api", Quota::per_hour(3)).free_if(|_| true));
    let service = service_fn(async |_: Request<Body>| {
        Err::<Response<Body>, _>(std::io::Error::other("broken"))
    });
    let service = RateLimitLayer::new(&limiter).layer(service);

    let request = Request::get("/").body(Body::empty()).unwrap();
    assert!(service.oneshot(request).await.is_err());

    assert_eq!(left(&limiter).await, 2);
}
