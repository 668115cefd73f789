//! Requests in several layers hold until their own response is over, whatever stands between the layers.

#![cfg(feature = "axum")]

use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::thread;

use crate::common::held::{Held, Streams, TWO};
use crate::common::{Waiting, at_a_standstill};
use axum::Router;
use axum::body::Body;
use axum::routing::get;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use http_body_util::{BodyExt, Either, Full, StreamBody};
use tokio_stream::StreamExt;
use tollgate::key::Global;
use tollgate::{
    AnyBodyLayer, BufferBodyLayer, Concurrent, Hold, Policy, Quota, RateLimitStatus, ResponseBody,
};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_http::compression::CompressionLayer;
use tower_http::trace::TraceLayer;

fn request() -> Request<Body> {
    Request::new(Body::empty())
}

/// Answers with a body that ends when the test says so.
fn streaming(
    streams: &Streams,
) -> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send + 'static>
+ Clone
+ Send
+ 'static {
    let streams = streams.clone();
    service_fn(move |_: Request<Body>| {
        let body = Body::from_stream(streams.open());
        async move { Ok(Response::new(body)) }
    })
}

/// A second request of the same caller, as a service between two layers makes it.
fn again(request: &Request<Body>) -> Request<Body> {
    let mut again = Request::new(Body::empty());
    *again.extensions_mut() = request.extensions().clone();
    again
}

#[tokio::test]
async fn an_outer_layer_holds_while_a_service_in_between_tries_an_inner_one_again() {
    let (outer, inner, streams) = (Held::one(), Held::one(), Streams::default());
    let limited = inner.layer().layer(streaming(&streams));
    let patient = service_fn(move |request: Request<Body>| {
        let limited = limited.clone();
        async move {
            loop {
                let answer = limited.clone().oneshot(again(&request)).await?;
                if answer.status() != StatusCode::TOO_MANY_REQUESTS {
                    return Ok::<_, Infallible>(answer);
                }
                tokio::task::yield_now().await;
            }
        }
    });

    // given a request that is refused further in again and again
    let busy = inner.take().await;
    let asked = tokio::spawn(outer.layer().layer(patient).oneshot(request()));
    for _ in 0..20 {
        tokio::task::yield_now().await;
        assert_eq!(outer.free().await, u64::from(outer.released() > 0));
    }
    assert_eq!((outer.free().await, outer.released()), (0, 0));

    // when it passes
    drop(busy);
    let answer = asked.await.unwrap().unwrap();

    // then both layers hold until its answer is over
    assert_eq!((outer.free().await, inner.free().await), (0, 0));
    drop(answer);
    assert_eq!((outer.free().await, inner.free().await), (1, 1));
    assert_eq!((outer.released(), inner.released()), (1, 2));
}

#[tokio::test]
async fn each_of_several_calls_of_an_inner_layer_holds_for_its_own_response() {
    let (outer, inner, streams) = (Held::one(), Held::two(), Streams::default());
    let limited = inner.layer().layer(streaming(&streams));
    let kept: Arc<Mutex<Vec<Response<Body>>>> = Arc::default();
    let other = Arc::clone(&kept);
    let twice = service_fn(move |request: Request<Body>| {
        let (limited, other) = (limited.clone(), Arc::clone(&other));
        async move {
            let (one, two) = tokio::join!(
                limited.clone().oneshot(again(&request)),
                limited.clone().oneshot(again(&request)),
            );
            other.lock().unwrap().push(two?);
            one
        }
    });

    let answer = outer.layer().layer(twice).oneshot(request()).await.unwrap();
    assert_eq!((outer.free().await, inner.free().await), (0, 0));

    kept.lock().unwrap().clear();
    assert_eq!((outer.free().await, inner.free().await), (0, 1));

    drop(answer);
    assert_eq!((outer.free().await, inner.free().await), (1, 2));
    assert_eq!((outer.released(), inner.released()), (1, 2));
}

#[tokio::test]
async fn a_refused_call_of_an_inner_layer_gives_nothing_back_of_another_that_passed() {
    let (outer, inner, streams) = (Held::one(), Held::one(), Streams::default());
    let limited = inner.layer().layer(streaming(&streams));
    let hedged = service_fn(move |request: Request<Body>| {
        let limited = limited.clone();
        async move {
            let first = limited.clone().oneshot(again(&request)).await?;
            let second = limited.clone().oneshot(again(&request)).await?;
            assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
            Ok::<_, Infallible>(first)
        }
    });
    let answer = outer.layer().layer(hedged).oneshot(request()).await;
    let answer = answer.unwrap();
    assert_eq!((outer.free().await, inner.free().await), (0, 0));
    drop(answer);
    assert_eq!((outer.free().await, inner.free().await), (1, 1));
    assert_eq!((outer.released(), inner.released()), (1, 1));
}

#[tokio::test]
async fn a_trial_of_an_inner_layer_that_refuses_holds_nothing_on() {
    let outer = Held::one();
    let trial = Held::with(
        [Policy::new("page", Quota::per_hour(1)).key(Global)],
        Policy::new("held", TWO).shadow(),
    );
    let kept = Streams::default();
    let limited = trial.layer().layer(streaming(&kept));
    let free: Arc<Mutex<Vec<u64>>> = Arc::default();
    let seen = Arc::clone(&free);
    let (limiter, answers) = (trial.limiter.clone(), limited);
    let between = service_fn(move |request: Request<Body>| {
        let (limiter, limited, seen) = (limiter.clone(), answers.clone(), Arc::clone(&seen));
        async move {
            let first = limited.clone().oneshot(again(&request)).await?;
            drop(first);
            let refused = limited.clone().oneshot(again(&request)).await?;
            assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
            let left = limiter.check("held", tollgate::Key::global()).cost(0).await;
            seen.lock().unwrap().push(left.unwrap().remaining());
            Ok::<_, Infallible>(refused)
        }
    });
    drop(outer.layer().layer(between).oneshot(request()).await);
    assert_eq!(*free.lock().unwrap(), [2]);
    assert_eq!((outer.free().await, trial.released()), (1, 2));
}

#[tokio::test]
async fn each_attempt_pays_by_its_own_response() {
    let failures = Policy::new("failures", Quota::per_hour(10))
        .key(Global)
        .count_if(|response| response.status().is_server_error());
    let limiter = tollgate::Limiter::from(failures);
    let plain = tollgate::RateLimitLayer::new(Policy::new("outer", Quota::per_hour(9)).key(Global));
    let calls = Arc::new(Mutex::new(0));
    let fails_once = service_fn(move |_: Request<Body>| {
        let mut calls = calls.lock().unwrap();
        *calls += 1;
        let mut answer = Response::new(Body::empty());
        if *calls == 1 {
            *answer.status_mut() = StatusCode::BAD_GATEWAY;
        }
        async move { Ok::<_, Infallible>(answer) }
    });
    let limited = tollgate::RateLimitLayer::new(&limiter).layer(fails_once);
    let retried = service_fn(move |request: Request<Body>| {
        let limited = limited.clone();
        async move {
            let first = limited.clone().oneshot(again(&request)).await?;
            assert_eq!(first.status(), StatusCode::BAD_GATEWAY);
            limited.clone().oneshot(again(&request)).await
        }
    });
    let answer = plain.layer(retried).oneshot(request()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    // The first attempt failed and counts, whatever became of the second.
    let left = limiter.check("failures", tollgate::Key::global()).cost(0);
    assert_eq!(left.await.unwrap().remaining(), 9);
}

#[tokio::test]
async fn layers_within_layers_and_routes_within_them_give_back_each_their_own() {
    use tollgate::MethodRouterExt;

    for kept_on in [false, true] {
        let (outer, inner, streams) = (Held::two(), Held::two(), Streams::default());
        let holds: Arc<Mutex<Vec<Hold>>> = Arc::default();
        let (kept, opened) = (Arc::clone(&holds), streams.clone());
        let handler = async move |hold: Hold| {
            if kept_on {
                kept.lock().unwrap().push(hold);
            }
            Body::from_stream(opened.open())
        };
        let route = get(handler).rate_limit("1 at once");
        let nested = Router::new().route("/x", route).layer(inner.layer());
        let app = Router::new().nest("/in", nested).layer(outer.layer());
        for turn in 1..=3 {
            let path = || Request::get("/in/x").body(Body::empty()).unwrap();
            let answer = app.clone().oneshot(path()).await.unwrap();
            assert_eq!(answer.status(), StatusCode::OK);
            assert_eq!((outer.free().await, inner.free().await), (1, 1));
            // The route lets one in: refused there, the second request holds nothing.
            let second = app.clone().oneshot(path()).await.unwrap();
            assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
            drop(second);
            assert_eq!((outer.free().await, inner.free().await), (1, 1));
            drop(answer);
            if kept_on {
                assert_eq!((outer.free().await, inner.free().await), (1, 1));
                holds.lock().unwrap().clear();
            }
            assert_eq!((outer.free().await, inner.free().await), (2, 2));
            // The route's own limit is given back through the inner layer's observer.
            assert_eq!((outer.released(), inner.released()), (2 * turn, 3 * turn));
        }
    }
}

#[tokio::test]
async fn clones_of_a_hold_hold_together_in_whatever_threads_they_end() {
    for round in 0..200 {
        let held = Held::two();
        let holds: Arc<Mutex<Vec<Hold>>> = Arc::default();
        let kept = Arc::clone(&holds);
        let service = service_fn(move |request: Request<Body>| {
            let status: &RateLimitStatus = request.extensions().get().unwrap();
            let first = status.hold();
            let (second, third) = (first.clone(), status.hold());
            kept.lock()
                .unwrap()
                .extend([first, second, third.clone(), third]);
            async { Ok::<_, Infallible>(Response::new(Body::empty())) }
        });
        let answer = held.layer().layer(service).oneshot(request()).await;
        let last = holds.lock().unwrap().swap_remove(round % 4);
        thread::scope(|scope| {
            for hold in holds.lock().unwrap().drain(..) {
                scope.spawn(move || drop(hold));
            }
            scope.spawn(move || drop(answer));
        });
        assert_eq!((held.free().await, held.released()), (1, 0));
        drop(last);
        assert_eq!((held.free().await, held.released()), (2, 1));
    }
}

#[tokio::test]
async fn a_status_that_outlives_its_request_holds_nothing_and_a_hold_of_it_holds_nothing() {
    let held = Held::two();
    let kept: Arc<Mutex<Vec<RateLimitStatus>>> = Arc::default();
    let keeps = Arc::clone(&kept);
    let service = service_fn(move |request: Request<Body>| {
        let status: &RateLimitStatus = request.extensions().get().unwrap();
        keeps.lock().unwrap().push(status.clone());
        async { Ok::<_, Infallible>(Response::new(Body::empty())) }
    });
    let service = held.layer().layer(service);
    drop(service.clone().oneshot(request()).await);
    assert_eq!((held.free().await, held.released()), (2, 1));

    let status = kept.lock().unwrap().pop().unwrap();
    let late = status.hold();
    assert_eq!(held.free().await, 2);
    drop(late);
    drop(status);
    assert_eq!((held.free().await, held.released()), (2, 1));
}

/// Asks once, and follows the body: held while it is sent, and given back at its end or when it is dropped.
async fn holds_while_it_is_sent<B, F>(make: F)
where
    B: ResponseBody<Data: Send, Error: std::fmt::Debug> + Send + 'static,
    F: Fn(crate::common::held::Chunks) -> B + Clone + Send + 'static,
{
    let name = std::any::type_name::<B>();
    let (held, streams) = (Held::two(), Streams::default());
    let opened = streams.clone();
    let service = service_fn(move |_: Request<Body>| {
        let body = make(opened.open());
        async move { Ok::<_, Infallible>(Response::new(body)) }
    });
    let service = held.layer().layer(service);
    let dropped = service.clone().oneshot(request()).await.unwrap();
    let read = service.clone().oneshot(request()).await.unwrap();
    assert_eq!(held.free().await, 0, "{name}");
    drop(dropped);
    assert_eq!((held.free().await, held.released()), (1, 1), "{name}");
    for sender in streams.0.lock().unwrap().iter() {
        let _sent = sender.try_send(Ok(Bytes::from_static(b"chunk")));
    }
    streams.close();
    let mut body = pin!(read.into_body());
    while let Some(frame) = body.frame().await {
        frame.unwrap();
        assert_eq!(held.free().await, 1, "{name}");
    }
    // Though the body itself is still there.
    assert_eq!((held.free().await, held.released()), (2, 2), "{name}");
}

type Frames = Box<dyn http_body::Body<Data = Bytes, Error = Infallible> + Send + Sync + Unpin>;

fn frames(chunks: crate::common::held::Chunks) -> Frames {
    let frames = chunks.map(|chunk| chunk.map(http_body::Frame::data));
    Box::new(StreamBody::new(frames))
}

#[tokio::test]
async fn every_body_that_can_be_wrapped_holds_while_it_is_sent() {
    holds_while_it_is_sent(Body::from_stream::<crate::common::held::Chunks>).await;
    holds_while_it_is_sent(|chunks| Box::new(Body::from_stream(chunks))).await;
    holds_while_it_is_sent(|chunks| BoxBody::new(frames(chunks))).await;
    holds_while_it_is_sent(|chunks| UnsyncBoxBody::new(frames(chunks))).await;
    holds_while_it_is_sent(|chunks| tollgate::AnyBody::new(frames(chunks))).await;
    type Either2 = Either<BoxBody<Bytes, Infallible>, Full<Bytes>>;
    holds_while_it_is_sent(|chunks| Either2::Left(BoxBody::new(frames(chunks)))).await;
    type Either3 = Either<Full<Bytes>, BoxBody<Bytes, Infallible>>;
    holds_while_it_is_sent(|chunks| Either3::Right(BoxBody::new(frames(chunks)))).await;
    #[cfg(feature = "tonic")]
    holds_while_it_is_sent(|chunks| tonic::body::Body::new(frames(chunks))).await;
}

#[tokio::test]
async fn a_body_in_memory_is_over_as_it_leaves() {
    async fn leaves<B: ResponseBody<Data: Send> + Send + 'static>(make: fn() -> B) {
        let held = Held::two();
        let service = service_fn(move |_: Request<Body>| async move {
            Ok::<_, Infallible>(Response::new(make()))
        });
        let answer = held.layer().layer(service).oneshot(request()).await;
        let name = std::any::type_name::<B>();
        assert_eq!((held.free().await, held.released()), (2, 1), "{name}");
        drop(answer);
        assert_eq!((held.free().await, held.released()), (2, 1), "{name}");
    }
    leaves(|| "text".to_owned()).await;
    leaves(String::new).await;
    leaves(|| Full::new(Bytes::from_static(b"text"))).await;
    leaves(|| Box::new("text".to_owned())).await;
    leaves(|| Either::<Full<Bytes>, Full<Bytes>>::Right(Full::new(Bytes::from_static(b"text"))))
        .await;
    leaves(Body::empty).await;
}

#[tokio::test]
async fn layers_that_wrap_bodies_inside_and_outside_leave_the_end_where_it_is() {
    let (held, streams) = (Held::two(), Streams::default());
    let service = ServiceBuilder::new()
        .layer(CompressionLayer::new())
        .layer(TraceLayer::new_for_http())
        .layer(BufferBodyLayer::new(1_024))
        .layer(held.layer())
        .layer(AnyBodyLayer)
        .layer(CompressionLayer::new())
        .layer(TraceLayer::new_for_http())
        .service(service_fn({
            let streams = streams.clone();
            move |_: Request<tollgate::BufferedBody<Body>>| {
                let body = Body::from_stream(streams.open());
                async move { Ok::<_, Infallible>(Response::new(body)) }
            }
        }));
    let ask = |encoding: &str| {
        let request = Request::get("/").header("accept-encoding", encoding);
        service
            .clone()
            .oneshot(request.body(Body::empty()).unwrap())
    };
    for encoding in ["identity", "gzip"] {
        let before = held.released();
        let (read, dropped) = (ask(encoding).await.unwrap(), ask(encoding).await.unwrap());
        assert_eq!(held.free().await, 0, "{encoding}");
        drop(dropped);
        assert_eq!(held.free().await, 1, "{encoding}");
        for sender in streams.0.lock().unwrap().iter() {
            let _sent = sender.try_send(Ok(Bytes::from_static(b"chunk")));
        }
        streams.close();
        let body = read.into_body().collect().await.unwrap();
        assert!(!body.to_bytes().is_empty());
        assert_eq!(held.free().await, 2, "{encoding}");
        assert_eq!(held.released(), before + 2, "{encoding}");
    }
}

#[tokio::test]
async fn a_request_that_is_dropped_while_its_decision_is_pending_holds_nothing() {
    let backend = Waiting::new(at_a_standstill().0);
    let held = Held::on(Policy::new("held", TWO), backend.clone());
    let service = held.layer().layer(service_fn(async |_: Request<Body>| {
        std::future::pending::<Result<Response<Body>, Infallible>>().await
    }));
    let mut cx = Context::from_waker(Waker::noop());

    // given one that waits, one that has been decided, and a check that waits
    let mut waiting = Box::pin(service.clone().oneshot(request()));
    assert!(waiting.as_mut().poll(&mut cx).is_pending());
    assert_eq!(backend.pending(), 1);
    drop(waiting);
    assert_eq!(backend.pending(), 0);

    let mut decided = Box::pin(service.clone().oneshot(request()));
    assert!(decided.as_mut().poll(&mut cx).is_pending());
    backend.gate.add_permits(1);
    assert!(decided.as_mut().poll(&mut cx).is_pending());
    let mut check = Box::pin(
        held.limiter
            .check("held", tollgate::Key::global())
            .into_future(),
    );
    assert!(check.as_mut().poll(&mut cx).is_pending());
    // One for the check, which does not hear of it.
    backend.gate.add_permits(2);
    assert_eq!(held.free().await, 1);

    // when they are dropped
    drop(check);
    drop(decided);

    // then all that was taken is given back, once
    assert_eq!((held.free().await, held.released()), (2, 1));
}

#[tokio::test]
async fn every_clone_of_a_service_and_every_call_of_one_holds_for_itself() {
    let (held, streams) = (
        Held::under(Policy::new("held", Concurrent::at_most(3))),
        Streams::default(),
    );
    let service = held.layer().layer(streaming(&streams));
    let requests = tokio_stream::iter((0..5).map(|_| request()));
    let mut answers: Vec<_> = service.clone().call_all(requests).collect().await;
    let statuses: Vec<_> = answers
        .iter()
        .map(|answer| answer.as_ref().unwrap().status().as_u16())
        .collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    for (left, released) in [(1, 1), (2, 2), (3, 3)] {
        drop(answers.remove(0));
        assert_eq!((held.free().await, held.released()), (left, released));
    }
}
