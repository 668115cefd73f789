//! The layer keeps tower's contract to the letter, whether the backend answers now or later.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::common::{Body, Strict, Waiting, at_a_standstill, from};
use http::{Request, Response};
use tokio::sync::Semaphore;
use tollgate::key::Global;
use tollgate::{Limiter, Policy, Quota, RateLimitLayer, key};
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_test::{assert_request_eq, mock};

fn assert_pending<T>(poll: &Poll<T>) {
    assert!(poll.is_pending());
}

async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx))).await
}

async fn poll_ready_once<S: Service<Request<Body>>>(service: &mut S) -> Poll<Result<(), S::Error>> {
    poll_fn(|cx| Poll::Ready(service.poll_ready(cx))).await
}

/// One request per hour for all callers, decided at once.
fn one_an_hour() -> RateLimitLayer {
    RateLimitLayer::new(Policy::new("one", Quota::per_hour(1)).key(Global))
}

/// One request per hour for all callers, decided when the test lets it.
fn one_an_hour_later() -> (RateLimitLayer, Waiting) {
    let backend = Waiting::new(at_a_standstill().0);
    let limiter = Limiter::builder()
        .policy(Policy::new("one", Quota::per_hour(1)).key(Global))
        .backend(backend.clone())
        .build()
        .unwrap();
    (RateLimitLayer::new(limiter), backend)
}

#[test]
fn layers_and_services_are_send_sync_and_clone() {
    fn assert<T: Send + Sync + Clone + 'static>() {}
    fn assert_send<T: Send>(_: &T) {}

    assert::<RateLimitLayer>();
    assert::<Limiter>();
    assert::<Policy>();
    assert::<tollgate::RateLimitService<Strict>>();
    assert_send(
        &one_an_hour()
            .layer(Strict::default())
            .oneshot(from("10.0.0.1")),
    );
}

#[tokio::test]
async fn only_a_service_that_was_found_ready_is_called_when_the_decision_is_there() {
    let strict = Strict::default();
    let mut service = RateLimitLayer::new(Quota::per_hour(2)).layer(strict.clone());

    for _ in 0..4 {
        service
            .ready()
            .await
            .unwrap()
            .call(from("10.0.0.1"))
            .await
            .unwrap();
    }

    assert_eq!(strict.calls(), 2);
}

#[tokio::test]
async fn pitfall_inner_call_on_a_fresh_clone_that_was_never_polled_ready() {
    let strict = Strict::default();
    let (layer, backend) = one_an_hour_later();
    let mut service = layer.layer(strict.clone());

    // Two decisions wait at once: each holds the service that was found ready for it.
    let first = service.ready().await.unwrap().call(from("10.0.0.1"));
    let second = service.ready().await.unwrap().call(from("10.0.0.1"));
    assert_eq!(backend.pending(), 2);
    backend.gate.add_permits(2);

    assert_eq!(first.await.unwrap().status(), 200);
    assert_eq!(second.await.unwrap().status(), 429);
    assert_eq!(strict.calls(), 1);
}

/// The wait is in the response: a request that waits keeps no other from being decided.
#[tokio::test]
async fn while_a_request_waits_for_its_turn_the_service_is_ready() {
    let strict = Strict::default();
    let quota = Quota::per_hour(1).wait_up_to(Duration::from_secs(3_600));
    let limiter = Limiter::from(Policy::new("slow", quota).key(Global));
    let mut service = RateLimitLayer::new(&limiter).layer(strict.clone());
    let first = service.ready().await.unwrap().call(from("10.0.0.1"));
    assert_eq!(first.await.unwrap().status(), 200);
    let mut waits = Box::pin(service.ready().await.unwrap().call(from("10.0.0.1")));
    assert_pending(&poll_once(&mut waits).await);
    assert_eq!(limiter.waiting(), 1);

    assert!(poll_ready_once(&mut service).await.is_ready());

    let refused = service.call(from("10.0.0.1")).await.unwrap();
    assert_eq!(refused.status(), 429);
    assert_eq!((limiter.waiting(), strict.calls()), (1, 1));
}

#[tokio::test]
async fn pitfall_the_inner_service_called_before_the_check() {
    let strict = Strict::default();
    let service = one_an_hour().layer(strict.clone());

    let mut denied = 0;
    for _ in 0..4 {
        let response = service.clone().oneshot(from("10.0.0.1")).await.unwrap();
        denied += usize::from(response.status() == 429);
    }

    assert_eq!((denied, strict.calls()), (3, 1));
}

#[tokio::test]
async fn back_pressure_passes_through() {
    let (mut service, mut handle) =
        mock::spawn_with(|inner: mock::Mock<Request<Body>, Response<Body>>| {
            one_an_hour().layer(inner)
        });

    handle.allow(0);
    assert_pending(&service.poll_ready());
    handle.allow(1);
    assert!(service.poll_ready().is_ready());

    let response = service.call(from("10.0.0.1"));
    let (_, send) = handle.next_request().await.unwrap();
    send.send_response(Response::new(Body::default()));
    assert_eq!(response.await.unwrap().status(), 200);
}

#[tokio::test]
async fn an_error_of_the_service_comes_out_as_it_is() {
    let (mut service, mut handle) =
        mock::spawn_with(|inner: mock::Mock<Request<Body>, Response<Body>>| {
            one_an_hour().layer(inner)
        });

    assert!(service.poll_ready().is_ready());
    let response = service.call(from("10.0.0.1"));
    handle.next_request().await.unwrap().1.send_error("broken");

    assert_eq!(response.await.unwrap_err().to_string(), "broken");
}

#[tokio::test]
async fn the_request_reaches_the_service_as_it_came() {
    let (mut service, mut handle) = mock::spawn_with(|inner: mock::Mock<&str, Response<Body>>| {
        // The mock compares plain values, so the request is reduced to what is to be compared.
        one_an_hour().layer(
            ServiceBuilder::new()
                .map_request(|request: Request<&'static str>| {
                    assert_eq!(request.headers()["x-kept"], "yes");
                    request.into_body()
                })
                .service(inner),
        )
    });

    assert!(service.poll_ready().is_ready());
    let request = Request::builder()
        .header("x-kept", "yes")
        .body("the body")
        .unwrap();
    let response = service.call(request);
    assert_request_eq!(handle, "the body").send_response(Response::new(Body::default()));
    response.await.unwrap();
}

#[tokio::test]
async fn a_concurrency_limit_inside_is_respected() {
    for later in [false, true] {
        let (layer, backend) = one_an_hour_later();
        let layer = if later { layer } else { one_an_hour() };
        backend.gate.add_permits(10);
        let stack = ServiceBuilder::new()
            .layer(layer)
            .layer(ConcurrencyLimitLayer::new(1));
        let mut service = stack.service(Strict::default());

        // Panics if the layer calls a clone that has no permit.
        let passed = service
            .ready()
            .await
            .unwrap()
            .call(from("10.0.0.1"))
            .await
            .unwrap();
        let denied = service
            .ready()
            .await
            .unwrap()
            .call(from("10.0.0.1"))
            .await
            .unwrap();

        assert_eq!(
            (passed.status().as_u16(), denied.status().as_u16()),
            (200, 429)
        );
    }
}

#[tokio::test]
async fn a_concurrency_limit_outside_is_respected() {
    let (layer, backend) = one_an_hour_later();
    let stack = ServiceBuilder::new()
        .layer(ConcurrencyLimitLayer::new(1))
        .layer(layer);
    let mut service = stack.service(Strict::default());
    let mut other = service.clone();

    let waiting = service.ready().await.unwrap().call(from("10.0.0.1"));
    assert_pending(&poll_ready_once(&mut other).await);
    drop(waiting);

    assert!(poll_ready_once(&mut other).await.is_ready());
    assert_eq!(backend.pending(), 0);
}

#[tokio::test]
async fn a_denial_does_not_keep_the_permit_that_readiness_reserved() {
    // given a connection whose only request was denied and that stays open
    let stack = ServiceBuilder::new()
        .layer(one_an_hour())
        .layer(ConcurrencyLimitLayer::new(1));
    let service = stack.service(Strict::default());
    let mut idle = service.clone();
    service.clone().oneshot(from("10.0.0.1")).await.unwrap();
    let denied = idle
        .ready()
        .await
        .unwrap()
        .call(from("10.0.0.1"))
        .await
        .unwrap();
    assert_eq!(denied.status(), 429);

    // when another connection wants to be served
    let mut other = service.clone();

    // then nothing keeps it waiting
    assert!(poll_ready_once(&mut other).await.is_ready());
}

#[tokio::test]
async fn a_client_that_goes_away_while_the_decision_waits_leaves_nothing_behind() {
    let strict = Strict::default();
    let (layer, backend) = one_an_hour_later();
    let stack = ServiceBuilder::new()
        .layer(layer)
        .layer(ConcurrencyLimitLayer::new(1));
    let mut service = stack.service(strict.clone());
    let mut other = service.clone();

    let mut waiting = Box::pin(service.ready().await.unwrap().call(from("10.0.0.1")));
    assert_pending(&poll_once(&mut waiting).await);
    assert_eq!(backend.pending(), 1);
    drop(waiting);

    // The decision was withdrawn, the permit is free, the service was not called, and the budget is whole.
    assert_eq!((backend.pending(), strict.calls()), (0, 0));
    assert!(poll_ready_once(&mut other).await.is_ready());
    backend.gate.add_permits(1);
    assert_eq!(other.call(from("10.0.0.1")).await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_client_that_goes_away_while_the_service_works_takes_the_service_s_future_along() {
    let alive = Arc::new(());
    let held = Arc::clone(&alive);
    let service = service_fn(move |_: Request<Body>| {
        let held = Arc::clone(&held);
        async move {
            let _held = held;
            std::future::pending::<Result<Response<Body>, Infallible>>().await
        }
    });
    let mut response = Box::pin(one_an_hour().layer(service).oneshot(from("10.0.0.1")));

    assert_pending(&poll_once(&mut response).await);
    drop(response);

    assert_eq!(Arc::strong_count(&alive), 1);
}

#[tokio::test]
async fn a_client_that_goes_away_before_anybody_asked_for_its_answer_leaves_nothing_behind() {
    let strict = Strict::default();
    let (layer, backend) = one_an_hour_later();
    let mut service = layer.layer(strict.clone());

    drop(service.ready().await.unwrap().call(from("10.0.0.1")));

    assert_eq!((backend.pending(), strict.calls()), (0, 0));
    backend.gate.add_permits(1);
    let next = service.oneshot(from("10.0.0.1")).await.unwrap();
    assert_eq!(next.status(), 200);
}

#[tokio::test]
async fn a_client_that_goes_away_while_its_key_is_looked_up_is_charged_nothing() {
    let strict = Strict::default();
    let known = Arc::new(Semaphore::new(0));
    let looked_up = Arc::clone(&known);
    let key = key::from_async_fn(move |_| {
        let looked_up = Arc::clone(&looked_up);
        async move { looked_up.acquire().await.ok().map(|_| "anna") }
    });
    let layer = RateLimitLayer::new(Policy::new("one", Quota::per_hour(1)).key_async(key));
    let mut service = layer.layer(strict.clone());

    let mut waiting = Box::pin(service.ready().await.unwrap().call(from("10.0.0.1")));
    assert_pending(&poll_once(&mut waiting).await);
    drop(waiting);

    assert_eq!((Arc::strong_count(&known), strict.calls()), (2, 0));
    known.add_permits(1);
    let next = service.oneshot(from("10.0.0.1")).await.unwrap();
    assert_eq!(next.status(), 200);
}

#[tokio::test]
async fn a_client_that_goes_away_with_its_refusal_unread_leaves_the_service_free() {
    let stack = ServiceBuilder::new()
        .layer(one_an_hour())
        .layer(ConcurrencyLimitLayer::new(1));
    let service = stack.service(Strict::default());
    service.clone().oneshot(from("10.0.0.1")).await.unwrap();

    let mut refused = service.clone();
    drop(refused.ready().await.unwrap().call(from("10.0.0.1")));

    assert!(poll_ready_once(&mut service.clone()).await.is_ready());
}

#[tokio::test]
async fn clones_of_layers_and_services_share_their_budgets() {
    let layer = one_an_hour();
    let one = layer.layer(Strict::default());
    let other = layer.clone().layer(Strict::default());

    let mut passed = 0;
    for service in [one.clone(), other.clone(), one, other] {
        let response = service.oneshot(from("10.0.0.1")).await.unwrap();
        passed += usize::from(response.status() == 200);
    }

    assert_eq!(passed, 1);
}

#[tokio::test]
async fn the_service_need_not_be_an_http_server_s() {
    // Any request body, any error: only the response's body has to be one that an answer can be made of.
    struct NotEvenABody;
    let service = service_fn(|_: Request<NotEvenABody>| async {
        Ok::<_, std::io::Error>(Response::new(Body::default()))
    });

    let response = one_an_hour()
        .layer(service)
        .oneshot(Request::new(NotEvenABody))
        .await
        .unwrap();

    assert_eq!(response.status(), 200);
}
