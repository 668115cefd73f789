//! One identity is one budget, however a caller writes it: the truth is what the extractors of axum and axum-extra hand to the
//! handler.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::type_complexity,
    reason = "a test says what it expects by panicking"
)]
#![cfg(all(feature = "axum", feature = "json"))]

mod common;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use axum::extract::{FromRef, Path, Query, State};
use axum::routing::{any, get as on_get, post as on_post};
use axum::{Form, Json, Router};
use axum_extra::TypedHeader;
use axum_extra::extract::cookie::{Cookie, Key as Secret};
use axum_extra::extract::{CookieJar, PrivateCookieJar, SignedCookieJar};
use axum_extra::headers::Authorization;
use axum_extra::headers::authorization::{Basic, Bearer};
use common::at_a_standstill;
use common::served::Served;
use http::header::HOST;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollgate::key::{
    BasicUser, BearerToken, FormField, Header, JsonField, KeyMissing, PathParam, from_async_fn,
    from_fn,
};
use tollgate::{BufferBodyLayer, Key, Limiter, OnMissing, Policy, Quota, RateLimitLayer, key};
use tower::ServiceExt;
use uuid::Uuid;

/// The callers that the handler saw, and how often.
type Seen = BTreeMap<String, usize>;

/// The state that handlers share.
#[derive(Clone)]
struct Shared {
    seen: Arc<Mutex<Seen>>,
    secret: Secret,
}

impl Shared {
    fn new() -> Self {
        let seen = Arc::default();
        let secret = Secret::from(&[7; 64]);
        Self { seen, secret }
    }

    fn note(&self, identity: Option<impl Into<String>>) {
        let Some(identity) = identity.map(Into::into) else {
            return;
        };
        *self.seen.lock().unwrap().entry(identity).or_default() += 1;
    }
}

impl FromRef<Shared> for Secret {
    fn from_ref(shared: &Shared) -> Self {
        shared.secret.clone()
    }
}

/// A request that can be sent again.
#[derive(Clone, Debug)]
struct Sent {
    method: Method,
    uri: String,
    headers: Vec<(HeaderName, Vec<u8>)>,
    body: Vec<u8>,
}

impl Sent {
    fn with(mut self, name: &'static str, value: impl AsRef<[u8]>) -> Self {
        let name = HeaderName::from_static(name);
        self.headers.push((name, value.as_ref().to_vec()));
        self
    }

    fn by(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    fn request(&self) -> Request<Body> {
        let mut request = Request::new(Body::from(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.parse().unwrap();
        for (name, value) in &self.headers {
            let value = HeaderValue::from_bytes(value).unwrap();
            request.headers_mut().append(name, value);
        }
        request
    }
}

fn get(uri: &str) -> Sent {
    Sent {
        method: Method::GET,
        uri: uri.to_owned(),
        headers: Vec::new(),
        body: Vec::new(),
    }
}

fn post(kind: &str, body: impl AsRef<[u8]>) -> Sent {
    let sent = get("/").by(Method::POST).with("content-type", kind);
    Sent {
        body: body.as_ref().to_vec(),
        ..sent
    }
}

/// Sends each of these three times to a service that admits one request an hour for each key.
async fn reached(
    service: Router<Shared>,
    policy: impl FnOnce(Policy) -> Policy,
    rule: OnMissing,
    sent: impl Iterator<Item = &Sent>,
) -> Seen {
    let shared = Shared::new();
    let policy = policy(Policy::new("keyed", Quota::per_hour(1))).on_missing(rule);
    let limiter = Limiter::builder().policy(policy);
    let limiter = limiter.backend(at_a_standstill().0).build().unwrap();
    let app = service
        .with_state(shared.clone())
        .layer(RateLimitLayer::new(limiter))
        .layer(BufferBodyLayer::new(100));
    for sent in sent {
        for _ in 0..3 {
            drop(app.clone().oneshot(sent.request()).await.unwrap());
        }
    }
    let seen = shared.seen.lock().unwrap();
    seen.clone()
}

/// Each row is a request, and the caller that the handler sees in it. Each of those has one budget, and what cannot be told has
/// one more for all of them together, however the policy judges what is missing.
async fn is_one_budget(
    service: fn() -> Router<Shared>,
    policy: fn(Policy) -> Policy,
    rows: &[(Sent, Option<&str>)],
) {
    for (sent, expected) in rows {
        let shared = Shared::new();
        let app = service().with_state(shared.clone());
        drop(app.oneshot(sent.request()).await.unwrap());
        let seen = shared.seen.lock().unwrap();
        let seen: Vec<_> = seen.keys().map(String::as_str).collect();
        assert_eq!(seen, Vec::from_iter(*expected), "{sent:?}");
    }

    let sent = || rows.iter().map(|(sent, _)| sent);
    let strict = reached(service(), policy, OnMissing::Deny, sent()).await;
    assert!(!strict.is_empty(), "no request has reached the handler");
    let twice: Vec<_> = strict.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "more than one budget: {twice:?}");

    for rule in [OnMissing::Share, OnMissing::Pass] {
        let seen = reached(service(), policy, rule, sent()).await;
        let beyond: usize = seen.values().map(|count| count - 1).sum();
        assert!(beyond <= 1, "{rule:?}: more than one budget: {seen:?}");
    }
}

fn cookies(line: impl AsRef<[u8]>) -> Sent {
    get("/").with("cookie", line)
}

fn by_jar() -> Router<Shared> {
    Router::new().route(
        "/",
        any(|State(shared): State<Shared>, jar: CookieJar| async move {
            shared.note(jar.get("sid").map(Cookie::value));
        }),
    )
}

fn by_typed_cookie() -> Router<Shared> {
    Router::new().route(
        "/",
        any(
            |State(shared): State<Shared>,
             TypedHeader(cookie): TypedHeader<axum_extra::headers::Cookie>| async move {
                shared.note(cookie.get("sid"));
            },
        ),
    )
}

#[tokio::test]
async fn a_cookie_of_axum_extras_jar_is_one_budget_however_it_is_encoded() {
    let rows = [
        (cookies("sid=abc"), Some("abc")),
        (cookies("sid=%61bc"), Some("abc")),
        (cookies("sid=%61%62%63; other=1"), Some("abc")),
        (cookies("%73id=abc"), Some("abc")),
        (cookies("%73%69%64=a%62c"), Some("abc")),
        (cookies(" sid\t=  abc "), Some("abc")),
        (cookies("sid=zzz; sid=abc"), Some("abc")),
        (cookies("sid=zzz; %73id=abc"), Some("abc")),
        (cookies("sid=; sid=abc"), Some("abc")),
        (cookies("sid=%ff; sid=abc"), Some("abc")),
        (cookies("sid=zzz").with("cookie", "sid=abc"), Some("abc")),
        (cookies(b"sid=\xff").with("cookie", "sid=abc"), Some("abc")),
        (cookies("sid=\"abc\""), Some("\"abc\"")),
        (cookies("sid=%22abc%22"), Some("\"abc\"")),
        (cookies("sid=\"%61bc\""), Some("\"abc\"")),
        (cookies("sid=%2561bc"), Some("%61bc")),
        (cookies("SID=abc"), None),
        (cookies("sid"), None),
    ];
    is_one_budget(by_jar, |policy| policy.key(key::Cookie::new("sid")), &rows).await;
}

#[tokio::test]
async fn a_cookie_of_a_typed_header_is_one_budget_whichever_of_several_it_reads() {
    let rows = [
        (cookies("sid=abc"), Some("abc")),
        (cookies("sid=abc; sid=zzz"), Some("abc")),
        (cookies("sid=abc;%73id=zzz"), Some("abc")),
        (cookies("sid=abc").with("cookie", "sid=zzz"), Some("abc")),
        (cookies("sid=%61bc"), Some("%61bc")),
        (cookies("sid=%61bc; sid=abc"), Some("%61bc")),
        (cookies("%73id=abc"), None),
    ];
    is_one_budget(
        by_typed_cookie,
        |policy| policy.key(key::Cookie::new("sid")),
        &rows,
    )
    .await;
}

/// The cookie that a jar would have the caller send, with its percent signs.
fn line_of(encode: impl FnOnce(CookieJar) -> http::Response<Body>) -> String {
    let response = encode(CookieJar::new());
    let line = response.headers()["set-cookie"].to_str().unwrap();
    line.split(';').next().unwrap().to_owned()
}

/// The line with its letters encoded.
fn encoded(line: &str) -> String {
    let (name, value) = line.split_once('=').unwrap();
    let value = percent_encoding::percent_decode_str(value).decode_utf8();
    let all = percent_encoding::NON_ALPHANUMERIC;
    let rest = percent_encoding::percent_encode(value.as_ref().unwrap().as_bytes(), all);
    format!("{name}={}", rest.to_string().replace('a', "%61"))
}

#[tokio::test]
async fn a_signed_or_private_cookie_is_one_budget_however_it_is_encoded() {
    use axum::response::IntoResponse;

    let secret = Shared::new().secret;
    let cookie = || Cookie::new("sid", "abc");
    let signed = line_of(|_| {
        SignedCookieJar::new(secret.clone())
            .add(cookie())
            .into_response()
    });
    let private = line_of(|_| {
        PrivateCookieJar::new(secret.clone())
            .add(cookie())
            .into_response()
    });
    let policy = |policy: Policy| policy.key(key::Cookie::new("sid"));

    let rows = [
        (cookies(&signed), Some("abc")),
        (cookies(encoded(&signed)), Some("abc")),
        (cookies(format!("sid=zzz; {signed}")), Some("abc")),
        (cookies(format!("{signed}x")), None),
    ];
    let by_signed = || {
        Router::new().route(
            "/",
            any(
                |State(shared): State<Shared>, jar: SignedCookieJar<Secret>| async move {
                    shared.note(jar.get("sid").as_ref().map(Cookie::value));
                },
            ),
        )
    };
    is_one_budget(by_signed, policy, &rows).await;

    let rows = [
        (cookies(&private), Some("abc")),
        (cookies(encoded(&private)), Some("abc")),
        (cookies(format!("sid=zzz; {private}")), Some("abc")),
        (cookies(format!("{private}x")), None),
    ];
    let by_private = || {
        Router::new().route(
            "/",
            any(
                |State(shared): State<Shared>, jar: PrivateCookieJar<Secret>| async move {
                    shared.note(jar.get("sid").as_ref().map(Cookie::value));
                },
            ),
        )
    };
    is_one_budget(by_private, policy, &rows).await;
}

fn authorized(value: impl AsRef<[u8]>) -> Sent {
    get("/").with("authorization", value)
}

fn by_bearer() -> Router<Shared> {
    Router::new().route(
        "/",
        any(
            |State(shared): State<Shared>,
             TypedHeader(header): TypedHeader<Authorization<Bearer>>| async move {
                shared.note(Some(header.token()));
            },
        ),
    )
}

#[tokio::test]
async fn a_bearer_token_is_one_budget_however_its_scheme_is_written_and_spaced() {
    let rows = [
        (authorized("Bearer abc"), Some("abc")),
        (authorized("bearer abc"), Some("abc")),
        (authorized("BeArEr abc"), Some("abc")),
        (authorized("Bearer    abc"), Some("abc")),
        (authorized("Bearer \t abc"), Some("abc")),
        (authorized("Bearer abc "), Some("abc ")),
        (
            authorized("Bearer abc").with("authorization", "Bearer zzz"),
            Some("abc"),
        ),
        (
            authorized("Bearer abc").with("authorization", "Basic eno6eno="),
            Some("abc"),
        ),
        (authorized("Bearer ABC"), Some("ABC")),
        (authorized(" Bearer abc"), None),
        (authorized("Bearerabc"), None),
        (authorized("Basic YWJjOng="), None),
        (authorized("Bearer"), None),
    ];
    is_one_budget(by_bearer, |policy| policy.key(BearerToken), &rows).await;
}

#[tokio::test]
async fn the_user_of_basic_is_one_budget_whatever_the_password_is() {
    let rows = [
        (authorized("Basic YWJjOng="), Some("abc")),
        (authorized("basic YWJjOnk="), Some("abc")),
        (authorized("BASIC    YWJjOnk="), Some("abc")),
        (authorized("Basic YWJjOg=="), Some("abc")),
        (authorized("Basic YWJjOng6eTp6"), Some("abc")),
        (
            authorized("Basic YWJjOng=").with("authorization", "Basic enp6Ong="),
            Some("abc"),
        ),
        (authorized("Basic QUJDOng="), Some("ABC")),
        (authorized("Basic YWJj"), None),
        (authorized("Basic ????"), None),
        (authorized("Bearer abc"), None),
    ];
    let by_basic = || {
        Router::new().route(
            "/",
            any(
                |State(shared): State<Shared>,
                 TypedHeader(header): TypedHeader<Authorization<Basic>>| async move {
                    shared.note(Some(header.username()));
                },
            ),
        )
    };
    is_one_budget(by_basic, |policy| policy.key(BasicUser), &rows).await;
}

#[derive(Deserialize)]
struct OfUser {
    user: String,
}

#[derive(Deserialize)]
struct OfUsers {
    user: Vec<String>,
}

type Fields = HashMap<String, String>;

fn queries() -> [Sent; 12] {
    [
        get("/?user=abc"),
        get("/?us%65r=%61bc"),
        get("/?user=abc&user=abc"),
        get("/?user=zzz&user=abc"),
        get("/?user&user=abc"),
        get("/?user=zzz&us%65r=abc"),
        get("/?user=abc;x=1"),
        get("/?x=1;user=abc"),
        get("/?&&user=abc&"),
        get("/?user=+a%20b"),
        get("/?user=%20a+b"),
        get("/?user=%ff"),
    ]
}

fn by_query() -> Router<Shared> {
    Router::new().route(
        "/",
        any(
            |State(shared): State<Shared>, Query(query): Query<OfUser>| async move {
                shared.note(Some(query.user));
            },
        ),
    )
}

fn by_query_map() -> Router<Shared> {
    Router::new().route(
        "/",
        any(
            |State(shared): State<Shared>, Query(query): Query<Fields>| async move {
                shared.note(query.get("user").cloned());
            },
        ),
    )
}

fn by_query_list() -> Router<Shared> {
    Router::new().route(
        "/",
        any(
            |State(shared): State<Shared>,
             axum_extra::extract::Query(query): axum_extra::extract::Query<OfUsers>| async move {
                shared.note(query.user.first().cloned());
            },
        ),
    )
}

#[tokio::test]
async fn a_query_parameter_is_one_budget_whoever_reads_it() {
    let policy = |policy: Policy| policy.key(key::Query::new("user"));
    let seen: [(fn() -> Router<Shared>, [Option<&str>; 12]); 3] = [
        (
            by_query,
            [
                Some("abc"),
                Some("abc"),
                None,
                None,
                None,
                None,
                Some("abc;x=1"),
                None,
                Some("abc"),
                Some(" a b"),
                Some(" a b"),
                Some("\u{fffd}"),
            ],
        ),
        (
            by_query_map,
            [
                Some("abc"),
                Some("abc"),
                Some("abc"),
                Some("abc"),
                Some("abc"),
                Some("abc"),
                Some("abc;x=1"),
                None,
                Some("abc"),
                Some(" a b"),
                Some(" a b"),
                Some("\u{fffd}"),
            ],
        ),
        (
            by_query_list,
            [
                Some("abc"),
                Some("abc"),
                Some("abc"),
                Some("zzz"),
                Some(""),
                Some("zzz"),
                Some("abc;x=1"),
                None,
                Some("abc"),
                Some(" a b"),
                Some(" a b"),
                Some("\u{fffd}"),
            ],
        ),
    ];
    for (service, seen) in seen {
        let rows: Vec<_> = queries().into_iter().zip(seen).collect();
        is_one_budget(service, policy, &rows).await;
    }
}

const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";

fn by_form_map() -> Router<Shared> {
    Router::new().route(
        "/",
        any(
            |State(shared): State<Shared>, Form(form): Form<Fields>| async move {
                shared.note(form.get("user").cloned());
            },
        ),
    )
}

fn padded(field: &str) -> String {
    format!("{field}&padding={}", "x".repeat(100))
}

#[tokio::test]
async fn a_form_field_is_one_budget_wherever_axums_form_reads_it() {
    let rows = [
        (post(FORM, "user=abc"), Some("abc")),
        (post(FORM, "us%65r=%61bc"), Some("abc")),
        (post(FORM, "user=zzz&user=abc"), Some("abc")),
        (post(FORM, padded("user=abc")), Some("abc")),
        (
            post(&format!("{FORM}; charset=utf-8"), "user=abc"),
            Some("abc"),
        ),
        (post(&format!("{FORM}x"), "user=abc"), Some("abc")),
        (post(&format!("{FORM}+json"), "user=abc"), Some("abc")),
        (
            post(FORM, "user=abc").with("content-type", JSON),
            Some("abc"),
        ),
        (post(FORM, "user=abc").by(Method::PATCH), Some("abc")),
        // A HEAD is read like a POST, and a GET from its query.
        (post(FORM, "user=abc").by(Method::HEAD), Some("abc")),
        (get("/?user=abc"), Some("abc")),
        (get("/?user=%61bc").with("content-type", FORM), Some("abc")),
        (get("/?user=zzz&user=abc"), Some("abc")),
        (
            Sent {
                uri: "/?user=abc".to_owned(),
                ..post(FORM, "user=zzz").by(Method::GET)
            },
            Some("abc"),
        ),
        (
            Sent {
                uri: "/?user=zzz".to_owned(),
                ..post(FORM, "user=abc")
            },
            Some("abc"),
        ),
        (post(JSON, "user=abc"), None),
        (post("text/plain", "user=abc"), None),
    ];
    is_one_budget(
        by_form_map,
        |policy| policy.key(FormField::new("user")),
        &rows,
    )
    .await;

    let by_extra = || {
        Router::new().route(
            "/",
            any(
                |State(shared): State<Shared>,
                 axum_extra::extract::Form(form): axum_extra::extract::Form<OfUsers>| async move {
                    shared.note(form.user.last().cloned());
                },
            ),
        )
    };
    is_one_budget(by_extra, |policy| policy.key(FormField::new("user")), &rows).await;
}

#[tokio::test]
async fn a_handler_that_takes_the_body_for_what_it_does_not_say_it_is_sees_nobody_for_free() {
    let by_bytes_of_a_form = || {
        Router::new().route(
            "/",
            any(|State(shared): State<Shared>, body: Bytes| async move {
                let mut fields = form_urlencoded::parse(&body);
                shared.note(
                    fields
                        .find(|(name, _)| name == "user")
                        .map(|(_, user)| user),
                );
            }),
        )
    };
    let rows = [
        (post(FORM, "user=abc"), Some("abc")),
        (post(JSON, "user=abc"), Some("abc")),
        (post("text/plain", "user=abc"), Some("abc")),
        (post("multipart/form-data", "user=abc"), Some("abc")),
        (
            Sent {
                headers: Vec::new(),
                ..post("", "user=abc")
            },
            Some("abc"),
        ),
    ];
    is_one_budget(
        by_bytes_of_a_form,
        |policy| policy.key(FormField::new("user")),
        &rows,
    )
    .await;

    let by_bytes_of_json = || {
        Router::new().route(
            "/",
            any(|State(shared): State<Shared>, body: Bytes| async move {
                let document = serde_json::from_slice::<Value>(&body).ok();
                let user = document
                    .as_ref()
                    .and_then(|document| document["user"].as_str());
                shared.note(user);
            }),
        )
    };
    let document = r#"{"user":"abc"}"#;
    let rows = [
        (post(JSON, document), Some("abc")),
        (post(FORM, document), Some("abc")),
        (post("text/plain", document), Some("abc")),
        (post("text/json", document), Some("abc")),
    ];
    is_one_budget(
        by_bytes_of_json,
        |policy| policy.key(JsonField::new("user")),
        &rows,
    )
    .await;
}

fn by_json() -> Router<Shared> {
    Router::new().route(
        "/",
        on_post(
            |State(shared): State<Shared>, Json(body): Json<OfUser>| async move {
                shared.note(Some(body.user));
            },
        ),
    )
}

fn by_json_value() -> Router<Shared> {
    Router::new().route(
        "/",
        on_post(
            |State(shared): State<Shared>, Json(body): Json<Value>| async move {
                shared.note(body["user"].as_str());
            },
        ),
    )
}

#[tokio::test]
async fn a_json_field_is_one_budget_whether_a_struct_or_a_value_reads_it() {
    let policy = |policy: Policy| policy.key(JsonField::new("user"));
    let long = format!(r#"{{"user":"abc","padding":"{}"}}"#, "x".repeat(100));
    let plain = r#"{"user":"abc"}"#;

    // Each row: the request, the value that a struct reads, and that of a `Value`.
    let rows = [
        (post(JSON, plain), Some("abc"), Some("abc")),
        (
            post(JSON, r#"{"us\u0065r":"\u0061bc"}"#),
            Some("abc"),
            Some("abc"),
        ),
        (
            post(JSON, r#" { "x": [{"user":1}], "user" : "abc" } "#),
            Some("abc"),
            Some("abc"),
        ),
        (
            post("application/vnd.api+json; charset=utf-8", plain),
            Some("abc"),
            Some("abc"),
        ),
        (post("APPLICATION/JSON", plain), Some("abc"), Some("abc")),
        (
            post(JSON, plain).with("content-type", FORM),
            Some("abc"),
            Some("abc"),
        ),
        (post(JSON, &long), Some("abc"), Some("abc")),
        (
            post(JSON, r#"{"user":"zzz","user":"abc"}"#),
            None,
            Some("abc"),
        ),
        (
            post(JSON, r#"{"user":null,"user":"abc"}"#),
            None,
            Some("abc"),
        ),
        (
            post(JSON, r#"{"user":{},"us\u0065r":"abc"}"#),
            None,
            Some("abc"),
        ),
        // A struct is read from a list as well.
        (post(JSON, r#"["abc"]"#), Some("abc"), None),
        (post(JSON, r#"["\u0061bc"]"#), Some("abc"), None),
        (post(JSON, format!("\u{feff}{plain}")), None, None),
        (post(JSON, format!("{plain}{plain}")), None, None),
        (post("text/json", plain), None, None),
    ];
    let of_struct: Vec<_> = rows.iter().map(|row| (row.0.clone(), row.1)).collect();
    is_one_budget(by_json, policy, &of_struct).await;
    let of_value: Vec<_> = rows.iter().map(|row| (row.0.clone(), row.2)).collect();
    is_one_budget(by_json_value, policy, &of_value).await;
}

#[tokio::test]
async fn a_number_in_json_is_one_budget_however_its_readers_take_it() {
    #[derive(Deserialize)]
    struct Account {
        id: f64,
    }

    #[derive(Deserialize)]
    struct Of {
        account: Account,
    }

    let by_number = || {
        Router::new().route(
            "/",
            on_post(
                |State(shared): State<Shared>, Json(body): Json<Of>| async move {
                    shared.note(Some(body.account.id.to_string()));
                },
            ),
        )
    };
    let of = |id: &str| post(JSON, format!(r#"{{"account":{{"id":{id}}}}}"#));
    let rows = [
        (of("7"), Some("7")),
        (of("7.0"), Some("7")),
        (of("70e-1"), Some("7")),
        (of("0.7e1"), Some("7")),
        (of("7.5"), Some("7.5")),
        (of("75e-1"), Some("7.5")),
        (of("0"), Some("0")),
        (of("0e9"), Some("0")),
        (of("36893488147419103232"), Some("36893488147419103000")),
        (of("36893488147419103233"), Some("36893488147419103000")),
        (post(JSON, r#"{"account":[7]}"#), Some("7")),
        (post(JSON, "[[7]]"), Some("7")),
        (of("\"7\""), None),
    ];
    is_one_budget(
        by_number,
        |policy| policy.key(JsonField::new("account.id")),
        &rows,
    )
    .await;
}

fn by_path() -> Router<Shared> {
    Router::new().route(
        "/users/{user}",
        on_get(
            |State(shared): State<Shared>, Path(user): Path<String>| async move {
                shared.note(Some(user));
            },
        ),
    )
}

#[tokio::test]
async fn a_number_or_a_uuid_is_one_budget_however_a_typed_extractor_is_given_it() {
    #[derive(Deserialize)]
    struct Of<T> {
        user: T,
    }

    fn by<T>() -> Router<Shared>
    where
        T: serde::de::DeserializeOwned + std::fmt::Display + Send + 'static,
    {
        let note = |shared: Shared, user: T| shared.note(Some(user.to_string()));
        let in_path = move |State(shared): State<Shared>, Path(user): Path<T>| async move {
            note(shared, user);
        };
        let in_query = move |State(shared): State<Shared>, Query(of): Query<Of<T>>| async move {
            note(shared, of.user);
        };
        let in_form = move |State(shared): State<Shared>, Form(of): Form<Of<T>>| async move {
            note(shared, of.user);
        };
        Router::new()
            .route("/users/{user}", on_get(in_path))
            .route("/", on_get(in_query).post(in_form))
    }

    fn by_uuid_in_json() -> Router<Shared> {
        let by = |State(shared): State<Shared>, Json(of): Json<Of<Uuid>>| async move {
            shared.note(Some(of.user.to_string()));
        };
        Router::new().route("/", on_post(by))
    }

    let id = "67e55044-10b1-426f-9247-bb680e5fe0c8";
    let uuids = [
        id.to_owned(),
        id.to_uppercase(),
        id.replace('-', ""),
        format!("%7B{id}%7D"),
        format!("urn:uuid:{id}"),
    ];
    let numbers = ["7", "07", "007", "%2B7", "%2b0007", "%37"].map(str::to_owned);
    let in_path = |policy: Policy| policy.route("/users/{user}").key(PathParam::new("user"));
    let in_query = |policy: Policy| policy.key(key::Query::new("user"));
    let in_form = |policy: Policy| policy.key(FormField::new("user"));
    for (service, texts, seen) in [
        (by::<u64> as fn() -> Router<Shared>, &numbers[..], "7"),
        (by::<Uuid>, &uuids[..], id),
    ] {
        let paths = texts.iter().map(|text| get(&format!("/users/{text}")));
        let queries = texts.iter().map(|text| get(&format!("/?user={text}")));
        let forms = texts.iter().map(|text| post(FORM, format!("user={text}")));
        let rows =
            |sent: Vec<Sent>| Vec::from_iter(sent.into_iter().map(|sent| (sent, Some(seen))));
        is_one_budget(service, in_path, &rows(paths.collect())).await;
        is_one_budget(service, in_query, &rows(queries.collect())).await;
        is_one_budget(service, in_form, &rows(forms.collect())).await;
    }
    let documents = uuids.iter().map(|text| {
        let text = text.replace("%7B", "{").replace("%7D", "}");
        (post(JSON, format!(r#"{{"user":"{text}"}}"#)), Some(id))
    });
    is_one_budget(
        by_uuid_in_json,
        |policy| policy.key(JsonField::new("user")),
        &Vec::from_iter(documents),
    )
    .await;
}

fn by_nested_path() -> Router<Shared> {
    let inner = Router::new().route(
        "/{*user}",
        on_get(
            |State(shared): State<Shared>, Path(path): Path<Fields>| async move {
                shared.note(path.get("user").cloned());
            },
        ),
    );
    Router::new().nest("/files", inner)
}

#[tokio::test]
async fn a_parameter_of_the_path_is_one_budget_however_it_is_encoded() {
    let policy = |policy: Policy| policy.route("/users/{user}").key(PathParam::new("user"));
    let rows = [
        (get("/users/abc"), Some("abc")),
        (get("/users/%61bc"), Some("abc")),
        (get("/users/a%62%63?user=zzz"), Some("abc")),
        (get("/users/a%2Fb"), Some("a/b")),
        (get("/users/a%2fb"), Some("a/b")),
        (get("/users/%2F"), Some("/")),
        (get("/users/%2f"), Some("/")),
        (get("/users/a%2F%2Fb"), Some("a//b")),
        (get("/users/a%252Fb"), Some("a%2Fb")),
        (get("/users/%20"), Some(" ")),
        (get("/users//abc"), None),
        (get("/users/%ff"), None),
    ];
    is_one_budget(by_path, policy, &rows).await;

    let policy = |policy: Policy| policy.route("/files/{*user}").key(PathParam::new("user"));
    let rows = [
        (get("/files/a/b"), Some("a/b")),
        (get("/files/a%2Fb"), Some("a/b")),
        (get("/files/%61/b"), Some("a/b")),
        (get("/files/a//b"), Some("a//b")),
        (get("/files/a%2F%2fb"), Some("a//b")),
        (get("/files/a/%2Fb"), Some("a//b")),
        (get("/files//b"), Some("/b")),
        (get("/files/%2Fb"), Some("/b")),
        (get("/files/%2F"), Some("/")),
        (get("/files//"), Some("/")),
        (get("/files/b/"), Some("b/")),
        (get("/files/b%2F"), Some("b/")),
    ];
    is_one_budget(by_nested_path, policy, &rows).await;
}

#[tokio::test]
async fn a_parameter_that_two_nested_routers_name_is_one_budget() {
    let service = || {
        let inner = Router::new().route(
            "/{user}",
            on_get(
                |State(shared): State<Shared>, Path(path): Path<Fields>| async move {
                    shared.note(path.get("user").cloned());
                },
            )
            .layer(limit_by_matched_path()),
        );
        Router::new().nest("/{user}", inner)
    };
    let shared = Shared::new();
    let app = service().with_state(shared.clone());
    for uri in ["/abc/abc", "/x/abc", "/y/abc", "/z/%61bc"] {
        for _ in 0..2 {
            drop(app.clone().oneshot(get(uri).request()).await.unwrap());
        }
    }
    let seen = shared.seen.lock().unwrap()["abc"];
    assert!(seen <= 2, "{seen} requests of one caller for one");
}

fn limit_by_matched_path() -> RateLimitLayer {
    let policy = Policy::new("keyed", Quota::per_hour(1)).key(PathParam::new("user"));
    let limiter = Limiter::builder().policy(policy.on_missing(OnMissing::Pass));
    RateLimitLayer::new(limiter.backend(at_a_standstill().0).build().unwrap())
}

#[tokio::test]
async fn two_routes_of_a_policy_that_capture_different_values_are_no_second_budget() {
    let service = || {
        Router::new()
            .route(
                "/{user}/posts",
                on_get(
                    |State(shared): State<Shared>, Path(user): Path<String>| async move {
                        shared.note(Some(user));
                    },
                ),
            )
            .route(
                "/staff/{user}",
                on_get(
                    |State(shared): State<Shared>, Path(user): Path<String>| async move {
                        shared.note(Some(user));
                    },
                ),
            )
    };
    let rows = [
        (get("/posts/posts"), Some("posts")),
        (get("/staff/posts"), Some("posts")),
        (get("/staff/abc"), Some("abc")),
        (get("/abc/posts"), Some("abc")),
    ];
    is_one_budget(
        service,
        |policy| {
            let policy = policy.route("/{user}/posts").route("/staff/{user}");
            policy.key(PathParam::new("user"))
        },
        &rows,
    )
    .await;
}

fn hosts() -> [Sent; 13] {
    let host = |lines: &[&str]| {
        let none = get("/");
        lines
            .iter()
            .fold(none, |sent, line| sent.with("host", line))
    };
    [
        host(&["a.example"]),
        host(&["A.Example"]),
        host(&["a.example:80"]),
        host(&["a.example:443"]),
        host(&["a.example."]),
        host(&[" a.example "]),
        host(&["a.example", "a.example"]),
        host(&["a.example", "b.example"]),
        host(&["b.example", "a.example"]),
        get("http://a.example/"),
        get("http://user@A.example.:80/"),
        get("http://a.example/").with("host", "b.example"),
        get("http://b.example/").with("host", "a.example"),
    ]
}

/// A name is the same however it is written, and a handler that compares names knows.
fn bare(host: &str) -> String {
    let name = host.trim().split(':').next().unwrap();
    name.trim_end_matches('.').to_ascii_lowercase()
}

#[tokio::test]
async fn a_host_is_one_budget_whichever_of_several_statements_is_read() {
    let by_header = || {
        Router::new().route(
            "/",
            any(
                |State(shared): State<Shared>, headers: HeaderMap| async move {
                    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
                    shared.note(host.map(bare));
                },
            ),
        )
    };
    let by_target = || {
        Router::new().route(
            "/",
            any(
                |State(shared): State<Shared>, uri: Uri, headers: HeaderMap| async move {
                    let last = headers.get_all(HOST).iter().next_back();
                    let host = last.and_then(|host| host.to_str().ok());
                    shared.note(uri.host().or(host).map(bare));
                },
            ),
        )
    };
    #[allow(deprecated, reason = "it is what handlers have")]
    let by_extractor = || {
        Router::new().route(
            "/",
            any(
                |State(shared): State<Shared>,
                 axum_extra::extract::Host(host): axum_extra::extract::Host| async move {
                    shared.note(Some(bare(host.rsplit('@').next().unwrap())));
                },
            ),
        )
    };
    let (a, b) = (Some("a.example"), Some("b.example"));
    let of_header = [a, a, a, a, a, a, a, a, b, None, None, b, a];
    let of_target = [a, a, a, a, a, a, a, b, a, a, a, a, b];
    let of_extractor = [a, a, a, a, a, a, a, a, b, a, a, b, a];
    let policy = |policy: Policy| policy.key(key::Host);
    for (service, seen) in [
        (by_header as fn() -> Router<Shared>, of_header),
        (by_target, of_target),
        (by_extractor, of_extractor),
    ] {
        let rows: Vec<_> = hosts().into_iter().zip(seen).collect();
        is_one_budget(service, policy, &rows).await;
    }
}

#[tokio::test]
async fn blanks_around_a_header_are_no_second_budget() {
    let by_header = || {
        Router::new().route(
            "/",
            any(
                |State(shared): State<Shared>, headers: HeaderMap| async move {
                    let key = headers.get("x-api-key").and_then(|key| key.to_str().ok());
                    let key = key.map(str::trim).filter(|key| !key.is_empty());
                    shared.note(key);
                },
            ),
        )
    };
    let keyed = |value: &str| get("/").with("x-api-key", value);
    let rows = [
        (keyed("abc"), Some("abc")),
        (keyed(" abc"), Some("abc")),
        (keyed("abc\t "), Some("abc")),
        (keyed("abc").with("x-api-key", "zzz"), Some("abc")),
        (keyed(" ").with("x-api-key", "abc"), None),
        (keyed(" "), None),
    ];
    is_one_budget(
        by_header,
        |policy| policy.key(Header::new("x-api-key")),
        &rows,
    )
    .await;
}

async fn statuses(policy: Policy, layer: Option<BufferBodyLayer>, sent: &[Sent]) -> Vec<u16> {
    let limiter = Limiter::builder().policy(policy);
    let limiter = limiter.backend(at_a_standstill().0).build().unwrap();
    let app = Router::new()
        .fallback(|| async {})
        .layer(RateLimitLayer::new(limiter));
    let app = match layer {
        Some(layer) => app.layer(layer),
        None => app,
    };
    let mut statuses = Vec::new();
    for sent in sent {
        let response = app.clone().oneshot(sent.request()).await.unwrap();
        statuses.push(response.status().as_u16());
    }
    statuses
}

fn one_an_hour(rule: OnMissing) -> Policy {
    Policy::new("keyed", Quota::per_hour(1)).on_missing(rule)
}

#[tokio::test]
async fn what_is_absent_passes_and_what_is_ambiguous_shares_one_budget() {
    let cases: &[(fn(Policy) -> Policy, Sent, &[Sent])] = &[
        (
            |policy| policy.key(key::Cookie::new("sid")),
            cookies("other=1"),
            &[cookies("sid=a; sid=b"), cookies("sid=b; sid=c")],
        ),
        (
            |policy| policy.key(key::Query::new("k")),
            get("/?x=1"),
            &[get("/?k=b&k=a"), get("/?k=c&k")],
        ),
        (
            |policy| policy.key(FormField::new("user")),
            post(FORM, "x=1"),
            &[
                post(FORM, "user=a&user=b"),
                post(FORM, padded("user=a")),
                post("text/plain", "user=a"),
            ],
        ),
        (
            |policy| policy.key(JsonField::new("user")),
            post(JSON, r#"{"x":1}"#),
            &[
                post(JSON, r#"{"user":"a","user":"b"}"#),
                post(JSON, r#"{"user":true}"#),
                post(JSON, r#"{"user":"a""#),
                post(JSON, format!("[{}]", "1,".repeat(100))),
                post("text/plain", "{}"),
            ],
        ),
        (
            |policy| policy.key(BearerToken),
            authorized("Digest abc"),
            &[authorized("Bearer a").with("authorization", "Bearer b")],
        ),
        (
            |policy| policy.key(BasicUser),
            authorized("Bearer abc"),
            &[authorized("Basic YWJj"), authorized("Basic ?")],
        ),
        (
            |policy| policy.key((Header::new("x-tenant"), key::Cookie::new("sid"))),
            get("/"),
            &[cookies("sid=a; sid=b")],
        ),
        (
            |policy| {
                policy.key(from_fn(|request| match request.uri().query() {
                    None => Ok(Key::from("a")),
                    Some("x") => Err(KeyMissing::new("session")),
                    Some(_) => Err(KeyMissing::new("session").ambiguous("it has two owners")),
                }))
            },
            get("/?x"),
            &[get("/?y"), get("/?z")],
        ),
        (
            |policy| {
                policy.key_async(from_async_fn(|request| {
                    let query = request.uri().query().map(str::to_owned);
                    async move {
                        match query.as_deref() {
                            None => Ok(Key::from("a")),
                            Some("x") => Err(KeyMissing::new("session")),
                            Some(_) => {
                                Err(KeyMissing::new("session").ambiguous("it has two owners"))
                            }
                        }
                    }
                }))
            },
            get("/?x"),
            &[get("/?y"), get("/?z")],
        ),
    ];
    for (policy, absent, ambiguous) in cases {
        let buffer = || Some(BufferBodyLayer::new(100));
        let absents = vec![absent.clone(); 3];
        let pass = policy(one_an_hour(OnMissing::Pass));
        assert_eq!(
            statuses(pass, buffer(), &absents).await,
            [200; 3],
            "{absent:?}"
        );

        // One of them all is admitted, and none spends what is left of it by being absent.
        let pass = policy(one_an_hour(OnMissing::Pass));
        let sent = absents.into_iter().chain(ambiguous.iter().cloned());
        let sent: Vec<_> = sent.chain(ambiguous.iter().cloned()).collect();
        let found = statuses(pass, buffer(), &sent).await;
        let mut expected = vec![429; sent.len()];
        expected[..4].fill(200);
        assert_eq!(found, expected, "{ambiguous:?}");

        let deny = policy(one_an_hour(OnMissing::Deny));
        let found = statuses(deny, buffer(), ambiguous).await;
        assert_eq!(found, vec![403; ambiguous.len()], "{ambiguous:?}");
    }
}

#[tokio::test]
async fn a_body_that_nothing_has_read_is_ambiguous_and_one_that_is_empty_is_absent() {
    let by_field = || one_an_hour(OnMissing::Pass).key(FormField::new("user"));
    let empty = vec![post("text/plain", ""); 3];
    let found = statuses(by_field(), Some(BufferBodyLayer::new(100)), &empty).await;
    assert_eq!(found, [200; 3]);

    // Without a layer that reads bodies the identity is unknown.
    let found = statuses(
        by_field(),
        None,
        &[post(FORM, "user=a"), post(FORM, "user=b")],
    )
    .await;
    assert_eq!(found, [200, 429]);
    // A form in the query is not all that a handler may read.
    let gets = ["a", "b"].map(|user| Sent {
        body: b"user=c".to_vec(),
        ..get(&format!("/?user={user}"))
    });
    let found = statuses(by_field(), Some(BufferBodyLayer::new(100)), &gets).await;
    assert_eq!(found, [200, 429]);
    let by_field = one_an_hour(OnMissing::Pass).key(JsonField::new("user"));
    let found = statuses(by_field, None, &vec![post(JSON, r#"{"user":"a"}"#); 2]).await;
    assert_eq!(found, [200, 429]);
}

#[test]
fn what_is_ambiguous_says_why_and_names_no_value() {
    let request = cookies("sid=secret; sid=other").request();
    let view = tollgate::RequestView::of(&request);
    let missing = key::KeyExtractor::extract(&key::Cookie::new("sid"), &view).unwrap_err();

    assert!(missing.is_ambiguous());
    let text = format!("{missing} {missing:?}");
    assert!(
        text.starts_with("an ambiguous cookie sid in the request: "),
        "{text}"
    );
    assert!(!text.contains("secret"), "{text}");

    let absent = KeyMissing::new("session");
    assert!(!absent.is_ambiguous());
    assert_eq!(absent.to_string(), "no session in the request");

    for key in [format!("{BearerToken:?}"), format!("{BasicUser:?}")] {
        assert!(!key.contains("secret"), "{key}");
    }
}

/// A server whose handler notes the header that it is given, and whose callers each have one request an hour.
async fn served(policy: Policy, name: &'static str) -> (Served, Shared) {
    let shared = Shared::new();
    let limiter = Limiter::builder().policy(policy);
    let limiter = limiter.backend(at_a_standstill().0).build().unwrap();
    let app = Router::new()
        .fallback(
            move |State(shared): State<Shared>, headers: HeaderMap| async move {
                let value = headers.get(name).map(HeaderValue::as_bytes);
                shared.note(value.map(String::from_utf8_lossy));
            },
        )
        .with_state(shared.clone())
        .layer(RateLimitLayer::new(limiter));
    (Served::new(app).await, shared)
}

#[tokio::test]
async fn blanks_that_http_2_keeps_are_no_second_budget() {
    let policy = one_an_hour(OnMissing::Deny).key(Header::new("x-api-key"));
    let (server, shared) = served(policy, "x-api-key").await;
    let mut client = Client::builder(TokioExecutor::new());
    let client = client.http2_only(true).build_http::<Body>();

    for value in [" abc", "abc", "abc ", "\tabc"] {
        let request = Request::get(format!("http://{}/", server.0)).header("x-api-key", value);
        client
            .request(request.body(Body::empty()).unwrap())
            .await
            .unwrap();
    }

    // The handler was shown the blanks.
    let seen = shared.seen.lock().unwrap().clone();
    assert_eq!(seen, Seen::from([(" abc".to_owned(), 1)]));
}

#[tokio::test]
async fn two_host_lines_over_http_1_are_ambiguous_and_not_absent() {
    let policy = one_an_hour(OnMissing::Pass).key(key::Host);
    let (server, shared) = served(policy, "host").await;

    let mut statuses = Vec::new();
    for head in [
        "GET / HTTP/1.1\r\nhost: a.example\r\nhost: b.example",
        "GET / HTTP/1.1\r\nHost: b.example\r\nHost: a.example",
        "GET http://a.example/ HTTP/1.1\r\nHost: b.example",
        "GET / HTTP/1.1\r\nHost: a.example\r\nHost: A.example.:80",
        "GET http://a.example/ HTTP/1.1\r\nHost: a.example",
    ] {
        let mut stream = TcpStream::connect(server.0).await.unwrap();
        let request = format!("{head}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        statuses.push(answer[9..12].to_owned());
    }

    assert_eq!(statuses, ["200", "429", "429", "200", "429"]);
    let seen: usize = shared.seen.lock().unwrap().values().sum();
    assert_eq!(seen, 2);
}
