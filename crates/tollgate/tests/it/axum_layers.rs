//! Under axum: wherever a layer can stand, over real sockets, with real connections.

#![cfg(feature = "axum")]

use std::net::SocketAddr;

use crate::common::{Waiting, at_a_standstill, header};
use axum::extract::connect_info::MockConnectInfo;
use axum::routing::{MethodRouter, get};
use axum::{Router, body::Body};
use http::{Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tollgate::key::Global;
use tollgate::{Limiter, Policy, Quota, RateLimitLayer, RateLimitStatus};
use tollgate_testkit::Log;
use tower::{Layer, ServiceBuilder, ServiceExt};

async fn hello() -> &'static str {
    "hello"
}

fn one_an_hour() -> RateLimitLayer {
    RateLimitLayer::new(Policy::new("one", Quota::per_hour(1)).key(Global))
}

async fn statuses(app: Router, paths: &[&str]) -> Vec<u16> {
    let mut all = Vec::new();
    for path in paths {
        let request = Request::get(*path).body(Body::empty()).unwrap();
        all.push(
            app.clone()
                .oneshot(request)
                .await
                .unwrap()
                .status()
                .as_u16(),
        );
    }
    all
}

/// Serves the app on a free port, with the addresses of its connections.
async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    address
}

/// One request on a connection of its own.
async fn fetch(address: SocketAddr, path: &str) -> Result<Response<hyper::body::Incoming>, ()> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
    let uri = format!("http://{address}{path}").parse().unwrap();
    client.get(uri).await.map_err(|_| ())
}

#[tokio::test]
async fn around_a_router_a_layer_covers_its_routes_and_its_404s() {
    let app = Router::new().route("/", get(hello)).layer(one_an_hour());
    assert_eq!(
        statuses(app, &["/", "/", "/nowhere"]).await,
        [200, 429, 429]
    );
}

#[tokio::test]
async fn as_a_route_layer_it_covers_routes_only() {
    let app = Router::new()
        .route("/", get(hello))
        .route_layer(one_an_hour());
    assert_eq!(
        statuses(app, &["/nowhere", "/", "/"]).await,
        [404, 200, 429]
    );
}

#[tokio::test]
async fn on_a_method_router_it_covers_that_route() {
    let limited: MethodRouter = get(hello).layer(one_an_hour());
    let app = Router::new()
        .route("/limited", limited)
        .route("/free", get(hello));
    let paths = ["/limited", "/limited", "/free", "/free"];
    assert_eq!(statuses(app, &paths).await, [200, 429, 200, 200]);
}

#[tokio::test]
async fn in_a_service_builder_it_is_a_layer_like_any_other() {
    let stack = ServiceBuilder::new()
        .concurrency_limit(10)
        .layer(one_an_hour());
    let app = Router::new().route("/", get(hello)).layer(stack);
    assert_eq!(statuses(app, &["/", "/"]).await, [200, 429]);
}

#[tokio::test]
async fn around_a_whole_router_as_a_service_it_works_as_well() {
    let app = one_an_hour().layer(Router::new().route("/", get(hello)));
    let request = || Request::get("/").body(Body::empty()).unwrap();
    assert_eq!(app.clone().oneshot(request()).await.unwrap().status(), 200);
    assert_eq!(app.oneshot(request()).await.unwrap().status(), 429);
}

#[tokio::test]
async fn nested_routers_under_one_layer_share_its_budgets() {
    let inner = Router::new().route("/deep", get(hello));
    let app = Router::new()
        .nest("/api", inner)
        .route("/", get(hello))
        .layer(one_an_hour());
    assert_eq!(statuses(app, &["/api/deep", "/"]).await, [200, 429]);
}

#[tokio::test]
async fn a_handler_test_needs_no_socket() {
    let app = Router::new()
        .route("/", get(hello))
        .layer(RateLimitLayer::new(Quota::per_hour(1)))
        .layer(MockConnectInfo(SocketAddr::from(([203, 0, 113, 7], 4711))));
    assert_eq!(statuses(app, &["/", "/"]).await, [200, 429]);
}

#[tokio::test]
async fn pitfall_state_per_clone_so_that_the_limit_multiplies_with_connections() {
    let app = Router::new()
        .route("/", get(hello))
        .layer(RateLimitLayer::new(Quota::per_hour(10)));
    let address = serve(app).await;

    // Fifty connections at once, from one address.
    let fetches = (0..50).map(|_| tokio::spawn(fetch(address, "/")));
    let mut passed = 0;
    for fetch in fetches.collect::<Vec<_>>() {
        let response = fetch.await.unwrap().unwrap();
        passed += usize::from(response.status() == 200);
        assert!(response.headers().contains_key("ratelimit"));
    }

    assert_eq!(passed, 10);
}

#[tokio::test]
async fn a_panicking_handler_costs_its_own_charge_and_nothing_else() {
    let app = Router::new()
        .route(
            "/panic",
            get(|| async {
                if true {
                    panic!("on purpose")
                }
            }),
        )
        .route("/", get(hello))
        .layer(RateLimitLayer::new(Quota::per_hour(3)));
    let address = serve(app).await;

    assert!(fetch(address, "/panic").await.is_err());

    let response = fetch(address, "/").await.unwrap();
    assert_eq!(header(&response, "ratelimit"), "\"default\";r=1;t=2400");
    assert_eq!(fetch(address, "/").await.unwrap().status(), 200);
    assert_eq!(fetch(address, "/").await.unwrap().status(), 429);
}

#[tokio::test]
async fn a_client_that_hangs_up_while_its_decision_waits_spends_nothing() {
    let backend = Waiting::new(at_a_standstill().0);
    let limiter = Limiter::builder()
        .policy(Policy::new("one", Quota::per_hour(1)).key(Global))
        .backend(backend.clone())
        .build()
        .unwrap();
    let app = Router::new()
        .route("/", get(hello))
        .layer(RateLimitLayer::new(limiter));
    let address = serve(app).await;

    let impatient = tokio::spawn(fetch(address, "/"));
    while backend.pending() == 0 {
        tokio::task::yield_now().await;
    }
    impatient.abort();
    while backend.pending() > 0 {
        tokio::task::yield_now().await;
    }

    backend.gate.add_permits(1);
    assert_eq!(fetch(address, "/").await.unwrap().status(), 200);
}

#[tokio::test]
async fn the_status_is_an_extractor() {
    async fn left(status: RateLimitStatus) -> String {
        status
            .tightest()
            .map_or(0, |one| one.verdict().remaining())
            .to_string()
    }
    async fn perhaps(status: Option<RateLimitStatus>) -> StatusCode {
        if status.is_some() {
            StatusCode::OK
        } else {
            StatusCode::NO_CONTENT
        }
    }
    let router = Router::new()
        .route("/left", get(left))
        .route("/perhaps", get(perhaps));

    assert_eq!(
        statuses(router.clone(), &["/left", "/perhaps"]).await,
        [500, 204]
    );
    assert_eq!(
        statuses(router.layer(one_an_hour()), &["/perhaps"]).await,
        [200]
    );
}

#[tokio::test]
async fn pitfall_a_missing_peer_address_answered_with_500_per_request() {
    let log = Log::default();
    let _guard = log.listen();
    // No connect info is installed.
    let app = Router::new()
        .route("/", get(hello))
        .layer(RateLimitLayer::new(Quota::per_hour(2)));

    assert_eq!(
        statuses(app, &["/", "/", "/", "/"]).await,
        [200, 200, 429, 429]
    );

    let logged = log.text();
    assert_eq!(logged.matches("WARN").count(), 1, "{logged}");
    assert!(
        logged.contains(".into_make_service_with_connect_info::<SocketAddr>()"),
        "{logged}"
    );
}
