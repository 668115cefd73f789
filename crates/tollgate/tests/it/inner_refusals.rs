//! A request that a limit further in refuses costs nothing, and one that ran a handler costs what it costs: whatever a service in between
//! answers in place of the refusal, and however often it asks.

#![cfg(feature = "axum")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::at_a_standstill;
use crate::common::served::Served;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use http::StatusCode;
use tollgate::key::Global;
use tollgate::{
    Ban, Key, Limiter, ManualClock, MemoryBackend, MethodRouterExt, Policy, Quota, RateLimitLayer,
};
use tower::ServiceExt;

const REQUESTS: usize = 20;

fn policy(name: &str, limit: u64) -> Policy {
    Policy::new(name, Quota::per_hour(limit)).key(Global)
}

fn limiter(policies: impl IntoIterator<Item = Policy>) -> Limiter {
    let backend = at_a_standstill().0;
    let limiter = Limiter::builder().policies(policies).backend(backend);
    limiter.build().unwrap()
}

fn layer(policies: impl IntoIterator<Item = Policy>) -> RateLimitLayer {
    RateLimitLayer::new(limiter(policies))
}

/// The number of times that something ran.
#[derive(Clone, Debug, Default)]
struct Runs(Arc<AtomicU64>);

impl Runs {
    fn run(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// A handler with this answer.
    fn handler(&self, status: StatusCode) -> axum::routing::MethodRouter {
        let runs = self.clone();
        any(async move || {
            runs.run();
            status
        })
    }
}

/// The answers to requests that come one after the other.
async fn statuses(app: Router) -> Vec<u16> {
    let server = Served::new(app).await;
    server.statuses(["/"; REQUESTS]).await.to_vec()
}

fn count(statuses: &[u16], status: u16) -> usize {
    statuses.iter().filter(|one| **one == status).count()
}

/// The request, once more.
fn copy(parts: &http::request::Parts) -> Request {
    Request::from_parts(parts.clone(), Body::empty())
}

/// Asks once more a second later, after this answer.
async fn again(on: StatusCode, clock: &ManualClock, request: Request, next: Next) -> Response {
    let (parts, _body) = request.into_parts();
    let first = next.clone().run(copy(&parts)).await;
    if first.status() != on {
        return first;
    }
    clock.advance(Duration::from_secs(1));
    next.run(copy(&parts)).await
}

async fn again_on_429(State(clock): State<ManualClock>, request: Request, next: Next) -> Response {
    again(StatusCode::TOO_MANY_REQUESTS, &clock, request, next).await
}

async fn again_on_503(State(clock): State<ManualClock>, request: Request, next: Next) -> Response {
    again(StatusCode::SERVICE_UNAVAILABLE, &clock, request, next).await
}

/// Answers in place of a refusal.
async fn instead(
    State((runs, status)): State<(Runs, StatusCode)>,
    request: Request,
    next: Next,
) -> Response {
    let response = next.run(request).await;
    if response.status() != StatusCode::TOO_MANY_REQUESTS {
        return response;
    }
    runs.run();
    status.into_response()
}

/// Asks twice concurrently, and answers with the first success.
async fn hedged(request: Request, next: Next) -> Response {
    let (parts, _body) = request.into_parts();
    let (one, other) = tokio::join!(next.clone().run(copy(&parts)), next.run(copy(&parts)));
    if one.status().is_success() {
        one
    } else {
        other
    }
}

#[tokio::test]
async fn a_request_that_passes_at_the_second_attempt_is_charged() {
    let (runs, clock) = (Runs::default(), ManualClock::new());
    let inner = Policy::new("inner", Quota::per_second(1)).key(Global);
    let backend = MemoryBackend::builder().clock(clock.clone()).build();
    let inner = Limiter::builder().policy(inner).backend(backend).build();
    let app = Router::new()
        .route("/", runs.handler(StatusCode::OK))
        .layer(RateLimitLayer::new(inner.unwrap()))
        .layer(from_fn_with_state(clock, again_on_429))
        .layer(layer([policy("outer", 5)]));

    let statuses = statuses(app).await;

    assert_eq!((count(&statuses, 200), runs.count()), (5, 5));
}

#[tokio::test]
async fn a_request_that_is_answered_in_place_of_a_refusal_is_charged() {
    let (runs, fallback) = (Runs::default(), Runs::default());
    let state = (fallback.clone(), StatusCode::OK);
    let app = Router::new()
        .route("/", runs.handler(StatusCode::OK))
        .layer(layer([policy("inner", 1)]))
        .layer(from_fn_with_state(state, instead))
        .layer(layer([policy("outer", 5)]));

    let statuses = statuses(app).await;

    assert_eq!(count(&statuses, 200), 5);
    assert_eq!((runs.count(), fallback.count()), (1, 4));
}

/// Answers in place of a refusal, as a gRPC service does.
async fn instead_in_grpc(State(runs): State<Runs>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    if response.status() != StatusCode::TOO_MANY_REQUESTS {
        return response;
    }
    runs.run();
    [("grpc-status", "14")].into_response()
}

#[tokio::test]
async fn an_answer_in_grpc_in_place_of_a_refusal_is_charged() {
    let (runs, fallback) = (Runs::default(), Runs::default());
    let app = Router::new()
        .route("/", runs.handler(StatusCode::OK))
        .layer(layer([policy("inner", 1)]))
        .layer(from_fn_with_state(fallback.clone(), instead_in_grpc))
        .layer(layer([policy("outer", 5)]));

    let statuses = statuses(app).await;

    assert_eq!(count(&statuses, 200), 5);
    assert_eq!((runs.count(), fallback.count()), (1, 4));
}

#[tokio::test]
async fn a_refusal_further_in_is_no_strike_under_a_layer_without_status() {
    let ban = Ban::after(3, Duration::from_secs(3_600));
    let outer = policy("outer", 500).ban(ban);
    let outer = outer.strike_if(|response| response.status().is_client_error());
    let limiter = limiter([outer]);
    let app = Router::new()
        .route("/", any(async || "fresh").rate_limit("1/h"))
        .layer(layer([policy("inner", 1)]))
        .layer(RateLimitLayer::new(&limiter).without_status());

    let statuses = statuses(app).await;

    assert_eq!(
        (count(&statuses, 200), count(&statuses, 429)),
        (1, REQUESTS - 1)
    );
    let probe = limiter.check("outer", Key::global()).probe().await.unwrap();
    assert_eq!(probe.remaining(), 499);
}

#[tokio::test]
async fn an_answer_in_place_of_a_refusal_counts_as_a_strike() {
    let fallback = Runs::default();
    let state = (fallback.clone(), StatusCode::UNAUTHORIZED);
    let ban = Ban::after(3, Duration::from_secs(3_600));
    let outer = policy("outer", 500).ban(ban);
    let outer = outer.strike_if(|response| response.status() == StatusCode::UNAUTHORIZED);
    let app = Router::new()
        .route("/", any(async || "fresh").rate_limit("1/h"))
        .layer(from_fn_with_state(state, instead))
        .layer(layer([outer]));

    let statuses = statuses(app).await;

    assert_eq!((count(&statuses, 401), fallback.count()), (3, 3));
}

#[tokio::test]
async fn a_handler_that_ran_is_charged_though_the_second_attempt_is_refused() {
    let wide = || policy("outer", 100_000);
    for is_route in [false, true] {
        let (runs, clock) = (Runs::default(), ManualClock::new());
        let handler = runs.handler(StatusCode::SERVICE_UNAVAILABLE);
        let limited = if is_route {
            Router::new().route("/", handler.rate_limit_by("inner"))
        } else {
            Router::new()
                .route("/", handler)
                .layer(layer([policy("inner", 5)]))
        };
        let app = limited
            .layer(from_fn_with_state(clock, again_on_503))
            .layer(layer([wide(), policy("inner", 5).on_demand()]));

        let _statuses = statuses(app).await;

        assert_eq!(runs.count(), 5, "{is_route}");
    }
}

#[tokio::test]
async fn of_two_concurrent_attempts_the_one_that_ran_is_charged() {
    let runs = Runs::default();
    let route = runs.handler(StatusCode::OK).rate_limit_by("inner");
    let app = Router::new()
        .route("/", route)
        .layer(from_fn(hedged))
        .layer(layer([policy("outer", 20), policy("inner", 5).on_demand()]));

    let statuses = statuses(app).await;

    assert_eq!(runs.count(), 5);
    assert_eq!(count(&statuses, 200), 3);
}

#[tokio::test]
async fn what_a_handler_asks_further_in_with_its_own_request_is_charged() {
    let items = Runs::default();
    let inner = Router::new()
        .route("/", items.handler(StatusCode::OK))
        .layer(layer([policy("items", 5)]));
    let batch = any(async move |request: Request| {
        let (parts, _body) = request.into_parts();
        for _ in 0..10 {
            let Ok(item) = inner.clone().oneshot(copy(&parts)).await;
            if !item.status().is_success() {
                return StatusCode::ACCEPTED;
            }
        }
        StatusCode::OK
    });
    let app = Router::new()
        .route("/", batch)
        .layer(layer([policy("outer", 8)]));

    let statuses = statuses(app).await;

    assert_eq!(items.count(), 5);
    assert_eq!((count(&statuses, 202), count(&statuses, 429)), (8, 12));
}

/// The refusal of the innermost limit is the answer, so that only that one is spent.
#[tokio::test]
async fn a_refusal_behind_any_number_of_limits_costs_nothing() {
    let silent = layer([policy("silent", 100)])
        .without_status()
        .without_headers();
    let middle = limiter([policy("middle", 9), policy("route", 9).on_demand()]);
    let outer = limiter([policy("outer", 9)]);
    let route = any(async || "fresh")
        .rate_limit("2/h")
        .rate_limit_by("route");
    let inner = Router::new()
        .route("/", route)
        .layer(silent)
        .layer(RateLimitLayer::new(&middle));
    let app = Router::new()
        .fallback_service(inner)
        .layer(RateLimitLayer::new(&outer));

    let statuses = statuses(app).await;

    assert_eq!((count(&statuses, 200), count(&statuses, 429)), (2, 18));
    for (limiter, policy) in [(&outer, "outer"), (&middle, "middle"), (&middle, "route")] {
        let probe = limiter.check(policy, Key::global()).probe();
        assert_eq!(probe.await.unwrap().remaining(), 7, "{policy}");
    }
}
