//! One identity is one budget, however a caller writes it: the truth is what the extractors of axum and axum-extra hand to the
//! handler.

#![allow(
    clippy::type_complexity,
    reason = "a test says what it expects by panicking"
)]
#![cfg(all(feature = "axum", feature = "json"))]

mod bodies;
mod cookies;
mod credentials;
mod headers;
mod hosts;
mod paths;
mod queries;
mod sockets;
mod unclear;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::FromRef;
use axum_extra::extract::cookie::Key as Secret;
use http::{HeaderName, HeaderValue, Method, Request};
use serde::Deserialize;
use tollgate::{BufferBodyLayer, Limiter, OnMissing, Policy, Quota, RateLimitLayer};
use tower::ServiceExt;

use crate::common::at_a_standstill;

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

fn authorized(value: impl AsRef<[u8]>) -> Sent {
    get("/").with("authorization", value)
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

const FORM: &str = "application/x-www-form-urlencoded";

const JSON: &str = "application/json";

fn padded(field: &str) -> String {
    format!("{field}&padding={}", "x".repeat(100))
}

fn one_an_hour(rule: OnMissing) -> Policy {
    Policy::new("keyed", Quota::per_hour(1)).on_missing(rule)
}
