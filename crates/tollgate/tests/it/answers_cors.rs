//! The headers that pages in browsers may read.

use std::convert::Infallible;

use crate::common::{Body, Strict, from, header};
use http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_REQUEST_METHOD,
    ORIGIN,
};
use http::{HeaderValue, Method, Request, Response};
use tollgate::{HeaderForm, Quota, RateLimitHeaders, RateLimitLayer, SeeOther, Share};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_http::cors::CorsLayer;

async fn exposed<S>(service: S) -> Vec<String>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    let response = service.oneshot(from("10.0.0.1")).await.unwrap();
    let lines = response.headers().get_all(ACCESS_CONTROL_EXPOSE_HEADERS);
    lines
        .iter()
        .map(|line| line.to_str().unwrap().to_owned())
        .collect()
}

fn one_an_hour() -> RateLimitLayer {
    RateLimitLayer::new(Quota::per_hour(1))
}

#[tokio::test]
async fn nothing_is_exposed_unless_asked_for() {
    let layer = one_an_hour();
    for _ in 0..2 {
        assert!(exposed(layer.layer(Strict::default())).await.is_empty());
    }
}

#[tokio::test]
async fn what_the_form_writes_is_exposed_on_passing_and_refusing_answers() {
    let cases = [
        (
            HeaderForm::Draft11,
            "RateLimit, RateLimit-Policy, Retry-After",
        ),
        (
            HeaderForm::Draft07,
            "RateLimit, RateLimit-Policy, Retry-After",
        ),
        (
            HeaderForm::Draft06,
            "RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset, Retry-After",
        ),
        (
            HeaderForm::Legacy,
            "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After",
        ),
    ];
    for (form, expected) in cases {
        let layer = one_an_hour().headers(form).expose_headers();
        for _ in 0..2 {
            assert_eq!(exposed(layer.layer(Strict::default())).await, [expected]);
        }
    }
}

#[tokio::test]
async fn what_is_exposed_already_stays_and_is_not_repeated() {
    let service = service_fn(|_: Request<Body>| async {
        let mut response = Response::new(Body::default());
        let names = HeaderValue::from_static("X-Total,ratelimit , retry-after");
        response
            .headers_mut()
            .insert(ACCESS_CONTROL_EXPOSE_HEADERS, names);
        Ok::<_, Infallible>(response)
    });
    let layer = one_an_hour().expose_headers();
    assert_eq!(
        exposed(layer.layer(service)).await,
        ["X-Total,ratelimit , retry-after", "RateLimit-Policy"]
    );

    // nor by a second layer around the first
    let inner = one_an_hour().expose_headers().layer(Strict::default());
    let around = one_an_hour().expose_headers().layer(inner);
    for _ in 0..2 {
        assert_eq!(
            exposed(around.clone()).await,
            ["RateLimit, RateLimit-Policy, Retry-After"]
        );
    }
}

#[tokio::test]
async fn what_is_not_written_is_not_exposed() {
    // without headers only a refusal has one
    let layer = one_an_hour().expose_headers().without_headers();
    assert!(exposed(layer.layer(Strict::default())).await.is_empty());
    assert_eq!(
        exposed(layer.layer(Strict::default())).await,
        ["Retry-After"]
    );

    // and while there is plenty left, there is none
    let headers = RateLimitHeaders::default().when_below(Share::one_in(2));
    let layer = RateLimitLayer::new(Quota::per_hour(9)).headers(headers);
    let service = layer.expose_headers().layer(Strict::default());
    assert!(exposed(service).await.is_empty());

    // nor where a caller is sent elsewhere
    let layer = one_an_hour().expose_headers().respond(SeeOther::at("/"));
    exposed(layer.layer(Strict::default())).await;
    assert!(exposed(layer.layer(Strict::default())).await.is_empty());
}

#[tokio::test]
async fn preflights_that_a_cors_layer_outside_answers_meet_no_limiter() {
    // given a limiter that exempts nothing, within CORS
    let inner = Strict::default();
    let service = CorsLayer::permissive().layer(one_an_hour().layer(inner.clone()));
    let preflight = || {
        let mut request = from("10.0.0.1");
        *request.method_mut() = Method::OPTIONS;
        let headers = request.headers_mut();
        headers.insert(ORIGIN, HeaderValue::from_static("https://page.example"));
        headers.insert(
            ACCESS_CONTROL_REQUEST_METHOD,
            HeaderValue::from_static("PUT"),
        );
        request
    };

    // when a browser asks again and again, and then sends
    for _ in 0..20 {
        let answer = service.clone().oneshot(preflight()).await.unwrap();
        assert_eq!(header(&answer, "access-control-allow-origin"), "*");
    }
    let sent = service.oneshot(from("10.0.0.1")).await.unwrap();

    // then the preflights have spent nothing, and run nothing
    assert_eq!((sent.status().as_u16(), inner.calls()), (200, 1));
}

#[tokio::test]
async fn a_refused_request_that_looks_like_a_preflight_is_readable_across_origins() {
    // given a layer outside that lets preflights through, and says which origins may read each
    // answer
    let allow = HeaderValue::from_static("https://page.example");
    let limited = one_an_hour().expose_headers().layer(Strict::default());
    let page = allow.clone();
    let service = limited.map_response(move |mut answer: Response<Body>| {
        let headers = answer.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, page.clone());
        answer
    });

    // when the second is one too many
    for expected in [200, 429] {
        let mut request = from("10.0.0.1");
        *request.method_mut() = Method::OPTIONS;
        request.headers_mut().insert(ORIGIN, allow.clone());
        let put = HeaderValue::from_static("PUT");
        request
            .headers_mut()
            .insert(ACCESS_CONTROL_REQUEST_METHOD, put);
        let answer = service.clone().oneshot(request).await.unwrap();

        // then the page may read that, and when to come back
        assert_eq!(answer.status(), expected);
        assert_eq!(header(&answer, "access-control-allow-origin"), allow);
        let exposed = header(&answer, "access-control-expose-headers");
        assert!(exposed.contains("Retry-After"), "{exposed}");
    }
}

#[tokio::test]
async fn pitfall_the_429_without_cors_headers_unreadable_to_the_page_that_caused_it() {
    // given a page of another origin, and CORS outside of the limiter
    const PAGE: HeaderValue = HeaderValue::from_static("https://page.example");
    let cors = CorsLayer::new()
        .allow_origin(PAGE)
        .allow_methods([Method::PUT]);
    let limiter = one_an_hour().expose_headers();
    let service = cors.layer(limiter.layer(Strict::default()));
    let send = |method: Method| {
        let mut request = from("10.0.0.1");
        request.headers_mut().insert(ORIGIN, PAGE);
        if method == Method::OPTIONS {
            let put = HeaderValue::from_static("PUT");
            request
                .headers_mut()
                .insert(ACCESS_CONTROL_REQUEST_METHOD, put);
        }
        *request.method_mut() = method;
        service.clone().oneshot(request)
    };

    // when its browser asks first, each time, and its second request is one too many
    for expected in [200, 429] {
        let preflight = send(Method::OPTIONS).await.unwrap();
        assert_eq!(preflight.status(), 200);
        assert_eq!(header(&preflight, "access-control-allow-methods"), "PUT");
        let response = send(Method::PUT).await.unwrap();

        // then the page may read both answers, and when to come back
        assert_eq!(response.status(), expected);
        assert_eq!(header(&response, "access-control-allow-origin"), PAGE);
        assert_eq!(
            header(&response, "access-control-expose-headers"),
            "RateLimit, RateLimit-Policy, Retry-After"
        );
        assert_eq!(header(&response, "retry-after").is_empty(), expected == 200);
    }
}
