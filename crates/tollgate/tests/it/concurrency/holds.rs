//! Holds, which hold for longer than the response.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::routing::{any, get, post};
use bytes::Bytes;
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tollgate::{Hold, RateLimitStatus};

use crate::common::held::Held;
use crate::concurrency::{Client, serve, status};

#[tokio::test]
async fn a_hold_holds_for_longer_than_the_response() {
    let held = Held::two();
    let holds: Arc<Mutex<Vec<Hold>>> = Arc::default();
    let kept = Arc::clone(&holds);
    let handler = post(async move |hold: Hold| {
        let mut kept = kept.lock().unwrap();
        kept.push(hold.clone());
        kept.push(hold);
        "in the works"
    });
    let handler = handler.get(async |status: RateLimitStatus| drop(status.hold()));
    let address = serve(Router::new().route("/", handler).layer(held.layer())).await;
    let mut client = Client::to(address).await;
    let request = Request::post("/").header("host", "x").body(Empty::new());
    let answer = client.0.send_request(request.unwrap()).await.unwrap();
    answer.into_body().collect().await.unwrap();

    // A hold that ends before the response gives nothing back.
    assert_eq!(status(address, "/").await, StatusCode::OK);
    held.comes_to(1).await;

    // The last of its clones gives back.
    holds.lock().unwrap().pop();
    assert_eq!((held.free().await, held.released()), (1, 1));
    holds.lock().unwrap().pop();
    assert_eq!((held.free().await, held.released()), (2, 2));
}

#[tokio::test]
async fn an_upgraded_connection_holds_while_its_handler_keeps_the_hold() {
    let held = Held::two();
    let close = Arc::new(tokio::sync::Notify::new());
    let closed = Arc::clone(&close);
    // As a WebSocket does: the answer is 101, and the connection goes on elsewhere.
    let upgrade = any(async move |hold: Hold, request: Request| {
        drop(tokio::spawn(async move {
            let _connection = hyper::upgrade::on(request).await.unwrap();
            closed.notified().await;
            drop(hold);
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
async fn a_connection_by_connect_over_http_2_holds_while_its_handler_keeps_the_hold() {
    let held = Held::two();
    let close = Arc::new(tokio::sync::Notify::new());
    let closed = Arc::clone(&close);
    // As a WebSocket does over HTTP/2: the answer is 200, and the stream is the connection.
    let connect = any(async move |hold: Hold, request: Request| {
        drop(tokio::spawn(async move {
            let _connection = hyper::upgrade::on(request).await.unwrap();
            closed.notified().await;
            drop(hold);
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
