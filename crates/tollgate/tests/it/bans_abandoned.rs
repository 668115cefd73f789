//! Strikes of requests whose callers go away before the response, over sockets, in memory and on a real Redis.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use crate::common::in_redis;
use crate::common::served::Served;
use axum::Router;
use axum::body::Body;
use axum::routing::post;
use http::{Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tollgate::key::Global;
use tollgate::{Backend, Ban, Limiter, MemoryBackend, Policy, Quota, RateLimitLayer};
use tollgate_testkit::Standalone;
use tower::{Layer, Service, ServiceExt, service_fn};

const GUESSES: u8 = 5;

/// Wrong logins are strikes, and nothing else is limited.
fn limiter(backend: impl Backend) -> Limiter {
    let hour = Duration::from_secs(3_600);
    let policy = Policy::new("login", Quota::per_day(1_000_000))
        .key(Global)
        .ban(Ban::after(u64::from(GUESSES), hour).lasting(hour))
        .strike_if(|response| response.status() == StatusCode::UNAUTHORIZED);
    let limiter = Limiter::builder().policy(policy).backend(backend);
    limiter.build().unwrap()
}

/// A service that answers a right password, fails without an answer for "broken", and takes its time for a wrong one.
fn logins(
    limiter: &Limiter,
) -> impl Service<Request<Body>, Response = Response<Body>, Error = &'static str> + Clone {
    let serve = service_fn(|request: Request<Body>| async move {
        match request.uri().path() {
            "/right" => Ok(Response::new(Body::empty())),
            "/broken" => Err("broken"),
            _ => pending().await,
        }
    });
    RateLimitLayer::new(limiter).layer(serve)
}

fn request(path: &str) -> Request<Body> {
    Request::post(path).body(Body::empty()).unwrap()
}

#[tokio::test]
async fn a_request_that_is_abandoned_is_a_strike_and_no_other_is() {
    let limiter = limiter(MemoryBackend::new());
    let logins = logins(&limiter);
    for _ in 0..3 * GUESSES {
        let right = logins.clone().oneshot(request("/right")).await;
        assert_eq!(right.unwrap().status(), 200);
        let broken = logins.clone().oneshot(request("/broken")).await;
        assert_eq!(broken.unwrap_err(), "broken");
    }
    // A request that was not begun is none.
    drop(logins.clone().oneshot(request("/wrong")));

    for _ in 0..GUESSES {
        let guess = logins.clone().oneshot(request("/wrong"));
        timeout(Duration::ZERO, guess).await.unwrap_err();
    }

    let banned = logins.clone().oneshot(request("/right")).await;
    assert_eq!(banned.unwrap().status(), 429);
}

/// A panic of the service is not the caller's fault.
#[tokio::test]
async fn a_panic_is_no_strike() {
    let limiter = limiter(MemoryBackend::new());
    let panics = service_fn(|request: Request<Body>| async move {
        assert_eq!(request.uri().path(), "/right");
        Ok::<_, Infallible>(Response::new(Body::empty()))
    });
    let logins = RateLimitLayer::new(&limiter).layer(panics);
    for _ in 0..2 * GUESSES {
        let guess = tokio::spawn(logins.clone().oneshot(request("/wrong")));
        assert!(guess.await.unwrap_err().is_panic());
    }

    let right = logins.oneshot(request("/right")).await.unwrap();
    assert_eq!(right.status(), 200);
}

/// A server answers a wrong password late, so that its clients would learn by hanging up early which one is right.
#[tokio::test]
async fn who_hangs_up_early_is_banned_all_the_same() {
    const MOST: u32 = 200;
    let server = Standalone::start();
    let redis = in_redis(&server.url()).await;
    let limiters = [limiter(MemoryBackend::new()), limiter(redis)];
    for (limiter, is_http_2) in limiters.iter().flat_map(|it| [(it, false), (it, true)]) {
        let begun = Arc::new(Semaphore::new(0));
        let beginning = Arc::clone(&begun);
        let wrong = move || async move {
            beginning.add_permits(1);
            pending::<StatusCode>().await
        };
        let app = Router::new().route("/login", post(wrong));
        let served = Served::new(app.layer(RateLimitLayer::new(limiter))).await;
        let client = Client::builder(TokioExecutor::new())
            .http2_only(is_http_2)
            .build_http::<Body>();
        let mut guesses = 0;
        let banned = loop {
            let guess = client.request(request(&format!("http://{}/login", served.0)));
            tokio::select! {
                answer = guess => break answer.unwrap().status(),
                permit = begun.acquire() => permit.unwrap().forget(),
            }
            guesses += 1;
            assert!(guesses < MOST);
            // The server learns of it a moment later.
            tokio::time::sleep(Duration::from_millis(2)).await;
        };
        assert_eq!(banned, 429);
        limiter
            .unban("login", tollgate::Key::global())
            .await
            .unwrap();
    }
}
