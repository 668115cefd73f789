//! Every kind of key tells callers apart in a router of axum's, and the policy's rule applies if a key finds nothing.

#![cfg(all(feature = "axum", feature = "json"))]

use std::net::SocketAddr;

use crate::common::at_a_standstill;
use axum::Router;
use axum::body::Body;
use axum::routing::any;
use http::Request;
use http_body_util::BodyExt;
use tollgate::key::{
    AsyncKeyExtractor, BasicUser, BearerToken, Cookie, Extension, FormField, Global, Header, Host,
    JsonField, MatchedRoute, Method, PathParam, Query, from_async_fn, from_fn,
};
use tollgate::{
    BufferBodyLayer, ClientIp, Key, Limiter, OnMissing, PeerAddr, Policy, Quota, RateLimitLayer,
};
use tower::ServiceExt;

/// The value that an outer layer found.
#[derive(Clone)]
struct User(u64);

/// A kind of key, two requests that it tells apart, and if there is one a request in which it finds nothing, and what it then
/// says that it has looked for.
struct Kind {
    of: fn(Policy) -> Policy,
    one: Make,
    other: Make,
    lacks: Option<(Make, &'static str)>,
}

type Make = fn() -> Request<Body>;

fn get(uri: &str) -> Request<Body> {
    Request::get(uri).body(Body::empty()).unwrap()
}

fn with(name: &'static str, value: &str) -> Request<Body> {
    let mut request = get("/");
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

fn from(peer: [u8; 4]) -> Request<Body> {
    let mut request = get("/");
    let peer = PeerAddr(SocketAddr::from((peer, 4711)));
    request.extensions_mut().insert(peer);
    request
}

fn of_user(user: u64) -> Request<Body> {
    let mut request = get("/");
    request.extensions_mut().insert(User(user));
    request
}

fn by(method: http::Method) -> Request<Body> {
    let mut request = get("/");
    *request.method_mut() = method;
    request
}

fn sent(kind: &str, body: &'static str) -> Request<Body> {
    let request = Request::post("/").header("content-type", kind);
    request.body(Body::from(body)).unwrap()
}

const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";

/// The owner of a session, from a system that is asked.
fn session() -> impl AsyncKeyExtractor {
    from_async_fn(|request| {
        let session = request.headers().get("x-session").cloned();
        async move {
            tokio::task::yield_now().await;
            session.map(|session| Key::bytes(session.as_bytes()))
        }
    })
}

fn with_both(key: &str, session: &str) -> Request<Body> {
    let mut request = with("x-api-key", key);
    let session = session.parse().unwrap();
    request.headers_mut().insert("x-session", session);
    request
}

fn kinds() -> [Kind; 18] {
    [
        Kind {
            of: |policy| policy.key(ClientIp),
            one: || from([203, 0, 113, 7]),
            other: || from([203, 0, 113, 8]),
            lacks: Some((|| get("/"), "no peer address")),
        },
        Kind {
            of: |policy| policy.key(Header::new("x-api-key")),
            one: || with("x-api-key", "a"),
            other: || with("x-api-key", "b"),
            lacks: Some((|| get("/"), "no header x-api-key")),
        },
        Kind {
            of: |policy| policy.key(BearerToken),
            one: || with("authorization", "Bearer a"),
            other: || with("authorization", "Bearer b"),
            lacks: Some((|| with("authorization", "Basic YTo="), "no bearer token")),
        },
        Kind {
            of: |policy| policy.key(BasicUser),
            one: || with("authorization", "Basic YTo="),
            other: || with("authorization", "Basic Yjo="),
            lacks: Some((
                || with("authorization", "Bearer a"),
                "no user of basic authorization",
            )),
        },
        Kind {
            of: |policy| policy.key(Cookie::new("session")),
            one: || with("cookie", "session=a"),
            other: || with("cookie", "session=b; other=a"),
            lacks: Some((|| with("cookie", "other=a"), "no cookie session")),
        },
        Kind {
            of: |policy| policy.key(Query::new("user")),
            one: || get("/?user=a"),
            other: || get("/?user=b"),
            lacks: Some((|| get("/?users=a"), "no query parameter user")),
        },
        Kind {
            of: |policy| policy.key(PathParam::new("tenant")),
            one: || get("/tenants/a"),
            other: || get("/tenants/b"),
            lacks: Some((|| get("/people/a"), "no path parameter tenant")),
        },
        Kind {
            of: |policy| policy.key(MatchedRoute),
            one: || get("/tenants/a"),
            other: || get("/people/a"),
            // Where axum names no route, a handler may still have one.
            lacks: None,
        },
        Kind {
            of: |policy| policy.key(Method),
            one: || by(http::Method::GET),
            other: || by(http::Method::PUT),
            lacks: None,
        },
        Kind {
            of: |policy| policy.key(Host),
            one: || with("host", "a.example"),
            other: || with("host", "b.example"),
            lacks: Some((|| get("/"), "no host")),
        },
        Kind {
            of: |policy| policy.key(Extension::new(|user: &User| user.0)),
            one: || of_user(1),
            other: || of_user(2),
            lacks: Some((|| get("/"), "no extension User")),
        },
        Kind {
            of: |policy| policy.key(from_fn(|request| request.uri().query().map(str::to_owned))),
            one: || get("/?1"),
            other: || get("/?2"),
            lacks: Some((|| get("/"), "no key that the closure looks for")),
        },
        Kind {
            of: |policy| policy.key_async(session()),
            one: || with("x-session", "a"),
            other: || with("x-session", "b"),
            lacks: Some((|| get("/"), "no key that the closure looks for")),
        },
        Kind {
            of: |policy| policy.key((Method, Header::new("x-api-key"))),
            one: || with("x-api-key", "a"),
            other: || with("x-api-key", "b"),
            lacks: Some((|| get("/"), "no header x-api-key")),
        },
        Kind {
            of: |policy| policy.key_async((Method, Header::new("x-api-key"), session())),
            one: || with_both("a", "s"),
            other: || with_both("a", "t"),
            lacks: Some((
                || with("x-api-key", "a"),
                "no key that the closure looks for",
            )),
        },
        Kind {
            of: |policy| policy.key_async((Header::new("x-api-key"), session())),
            one: || with_both("a", "s"),
            other: || with_both("b", "s"),
            lacks: Some((|| with("x-session", "s"), "no header x-api-key")),
        },
        Kind {
            of: |policy| policy.key(FormField::new("user")),
            one: || sent(FORM, "user=a"),
            other: || sent(FORM, "user=b"),
            lacks: Some((|| sent(FORM, "users=a"), "no form field user")),
        },
        Kind {
            of: |policy| policy.key(JsonField::new("user")),
            one: || sent(JSON, r#"{"user":"a"}"#),
            other: || sent(JSON, r#"{"user":"b"}"#),
            lacks: Some((|| sent(JSON, r#"{"name":"a"}"#), "no JSON field user")),
        },
    ]
}

/// A router whose only limit is one an hour for each of these keys.
fn app(of: fn(Policy) -> Policy, rule: OnMissing) -> Router {
    let policy = of(Policy::new("keyed", Quota::per_hour(1))).on_missing(rule);
    let limiter = Limiter::builder().policy(policy);
    let limiter = limiter.backend(at_a_standstill().0).build().unwrap();
    Router::new()
        .route("/", any(|| async {}))
        .route("/tenants/{tenant}", any(|| async {}))
        .route("/people/{person}", any(|| async {}))
        .fallback(|| async {})
        .layer(RateLimitLayer::new(limiter))
        .layer(BufferBodyLayer::new(100))
}

async fn send(app: &Router, request: Request<Body>) -> (u16, String) {
    let response = app.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn statuses<const N: usize>(app: &Router, requests: [fn() -> Request<Body>; N]) -> [u16; N] {
    let mut statuses = [0; N];
    for (request, status) in requests.into_iter().zip(&mut statuses) {
        *status = send(app, request()).await.0;
    }
    statuses
}

#[tokio::test]
async fn every_kind_of_key_tells_callers_apart() {
    for (index, Kind { of, one, other, .. }) in kinds().into_iter().enumerate() {
        let app = app(of, OnMissing::Deny);
        let statuses = statuses(&app, [one, one, other, other]).await;
        assert_eq!(statuses, [200, 429, 200, 429], "{index}");
    }

    let everybody = app(|policy| policy.key(Global), OnMissing::Deny);
    assert_eq!(
        statuses(&everybody, [|| from([203, 0, 113, 7]), || get("/")]).await,
        [200, 429]
    );
}

#[tokio::test]
async fn what_a_key_does_not_find_the_policy_judges() {
    for Kind { of, one, lacks, .. } in kinds() {
        let Some((lacking, named)) = lacks else {
            continue;
        };

        // Such requests share one budget, which no other caller has.
        let share = app(of, OnMissing::Share);
        assert_eq!(
            statuses(&share, [lacking, lacking, one]).await,
            [200, 429, 200],
            "{named}"
        );

        // They pass, whatever is left to each caller.
        let pass = app(of, OnMissing::Pass);
        let requests = [one, lacking, lacking, one];
        assert_eq!(
            statuses(&pass, requests).await,
            [200, 200, 200, 429],
            "{named}"
        );

        // They are refused, and told what is missing.
        let deny = app(of, OnMissing::Deny);
        for _ in 0..2 {
            let (status, body) = send(&deny, lacking()).await;
            assert_eq!(status, 403, "{named}");
            assert!(body.contains(&format!("{named} in the request")), "{body}");
        }
        assert_eq!(statuses(&deny, [one]).await, [200], "{named}");
    }
}

#[test]
fn a_key_that_finds_no_identity_in_any_request_is_refused_when_the_limiter_is_built() {
    let refusal = |policy: Policy| {
        let limiter = Limiter::builder().policy(policy).build();
        limiter.err().map(|error| error.to_string())
    };
    let page = || Policy::new("page", Quota::per_hour(5));
    let user = || page().route("/users/{user}").route("/posts/{post}/{user}");
    let none = "no route of the policy has it; its routes have post, user";
    let id = || PathParam::new("id");
    let cases = [
        (user().key(id()), "path parameter \"id\": ", none),
        (user().key((Method, id())), "path parameter \"id\": ", none),
        (
            user().key_async((id(), session())),
            "path parameter \"id\": ",
            none,
        ),
        (
            page().route("/users").key(id()),
            "path parameter \"id\": ",
            "no route of the policy has a parameter; write `{id}` into one",
        ),
        (
            page().key(PathParam::new("{id}")),
            "path parameter \"{id}\": ",
            "as in \"id\"",
        ),
        (
            page().key(PathParam::new("*id")),
            "path parameter \"*id\": ",
            "as in \"id\"",
        ),
        (
            page().key(Cookie::new("s=id")),
            "cookie \"s=id\": ",
            "write the name alone",
        ),
        (
            page().key(Cookie::new("")),
            "cookie \"\": ",
            "write the name alone",
        ),
        (
            page().key(JsonField::new("/k")),
            "JSON field \"/k\": ",
            "as in \"k\"",
        ),
        (
            page().key(JsonField::new("/a/b~1c")),
            "JSON field \"/a/b~1c\": ",
            "as in \"a.b/c\"",
        ),
    ];

    for (policy, what, reason) in cases {
        let refused = refusal(policy).unwrap();

        assert!(
            refused.starts_with(&format!("policy \"page\": key: {what}")),
            "{refused}"
        );
        assert!(refused.contains(reason), "{refused}");
    }
}

#[test]
fn a_key_that_a_route_of_the_routers_may_have_is_accepted_where_the_policy_does_not_know_it() {
    let page = || Policy::new("page", Quota::per_hour(5));
    let id = || PathParam::new("id");
    for policy in [
        page().key(id()),
        page().route("/users/{user}").route("/posts/{id}").key(id()),
        page().route("/users/{user}").on_demand().key(id()),
        page().route("/{kind}/{*rest}").key(id()),
        page().grpc("shop.*").key(PathParam::new("method")),
        page().key(Cookie::new("__Host-s:id[a]")),
        page().key(JsonField::new("a.0./b")),
        page().key(JsonField::new("/a.b")),
    ] {
        let name = format!("{policy:?}");
        let limiter = Limiter::builder().policy(policy).build();
        assert!(limiter.is_ok(), "{name}: {:?}", limiter.err());
    }
}
