//! Identities that a handler does not see, or sees otherwise than the key could: whoever has one of these is nobody for both. The handler
//! counts those whom it sees as nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::Path;
use axum::routing::get;
use axum::{Form, Router};
use axum_extra::TypedHeader;
use axum_extra::headers::Authorization;
use axum_extra::headers::authorization::{Basic, Bearer};
use http::Request;
use serde::Deserialize;
use tollgate::key::{BasicUser, BearerToken, FormField, KeyList, MatchedRoute, PathParam};
use tollgate::{Block, BufferBodyLayer, OnMissing, Policy, Quota, RateLimitLayer};
use tower::Layer;

use crate::common::served::Served;

const QUOTA: u64 = 2;

fn policy() -> Policy {
    Policy::new("calls", Quota::per_day(QUOTA))
}

#[derive(Deserialize)]
struct Login {
    user: Option<String>,
}

/// axum's `Form` reads the body of a HEAD, and other readers its query.
#[tokio::test]
async fn the_query_of_a_head_is_no_form_that_a_caller_could_choose() {
    let nobody = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&nobody);
    let login = get(move |Form(login): Form<Login>| async move {
        seen.fetch_add(u64::from(login.user.is_none()), Ordering::SeqCst);
    });
    let app = Router::new().route("/login", login);
    let layer = RateLimitLayer::new(policy().key(FormField::new("user")));
    let served = Served::new(app.layer(layer).layer(BufferBodyLayer::new(1_000))).await;
    for n in 0..6 {
        let request = Request::head(format!("http://{}/login?user=u{n}", served.0))
            .header("content-type", "application/x-www-form-urlencoded");
        served
            .request(request.body(axum::body::Body::empty()).unwrap())
            .await;
    }
    assert!(nobody.load(Ordering::SeqCst) <= QUOTA);
}

/// The crate `headers` finds nothing behind a tab, nor in base64 without its padding.
#[tokio::test]
async fn credentials_that_typed_headers_do_not_find_are_none() {
    type Line = fn(usize) -> String;

    let lines: [(&str, Line); 3] = [
        ("bearer", |n| format!("Bearer\tx{n}")),
        ("basic", |n| {
            format!(
                "Basic\t{}",
                ["YTo=", "Yjo=", "Yzo=", "ZDo=", "ZTo=", "Zjo="][n]
            )
        }),
        ("basic", |n| {
            format!("Basic {}", ["YTo", "Yjo", "Yzo", "ZDo", "ZTo", "Zjo"][n])
        }),
    ];
    for (scheme, line) in lines {
        for on_missing in [OnMissing::Share, OnMissing::Deny] {
            let policy = policy().on_missing(on_missing);
            let policy = match scheme {
                "basic" => policy.key(BasicUser),
                _ => policy.key(BearerToken),
            };
            let nobody = Arc::new(AtomicU64::new(0));
            let seen = Arc::clone(&nobody);
            let handler =
                move |basic: Option<TypedHeader<Authorization<Basic>>>,
                      bearer: Option<TypedHeader<Authorization<Bearer>>>| async move {
                    let is_nobody = basic.is_none() && bearer.is_none();
                    seen.fetch_add(u64::from(is_nobody), Ordering::SeqCst);
                };
            let app = Router::new().route("/", get(handler));
            let served = Served::new(app.layer(RateLimitLayer::new(policy))).await;
            for n in 0..6 {
                let request = Request::get(format!("http://{}/", served.0));
                let request = request.header("authorization", line(n));
                served
                    .request(request.body(axum::body::Body::empty()).unwrap())
                    .await;
            }
            let ran = nobody.load(Ordering::SeqCst);
            assert!(ran <= QUOTA, "{} under {on_missing:?}: {ran}", line(0));
        }
    }
}

/// A layer within `nest_service` comes before the router that knows the path.
#[tokio::test]
async fn a_layer_within_a_nested_service_lets_nobody_pass_whose_path_it_does_not_know() {
    for is_param in [true, false] {
        let policy = policy().on_missing(OnMissing::Pass);
        let blocked = KeyList::from_iter(["evil"]);
        let policy = match is_param {
            true => policy
                .key(PathParam::new("tenant"))
                .block_keys(blocked, Block::Forbidden),
            false => policy.key(MatchedRoute),
        };
        let ran = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&ran);
        let handler = move |Path(_tenant): Path<String>| async move {
            seen.fetch_add(1, Ordering::SeqCst);
        };
        let inner = Router::new().route("/{tenant}/x", get(handler));
        let layered = RateLimitLayer::new(policy).layer(inner);
        let served = Served::new(Router::new().nest_service("/t", layered)).await;
        for _ in 0..4 {
            for tenant in ["acme", "evil"] {
                served.get(&format!("/t/{tenant}/x")).await;
            }
        }
        assert!(ran.load(Ordering::SeqCst) <= QUOTA, "{is_param}");
    }
}
