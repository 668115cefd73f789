//! Requests give back exactly once, however they end: over real sockets, by what other callers then get.

#![cfg(feature = "axum")]
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod common;

use std::convert::Infallible;
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::sse::{Event, Sse};
use axum::routing::{any, get, post};
use bytes::Bytes;
use common::held::{Held, Streams, TWO};
use http::header::{CONNECTION, RETRY_AFTER, UPGRADE};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tollgate::key::Global;
use tollgate::{
    Answer, Backend, BackendError, Cause, Charge, CheckOutcome, Concurrent, ConfigError, Decision,
    FailureKind, Key, Lease, Limiter, MemoryBackend, OnFailure, Policy, Quota, RateLimitLayer,
    RateLimitStatus, Receipt, Scope, Share,
};
use tower::ServiceBuilder;
use tower_http::timeout::{RequestBodyTimeoutLayer, ResponseBodyTimeoutLayer, TimeoutBody};

/// The address of a server.
async fn serve(app: Router) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(tokio::spawn(
        async move { axum::serve(listener, app).await },
    ));
    address
}

struct Client(http1::SendRequest<Empty<Bytes>>);

impl Client {
    async fn to(address: std::net::SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        drop(tokio::spawn(connection.with_upgrades()));
        Self(sender)
    }

    async fn get(&mut self, path: &str) -> Response<hyper::body::Incoming> {
        let request = Request::get(path).header("host", "x").body(Empty::new());
        self.0.send_request(request.unwrap()).await.unwrap()
    }
}

async fn status(address: std::net::SocketAddr, path: &str) -> StatusCode {
    Client::to(address).await.get(path).await.status()
}

#[tokio::test]
async fn a_response_that_is_whole_gives_back_as_it_leaves() {
    let held = Held::two();
    let app = Router::new()
        .route("/text", get(|| async { "done" }))
        .route("/empty", get(|| async {}))
        .layer(held.layer());
    let address = serve(app).await;
    for turn in 1..=5 {
        for path in ["/text", "/empty"] {
            assert_eq!(status(address, path).await, StatusCode::OK, "{turn}");
        }
        held.comes_to(2).await;
        assert_eq!(held.released(), 2 * turn);
    }
}

#[tokio::test]
async fn a_streamed_body_holds_until_its_end_or_until_the_client_has_gone() {
    let (held, streams) = (Held::two(), Streams::default());
    let opened = streams.clone();
    let stream = get(async move || Body::from_stream(opened.open()));
    let address = serve(Router::new().route("/", stream).layer(held.layer())).await;

    // given two streams
    let (mut first, mut second) = (Client::to(address).await, Client::to(address).await);
    let (first_body, second_body) = (first.get("/").await, second.get("/").await);
    assert_eq!(held.free().await, 0);
    assert_eq!(status(address, "/").await, StatusCode::TOO_MANY_REQUESTS);

    // when one client goes in the middle
    drop((first_body, first));
    held.comes_to(1).await;
    assert_eq!(held.released(), 1);

    // and the other reads to the end
    streams.close();
    second_body.into_body().collect().await.unwrap();
    held.comes_to(2).await;
    assert_eq!(held.released(), 2);
}

/// An event for each chunk of a stream.
fn events(streams: &Streams) -> Router {
    let opened = streams.clone();
    let events = get(async move || {
        use tokio_stream::StreamExt;
        Sse::new(
            opened
                .open()
                .map(|_chunk| Ok::<_, Infallible>(Event::default())),
        )
    });
    Router::new().route("/", events)
}

#[tokio::test]
async fn server_sent_events_that_end_by_themselves_give_back_at_their_end() {
    let (held, streams) = (Held::two(), Streams::default());
    let address = serve(events(&streams).layer(held.layer())).await;
    let (mut first, mut second) = (Client::to(address).await, Client::to(address).await);
    let bodies = [first.get("/").await, second.get("/").await];
    assert_eq!((held.free().await, held.released()), (0, 0));

    // The clients stay, and their connections as well.
    streams.close();
    for body in bodies {
        body.into_body().collect().await.unwrap();
    }

    held.comes_to(2).await;
    assert_eq!(held.released(), 2);
    let next = first.get("/").await;
    assert_eq!(next.status(), StatusCode::OK);
}

#[tokio::test]
async fn server_sent_events_hold_while_they_are_sent() {
    let (held, streams) = (Held::two(), Streams::default());
    let address = serve(events(&streams).layer(held.layer())).await;
    let mut client = Client::to(address).await;
    let body = client.get("/").await;
    assert_eq!(held.free().await, 1);
    drop((body, client));
    // The server finds out when it sends.
    for sender in streams.0.lock().unwrap().iter() {
        let _sent = sender.try_send(Ok(Bytes::new()));
    }
    held.comes_to(2).await;
    assert_eq!(held.released(), 1);
}

#[tokio::test]
async fn a_request_whose_client_goes_before_the_answer_gives_back() {
    let held = Held::two();
    let app = Router::new().route("/", get(pending::<()>));
    let address = serve(app.layer(held.layer())).await;
    let mut client = Client::to(address).await;
    // Until the server holds a place for it.
    tokio::select! {
        _answer = client.get("/") => panic!("there is no answer"),
        () = held.comes_to(1) => {}
    }
    drop(client);
    held.comes_to(2).await;
    assert_eq!(held.released(), 1);
}

#[tokio::test]
async fn a_handler_that_panics_gives_back() {
    let held = Held::two();
    let app = Router::new().route("/", get(|| async { panic!("on purpose") as () }));
    let address = serve(app.layer(held.layer())).await;
    for turn in 1..=3 {
        let mut client = Client::to(address).await;
        let request = Request::get("/").header("host", "x").body(Empty::new());
        assert!(client.0.send_request(request.unwrap()).await.is_err());
        held.comes_to(2).await;
        assert_eq!(held.released(), turn);
    }
}

#[tokio::test]
async fn a_timeout_outside_or_inside_gives_back() {
    type Boxed = Box<dyn std::error::Error + Send + Sync>;
    let gone = |_: Boxed| async { StatusCode::GATEWAY_TIMEOUT };
    let timeout = || {
        ServiceBuilder::new()
            .layer(axum::error_handling::HandleErrorLayer::new(gone))
            .layer(tower::timeout::TimeoutLayer::new(Duration::from_millis(20)))
    };
    let stuck = || Router::new().route("/", get(pending::<()>));
    for outside in [true, false] {
        let held = Held::two();
        let app = if outside {
            stuck().layer(held.layer()).layer(timeout())
        } else {
            stuck().layer(timeout()).layer(held.layer())
        };
        let address = serve(app).await;
        for turn in 1..=3 {
            let answer = status(address, "/").await;
            assert_eq!(answer, StatusCode::GATEWAY_TIMEOUT, "{outside}");
            held.comes_to(2).await;
            assert_eq!(held.released(), turn, "{outside}");
        }
    }
}

#[tokio::test]
async fn a_timeout_during_the_response_body_gives_back() {
    let timeout = || ResponseBodyTimeoutLayer::new(Duration::from_millis(20));
    for outside in [true, false] {
        let (held, streams) = (Held::two(), Streams::default());
        let opened = streams.clone();
        let stream = get(async move || Body::from_stream(opened.open()));
        let app = Router::new().route("/", stream);
        let app = if outside {
            app.layer(held.layer()).layer(timeout())
        } else {
            app.layer(timeout()).layer(held.layer())
        };
        let address = serve(app).await;
        for turn in 1..=3 {
            let mut client = Client::to(address).await;
            let body = client.get("/").await.into_body();
            assert!(body.collect().await.is_err(), "{outside}");
            held.comes_to(2).await;
            assert_eq!(held.released(), turn, "{outside}");
        }
    }
}

#[tokio::test]
async fn a_timeout_during_the_request_body_gives_back() {
    let held = Held::two();
    let timed = |request: Request<TimeoutBody<Body>>| request.map(Body::new);
    let timeout = ServiceBuilder::new()
        .layer(RequestBodyTimeoutLayer::new(Duration::from_millis(20)))
        .map_request(timed);
    let reads = post(|_body: Bytes| async {});
    let app = Router::new().route("/", reads).layer(timeout);
    let address = serve(app.layer(held.layer())).await;
    for turn in 1..=3 {
        // Three of ten bytes come.
        let mut client = TcpStream::connect(address).await.unwrap();
        let request = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabc";
        client.write_all(request).await.unwrap();
        let mut answer = [0; 12];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 400");
        held.comes_to(2).await;
        assert_eq!(held.released(), turn);
    }
}

#[tokio::test]
async fn a_reset_of_an_http_2_stream_gives_back() {
    let (held, streams) = (Held::two(), Streams::default());
    let opened = streams.clone();
    let app = Router::new()
        .route("/stuck", get(pending::<()>))
        .route(
            "/stream",
            get(async move || Body::from_stream(opened.open())),
        )
        .layer(held.layer());
    let address = serve(app).await;
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    drop(tokio::spawn(connection));
    let request = |path: &str| {
        let request = Request::get(format!("http://{address}{path}"));
        request.body(Empty::<Bytes>::new()).unwrap()
    };

    // given a call that waits for its answer, and one whose answer is sent
    let waiting = tokio::spawn(sender.send_request(request("/stuck")));
    let sent = sender.send_request(request("/stream")).await.unwrap();
    held.comes_to(0).await;

    // when the client resets both, on a connection that stays
    waiting.abort();
    drop(sent);

    held.comes_to(2).await;
    assert_eq!(held.released(), 2);
}

#[tokio::test]
async fn what_a_request_held_before_it_was_refused_further_in_is_given_back() {
    let held = Held::two();
    let inner = RateLimitLayer::new(Policy::new("none", tollgate::Quotas::none()).key(Global));
    let app = Router::new().route("/", get(|| async {}));
    let address = serve(app.layer(inner).layer(held.layer())).await;
    for turn in 1..=3 {
        assert_eq!(status(address, "/").await, StatusCode::FORBIDDEN);
        held.comes_to(2).await;
        assert_eq!(held.released(), turn);
    }
}

#[tokio::test]
async fn a_quota_beside_it_that_refuses_holds_nothing() {
    let held = Held::under(Policy::new("held", (Quota::per_hour(3), TWO)));
    let app = Router::new().route("/", get(|| async {}));
    let address = serve(app.layer(held.layer())).await;
    for expected in [200, 200, 200, 429, 429, 429] {
        assert_eq!(status(address, "/").await.as_u16(), expected);
    }
    let verdicts = held.limiter.check("held", Key::global()).cost(0).await;
    let verdicts = verdicts.unwrap().verdicts().to_vec();
    assert_eq!((verdicts[0].remaining(), verdicts[1].remaining()), (0, 2));
}

#[tokio::test]
async fn a_request_that_is_one_too_many_takes_nothing_from_the_quotas_beside_it() {
    // In one policy, and in two, as for tokens that cost more than one.
    let together = Policy::new("held", (Quota::per_hour(10), TWO));
    let alone = [
        Policy::new("held", Quota::per_hour(100)).cost(10),
        Policy::new("places", TWO),
    ];
    for policies in [vec![together], alone.to_vec()] {
        let limiter = Limiter::builder()
            .policies(policies.into_iter().map(|policy| policy.key(Global)))
            .build()
            .unwrap();
        let streams = Streams::default();
        let opened = streams.clone();
        let stream = get(async move || Body::from_stream(opened.open()));
        let app = Router::new().route("/", stream);
        let address = serve(app.layer(RateLimitLayer::new(&limiter))).await;
        let mut clients = Vec::new();
        for expected in [200, 200, 429, 429, 429] {
            let mut client = Client::to(address).await;
            let answer = client.get("/").await;
            assert_eq!(answer.status().as_u16(), expected);
            clients.push((client, answer));
        }
        let left = limiter.check("held", Key::global()).cost(0).await.unwrap();
        let left = left.verdicts()[0];
        assert_eq!(left.remaining() * 10, left.limit() * 8);
    }
}

#[tokio::test]
async fn who_keeps_all_places_of_its_own_shuts_out_nobody_else() {
    let by_caller = Policy::new("own", TWO).key(tollgate::key::Header::new("x-api-key"));
    let shared = Policy::new("shared", Concurrent::at_most(4)).key(Global);
    let limiter = Limiter::builder()
        .policies([by_caller, shared])
        .build()
        .unwrap();
    let app = Router::new().route("/", post(async |body: Bytes| body.len().to_string()));
    let address = serve(app.layer(RateLimitLayer::new(&limiter))).await;
    // Each sends a head that promises a body, and then nothing.
    let slow = async |key: &str| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST / HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\ncontent-length: 5\r\nexpect: 100-continue\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.unwrap();
        (stream, String::from_utf8_lossy(&status[9..]).into_owned())
    };
    let mut kept = Vec::new();
    for (key, expected) in [
        ("slow", "100"),
        ("slow", "100"),
        ("slow", "429"),
        ("slow", "429"),
        ("other", "100"),
        ("other", "100"),
        ("other", "429"),
        // The shared budget is what callers can fill together.
        ("third", "429"),
    ] {
        let (stream, status) = slow(key).await;
        assert_eq!(status, expected, "{key}");
        kept.push(stream);
    }
}

#[tokio::test]
async fn requests_that_are_reset_at_once_are_charged_by_the_quota_beside_it() {
    let held = Held::under(Policy::new("held", (Quota::per_hour(20), TWO)));
    let app = Router::new().route("/", get(pending::<()>));
    let address = serve(app.layer(held.layer())).await;
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    drop(tokio::spawn(connection));
    let mut resets = 0;
    let refused = loop {
        let request = Request::get(format!("http://{address}/")).body(Empty::<Bytes>::new());
        let answer = sender.send_request(request.unwrap());
        let holds_a_place = async {
            while held.places_free().await == 2 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        // Those that pass are never answered, and are reset.
        tokio::select! {
            refused = answer => break refused.unwrap(),
            () = holds_a_place => resets += 1,
        }
        assert!(resets <= 20);
        while held.places_free().await < 2 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    assert_eq!(
        (refused.status(), resets),
        (StatusCode::TOO_MANY_REQUESTS, 20)
    );
    assert!(refused.headers().contains_key(RETRY_AFTER));
}

#[tokio::test]
async fn a_smaller_limit_cuts_nobody_off_and_lets_nobody_in_before_enough_have_gone() {
    let policy = |limit| Policy::new("held", Concurrent::at_most(limit));
    let limiter = Limiter::from(policy(4));
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(limiter.check("held", "alice").await.unwrap());
    }
    limiter.replace([policy(2)]).unwrap();
    for left in [4, 3, 2] {
        let refused = limiter.check("held", "alice").await.unwrap();
        assert!(!refused.is_allowed(), "{left} are held");
        drop(held.pop());
    }
    let again = limiter.check("held", "alice").await.unwrap();
    assert!(again.is_allowed());
    assert!(!limiter.check("held", "alice").await.unwrap().is_allowed());

    // A larger one lets more in at once.
    limiter.replace([policy(3)]).unwrap();
    let third = limiter.check("held", "alice").await.unwrap();
    assert!(third.is_allowed() && !limiter.check("held", "alice").await.unwrap().is_allowed());
}

#[tokio::test]
async fn an_annotation_and_a_route_hold_as_the_layer_does() {
    #[tollgate::rate_limit("1 at once", key = Global)]
    async fn annotated(state: axum::extract::State<Streams>) -> Body {
        Body::from_stream(state.open())
    }
    use tollgate::MethodRouterExt;

    for headers in [true, false] {
        let (plain, streams) = (Limiter::from(Quota::per_second(1_000)), Streams::default());
        let layer = RateLimitLayer::new(plain);
        let layer = if headers {
            layer
        } else {
            layer.without_headers()
        };
        let app = Router::new()
            .route("/annotated", get(annotated))
            .route("/route", get(annotated_twin).rate_limit("1 at once"))
            .with_state(streams.clone())
            .layer(axum::Extension(tollgate::PeerAddr(
                "10.0.0.1:1".parse().unwrap(),
            )))
            .layer(layer);
        let address = serve(app).await;
        for path in ["/annotated", "/route"] {
            for _turn in 0..3 {
                let mut client = Client::to(address).await;
                let first = client.get(path).await;
                assert_eq!(first.status(), StatusCode::OK, "{path}");
                let second = status(address, path).await;
                assert_eq!(second, StatusCode::TOO_MANY_REQUESTS, "{path}");
                streams.close();
                first.into_body().collect().await.unwrap();
                // The server is done with the body a moment later.
                let mut tries = 0;
                loop {
                    let mut client = Client::to(address).await;
                    let again = client.get(path).await;
                    let passed = again.status() == StatusCode::OK;
                    streams.close();
                    let _rest = again.into_body().collect().await;
                    if passed {
                        break;
                    }
                    tries += 1;
                    assert!(tries < 5_000, "{path} is held for ever");
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    async fn annotated_twin(state: axum::extract::State<Streams>) -> Body {
        Body::from_stream(state.open())
    }
}

/// The layer has let the request in, and an annotation refuses it: its place is given back with the refusal, once.
#[tokio::test]
async fn a_request_that_an_annotation_refuses_gives_back_what_the_layer_holds() {
    #[tollgate::rate_limit("1/hour", key = Global)]
    async fn annotated() -> &'static str {
        "let in"
    }

    let held = Held::two();
    let app = Router::new().route("/", get(annotated)).layer(held.layer());
    let address = serve(app).await;

    for (expected, released) in [
        (StatusCode::OK, 1),
        (StatusCode::TOO_MANY_REQUESTS, 2),
        (StatusCode::TOO_MANY_REQUESTS, 3),
    ] {
        assert_eq!(status(address, "/").await, expected);
        held.comes_to(2).await;
        assert_eq!(held.released(), released);
    }
}

#[tokio::test]
async fn a_lease_holds_for_longer_than_the_response() {
    let held = Held::two();
    let leases: Arc<Mutex<Vec<Lease>>> = Arc::default();
    let kept = Arc::clone(&leases);
    let handler = post(async move |lease: Lease| {
        let mut kept = kept.lock().unwrap();
        kept.push(lease.clone());
        kept.push(lease);
        "in the works"
    });
    let handler = handler.get(async |status: RateLimitStatus| drop(status.lease()));
    let address = serve(Router::new().route("/", handler).layer(held.layer())).await;
    let mut client = Client::to(address).await;
    let request = Request::post("/").header("host", "x").body(Empty::new());
    let answer = client.0.send_request(request.unwrap()).await.unwrap();
    answer.into_body().collect().await.unwrap();

    // A lease that ends before the response gives nothing back.
    assert_eq!(status(address, "/").await, StatusCode::OK);
    held.comes_to(1).await;

    // The last of its clones gives back.
    leases.lock().unwrap().pop();
    assert_eq!((held.free().await, held.released()), (1, 1));
    leases.lock().unwrap().pop();
    assert_eq!((held.free().await, held.released()), (2, 2));
}

#[tokio::test]
async fn an_upgraded_connection_holds_while_its_handler_keeps_the_lease() {
    let held = Held::two();
    let close = Arc::new(tokio::sync::Notify::new());
    let closed = Arc::clone(&close);
    // As a WebSocket does: the answer is 101, and the connection goes on elsewhere.
    let upgrade = any(async move |lease: Lease, request: Request| {
        drop(tokio::spawn(async move {
            let _connection = hyper::upgrade::on(request).await.unwrap();
            closed.notified().await;
            drop(lease);
        }));
        let mut switching = Response::new(Body::empty());
        *switching.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = switching.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("test"));
        switching
    });
    let address = serve(Router::new().route("/", upgrade).layer(held.layer())).await;
    let mut client = Client::to(address).await;
    let request = Request::get("/").header("host", "x");
    let request = request
        .header(CONNECTION, "upgrade")
        .header(UPGRADE, "test");
    let answer = client.0.send_request(request.body(Empty::new()).unwrap());
    let connection = hyper::upgrade::on(answer.await.unwrap()).await.unwrap();

    assert_eq!((held.free().await, held.released()), (1, 0));
    close.notify_one();
    held.comes_to(2).await;
    assert_eq!(held.released(), 1);
    drop(connection);
}

#[tokio::test]
async fn a_connection_by_connect_over_http_2_holds_while_its_handler_keeps_the_lease() {
    let held = Held::two();
    let close = Arc::new(tokio::sync::Notify::new());
    let closed = Arc::clone(&close);
    // As a WebSocket does over HTTP/2: the answer is 200, and the stream is the connection.
    let connect = any(async move |lease: Lease, request: Request| {
        drop(tokio::spawn(async move {
            let _connection = hyper::upgrade::on(request).await.unwrap();
            closed.notified().await;
            drop(lease);
        }));
    });
    let app = Router::new().route("/socket", connect);
    let app = app.layer(held.layer()).route("/", get(|| async {}));
    let address = serve(app).await;
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    drop(tokio::spawn(connection));
    let mut request = |method: http::Method, path: &str| {
        let request = Request::builder().method(method.clone());
        let request = request.uri(format!("http://{address}{path}"));
        let mut request = request.body(Empty::<Bytes>::new()).unwrap();
        if method == http::Method::CONNECT {
            let protocol = hyper::ext::Protocol::from_static("websocket");
            request.extensions_mut().insert(protocol);
        }
        sender.send_request(request)
    };
    // The first answer brings the settings, which allow the second request.
    request(http::Method::GET, "/").await.unwrap();
    let answer = request(http::Method::CONNECT, "/socket").await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let connection = hyper::upgrade::on(answer).await.unwrap();

    assert_eq!((held.free().await, held.released()), (1, 0));
    close.notify_one();
    held.comes_to(2).await;
    assert_eq!(held.released(), 1);
    drop(connection);
}

#[tokio::test]
async fn a_runtime_that_shuts_down_gives_back() {
    let held = Arc::new(Held::two());
    let shared = Arc::clone(&held);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let app = Router::new().route("/", get(pending::<()>));
            let address = serve(app.layer(shared.layer())).await;
            let mut client = Client::to(address).await;
            drop(tokio::spawn(async move { client.get("/").await }));
            shared.comes_to(1).await;
        });
        runtime.shutdown_timeout(Duration::from_secs(10));
    })
    .join()
    .unwrap();
    assert_eq!((held.free().await, held.released()), (2, 1));
}

#[tokio::test]
async fn a_refused_caller_is_told_no_time_unless_there_is_a_hint() {
    for hint in [None, Some(Duration::from_millis(1_500))] {
        let policy = Policy::new("held", TWO);
        let policy = match hint {
            Some(hint) => policy.retry_hint(hint),
            None => policy,
        };
        let (held, streams) = (Held::under(policy), Streams::default());
        let opened = streams.clone();
        let stream = get(async move || Body::from_stream(opened.open()));
        let address = serve(Router::new().route("/", stream).layer(held.layer())).await;
        let mut clients = [Client::to(address).await, Client::to(address).await];
        let [one, other] = &mut clients;
        let passed = [one.get("/").await, other.get("/").await];
        let fields = |response: &Response<_>, name: &str| {
            let value = response.headers().get(name);
            value.map(|value| value.to_str().unwrap().to_owned())
        };
        let policy = Some("\"held\";q=2;qu=\"concurrent-requests\"".to_owned());
        assert_eq!(
            fields(&passed[0], "ratelimit"),
            Some("\"held\";r=1".to_owned())
        );
        assert_eq!(fields(&passed[0], "ratelimit-policy"), policy);

        let refused = Client::to(address).await.get("/").await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(fields(&refused, "ratelimit-policy"), policy);
        let (state, wait) = match hint {
            None => ("\"held\";r=0", None),
            Some(_) => ("\"held\";r=0;t=2", Some("2".to_owned())),
        };
        assert_eq!(fields(&refused, "ratelimit").as_deref(), Some(state));
        assert_eq!(fields(&refused, RETRY_AFTER.as_str()), wait);
        let body = refused.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["violated-policies"][0], "held");
        assert!(body["detail"].as_str().unwrap().contains("under way"));
    }
}

#[tokio::test]
async fn a_check_is_a_guard() {
    let held = Held::under(Policy::new("held", (Quota::per_hour(10), TWO)));
    let ask = || held.limiter.check("held", Key::global());
    let first: CheckOutcome = ask().await.unwrap();
    let second = ask().await.unwrap();
    let third = ask().await.unwrap();
    assert!(!third.is_allowed() && third.retry_after().is_none());
    drop((second, third));
    assert_eq!((held.free().await, held.released()), (1, 1));

    // Receipts replace the guard. A credit in part gives back that part.
    let heavy = ask().cost(1).await.unwrap();
    let receipts = heavy.into_receipts();
    assert_eq!((receipts.len(), held.free().await), (2, 0));
    for receipt in receipts {
        held.limiter.credit(receipt, 1);
    }
    drop(first);
    assert_eq!(held.free().await, 2);
    // A check that is not awaited to its end holds nothing.
    drop(ask());
    assert_eq!(held.free().await, 2);
}

#[tokio::test]
async fn a_policy_on_trial_holds_for_itself_and_refuses_nobody() {
    let held = Held::under(Policy::new("held", Concurrent::at_most(1)).shadow());
    let streams = Streams::default();
    let opened = streams.clone();
    let stream = get(async move || Body::from_stream(opened.open()));
    let app = Router::new().route("/", stream).layer(held.layer());
    let address = serve(app).await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = Client::to(address).await;
        let answer = client.get("/").await;
        assert_eq!(answer.status(), StatusCode::OK);
        clients.push((client, answer));
    }
    assert_eq!(held.free().await, 0);
    clients.clear();
    held.comes_to(1).await;
    // Two were over the limit, and held nothing.
    assert_eq!(held.released(), 1);
}

#[tokio::test]
async fn a_trial_beside_a_quota_that_refuses_is_given_back_at_once() {
    let released = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&released);
    let limiter = Limiter::builder()
        .policy(Policy::new("page", Quota::per_hour(1)).key(Global))
        .policy(Policy::new("held", TWO).key(Global).shadow())
        .observe(move |event: &tollgate::Event<'_>| {
            count.fetch_add(
                usize::from(event.cause() == Cause::Released),
                Ordering::SeqCst,
            );
        })
        .build()
        .unwrap();
    let held = Held { limiter, released };
    for headers in [true, false] {
        let layer = match headers {
            true => held.layer(),
            false => held.layer().without_headers().without_status(),
        };
        let app = Router::new().route("/", get(|| async {})).layer(layer);
        let address = serve(app).await;
        for _turn in 0..3 {
            let _status = status(address, "/").await;
            held.comes_to(2).await;
        }
    }
    assert_eq!(held.released(), 6);
}

/// Decides nothing, and says that it could hold.
#[derive(Debug)]
struct Failing(MemoryBackend);

impl Backend for Failing {
    fn decide(&self, _charges: &[Charge<'_>]) -> Answer<Decision> {
        let error = BackendError::new(FailureKind::Unreachable, "on purpose");
        Answer::now(Err(error))
    }

    fn credit(&self, _receipt: Receipt, _n: u64) {
        panic!("nothing was taken here");
    }

    fn debit(&self, _receipt: &Receipt, _n: u64) {}

    fn reset(&self, scope: Scope, key: &Key) -> Answer<()> {
        self.0.reset(scope, key)
    }

    fn capabilities(&self) -> tollgate::Capabilities {
        self.0.capabilities()
    }
}

#[tokio::test]
async fn each_failure_rule_has_an_outcome() {
    let share = OnFailure::Local(Share::one_in(2));
    for (rule, expected) in [
        (OnFailure::Allow, [200, 200, 200]),
        (OnFailure::Deny, [503, 503, 503]),
        // Half of two: one at once in this process.
        (share, [200, 429, 429]),
    ] {
        let policy = Policy::new("held", TWO).on_failure(rule);
        let (held, streams) = (
            Held::on(policy, Failing(MemoryBackend::new())),
            Streams::default(),
        );
        let opened = streams.clone();
        let stream = get(async move || Body::from_stream(opened.open()));
        let address = serve(Router::new().route("/", stream).layer(held.layer())).await;
        let mut clients = Vec::new();
        for expected in expected {
            let mut client = Client::to(address).await;
            let answer = client.get("/").await;
            assert_eq!(answer.status().as_u16(), expected, "{rule:?}");
            clients.push((client, answer));
        }
        clients.clear();
        if rule == share {
            // This process gets its own places back.
            let mut tries = 0;
            while status(address, "/").await != StatusCode::OK {
                tries += 1;
                assert!(tries < 5_000, "held for ever");
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            assert!(held.released() >= 1);
        } else {
            assert_eq!(held.released(), 0);
        }
    }
}

#[tokio::test]
async fn if_something_is_held_of_every_key_in_memory_the_failure_rule_acts() {
    for (rule, passes) in [(OnFailure::Allow, true), (OnFailure::Deny, false)] {
        let backend = MemoryBackend::builder().max_keys(64).build();
        let limiter = Limiter::builder()
            .policy(Policy::new("held", TWO).on_failure(rule))
            .backend(backend)
            .build()
            .unwrap();
        let mut held = Vec::new();
        let mut undecided = 0;
        for caller in 0..500 {
            match limiter.check("held", format!("caller {caller}")).await {
                Ok(checked) => {
                    undecided += usize::from(checked.undecided().is_some());
                    held.push(checked);
                }
                Err(error) => assert!(!passes, "{error}"),
            }
        }
        assert!(held.len() - undecided <= 64);
        assert_eq!(undecided > 0, passes);
        // Known callers are decided as ever.
        let known = limiter.check("held", "caller 0").await.unwrap();
        assert!(known.is_allowed() && known.undecided().is_none());
        assert!(
            !limiter
                .check("held", "caller 0")
                .await
                .unwrap()
                .is_allowed()
        );
    }
}

#[test]
fn limits_that_cannot_be_are_refused_with_the_reason() {
    assert_eq!(
        Policy::try_new("held", "0 at once")
            .unwrap_err()
            .to_string(),
        "policy \"held\": quota \"0 at once\": a limit of 0 admits nothing; \"none\" refuses every request; to limit no request, \
         leave the policy out"
    );
    let heavy = Policy::new("held", TWO).cost(3);
    let refused: ConfigError = Limiter::builder().policy(heavy).build().unwrap_err();
    assert_eq!(
        refused.to_string(),
        "policy \"held\": a cost of 3 never passes: a full budget of \"held\" holds 2"
    );
    let messages = Policy::new("held", TWO).per_message(tollgate::Messages::received());
    let refused = Limiter::builder().policy(messages).build().unwrap_err();
    assert!(
        refused
            .to_string()
            .starts_with("policy \"held\": charges messages, which cannot hold"),
        "{refused}"
    );
}
