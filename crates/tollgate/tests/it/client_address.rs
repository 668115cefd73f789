//! The caller behind proxies: on real sockets, and as policies, closures and answers see it.

#![cfg(feature = "axum")]

use std::net::{IpAddr, SocketAddr};

use axum::extract::ConnectInfo;
use axum::routing::get;
use axum::{Router, body::Body};
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tollgate::key::{self, Global};
use tollgate::{
    ClientAddress, Hops, Key, Limiter, Networks, PeerAddr, Policy, Quota, RateLimitLayer,
};
use tower::ServiceExt;

fn limiter(address: ClientAddress) -> Limiter {
    Limiter::builder()
        .client_address(address)
        .policy(Policy::new("caller", Quota::per_hour(1)))
        .build()
        .unwrap()
}

fn app(limiter: &Limiter) -> Router {
    Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(RateLimitLayer::new(limiter))
}

fn request(lines: &[(&str, &str)]) -> Request<Body> {
    let mut request = Request::get("/");
    for (name, value) in lines {
        request = request.header(*name, *value);
    }
    request.body(Body::empty()).unwrap()
}

async fn status(app: &Router, request: Request<Body>) -> u16 {
    app.clone()
        .oneshot(request)
        .await
        .unwrap()
        .status()
        .as_u16()
}

#[tokio::test]
async fn behind_a_trusted_proxy_every_caller_has_a_budget_and_nobody_two() {
    // given a server whose only peer is a proxy
    let networks = Networks::new(["127.0.0.0/8"]);
    let app = app(&limiter(ClientAddress::x_forwarded_for(networks)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
    let fetch = async |line: &str| {
        let mut request = request(&[("x-forwarded-for", line)]);
        *request.uri_mut() = format!("http://{server}/").parse().unwrap();
        client.request(request).await.unwrap().status().as_u16()
    };

    // when one caller tries a new address with each request
    assert_eq!(fetch("203.0.113.7").await, 200);
    for n in 0..5 {
        assert_eq!(fetch(&format!("198.51.100.{n}, 203.0.113.7")).await, 429);
    }

    // then it has one budget, and another caller has another
    assert_eq!(fetch("203.0.113.7, 203.0.113.8").await, 200);
    assert_eq!(fetch("203.0.113.8").await, 429);
}

#[tokio::test]
async fn an_explicit_peer_address_goes_before_the_servers() {
    let app = app(&limiter(ClientAddress::peer()));
    let from = |explicit: &str| {
        let mut request = request(&[]);
        let connected = SocketAddr::from(([127, 0, 0, 1], 1));
        request.extensions_mut().insert(ConnectInfo(connected));
        let explicit: IpAddr = explicit.parse().unwrap();
        request
            .extensions_mut()
            .insert(PeerAddr(SocketAddr::new(explicit, 2)));
        request
    };

    assert_eq!(status(&app, from("203.0.113.7")).await, 200);
    assert_eq!(status(&app, from("203.0.113.7")).await, 429);
    assert_eq!(status(&app, from("203.0.113.8")).await, 200);
}

#[tokio::test]
async fn on_a_unix_socket_a_number_of_hops_tells_callers_apart() {
    let folder = std::env::temp_dir().join(format!("tollgate-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("server.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let app = app(&limiter(ClientAddress::x_forwarded_for(Hops(1))));
    tokio::spawn(async move { axum::serve(listener, app).await });
    let fetch = async |lines: &[(&str, &str)]| -> u16 {
        let stream = TokioIo::new(UnixStream::connect(&path).await.unwrap());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let mut request = request(lines);
        request
            .headers_mut()
            .insert("host", "localhost".parse().unwrap());
        sender
            .send_request(request)
            .await
            .unwrap()
            .status()
            .as_u16()
    };

    assert_eq!(fetch(&[("x-forwarded-for", "203.0.113.7")]).await, 200);
    assert_eq!(fetch(&[("x-forwarded-for", "203.0.113.7")]).await, 429);
    assert_eq!(fetch(&[("x-forwarded-for", "203.0.113.8")]).await, 200);
    // These have no address, so they share one budget.
    assert_eq!(fetch(&[]).await, 200);
    assert_eq!(fetch(&[("x-forwarded-for", "unknown")]).await, 429);

    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn closures_and_answers_see_the_same_caller_as_policies() {
    let limiter = Limiter::builder()
        .client_address(ClientAddress::x_forwarded_for(Hops(1)))
        .policy(
            Policy::new("by-closure", Quota::per_hour(1))
                .key(key::from_fn(|request| request.client_ip().map(Key::from)))
                .when(|request| request.client_ip().is_some_and(|ip| ip.is_ipv4())),
        )
        .policy(Policy::new("all", Quota::per_hour(100)).key(Global))
        .build()
        .unwrap();
    let layer = RateLimitLayer::new(&limiter).respond_with(|refusal| {
        let caller = refusal.request().client_ip().unwrap();
        Response::new(caller.to_string())
    });
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(layer);
    let fetch = async |line: &str| {
        let request = request(&[("x-forwarded-for", line)]);
        let response = app.clone().oneshot(request).await.unwrap();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap()
    };

    assert_eq!(fetch("::ffff:203.0.113.7").await, "hello");
    assert_eq!(fetch("203.0.113.7:80").await, "203.0.113.7");
}

#[tokio::test]
async fn a_check_by_hand_spends_the_budget_that_requests_spend() {
    let address = ClientAddress::x_forwarded_for(Hops(1)).ipv6_prefix(48);
    let limiter = limiter(address);
    let app = app(&limiter);

    let caller = "2001:db8:7:1::1";
    assert_eq!(
        status(&app, request(&[("x-forwarded-for", caller)])).await,
        200
    );

    let neighbour: IpAddr = "2001:db8:7:2::2".parse().unwrap();
    let key: Key = limiter.client_key(neighbour);
    assert!(!limiter.check("caller", key).await.unwrap().is_allowed());
}
