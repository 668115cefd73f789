//! Answers to callers.

use std::time::Duration;

use crate::common::{Body, Strict, at_a_standstill, from, header};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use tollgate::{
    Limiter, Policy, PolicyVerdict, ProblemJson, Quota, RateLimitLayer, RateLimitStatus,
};
use tower::{Layer, ServiceExt, service_fn};

fn limiter(policy: Policy) -> (Limiter, tollgate::ManualClock) {
    let (backend, clock) = at_a_standstill();
    (
        Limiter::builder()
            .policy(policy)
            .backend(backend)
            .build()
            .unwrap(),
        clock,
    )
}

async fn send(layer: &RateLimitLayer) -> Response<Body> {
    layer
        .layer(Strict::default())
        .oneshot(from("10.0.0.1"))
        .await
        .unwrap()
}

#[tokio::test]
async fn an_allowed_response_carries_the_ratelimit_fields() {
    let (limiter, _) = limiter(Policy::new("search", Quota::per_minute(30)));

    let response = send(&RateLimitLayer::new(limiter)).await;

    assert_eq!(response.status(), 200);
    assert_eq!(
        header(&response, "ratelimit-policy"),
        "\"search\";q=30;w=60"
    );
    assert_eq!(header(&response, "ratelimit"), "\"search\";r=29;t=2");
    assert_eq!(header(&response, "retry-after"), "");
}

#[tokio::test]
async fn a_refusal_says_everything_that_a_client_needs() {
    let (limiter, clock) = limiter(Policy::new("login", Quota::per_minute(30).burst(1)));
    let layer = RateLimitLayer::new(limiter);
    send(&layer).await;
    clock.advance(Duration::from_millis(100));

    let response = send(&layer).await;

    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    // 1.9 s left: rounded up, and the same in both places.
    assert_eq!(header(&response, "retry-after"), "2");
    assert_eq!(header(&response, "ratelimit"), "\"login\";r=0;t=2");
    assert_eq!(header(&response, "ratelimit-policy"), "\"login\";q=1;w=2");
    assert_eq!(header(&response, "cache-control"), "no-store");
    assert_eq!(
        header(&response, "content-type"),
        "application/problem+json"
    );
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        problem["type"],
        "https://iana.org/assignments/http-problem-types#quota-exceeded"
    );
    assert_eq!(problem["status"], 429);
    assert_eq!(problem["violated-policies"], serde_json::json!(["login"]));
}

#[tokio::test]
async fn who_waits_as_long_as_retry_after_says_passes() {
    let (limiter, clock) = limiter(Policy::new("slow", Quota::per_minute(7)));
    let layer = RateLimitLayer::new(limiter);
    for _ in 0..50 {
        let response = send(&layer).await;
        if response.status() == 200 {
            continue;
        }
        let seconds: u64 = header(&response, "retry-after").parse().unwrap();
        clock.advance(Duration::from_secs(seconds));
        assert_eq!(send(&layer).await.status(), 200);
    }
}

#[tokio::test]
async fn headers_can_be_left_out_but_retry_after_stays() {
    let layer = RateLimitLayer::new(Quota::per_hour(1)).without_headers();

    let passed = send(&layer).await;
    let refused = send(&layer).await;

    assert!(passed.headers().is_empty());
    assert_eq!(header(&refused, "ratelimit"), "");
    assert_eq!(header(&refused, "retry-after"), "3600");
}

#[tokio::test]
async fn fields_of_another_limiter_further_in_are_left_standing() {
    let service = service_fn(|_: Request<Body>| async {
        let mut response = Response::new(Body::default());
        response
            .headers_mut()
            .insert("ratelimit", HeaderValue::from_static("\"other\";r=1;t=1"));
        Ok::<_, std::convert::Infallible>(response)
    });

    let layered = RateLimitLayer::new(Quota::per_hour(1)).layer(service);
    let response = layered.oneshot(from("10.0.0.1")).await.unwrap();

    let all: Vec<_> = response.headers().get_all("ratelimit").iter().collect();
    assert_eq!(all, ["\"other\";r=1;t=1", "\"default\";r=0;t=3600"]);
}

#[tokio::test]
async fn the_answer_can_be_the_users_own() {
    let layer = RateLimitLayer::new(Quota::per_hour(1)).respond_with(|refusal| {
        assert_eq!(refusal.request().uri().path(), "/");
        assert_eq!(refusal.violated().next().unwrap().policy(), "default");
        let mut response = Response::new("come back later");
        *response.status_mut() = StatusCode::SEE_OTHER;
        response
            .headers_mut()
            .insert("location", HeaderValue::from_static("/waiting-room"));
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from_static("7"));
        response
            .headers_mut()
            .insert(CACHE_CONTROL, HeaderValue::from_static("private"));
        response
    });

    send(&layer).await;
    let response = send(&layer).await;

    assert_eq!(response.status(), 303);
    assert_eq!(header(&response, "location"), "/waiting-room");
    // A header that the user sets is not overwritten.
    assert_eq!(
        (
            header(&response, "retry-after"),
            header(&response, "cache-control")
        ),
        ("7", "private")
    );
}

#[tokio::test]
async fn whoever_speaks_grpc_is_answered_in_grpc() {
    let layer = RateLimitLayer::new(Quota::per_hour(1));
    let call = || {
        let mut request = from("10.0.0.1");
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = "/shop.v1.Orders/Place".parse().unwrap();
        request.headers_mut().insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/grpc+proto"),
        );
        layer.layer(Strict::default()).oneshot(request)
    };

    call().await.unwrap();
    let response = call().await.unwrap();

    // Trailers-only: everything in the headers, and no body.
    assert_eq!(response.status(), 200);
    assert_eq!(header(&response, "content-type"), "application/grpc");
    assert_eq!(header(&response, "grpc-status"), "8");
    assert!(http_body::Body::is_end_stream(response.body()));
}

#[tokio::test]
async fn handlers_read_what_was_decided() {
    let seen = service_fn(|request: Request<Body>| async move {
        let status: &RateLimitStatus = request.extensions().get().unwrap();
        let tightest = status.tightest().unwrap();
        let verdicts = status.verdicts();
        let names: Vec<_> = verdicts
            .iter()
            .map(|one| (one.quota(), one.is_enforced()))
            .collect();
        assert_eq!(names, [("trial", false), ("api", true)]);
        let text = format!(
            "{} of {}",
            tightest.verdict().remaining(),
            tightest.verdict().limit()
        );
        Ok::<_, std::convert::Infallible>(Response::new(Body::new(text.into())))
    });
    let limiter = Limiter::builder()
        .policy(Policy::new("trial", Quota::per_hour(1)).shadow())
        .policy(Policy::new("api", Quota::per_hour(5)))
        .build()
        .unwrap();

    let response = RateLimitLayer::new(limiter)
        .layer(seen)
        .oneshot(from("10.0.0.1"))
        .await
        .unwrap();

    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "4 of 5");
}

#[tokio::test]
async fn without_a_status_requests_are_left_as_they_are() {
    let seen = service_fn(|request: Request<Body>| async move {
        assert!(request.extensions().get::<RateLimitStatus>().is_none());
        Ok::<_, std::convert::Infallible>(Response::new(Body::default()))
    });
    let layer = RateLimitLayer::new(Quota::per_hour(1)).without_status();

    let response = layer.layer(seen).oneshot(from("10.0.0.1")).await.unwrap();

    assert_eq!(header(&response, "ratelimit"), "\"default\";r=0;t=3600");
}

#[tokio::test]
async fn pitfall_a_response_body_wrapper_that_forgets_is_end_stream_and_size_hint() {
    use http_body::Body as _;

    let service = service_fn(|_: Request<Body>| async {
        Ok::<_, std::convert::Infallible>(Response::new(Body::new("twelve bytes".into())))
    });
    let layered = RateLimitLayer::new(Quota::per_hour(1)).layer(service);

    // The body's type says that nothing was wrapped; its answers say that nothing was lost.
    let allowed: Response<Body> = layered.clone().oneshot(from("10.0.0.1")).await.unwrap();
    assert_eq!(
        (
            allowed.body().size_hint().exact(),
            allowed.body().is_end_stream()
        ),
        (Some(12), false)
    );
    let refused = layered.oneshot(from("10.0.0.1")).await.unwrap();
    assert!(
        refused
            .body()
            .size_hint()
            .exact()
            .is_some_and(|bytes| bytes > 100)
    );
}

#[tokio::test]
async fn the_answer_prepared_for_one_quota_is_the_one_that_would_be_written() {
    for with_headers in [true, false] {
        // given the answer that is prepared, and the same without preparation
        let layer = || {
            let layer = RateLimitLayer::new(limiter(Policy::new("api", Quota::per_hour(1))).0);
            if with_headers {
                layer
            } else {
                layer.without_headers()
            }
        };
        let mut answers = Vec::new();
        for layer in [layer(), layer().respond(ProblemJson)] {
            send(&layer).await;
            let (parts, body) = send(&layer).await.into_parts();
            let mut headers: Vec<_> = parts
                .headers
                .iter()
                .map(|(name, value)| (name.to_string(), value.clone()))
                .collect();
            headers.sort_by(|one, other| one.0.cmp(&other.0));
            let body = body.collect().await.unwrap().to_bytes();
            answers.push((parts.status, headers, body));
        }

        // then a client cannot tell them apart
        assert_eq!(answers[0], answers[1]);
        assert_eq!(answers[0].1.len(), if with_headers { 5 } else { 3 });
    }
}

#[tokio::test]
async fn two_layers_are_one_answer() {
    // given a handler behind a layer for all routes and one for its own
    let seen = service_fn(|request: Request<Body>| async move {
        let status: &RateLimitStatus = request.extensions().get().unwrap();
        let verdicts = status.verdicts();
        let all: Vec<_> = verdicts.iter().map(PolicyVerdict::quota).collect();
        Ok::<_, std::convert::Infallible>(Response::new(Body::new(all.join(" ").into())))
    });
    let layer = |name: &str, quota| RateLimitLayer::new(limiter(Policy::new(name, quota)).0);
    let (all, own) = (
        layer("all", Quota::per_hour(10)),
        layer("own", Quota::per_hour(3)),
    );

    // when it is asked
    let response = all
        .layer(own.layer(seen))
        .oneshot(from("10.0.0.1"))
        .await
        .unwrap();

    // then it sees both, and the headers tell both, once
    let lines = |name: &str| -> Vec<String> {
        let lines = response.headers().get_all(name).iter();
        lines
            .map(|line| line.to_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(lines("ratelimit"), ["\"own\";r=2;t=1200"]);
    assert_eq!(
        lines("ratelimit-policy"),
        ["\"all\";q=10;w=3600, \"own\";q=3;w=3600"]
    );
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "all own");
}

#[tokio::test]
async fn a_layer_that_writes_headers_does_so_within_one_that_does_not() {
    let inner = RateLimitLayer::new(limiter(Policy::new("own", Quota::per_hour(3))).0);
    let outer = RateLimitLayer::new(limiter(Policy::new("all", Quota::per_hour(1))).0);
    let service = outer
        .without_headers()
        .layer(inner.layer(Strict::default()));

    let response = service.oneshot(from("10.0.0.1")).await.unwrap();

    assert_eq!(header(&response, "ratelimit"), "\"own\";r=2;t=1200");
    assert_eq!(header(&response, "ratelimit-policy"), "\"own\";q=3;w=3600");
}

#[tokio::test]
async fn what_outer_layers_took_comes_back_when_an_inner_one_refuses() {
    // given budgets for all and for some, on backends of their own, and a smaller one of a route's own
    let (all, _) = limiter(Policy::new("all", Quota::per_hour(10)));
    let (some, _) = limiter(Policy::new("some", Quota::per_hour(10)));
    let own = RateLimitLayer::new(limiter(Policy::new("own", Quota::per_hour(2))).0);
    let limited = own.layer(Strict::default());
    let limited = RateLimitLayer::new(&some).layer(limited);
    let service = RateLimitLayer::new(&all).layer(limited);

    // when more come than the smaller one admits
    for expected in [200, 200, 429, 429, 429] {
        let response = service.clone().oneshot(from("10.0.0.1")).await.unwrap();
        assert_eq!(response.status(), expected);
    }

    // then the larger ones have paid for those that passed
    for (limiter, policy) in [(&all, "all"), (&some, "some")] {
        let peer = limiter.client_key("10.0.0.1".parse().unwrap());
        let left = limiter.check(policy, peer).cost(0).await.unwrap();
        assert_eq!(left.remaining(), 8, "{policy}");
    }
}
