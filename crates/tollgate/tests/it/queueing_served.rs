//! Requests that wait behind a real server, on real sockets: clients that go, a server that shuts down, and limits at handlers and
//! in files.

#![cfg(feature = "macros")]

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::tokio_clock::in_tokio_time;
use crate::common::{at_a_standstill, from};
use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tollgate::key::Global;
use tollgate::{
    Cause, Event, Limiter, Policy, Quota, RateLimitLayer, RateLimitStatus, Verdict, rate_limit,
};
use tower::ServiceExt;

const MINUTE: Duration = Duration::from_secs(60);

/// One in half an hour, and two that wait. No turn comes while a test runs, unless the test says so.
const SLOW: Quota =
    Quota::new(1, Duration::from_secs(30 * 60)).wait_up_to(Duration::from_secs(60 * 60));

type Heard = Arc<Mutex<Vec<(Cause, Duration)>>>;

/// A limiter whose clock stands still, and the decisions of which it told.
fn slow() -> (Limiter, Heard) {
    let heard = Heard::default();
    let ear = Arc::clone(&heard);
    let limiter = Limiter::builder()
        .policy(Policy::new("slow", SLOW).key(Global))
        .backend(at_a_standstill().0)
        .observe(move |event: &Event<'_>| {
            let wait = event.verdict().map(Verdict::wait).unwrap_or_default();
            ear.lock().unwrap().push((event.cause(), wait));
        });
    (limiter.build().unwrap(), heard)
}

/// Waits until a condition holds, for as long as the test may take.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let reached = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    let in_time = tokio::time::timeout(MINUTE, reached).await;
    assert!(in_time.is_ok(), "never: {what}");
}

/// Waits until so many requests are in line.
async fn in_line(limiter: &Limiter, requests: usize) {
    let what = format!("{requests} requests wait");
    until(&what, || limiter.waiting() == requests).await;
}

/// A server that shuts down gracefully when it is told, and its end.
struct Served {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<std::io::Result<()>>,
}

impl Served {
    async fn behind(limiter: &Limiter) -> Self {
        let app = Router::new().route("/", get(|| async {}));
        let app = app.layer(RateLimitLayer::new(limiter));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let server = axum::serve(listener, app).with_graceful_shutdown(async {
            let _told = stopped.await;
        });
        let ended = tokio::spawn(server.into_future());
        Self {
            address,
            stop,
            ended,
        }
    }

    /// A request over a connection of its own. It is aborted with the connection.
    fn get(&self) -> JoinHandle<StatusCode> {
        let address = self.address;
        tokio::spawn(async move {
            let stream = TcpStream::connect(address).await.unwrap();
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
            let request = Request::get("/").header("host", "x");
            let request = request.body(Empty::<Bytes>::new()).unwrap();
            let mut answer = pin!(sender.send_request(request));
            let answer = tokio::select! {
                answer = &mut answer => answer,
                // The answer may come with the end of the connection.
                _closed = connection => answer.await,
            };
            answer.unwrap().status()
        })
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_gives_its_turn_to_the_next() {
    let (limiter, heard) = slow();
    let served = Served::behind(&limiter).await;
    assert_eq!(served.get().await.unwrap(), StatusCode::OK);
    let leaves = served.get();
    in_line(&limiter, 1).await;
    let _stays = served.get();
    in_line(&limiter, 2).await;
    assert_eq!(served.get().await.unwrap(), StatusCode::TOO_MANY_REQUESTS);
    heard.lock().unwrap().clear();

    // when the connection is closed
    leaves.abort();
    in_line(&limiter, 1).await;

    // then the next request gets the turn, before the one that stays
    let _next = served.get();
    in_line(&limiter, 2).await;
    let expected = [(Cause::Left, 30 * MINUTE), (Cause::Backend, 30 * MINUTE)];
    assert_eq!(*heard.lock().unwrap(), expected);
    assert_eq!(served.get().await.unwrap(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn a_reset_of_an_http_2_stream_gives_its_turn_to_the_next() {
    let (limiter, heard) = slow();
    let served = Served::behind(&limiter).await;
    let stream = TcpStream::connect(served.address).await.unwrap();
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    drop(tokio::spawn(connection));
    let mut get = || {
        let request = Request::get(format!("http://{}/", served.address));
        tokio::spawn(sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()))
    };
    assert_eq!(get().await.unwrap().unwrap().status(), StatusCode::OK);
    let leaves = get();
    in_line(&limiter, 1).await;
    let _stays = get();
    in_line(&limiter, 2).await;
    heard.lock().unwrap().clear();

    // when one stream is reset, on a connection that stays
    leaves.abort();
    in_line(&limiter, 1).await;

    let _next = get();
    in_line(&limiter, 2).await;
    let expected = [(Cause::Left, 30 * MINUTE), (Cause::Backend, 30 * MINUTE)];
    assert_eq!(*heard.lock().unwrap(), expected);
}

#[tokio::test]
async fn a_graceful_shutdown_drains_the_line() {
    let (limiter, _) = slow();
    let served = Served::behind(&limiter).await;
    assert_eq!(served.get().await.unwrap(), StatusCode::OK);
    let first = served.get();
    in_line(&limiter, 1).await;
    let second = served.get();
    in_line(&limiter, 2).await;

    // when the server is told to stop, and an hour goes by
    served.stop.send(()).unwrap();
    tokio::time::pause();

    // then both go on, and the server ends
    assert_eq!(first.await.unwrap(), StatusCode::OK);
    assert_eq!(second.await.unwrap(), StatusCode::OK);
    served.ended.await.unwrap().unwrap();
    assert_eq!(limiter.waiting(), 0);
}

#[tokio::test]
async fn a_shutdown_that_lets_nobody_wait_takes_no_time() {
    let (limiter, _) = slow();
    let served = Served::behind(&limiter).await;
    assert_eq!(served.get().await.unwrap(), StatusCode::OK);
    let waits = [served.get(), served.get()];
    in_line(&limiter, 2).await;

    served.stop.send(()).unwrap();
    limiter.stop_waiting();

    for refused in waits {
        assert_eq!(refused.await.unwrap(), StatusCode::SERVICE_UNAVAILABLE);
    }
    let ended = tokio::time::timeout(MINUTE, served.ended).await;
    ended.unwrap().unwrap().unwrap();
    assert_eq!(limiter.waiting(), 0);
}

async fn waited(status: RateLimitStatus) -> String {
    status.waited().as_millis().to_string()
}

#[rate_limit("10/s burst 1 wait 1s")]
async fn annotated(status: RateLimitStatus) -> String {
    waited(status).await
}

/// The answers to twelve requests that come at once, in the order in which they came.
async fn twelve(app: Router) -> Vec<String> {
    let mut answers = Vec::new();
    for _ in 0..12 {
        let request = from("203.0.113.7").map(axum::body::Body::new);
        answers.push(tokio::spawn(app.clone().oneshot(request)));
        tokio::task::yield_now().await;
    }
    let mut texts = Vec::new();
    for answer in answers {
        let answer = answer.await.unwrap().unwrap();
        texts.push(if answer.status() == StatusCode::OK {
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            String::from_utf8(body.to_vec()).unwrap()
        } else {
            answer.status().as_str().to_owned()
        });
    }
    texts
}

/// Eleven turns, and one refusal.
fn one_by_one() -> Vec<String> {
    let turns = (0..=10).map(|turn| (turn * 100).to_string());
    turns.chain(["429".to_owned()]).collect()
}

#[tokio::test(start_paused = true)]
async fn requests_wait_at_a_handler_and_a_route() {
    let routes: [(&str, Router); 2] = [
        ("annotation", Router::new().route("/", get(annotated))),
        ("route", {
            use tollgate::MethodRouterExt;
            Router::new().route("/", get(waited).rate_limit("10/s burst 1 wait 1s"))
        }),
    ];
    for (what, app) in routes {
        let limiter = Limiter::builder().allow_no_policies();
        let limiter = limiter.backend(in_tokio_time()).build().unwrap();
        let answers = twelve(app.layer(RateLimitLayer::new(limiter))).await;
        assert_eq!(answers, one_by_one(), "{what}");
    }
}

#[cfg(feature = "serde")]
#[tokio::test(start_paused = true)]
async fn requests_wait_by_a_configuration_file() {
    use tollgate::config::{LimiterConfig, Registry};

    let text = "policies = [{ name = 'api', quotas = '10/s burst 1 wait 1s', routes = ['/'] }]";
    let config: LimiterConfig = toml::from_str(text).unwrap();
    let limiter = config.build(&Registry::new()).unwrap();
    let limiter = limiter.backend(in_tokio_time()).build().unwrap();
    let app = Router::new().route("/", get(waited));
    let answers = twelve(app.layer(RateLimitLayer::new(limiter))).await;
    assert_eq!(answers, one_by_one());
}
