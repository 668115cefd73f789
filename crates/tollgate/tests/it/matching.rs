//! The policies that cover a request: by routes, methods and hosts, wherever under axum the layer stands, over real sockets where
//! it matters.

#![cfg(feature = "axum")]

use std::net::SocketAddr;

use crate::common::header;
use axum::routing::{any, get};
use axum::{Router, body::Body};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tollgate::key::{self, Global, KeyList, MatchedRoute, PathParam};
use tollgate::{Limiter, NetworkList, Networks, PeerAddr, Policy, Quota, RateLimitLayer};
use tower::{Layer, ServiceExt};

/// A policy that says by its budget, a large one, that it has taken part: by what is left of it.
fn policy(name: &str) -> Policy {
    Policy::new(name, Quota::per_day(1_000)).key(Global)
}

fn limiter(policies: impl IntoIterator<Item = Policy>) -> Limiter {
    Limiter::builder().policies(policies).build().unwrap()
}

fn request(method: &str, uri: &str) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri(uri)
        .body(Body::empty())
        .unwrap()
}

async fn send(app: &Router, request: Request<Body>) -> Response<Body> {
    app.clone().oneshot(request).await.unwrap()
}

/// The names of the policies that took part.
async fn took_part(app: &Router, request: Request<Body>) -> Vec<String> {
    let response = send(app, request).await;
    let policies = header(&response, "ratelimit-policy").split(", ");
    let names = policies.filter_map(|policy| policy.split('"').nth(1));
    names.map(str::to_owned).collect()
}

fn around_everything(policies: impl IntoIterator<Item = Policy>) -> Router {
    Router::new()
        .fallback(any(|| async { "hello" }))
        .layer(RateLimitLayer::new(limiter(policies)))
}

#[tokio::test]
async fn a_policy_covers_its_routes_and_methods() {
    let app = around_everything([
        policy("user").route("/users/{id}").method(Method::GET),
        policy("login")
            .route("/login/")
            .route("/token")
            .method(Method::POST),
        policy("all"),
    ]);
    let cases: &[(&str, &str, &[&str])] = &[
        ("GET", "/users/7", &["user", "all"]),
        // The handler of GET runs for HEAD.
        ("HEAD", "/users/7", &["user", "all"]),
        ("DELETE", "/users/7", &["all"]),
        ("GET", "/users", &["all"]),
        ("GET", "/users/7/posts", &["all"]),
        ("POST", "/login", &["login", "all"]),
        ("POST", "/token?x=1", &["login", "all"]),
        ("GET", "/login", &["all"]),
    ];
    for (method, uri, expected) in cases {
        assert_eq!(
            took_part(&app, request(method, uri)).await,
            *expected,
            "{method} {uri}"
        );
    }
}

#[tokio::test]
async fn pitfall_variants_of_one_path_as_several_budgets() {
    let login = Policy::new("login", Quota::per_hour(1))
        .route("/login")
        .key(Global);
    let app = around_everything([login]);

    assert_eq!(send(&app, request("GET", "/login")).await.status(), 200);
    for variant in [
        "/login/",
        "//login",
        "/log%69n",
        "/%6Cogin//",
        "/login?x",
        "http://h/login",
    ] {
        let response = send(&app, request("GET", variant)).await;
        assert_eq!(response.status(), 429, "{variant}");
    }
    assert_eq!(send(&app, request("GET", "/LOGIN")).await.status(), 200);
}

#[tokio::test]
async fn case_is_ignored_where_asked() {
    let limiter = Limiter::builder()
        .ignore_path_case()
        .policy(
            Policy::new("user", Quota::per_hour(1))
                .route("/Users/{id}")
                .key(PathParam::new("id")),
        )
        .build()
        .unwrap();
    let app = Router::new()
        .fallback(any(|| async { "hello" }))
        .layer(RateLimitLayer::new(limiter));

    assert_eq!(send(&app, request("GET", "/users/bob")).await.status(), 200);
    assert_eq!(send(&app, request("GET", "/USERS/Bob")).await.status(), 429);
    assert_eq!(send(&app, request("GET", "/users/eve")).await.status(), 200);
}

#[tokio::test]
async fn case_is_ignored_where_asked_in_paths_that_only_axum_matched() {
    let limiter = Limiter::builder()
        .ignore_path_case()
        .policy(Policy::new("user", Quota::per_hour(1)).key(PathParam::new("id")))
        .build()
        .unwrap();
    let app = Router::new()
        .route("/User-{id}", get(|| async { "hello" }))
        .layer(RateLimitLayer::new(limiter));

    assert_eq!(send(&app, request("GET", "/User-Bob")).await.status(), 200);
    assert_eq!(send(&app, request("GET", "/User-BOB")).await.status(), 429);
}

#[tokio::test]
async fn within_nest_the_callers_path_counts() {
    let limiter = limiter([
        policy("inner").route("/users/{id}"),
        policy("outer").route("/api/v1/users/{id}"),
    ]);
    let users = Router::new()
        .route("/users/{id}", get(|| async { "hello" }))
        .layer(RateLimitLayer::new(&limiter));
    let app = Router::new().nest("/api", Router::new().nest("/v1", users));

    assert_eq!(
        took_part(&app, request("GET", "/api/v1/users/7")).await,
        ["outer"]
    );
}

#[tokio::test]
async fn around_a_whole_router_there_is_no_matched_path_and_none_is_needed() {
    let one = |name| {
        Policy::new(name, Quota::per_hour(1))
            .route("/users/{id}")
            .route("/posts/{id}")
    };
    let limiter = limiter([
        one("route").key(MatchedRoute),
        one("param").key(PathParam::new("id")).shadow(),
    ]);
    let router = Router::new().route("/users/{id}", get(|| async { "hello" }));
    let app = RateLimitLayer::new(&limiter).layer(router);
    let status = async |uri: &str| {
        let response = app.clone().oneshot(request("GET", uri)).await.unwrap();
        response.status().as_u16()
    };

    assert_eq!(status("/users/7").await, 200);
    assert_eq!(status("/users/8").await, 429);
    assert_eq!(status("/posts/7").await, 404);
    assert_eq!(status("/posts/8").await, 429);
}

#[tokio::test]
async fn within_a_router_keys_need_no_pattern_of_their_own() {
    let limiter = limiter([
        Policy::new("route", Quota::per_hour(3)).key(MatchedRoute),
        Policy::new("param", Quota::per_hour(1)).key(PathParam::new("id")),
    ]);
    let users = Router::new()
        .route("/users/{id}", get(|| async { "hello" }))
        .route("/files/{*id}", get(|| async { "hello" }));
    let app = Router::new()
        .nest("/api", users)
        .layer(RateLimitLayer::new(&limiter));

    // One budget for each value, however it is written.
    assert_eq!(
        send(&app, request("GET", "/api/users/a")).await.status(),
        200
    );
    for variant in ["/api/users/a", "/api/users/%61"] {
        let refused = send(&app, request("GET", variant)).await;
        assert_eq!(
            header(&refused, "ratelimit"),
            "\"param\";r=0;t=3600",
            "{variant}"
        );
    }
    assert_eq!(
        send(&app, request("GET", "/api/users/b")).await.status(),
        200
    );
    assert_eq!(
        send(&app, request("GET", "/api/users/c")).await.status(),
        200
    );
    // And one for each route.
    let refused = send(&app, request("GET", "/api/users/d")).await;
    assert!(header(&refused, "ratelimit").starts_with("\"route\";r=0;"));
    assert_eq!(
        send(&app, request("GET", "/api/files/x/y")).await.status(),
        200
    );
    assert_eq!(
        send(&app, request("GET", "/api/files//x//y/"))
            .await
            .status(),
        429
    );
}

#[tokio::test]
async fn a_parameter_that_the_policys_route_does_not_have_is_the_routers() {
    let users = Policy::new("users", Quota::per_hour(1))
        .route("/{kind}/{*rest}")
        .key(PathParam::new("id"));
    let app = Router::new()
        .route("/users/{id}", get(|| async { "hello" }))
        .layer(RateLimitLayer::new(limiter([users])));

    for (uri, expected) in [("/users/a", 200), ("/users/b", 200), ("/users/a", 429)] {
        assert_eq!(send(&app, request("GET", uri)).await.status(), expected);
    }
}

#[tokio::test]
async fn a_policy_covers_its_hosts() {
    let app = around_everything([
        policy("api").host("api.example.com"),
        policy("tenants")
            .host("*.tenants.example.com")
            .host("[2001:db8::1]"),
    ]);
    let to = |host: &str| {
        let mut request = request("GET", "/");
        request.headers_mut().insert("host", host.parse().unwrap());
        request
    };
    let cases: &[(&str, &[&str])] = &[
        ("api.example.com", &["api"]),
        ("API.Example.Com.:8443", &["api"]),
        ("a.tenants.example.com", &["tenants"]),
        ("[2001:DB8::1]:80", &["tenants"]),
        ("example.com", &[]),
        ("tenants.example.com", &[]),
    ];
    for (host, expected) in cases {
        assert_eq!(took_part(&app, to(host)).await, *expected, "{host}");
    }
    let absolute = request("GET", "http://api.example.com/");
    assert_eq!(took_part(&app, absolute).await, ["api"]);
    // A server takes a request without a host for its own.
    for nobody in [request("GET", "/"), to("")] {
        assert_eq!(took_part(&app, nobody).await, ["api", "tenants"]);
    }
}

#[tokio::test]
async fn exempt_are_routes_methods_and_networks_that_change_at_run_time() {
    let offices = NetworkList::from(Networks::new(["192.0.2.0/24"]));
    let app = around_everything([policy("all")
        .exempt_route("/health")
        .exempt_route("/assets/{*path}")
        .exempt_method(Method::DELETE)
        .exempt_networks(&offices)]);
    let from = |peer: [u8; 4]| {
        let mut request = request("GET", "/");
        let peer = PeerAddr(SocketAddr::from((peer, 1)));
        request.extensions_mut().insert(peer);
        request
    };
    let covers = async |request| took_part(&app, request).await == ["all"];

    assert!(!covers(request("GET", "/health")).await);
    assert!(!covers(request("GET", "/assets/a/b")).await);
    assert!(!covers(request("GET", "/assets/a%20b//c%2fd/")).await);
    assert!(!covers(request("DELETE", "/")).await);
    assert!(covers(request("GET", "/healthy")).await);
    // A proxy behind the limiter may resolve them.
    for path in [
        "/assets/../login",
        "/assets/..%2flogin",
        "/assets/x/%2e%2e/../login",
    ] {
        assert!(covers(request("GET", path)).await, "{path}");
    }
    assert!(!covers(from([192, 0, 2, 1])).await);
    assert!(covers(from([198, 51, 100, 1])).await);

    offices.replace(Networks::new(["198.51.100.1"]));

    assert!(covers(from([192, 0, 2, 1])).await);
    assert!(!covers(from([198, 51, 100, 1])).await);
}

#[tokio::test]
async fn a_form_of_an_exempt_path_that_reaches_another_handler_is_covered() {
    let health = || Router::new().route("/Health/{id}", get(|| async { "health" }));
    let other = || health().fallback(|| async { "other" });
    let forms = [
        ("/Health/7", "health", false),
        ("/Health/%37", "health", false),
        ("/Health/7/", "other", true),
        ("//Health/7", "other", true),
        ("/%48ealth/7", "other", true),
        ("/health/7", "other", true),
    ];
    for ignores_case in [false, true] {
        let exempting = || {
            let policy = Policy::new("all", Quota::per_hour(1)).key(Global);
            let limiter = Limiter::builder().policy(policy.exempt_route("/Health/{id}"));
            let limiter = if ignores_case {
                limiter.ignore_path_case()
            } else {
                limiter
            };
            RateLimitLayer::new(limiter.build().unwrap())
        };
        for (path, handler, is_covered) in forms {
            let app = other().layer(exempting());

            let response = app.oneshot(request("GET", path)).await.unwrap();

            let is_charged = response.headers().contains_key("ratelimit");
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, handler, "{path}");
            assert_eq!(
                is_charged, is_covered,
                "{path}, ignoring case: {ignores_case}"
            );
        }
    }
}

#[tokio::test]
async fn a_form_of_a_route_on_a_list_of_exemptions_that_reaches_another_handler_is_covered() {
    for (path, is_covered) in [
        ("/reports/7", false),
        ("/reports/7/", true),
        ("//reports/7", true),
        ("/%72eports/7", true),
    ] {
        let routes = KeyList::new();
        routes.insert("/reports/{id}");
        let tenants = KeyList::new();
        tenants.insert("7");
        let app = around_everything([
            policy("by-route")
                .route("/reports/{id}")
                .exempt_by(MatchedRoute, &routes),
            policy("by-param")
                .route("/reports/{id}")
                .exempt_by(PathParam::new("id"), &tenants),
        ]);

        let took_part = took_part(&app, request("GET", path)).await;

        assert_eq!(took_part.len(), if is_covered { 2 } else { 0 }, "{path}");
    }
}

#[tokio::test]
async fn pitfall_preflights_burn_the_quota_unless_the_operator_exempts_them() {
    let with = |headers: &[(&'static str, &str)]| {
        let mut request = request("OPTIONS", "/");
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        request
    };
    let (origin, method) = (
        ("origin", "https://example.com"),
        ("access-control-request-method", "POST"),
    );
    let preflight = || with(&[origin, method]);
    let app = around_everything([policy("usual"), policy("lax").exempt_preflights()]);
    assert_eq!(took_part(&app, preflight()).await, ["usual"]);
    let length = ("content-length", "0");
    assert_eq!(
        took_part(&app, with(&[origin, method, length])).await,
        ["usual"]
    );
    // A request that no browser sends is not a preflight.
    let others: [&[(&'static str, &str)]; 11] = [
        &[],
        &[origin],
        &[method],
        &[origin, method, ("content-type", "application/json")],
        &[origin, method, ("content-length", "5")],
        &[origin, method, ("transfer-encoding", "chunked")],
        &[origin, method, ("te", "trailers")],
        &[origin, method, ("cookie", "session=1")],
        &[origin, method, ("authorization", "Bearer t")],
        &[origin, method, ("grpc-timeout", "1S")],
        &[origin, method, ("expect", "100-continue")],
    ];
    for headers in others {
        assert_eq!(
            took_part(&app, with(headers)).await,
            ["usual", "lax"],
            "{headers:?}"
        );
    }
    for twice in [origin, method] {
        let mut request = preflight();
        request
            .headers_mut()
            .append(twice.0, twice.1.parse().unwrap());
        assert_eq!(
            took_part(&app, request).await,
            ["usual", "lax"],
            "{twice:?}"
        );
    }

    let lax = Limiter::builder()
        .exempt_preflights()
        .policy(policy("usual"))
        .build()
        .unwrap();
    let app = Router::new()
        .fallback(any(|| async { "hello" }))
        .layer(RateLimitLayer::new(lax));
    assert!(took_part(&app, preflight()).await.is_empty());
}

#[tokio::test]
async fn all_conditions_must_hold_and_every_closure() {
    let app = around_everything([policy("picky")
        .route("/a")
        .method(Method::POST)
        .when(|request| request.headers().contains_key("x-one"))
        .when(|request| request.headers().contains_key("x-two"))]);
    let with = |names: &[&'static str]| {
        let mut request = request("POST", "/a");
        for name in names {
            request.headers_mut().insert(*name, "1".parse().unwrap());
        }
        request
    };

    assert_eq!(took_part(&app, with(&["x-one", "x-two"])).await, ["picky"]);
    assert!(took_part(&app, with(&["x-one"])).await.is_empty());
    assert!(took_part(&app, with(&["x-two"])).await.is_empty());
}

#[tokio::test]
async fn a_hundred_policies_for_a_hundred_routes_make_one_limiter() {
    let app = around_everything(
        (0..100).map(|n| policy(&format!("p{n}")).route(&format!("/{n}/{{id}}"))),
    );
    assert_eq!(took_part(&app, request("GET", "/42/x")).await, ["p42"]);
    assert!(took_part(&app, request("GET", "/100/x")).await.is_empty());
}

#[test]
fn more_quotas_on_one_path_than_a_call_may_carry_are_refused() {
    let policies = (0..33).map(|n| policy(&format!("p{n}")).route("/one/{id}"));
    let error = Limiter::builder().policies(policies).build().unwrap_err();
    assert_eq!(
        error.to_string(),
        "33 quotas could meet in one request, and at most 32 are decided together"
    );
    let policies = (0..32).map(|n| policy(&format!("p{n}")).route("/one/{*rest}"));
    assert!(Limiter::builder().policies(policies).build().is_ok());
}

#[tokio::test]
async fn over_a_socket_nothing_is_different() {
    let by_user = key::from_fn(|request| request.host().map(std::borrow::Cow::into_owned));
    let limiter = limiter([Policy::new("users", Quota::per_hour(1))
        .route("/api/users/{id}")
        .key((PathParam::new("id"), by_user))]);
    let users = Router::new().route("/users/{id}", get(|| async { "hello" }));
    let app = Router::new().nest("/api", users.layer(RateLimitLayer::new(&limiter)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
    let fetch = async |path: &str| {
        let uri = format!("http://{server}{path}").parse().unwrap();
        client.get(uri).await.unwrap().status().as_u16()
    };

    assert_eq!(fetch("/api/users/caf%C3%A9").await, 200);
    assert_eq!(fetch("/api/users/caf%c3%a9").await, 429);
    assert_eq!(fetch("/api/users/%63af%C3%A9?x=1").await, 429);
    assert_eq!(fetch("/api/users/cafe").await, 200);
}
