//! Requests that look like something else, on real sockets, before routers and gRPC services with the layer around them. The truth
//! is what reaches a handler.

#![cfg(all(feature = "axum", feature = "macros", feature = "tonic"))]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::served::Served;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::{any, get, options};
#[expect(deprecated, reason = "handlers have it all the same")]
use axum_extra::extract::Host;
use http::{Method, Request, Uri, Version};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollgate::key::Global;
use tollgate::{
    Limiter, LimiterBuilder, MethodRouterExt, Policy, Quota, Quotas, RateLimitLayer, rate_limit,
};
use tollgate_testkit::shop::{OrdersServer, Shop};
use tonic::service::Routes;
use tower::ServiceExt;

/// One message without content, as gRPC frames it.
const FRAME: &[u8] = &[0; 5];

/// Sends the request, in the version of HTTP that it has, and reads the answer to its end.
async fn send(served: Served, mut request: Request<Body>) {
    let uri = format!("http://{}{}", served.0, request.uri().path());
    *request.uri_mut() = uri.parse().unwrap();
    let client = Client::builder(TokioExecutor::new())
        .http2_only(request.version() == Version::HTTP_2)
        .build_http::<Body>();
    let response = client.request(request).await.unwrap();
    response.into_body().collect().await.unwrap();
}

fn request(
    method: Method,
    path: &str,
    headers: &[(&'static str, &str)],
    body: &'static [u8],
) -> Request<Body> {
    let mut request = Request::new(Body::from(body));
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    request
}

const PREFLIGHT: [(&str, &str); 2] = [
    ("origin", "https://example.com"),
    ("access-control-request-method", "POST"),
];

fn preflight(path: &str) -> Request<Body> {
    request(Method::OPTIONS, path, &PREFLIGHT, b"")
}

/// Preflights of two kinds that are calls: with and without gRPC's headers, in both versions of HTTP.
fn calls_that_look_like_preflights(path: &str) -> Vec<Request<Body>> {
    let mut calls = Vec::new();
    let grpc = [("content-type", "application/grpc"), ("te", "trailers")];
    for version in [Version::HTTP_11, Version::HTTP_2] {
        for body in [FRAME, b""] {
            for said in 0..=grpc.len() {
                let headers = [&PREFLIGHT, &grpc[..said]].concat();
                let mut call = request(Method::OPTIONS, path, &headers, body);
                *call.version_mut() = version;
                calls.push(call);
            }
        }
    }
    calls
}

fn two_an_hour() -> Policy {
    Policy::new("two", Quota::per_hour(2)).key(Global)
}

/// A server of HTTP and gRPC on one port.
async fn shop(limiter: LimiterBuilder) -> (Shop, Served) {
    let shop = Shop::default();
    let grpc = Routes::new(OrdersServer::new(shop.clone())).into_axum_router();
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .merge(grpc.clone())
        .nest("/api", grpc)
        .layer(RateLimitLayer::new(limiter.build().unwrap()));
    (shop, Served::new(app).await)
}

#[tokio::test]
async fn a_grpc_call_that_looks_like_a_preflight_is_charged() {
    let paths = ["Place", "Upload", "Watch", "Chat"];
    let paths = paths.map(|method| format!("/shop.v1.Orders/{method}"));
    let nested = paths.clone().map(|path| format!("/api{path}"));
    for path in paths.iter().chain(&nested) {
        for limiter in [Limiter::builder(), Limiter::builder().exempt_preflights()] {
            let asked = format!("{path} {limiter:?}");
            let (shop, served) = shop(limiter.policy(two_an_hour())).await;
            for call in calls_that_look_like_preflights(path) {
                send(served, call).await;
            }
            assert!(shop.calls() <= 2, "{asked}: {}", shop.calls());
        }
    }
}

#[tokio::test]
async fn a_grpc_service_without_package_is_charged_whatever_its_calls_look_like() {
    // given a service whose paths look like any other
    let shop = Shop::default();
    let renamed = |name: &'static str| {
        let orders = OrdersServer::new(shop.clone());
        let orders = orders.map_request(move |mut call: Request<Body>| {
            assert!(call.uri().path().starts_with(name), "{call:?}");
            *call.uri_mut() = Uri::from_static("/shop.v1.Orders/Chat");
            call.map(tonic::body::Body::new)
        });
        Router::new().route_service(&format!("{name}/{{*rest}}"), orders)
    };
    let named = Policy::new("others", Quota::per_hour(1)).grpc("named/join");
    let limiter = || {
        let limiter = Limiter::builder().exempt_preflights();
        limiter.policy(two_an_hour()).policy(named.clone())
    };
    let layer = || RateLimitLayer::new(limiter().build().unwrap());
    let inside = Router::new().merge(renamed("/chat")).layer(layer());
    let outside = [renamed("/named"), renamed("/Chat")].map(|app| {
        // Outside of the router, where nothing is known of routes.
        Router::new().fallback_service(app).layer(layer())
    });

    // when calls come that could be preflights
    let [named, capital] = outside;
    let asked = [
        (inside, "/chat/join"),
        (named, "/named/join"),
        (capital, "/Chat/join"),
    ];
    for (app, path) in asked {
        let before = shop.calls();
        let served = Served::new(app).await;
        for call in calls_that_look_like_preflights(path) {
            send(served, call).await;
        }

        // then they are charged
        assert!((1..=2).contains(&(shop.calls() - before)), "{path}");
    }
}

/// The handlers that have run.
type Ran = Arc<AtomicUsize>;

async fn runs(State(ran): State<Ran>) {
    ran.fetch_add(1, Ordering::SeqCst);
}

#[rate_limit("2/hour", key = Global, name = "annotated")]
async fn annotated(State(ran): State<Ran>) {
    ran.fetch_add(1, Ordering::SeqCst);
}

/// The number of times that a handler runs for 20 preflights.
async fn ran_for_preflights(app: Router<Ran>, limiter: LimiterBuilder) -> usize {
    let ran = Ran::default();
    let layer = RateLimitLayer::new(limiter.build().unwrap());
    let served = Served::new(app.with_state(Arc::clone(&ran)).layer(layer)).await;
    for _ in 0..20 {
        send(served, preflight("/h")).await;
    }
    ran.load(Ordering::SeqCst)
}

#[tokio::test]
async fn a_preflight_is_charged_wherever_a_handler_answers_it() {
    let app = Router::new;
    let apps: [(&str, Router<Ran>); 5] = [
        ("any", app().route("/h", any(runs))),
        ("options", app().route("/h", options(runs))),
        ("a router's fallback", app().fallback(runs)),
        (
            "a method's fallback",
            app().route("/h", get(runs).fallback(runs)),
        ),
        (
            "a router's fallback for methods",
            app()
                .route("/h", get(runs))
                .method_not_allowed_fallback(runs),
        ),
    ];
    for (name, app) in apps {
        let charged = Limiter::builder().policy(two_an_hour());
        assert_eq!(ran_for_preflights(app.clone(), charged).await, 2, "{name}");
        let exempt = Limiter::builder().exempt_preflights();
        let ran = ran_for_preflights(app, exempt.policy(two_an_hour())).await;
        assert_eq!(ran, 20, "{name}");
    }
}

#[tokio::test]
async fn a_limit_at_a_handler_holds_for_preflights_whatever_is_exempt() {
    let app = Router::new;
    let apps: [(&str, Router<Ran>); 3] = [
        ("annotated", app().route("/h", any(annotated))),
        (
            "a route",
            app().route("/h", options(runs).rate_limit("2/h")),
        ),
        (
            "by name",
            app().route("/h", options(runs).rate_limit_by("two")),
        ),
    ];
    for (name, app) in apps {
        for exempt in [false, true] {
            let mut limiter = Limiter::builder().policy(two_an_hour().on_demand());
            if exempt {
                limiter = limiter.exempt_preflights();
            }
            let ran = ran_for_preflights(app.clone(), limiter).await;
            assert_eq!(ran, 2, "{name}, exempt: {exempt}");
        }
    }
}

#[tokio::test]
async fn a_path_that_begins_like_a_health_check_is_charged_on_its_way_to_a_handler_of_http() {
    for path in [
        "/grpc.health.v1.Health/x",
        "/grpc.health.v1.Health/../../admin/login",
        "/grpc.health.v1.Health/Check",
        "/grpc.reflection.v1.ServerReflection/../admin",
    ] {
        for limiter in [
            Limiter::builder(),
            Limiter::builder().exempt_health_checks(),
        ] {
            let ran = Ran::default();
            let app = Router::new().fallback(runs).with_state(Arc::clone(&ran));
            let limiter = limiter.policy(two_an_hour()).build().unwrap();
            let served = Served::new(app.layer(RateLimitLayer::new(limiter))).await;
            for _ in 0..20 {
                send(served, request(Method::POST, path, &[], b"")).await;
            }
            assert_eq!(ran.load(Ordering::SeqCst), 2, "{path}");
        }
    }
}

/// Runs for a host if any reader takes the request to be for it: axum-extra's, the first and last line, and the target.
#[expect(deprecated, reason = "handlers have it all the same")]
async fn reads_host(State(ran): State<Ran>, host: Option<Host>, request: Request<Body>) {
    let authority = request.uri().authority().map(http::uri::Authority::host);
    let lines = request.headers().get_all("host").iter();
    let mut lines = lines.filter_map(|line| line.to_str().ok());
    let extracted = host.as_ref().map(|Host(host)| host.as_str());
    let mut said = [extracted, authority, lines.next(), lines.next_back()].into_iter();
    let is_api = |said: &str| {
        let name = said.split(':').next().unwrap_or_default();
        name.trim_end_matches('.')
            .eq_ignore_ascii_case("api.example.com")
    };
    if said.any(|said| said.is_some_and(is_api)) {
        ran.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_policy_for_a_host_covers_what_a_handler_can_take_for_it() {
    let heads = [
        "GET / HTTP/1.1\r\nHost: api.example.com\r\n",
        "GET / HTTP/1.1\r\nHost: API.example.com.\r\n",
        "GET / HTTP/1.1\r\nHost: api.example.com\r\nHost: www.example.com\r\n",
        "GET / HTTP/1.1\r\nHost: www.example.com\r\nHost: api.example.com\r\n",
        "GET / HTTP/1.1\r\nHost: api.example.com\r\nHost: api.example.com\r\n",
        "GET / HTTP/1.1\r\nHost: api.example.com\r\nHost:\r\n",
        "GET http://www.example.com/ HTTP/1.1\r\nHost: api.example.com\r\n",
        "GET http://api.example.com/ HTTP/1.1\r\nHost: www.example.com\r\n",
        "GET http://u:p@api.example.com:80/ HTTP/1.1\r\nHost: www.example.com\r\n",
        "GET http://api.example.com/ HTTP/1.0\r\n",
        "GET / HTTP/1.1\r\nHost: www.example.com\r\nX-Forwarded-Host: api.example.com:443\r\n",
        "GET / HTTP/1.1\r\nHost: www.example.com\r\nForwarded: for=a;Host=\"api.example.com\"\r\n",
    ];
    for head in heads {
        // given a policy for one host
        let ran = Ran::default();
        let app = Router::new().route("/", get(reads_host));
        let app = app.with_state(Arc::clone(&ran));
        let limiter = two_an_hour().host("api.example.com");
        let served = Served::new(app.layer(RateLimitLayer::new(limiter))).await;

        // when requests come that say it in their own way
        for _ in 0..5 {
            let mut stream = TcpStream::connect(served.0).await.unwrap();
            let request = format!("{head}Connection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.unwrap();
        }

        // then two of them reach the host's handler
        assert_eq!(ran.load(Ordering::SeqCst), 2, "{head}");
    }
}

/// An answer in gRPC has the status 200: a cache or a browser would take it for the page.
#[tokio::test]
async fn a_page_is_answered_in_http_whatever_its_caller_claims_to_speak() {
    let limit = Policy::new("pages", Quotas::none()).key(Global);
    let app = Router::new()
        .route("/page", any(|| async {}))
        .route("/items/{id}", any(|| async {}))
        .fallback(|| async {})
        .layer(RateLimitLayer::new(limit));
    for path in ["/", "/page", "/page/", "/items/7"] {
        let request = Request::post(path).header("content-type", "application/grpc");
        let request = request.body(Body::empty()).unwrap();

        let answer = app.clone().oneshot(request).await.unwrap();

        assert!(answer.status().is_client_error(), "{path}: {answer:?}");
        assert_eq!(answer.headers().get("grpc-status"), None, "{path}");
    }
}

/// No pattern matches such a target, and a fallback answers it.
#[tokio::test]
async fn a_policy_without_routes_covers_targets_that_begin_with_no_slash() {
    for line in ["OPTIONS *", "CONNECT x:80", "GET foo", "GET /nowhere"] {
        let ran = Arc::new(AtomicUsize::new(0));
        let handler = {
            let ran = Arc::clone(&ran);
            async move || {
                ran.fetch_add(1, Ordering::SeqCst);
            }
        };
        let everything = Policy::new("everything", Quota::per_hour(2)).key(Global);
        let app = Router::new()
            .fallback(handler)
            .layer(RateLimitLayer::new(everything));
        let served = Served::new(app).await;

        let mut answered = 0;
        for _ in 0..5 {
            let mut stream = TcpStream::connect(served.0).await.unwrap();
            let request = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.unwrap();
            answered += usize::from(answer.starts_with(b"HTTP/1.1 429"));
        }

        // hyper itself refuses a target that is no path; the handler sees the others twice.
        let ran = ran.load(Ordering::SeqCst);
        assert!(
            (ran, answered) == (2, 3) || (ran, answered) == (0, 0),
            "{line}: {ran} {answered}"
        );
    }
}
