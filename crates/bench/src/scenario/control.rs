//! The cost of `http` itself for the work of a layer: no layer that does this work can cost less.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::task::{Context, Poll};

use axum::body::Body;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use tower::Service;

/// A service that puts an entry of a pointer's size into the request's extensions, if told so, and answers with a copy of
/// these headers.
#[derive(Clone, Debug)]
pub(super) struct Control {
    has_entry: bool,
    headers: HeaderMap,
}

#[derive(Clone, Debug)]
struct Entry(#[expect(dead_code, reason = "it is there to take its room")] usize);

impl Control {
    pub(super) fn entry() -> Self {
        Self {
            has_entry: true,
            headers: HeaderMap::new(),
        }
    }

    pub(super) fn headers() -> Self {
        let fields = [
            ("ratelimit", "\"default\";r=999999;t=1"),
            ("ratelimit-policy", "\"default\";q=1000000;w=86400"),
        ];
        let fields = fields.map(|(name, value)| {
            let name = HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        });
        Self {
            has_entry: false,
            headers: HeaderMap::from_iter(fields),
        }
    }

    pub(super) fn both() -> Self {
        Self {
            has_entry: true,
            ..Self::headers()
        }
    }
}

impl Service<Request<Body>> for Control {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if self.has_entry {
            request.extensions_mut().insert(Entry(0));
        }
        black_box(request);
        let mut response = Response::new(Body::empty());
        if !self.headers.is_empty() {
            *response.headers_mut() = self.headers.clone();
        }
        ready(Ok(response))
    }
}
