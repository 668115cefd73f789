//! The bodies of allowed responses pass as they are: not wrapped, not boxed, nothing allocated for them.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use allocation_counter::measure;
use axum::extract::ConnectInfo;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::Full;
use tollgate::{Quota, RateLimitLayer};
use tower::{Layer, Service};

const TEXT: &[u8] = b"hello, world";

/// Answers with a body of one frame, in the framework's own type.
#[derive(Clone)]
struct Answer<F>(F);

impl<F: Fn(Full<Bytes>) -> B, B> Service<Request<()>> for Answer<F> {
    type Response = Response<B>;
    type Error = Infallible;
    type Future = Ready<Result<Response<B>, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: Request<()>) -> Self::Future {
        ready(Ok(Response::new((self.0)(Full::from(TEXT)))))
    }
}

#[test]
fn the_body_of_an_allowed_response_costs_no_allocation() {
    same("axum", axum::body::Body::new);
    same("tonic", tonic::body::Body::new);
}

/// The number of allocations up to the last frame is the same with the layer as without. Headers and status, which do not
/// belong to the body, are switched off.
fn same<B: Body<Data = Bytes> + Unpin + tollgate::ResponseBody>(
    framework: &str,
    body: fn(Full<Bytes>) -> B,
) {
    let layer = RateLimitLayer::new(Quota::per_second(1_000_000))
        .without_headers()
        .without_status();
    let bare = allocations(Answer(body));
    assert!(bare > 0, "{framework}: the body's own box is not seen");
    assert_eq!(allocations(layer.layer(Answer(body))), bare, "{framework}");
}

/// The allocations of a request and of reading its response, after a first one that does not count.
fn allocations<S, B>(mut service: S) -> u64
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
    B: Body<Data = Bytes> + Unpin,
{
    serve(&mut service);
    measure(|| serve(&mut service)).count_total
}

fn serve<S, B>(service: &mut S)
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
    B: Body<Data = Bytes> + Unpin,
{
    let mut cx = Context::from_waker(Waker::noop());
    let mut request = Request::new(());
    let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 4711));
    request.extensions_mut().insert(ConnectInfo(peer));
    assert!(service.poll_ready(&mut cx).is_ready());
    let Poll::Ready(Ok(response)) = pin!(service.call(request)).poll(&mut cx) else {
        unreachable!("there is nothing to wait for");
    };
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    let mut read = 0;
    while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(&mut cx) {
        read += frame.data_ref().map_or(0, Bytes::len);
    }
    assert_eq!(read, TEXT.len());
}
