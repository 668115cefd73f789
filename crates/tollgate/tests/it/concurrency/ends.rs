//! The end of a response, or of its connection, gives back.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::sse::{Event, Sse};
use axum::routing::{get, post};
use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower::ServiceBuilder;
use tower_http::timeout::{RequestBodyTimeoutLayer, ResponseBodyTimeoutLayer, TimeoutBody};

use crate::common::held::{Held, Streams};
use crate::concurrency::{Client, serve, status};

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
