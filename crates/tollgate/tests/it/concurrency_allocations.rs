//! The allocations of a request under a held limit, beside those that it has under a quota.

#![cfg(feature = "axum")]

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use allocation_counter::measure;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tollgate::key::Global;
use tollgate::{Concurrent, Limiter, Policy, Quota, RateLimitLayer};
use tower_layer::Layer;
use tower_service::Service;

const REQUESTS: u64 = 100;

/// Answers with this text.
#[derive(Clone)]
struct Answer(&'static str);

impl Service<Request<()>> for Answer {
    type Response = Response<axum::body::Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: Request<()>) -> Self::Future {
        let body = Full::new(Bytes::from_static(self.0.as_bytes()));
        ready(Ok(Response::new(axum::body::Body::new(body))))
    }
}

/// The allocations of a request until its body has been read, after one that does not count. Handlers read the status, unless
/// `is_silent`.
fn allocations(policy: Policy, text: &'static str, is_silent: bool) -> u64 {
    let limiter = Limiter::builder().policy(policy.key(Global)).build();
    let layer = RateLimitLayer::new(limiter.unwrap()).without_headers();
    let layer = if is_silent {
        layer.without_status()
    } else {
        layer
    };
    let mut service = layer.layer(Answer(text));
    let mut cx = Context::from_waker(Waker::noop());
    let mut serve = || {
        let Poll::Ready(response) = pin!(service.call(Request::new(()))).poll(&mut cx) else {
            panic!("it waits");
        };
        let response = response.unwrap();
        assert!(response.status().is_success());
        let Poll::Ready(body) = pin!(response.into_body().collect()).poll(&mut cx) else {
            panic!("the body waits");
        };
        assert_eq!(body.unwrap().to_bytes(), text);
    };
    serve();
    let all = measure(|| (0..REQUESTS).for_each(|_| serve())).count_total;
    assert_eq!(all % REQUESTS, 0, "{all} of {REQUESTS} requests");
    all / REQUESTS
}

/// The box of the wrapper, and the box of the work that it does at the end.
const WRAPPER: u64 = 2;

/// The handle that owns what is held, in a layer that has none for handlers: a limit further in may add its own to it.
const HANDLE: u64 = 1;

#[test]
fn what_is_held_allocates_for_the_wrapper_of_a_body_that_has_not_ended_and_for_nothing_else() {
    let quota = || Policy::new("quota", Quota::per_second(1_000_000));
    let held = || Policy::new("held", Concurrent::at_most(1));
    // One place is enough: each request has given it back before the next one comes.
    for (text, wrapper) in [("", 0), ("text", WRAPPER)] {
        for (is_silent, handle) in [(false, 0), (true, HANDLE)] {
            let beside = allocations(quota(), text, is_silent);
            let held = allocations(held(), text, is_silent);
            assert_eq!(
                held,
                beside + handle + wrapper,
                "{text:?}, silent: {is_silent}"
            );
        }
    }
}
