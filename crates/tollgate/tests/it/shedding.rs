//! Under pressure the unimportant goes first, before anything is asked or charged for it.

mod answers;
mod built;
mod order;
mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use tollgate::key::Header;
use tollgate::{Limiter, LimiterBuilder, Policy, PressureGauge, Quota, RateLimitLayer, Shedding};
use tower::{Layer, ServiceExt};

use crate::common::{Body, Strict, from, header};

const SECOND: Duration = Duration::from_secs(1);

const CLASSES: [&str; 3] = ["critical", "normal", "batch"];

const AT: [(&str, f64); 2] = [("batch", 0.7), ("normal", 0.9)];

/// A limiter that sheds by this gauge, with the classes in a header.
fn shedding(gauge: &PressureGauge, how: impl Into<Shedding>) -> LimiterBuilder {
    Limiter::builder()
        .classes(CLASSES, Header::new("x-class"))
        .shed(gauge, how)
}

/// Nine an hour for each address.
fn api() -> Policy {
    Policy::new("api", Quota::per_hour(9))
}

fn of(class: &str) -> Request<Body> {
    let mut request = from("10.0.0.1");
    let class = class.parse().unwrap();
    request.headers_mut().insert("x-class", class);
    request
}

async fn send(limiter: &Limiter, request: Request<Body>) -> Response<Body> {
    let service = RateLimitLayer::new(limiter).layer(Strict::default());
    service.oneshot(request).await.unwrap()
}

/// The classes of which a request is refused at present.
async fn refused(limiter: &Limiter) -> Vec<&'static str> {
    let mut refused = Vec::new();
    for class in CLASSES {
        match send(limiter, of(class)).await.status().as_u16() {
            200 => {}
            503 => refused.push(class),
            status => panic!("{class}: {status}"),
        }
    }
    refused
}

/// The requests left of the policy's nine.
async fn left(limiter: &Limiter) -> u64 {
    let caller = limiter.client_key("10.0.0.1".parse().unwrap());
    let peek = limiter.check("api", caller).class("critical").cost(0);
    peek.await.unwrap().remaining()
}

#[cfg(feature = "axum")]
mod over_a_socket {
    use axum::Router;
    use axum::routing::get;
    use tollgate::MethodRouterExt;

    use super::*;
    use crate::common::served::Served;

    async fn ask(server: Served, path: &str, class: &str) -> Response<String> {
        let request = Request::get(format!("http://{}{path}", server.0)).header("x-class", class);
        let request = request.body(axum::body::Body::empty()).unwrap();
        server.request(request).await
    }

    #[tokio::test]
    async fn the_answer_says_that_capacity_is_reduced_and_when_to_come_back() {
        let gauge = PressureGauge::new();
        let limiter = shedding(&gauge, AT).policy(api()).build().unwrap();
        let handled = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&handled);
        let app = Router::new()
            .route(
                "/",
                get(async move || count.fetch_add(1, Ordering::SeqCst).to_string()),
            )
            .layer(RateLimitLayer::new(limiter));
        let server = Served::new(app).await;
        gauge.set(0.8);

        let batch = ask(server, "/", "batch").await;
        let normal = ask(server, "/", "normal").await;

        assert_eq!(
            (batch.status().as_u16(), normal.status().as_u16()),
            (503, 200)
        );
        assert_eq!(header(&batch, "content-type"), "application/problem+json");
        assert_eq!(header(&batch, "cache-control"), "no-store");
        assert_eq!(
            (
                header(&batch, "ratelimit"),
                header(&batch, "ratelimit-policy")
            ),
            ("", "")
        );
        let seconds: u64 = header(&batch, "retry-after").parse().unwrap();
        assert!((5..=10).contains(&seconds), "{seconds}");
        let problem: serde_json::Value = serde_json::from_str(batch.body()).unwrap();
        assert_eq!(
            (problem["type"].as_str(), problem["status"].as_u64()),
            (
                Some("https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"),
                Some(503)
            )
        );
        assert_eq!(handled.load(Ordering::SeqCst), 1);
        assert!(header(&normal, "ratelimit").starts_with("\"api\";r=8;"));
    }

    /// A layer decides once: the limit of a route is asked for its budget, and not for the pressure.
    #[tokio::test]
    async fn a_limit_further_in_sheds_nothing_that_the_layer_has_let_in() {
        let gauge = PressureGauge::new();
        let limiter = shedding(&gauge, AT).policy(api()).build().unwrap();
        let raise = gauge.clone();
        let app = Router::new()
            .route("/", get(async || "done").rate_limit(Quota::per_hour(2)))
            .layer(axum::middleware::from_fn(
                move |request: axum::extract::Request, next: axum::middleware::Next| {
                    raise.set(1.0);
                    next.run(request)
                },
            ))
            .layer(RateLimitLayer::new(limiter));
        let server = Served::new(app).await;

        for expected in [200, 200, 429] {
            gauge.set(0.0);
            assert_eq!(ask(server, "/", "batch").await.status(), expected);
        }
        assert_eq!(ask(server, "/", "batch").await.status(), 503);
    }
}
