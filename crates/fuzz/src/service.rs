//! A service behind a layer, asked without a runtime: the memory backend decides at once.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tollgate::RateLimitLayer;
use tower_layer::Layer;
use tower_service::Service;

/// Answers 200.
#[derive(Clone, Copy)]
struct Fine;

impl Service<Request<()>> for Fine {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::default()))
    }
}

/// The answer to a request.
pub(crate) fn answer(layer: &RateLimitLayer, request: Request<()>) -> Response<Full<Bytes>> {
    let mut service = layer.layer(Fine);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut cx).is_ready());
    match pin!(service.call(request)).poll(&mut cx) {
        Poll::Ready(Ok(response)) => response,
        Poll::Pending => panic!("memory decides at once"),
    }
}
