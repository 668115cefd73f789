//! A limiter around services whose response bodies only they can make: files, traces, compression, answers of another server.

#![cfg(feature = "axum")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Body as _;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tollgate::key::Global;
use tollgate::{AnyBody, AnyBodyLayer, Key, Limiter, Policy, Quota, RateLimitLayer, ResponseBody};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_http::compression::CompressionLayer;
use tower_http::services::ServeDir;
use tower_http::trace::TraceLayer;

fn one_an_hour() -> RateLimitLayer {
    RateLimitLayer::new(Policy::new("api", Quota::per_hour(1)).key(Global))
}

fn get(uri: &str) -> Request<Body> {
    let request = Request::get(uri).header("accept-encoding", "gzip");
    request.body(Body::empty()).unwrap()
}

/// The first answer. Checks that the next request is refused with an answer that can be read.
async fn passes_once<S, R>(service: S, uri: &str) -> (HeaderMap, Bytes)
where
    S: Service<Request<Body>, Response = Response<R>, Error: std::fmt::Debug> + Clone,
    R: http_body::Body<Data = Bytes, Error: std::fmt::Debug>,
{
    let passed = service.clone().oneshot(get(uri)).await.unwrap();
    assert_eq!(passed.status(), 200);
    assert!(passed.headers().contains_key("ratelimit"));

    let refused = service.oneshot(get(uri)).await.unwrap();
    assert_eq!(refused.status(), 429);
    assert!(refused.headers().contains_key("retry-after"));
    let stated = refused.body().size_hint().exact();
    let body = refused.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(stated, Some(body.len() as u64));
    let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(problem["status"], 429);

    let (head, body) = passed.into_parts();
    (head.headers, body.collect().await.unwrap().to_bytes())
}

#[tokio::test]
async fn files_are_served_under_a_limit() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("page.txt"), "what stands in a file").unwrap();
    let service = ServiceBuilder::new()
        .layer(one_an_hour())
        .layer(AnyBodyLayer)
        .service(ServeDir::new(directory.path()));

    let (headers, body) = passes_once(service, "/page.txt").await;

    assert_eq!(headers["content-length"], "21");
    assert_eq!(body, "what stands in a file");
}

#[tokio::test]
async fn traces_and_compression_stand_further_in() {
    let text = "a page that is long enough to be compressed, ".repeat(20);
    let page = {
        let text = text.clone();
        service_fn(move |_: Request<Body>| {
            let body = Full::new(Bytes::from(text.clone()));
            async { Ok::<_, Infallible>(Response::new(body)) }
        })
    };
    let traced = ServiceBuilder::new()
        .layer(one_an_hour())
        .layer(AnyBodyLayer)
        .layer(TraceLayer::new_for_http())
        .service(page.clone());
    let compressed = ServiceBuilder::new()
        .layer(one_an_hour())
        .layer(AnyBodyLayer)
        .layer(CompressionLayer::new())
        .layer(TraceLayer::new_for_http())
        .service(page);

    assert_eq!(passes_once(traced, "/").await.1, text);
    let (headers, body) = passes_once(compressed, "/").await;
    assert_eq!(headers["content-encoding"], "gzip");
    assert!(body.starts_with(b"\x1f\x8b") && body.len() < text.len());
}

#[tokio::test]
async fn a_client_is_a_service_that_can_be_limited() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let app = axum::Router::new().route("/", axum::routing::get(async || "from afar"));
    tokio::spawn(async { axum::serve(listener, app).await });
    let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
    let service = ServiceBuilder::new()
        .layer(one_an_hour())
        .layer(AnyBodyLayer)
        .service(client);

    let (headers, body) = passes_once(service, &format!("http://{address}/")).await;

    assert_eq!(headers["content-length"], "9");
    assert_eq!(body, "from afar");
}

#[tokio::test]
async fn what_is_sent_of_any_body_can_be_charged_by_several_limiters() {
    // given two limiters that charge by bytes, around a body of unknown size that comes in parts
    let by_bytes = |name: &'static str| {
        let policy = Policy::new(name, Quota::per_hour(1_000_000))
            .key(Global)
            .settle_by_bytes(|bytes| bytes);
        Limiter::builder().policy(policy).build().unwrap()
    };
    let limiters = [by_bytes("outer"), by_bytes("inner")];
    let parts = service_fn(|_: Request<Body>| async {
        let parts = ["four", "more"].map(|part| {
            Ok::<_, Infallible>(http_body::Frame::data(Bytes::from_static(part.as_bytes())))
        });
        Ok::<_, Infallible>(Response::new(StreamBody::new(tokio_stream::iter(parts))))
    });
    let service = ServiceBuilder::new()
        .layer(RateLimitLayer::new(&limiters[0]))
        .layer(RateLimitLayer::new(&limiters[1]))
        .layer(AnyBodyLayer)
        .service(parts);

    let response = service.oneshot(get("/")).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();

    assert_eq!(body, "fourmore");
    for (limiter, name) in limiters.iter().zip(["outer", "inner"]) {
        let left = limiter.check(name, Key::global()).cost(0).await.unwrap();
        assert!(
            (999_990..=999_993).contains(&left.remaining()),
            "{name}: {left:?}"
        );
    }
}

#[tokio::test]
async fn pitfall_any_body_forgets_neither_its_size_nor_its_end() {
    let body = AnyBody::new(Full::new(Bytes::from_static(b"12345")));
    assert_eq!(body.size_hint().exact(), Some(5));
    assert!(!body.is_end_stream());
    assert!(AnyBody::new(Full::<Bytes>::default()).is_end_stream());

    let none = AnyBody::<Full<Bytes>>::from_bytes(Bytes::new());
    assert_eq!(
        (none.size_hint().exact(), none.is_end_stream()),
        (Some(0), true)
    );
    let mut some = AnyBody::<Full<Bytes>>::from_bytes(Bytes::from_static(b"123"));
    assert_eq!(
        (some.size_hint().exact(), some.is_end_stream()),
        (Some(3), false)
    );
    some.frame().await.unwrap().unwrap();
    assert_eq!(
        (some.size_hint().exact(), some.is_end_stream()),
        (Some(0), true)
    );
    assert!(some.frame().await.is_none());
}

/// A body that does not say how long it is, and cannot hold another one that would report for it.
struct Opaque;

impl http_body::Body for Opaque {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        Poll::Ready(None)
    }
}

impl ResponseBody for Opaque {
    fn from_bytes(_bytes: Bytes) -> Self {
        Self
    }
}

#[tokio::test]
async fn a_body_of_which_nothing_is_known_costs_what_was_charged() {
    let policy = Policy::new("api", Quota::per_hour(10)).key(Global).cost(4);
    let limiter = Limiter::builder().policy(policy.settle_by_bytes(|bytes| bytes));
    let limiter = limiter.build().unwrap();
    let opaque = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Opaque)));
    let service = ServiceBuilder::new().layer(RateLimitLayer::new(&limiter));

    drop(service.service(opaque).oneshot(get("/")).await.unwrap());

    let left = limiter.check("api", Key::global()).cost(0).await.unwrap();
    assert_eq!(left.remaining(), 6);
}
