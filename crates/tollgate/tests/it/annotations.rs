//! Annotated handlers under a layer, on real sockets.

#![cfg(feature = "macros")]

use std::fmt::Display;
use std::str::FromStr;

use crate::common::header;
use crate::common::served::Served;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::routing::{MethodFilter, any, get, on, post};
use axum::{Json, Router, debug_handler};
use http::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollgate::key::{Global, KeyExtractor, KeyMissing};
use tollgate::{ClientIp, Guard, Key, Limiter, RateLimitLayer, RequestView, rate_limit};

fn limiter() -> Limiter {
    Limiter::builder().allow_no_policies().build().unwrap()
}

fn layer() -> RateLimitLayer {
    RateLimitLayer::new(limiter())
}

#[rate_limit("2/hour")]
async fn hello() -> &'static str {
    "hello"
}

#[rate_limit("2/hour", ban = "3 in 10min for 15min")]
async fn guess() -> &'static str {
    "wrong"
}

#[tokio::test]
async fn a_handler_bans_whom_its_quota_denies_too_often() {
    let app = Router::new()
        .route("/guess", get(guess))
        .route("/hello", get(hello))
        .layer(layer());
    let server = Served::new(app).await;

    let statuses = server.statuses(["/guess"; 5]).await;

    assert_eq!(statuses, [200, 200, 429, 429, 429]);
    let banned = server.get("/guess").await;
    assert!(banned.body().contains("abnormal-usage-detected"));
    // The ban ends sooner, and the quota refuses until then.
    assert_eq!(header(&banned, "retry-after"), "1800");
    assert_eq!(server.get("/hello").await.status(), 200);
}

#[rate_limit("2/hour", once_by = "idempotency-key")]
async fn order() -> &'static str {
    "ordered"
}

#[tokio::test]
async fn a_handler_charges_requests_with_the_same_id_once() {
    let app = Router::new().route("/order", post(order)).layer(layer());
    let server = Served::new(app).await;
    let ordered = async |id| {
        let order = http::Request::post(format!("http://{}/order", server.0));
        let order = order.header("idempotency-key", id);
        server.request(order.body(Body::empty()).unwrap()).await
    };

    for (id, status) in [("a", 200), ("a", 200), ("b", 200), ("c", 429), ("b", 200)] {
        assert_eq!(ordered(id).await.status(), status, "{id}");
    }
}

#[tokio::test]
async fn a_handler_is_limited_wherever_it_is_mounted_and_each_route_has_its_own_budget() {
    let app = Router::new()
        .route("/a", get(hello))
        .route("/b", get(hello))
        .route("/free", get(|| async {}))
        .layer(layer());
    let server = Served::new(app).await;

    assert_eq!(
        server.statuses(["/a", "/a", "/a", "/b"]).await,
        [200, 200, 429, 200]
    );

    let refused = server.get("/a").await;
    assert_eq!(
        header(&refused, "ratelimit-policy"),
        "\"hello/a\";q=2;w=3600"
    );
    assert!(header(&refused, "ratelimit").starts_with("\"hello/a\";r=0;t="));
    assert_eq!(header(&refused, "retry-after"), "1800");
    assert!(
        refused
            .body()
            .contains("\"violated-policies\":[\"hello/a\"]")
    );
    let free = server.get("/free").await;
    assert_eq!(header(&free, "ratelimit-policy"), "");
}

#[tokio::test]
async fn a_route_within_nest_is_known_by_its_whole_path() {
    let inner = Router::new().route("/users/{id}", get(hello));
    let app = Router::new().nest("/api", inner).layer(layer());
    let server = Served::new(app).await;

    let response = server.get("/api/users/7").await;

    assert_eq!(
        header(&response, "ratelimit-policy"),
        "\"hello/api/users/_id_\";q=2;w=3600"
    );
    assert_eq!(
        server.statuses(["/api/users/8", "/api/users/9"]).await,
        [200, 429]
    );
}

#[tokio::test]
async fn a_handler_has_one_budget_for_all_methods_of_its_route() {
    let methods = MethodFilter::DELETE.or(MethodFilter::PUT);
    let app = Router::new()
        .route("/any", any(hello))
        .route("/two", get(hello).post(hello))
        .route("/on", on(methods, hello))
        .layer(layer());
    let server = Served::new(app).await;
    let any = [
        "HEAD /any",
        "PUT /any",
        "/any",
        "POST /any",
        "TRACE /any",
        "FOO /any",
    ];
    assert_eq!(server.statuses(any).await, [200, 200, 429, 429, 429, 429]);
    let two = ["HEAD /two", "/two", "POST /two"];
    assert_eq!(server.statuses(two).await, [200, 200, 429]);
    let on = ["PUT /on", "DELETE /on", "PUT /on"];
    assert_eq!(server.statuses(on).await, [200, 200, 429]);
}

#[rate_limit("1/hour", name = "shared")]
async fn named() {}

#[tokio::test]
async fn a_handler_with_a_name_has_one_budget_for_all_its_routes() {
    let app = Router::new()
        .route("/a", get(named))
        .route("/b", get(named))
        .layer(layer());
    let server = Served::new(app).await;
    assert_eq!(server.statuses(["/a", "/b"]).await, [200, 429]);
}

#[rate_limit("1/hour")]
async fn upload(body: String) -> String {
    body
}

#[tokio::test]
async fn a_request_is_refused_before_its_body_is_read() {
    let app = Router::new().route("/upload", post(upload)).layer(layer());
    let server = Served::new(app).await;
    assert_eq!(server.send(Method::POST, "/upload", "x").await.body(), "x");

    // A gigabyte is announced, and not a byte of it comes.
    let mut socket = TcpStream::connect(server.0).await.unwrap();
    let head = "POST /upload HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000\r\n\r\n";
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    socket.read_exact(&mut status).await.unwrap();

    assert_eq!(&status, b"HTTP/1.1 429");
}

struct Api;

impl Api {
    #[rate_limit("1/hour")]
    async fn list(State(greeting): State<&'static str>, Json(name): Json<String>) -> String {
        format!("{greeting} {name}")
    }
}

#[rate_limit("1/hour")]
async fn generic<T>(Path(value): Path<T>) -> String
where
    T: FromStr + Display + Send + serde::de::DeserializeOwned,
{
    value.to_string()
}

#[expect(clippy::manual_async_fn, reason = "it is what is tested")]
#[rate_limit("1/hour")]
fn not_async() -> impl Future<Output = &'static str> + Send {
    async { "not async" }
}

#[rate_limit("1/hour")]
#[debug_handler]
async fn debugged(method: Method, body: String) -> String {
    format!("{method} {body}")
}

#[tokio::test]
async fn methods_generics_states_bodies_and_other_attributes_are_as_they_were() {
    let app = Router::new()
        .route("/list", post(Api::list))
        .route("/number/{value}", get(generic::<u8>))
        .route("/word/{value}", get(generic::<String>))
        .route("/not-async", get(not_async))
        .route("/debugged", post(debugged))
        .with_state("hello")
        .layer(layer());
    let server = Served::new(app).await;
    let json = |body: &'static str| {
        let request = http::Request::post(format!("http://{}/list", server.0));
        let request = request.header("content-type", "application/json");
        server.request(request.body(body.into()).unwrap())
    };

    assert_eq!(json("\"you\"").await.body(), "hello you");
    assert_eq!(server.get("/number/7").await.body(), "7");
    assert_eq!(server.get("/word/seven").await.body(), "seven");
    assert_eq!(server.get("/not-async").await.body(), "not async");
    assert_eq!(
        server.send(Method::POST, "/debugged", "x").await.body(),
        "POST x"
    );

    assert_eq!(json("\"you\"").await.status(), 429);
    let again = ["/number/8", "/word/eight", "/not-async", "POST /debugged"];
    assert_eq!(server.statuses(again).await, [429, 429, 429, 429]);
}

#[tokio::test]
async fn a_handler_can_be_called_without_a_server() {
    assert_eq!(hello(Guard::unlimited()).await, "hello");
    assert_eq!(upload(Guard::unlimited(), "x".to_owned()).await, "x");
}

/// The tenant that a header names, as long as a test is enough to trust it.
#[derive(Default)]
struct Tenant;

impl KeyExtractor for Tenant {
    fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        let tenant = request.headers().get("x-tenant");
        tenant
            .map(|tenant| Key::bytes(tenant.as_bytes()))
            .ok_or(KeyMissing::new("tenant"))
    }
}

#[rate_limit("1/hour", key = (ClientIp, Tenant))]
async fn by_tenant() {}

#[rate_limit("1/hour", key = Global, shadow)]
async fn on_trial() {}

#[tokio::test]
async fn keys_are_types_and_limits_may_be_on_trial() {
    let app = Router::new()
        .route("/tenant", get(by_tenant))
        .route("/trial", get(on_trial))
        .layer(layer());
    let server = Served::new(app).await;
    let from = |tenant: &str| {
        let request = http::Request::get(format!("http://{}/tenant", server.0));
        server.request(request.header("x-tenant", tenant).body("".into()).unwrap())
    };

    assert_eq!(from("a").await.status(), 200);
    assert_eq!(from("b").await.status(), 200);
    assert_eq!(from("a").await.status(), 429);
    assert_eq!(server.statuses(["/trial"; 3]).await, [200; 3]);
}

mod reexported {
    pub(crate) use tollgate as limits;
}

#[rate_limit("1/hour", crate = crate::annotations::reexported::limits)]
async fn elsewhere() {}

#[tokio::test]
async fn the_crate_may_be_somewhere_else() {
    let app = Router::new().route("/", get(elsewhere)).layer(layer());
    let server = Served::new(app).await;
    assert_eq!(server.statuses(["/", "/"]).await, [200, 429]);
}
