//! The headers that say how budgets stand: their forms, when they are written, and what of others' is left standing.

use std::convert::Infallible;
use std::time::Duration;

use crate::common::{Body, at_a_standstill, from, header};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use tollgate::{
    Algorithm, HeaderForm, Limiter, ManualClock, Policy, Quota, RateLimitHeaders, RateLimitLayer,
    Share,
};
use tower::{Layer, Service, ServiceExt, service_fn};

const FORMS: [HeaderForm; 4] = [
    HeaderForm::Draft11,
    HeaderForm::Draft07,
    HeaderForm::Draft06,
    HeaderForm::Legacy,
];

/// The time at which the tests begin: a bit after a whole second, in 2026.
const START: Duration = Duration::from_micros(1_767_225_600_250_000);

fn limiter(policies: impl IntoIterator<Item = Policy>) -> (Limiter, ManualClock) {
    let (backend, clock) = at_a_standstill();
    clock.advance(START.saturating_sub(since_epoch(&clock)));
    let limiter = Limiter::builder().policies(policies).backend(backend);
    (limiter.build().unwrap(), clock)
}

fn since_epoch(clock: &ManualClock) -> Duration {
    Duration::from_micros(tollgate::Clock::now(clock).as_micros())
}

/// A layer for one policy of ten an hour.
fn ten_an_hour() -> (RateLimitLayer, ManualClock) {
    let (limiter, clock) = limiter([Policy::new("api", Quota::per_hour(10))]);
    (RateLimitLayer::new(limiter), clock)
}

/// A service that answers with these headers.
fn answering(
    status: u16,
    headers: &'static [(&str, &str)],
) -> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone
{
    service_fn(move |_: Request<Body>| async move {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        Ok(response.body(Body::default()).unwrap())
    })
}

async fn send(layer: &RateLimitLayer) -> Response<Body> {
    send_to(layer.layer(answering(200, &[]))).await
}

async fn send_to<S>(service: S) -> Response<Body>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    service.oneshot(from("10.0.0.1")).await.unwrap()
}

/// All lines of all headers that a form could have, in order.
fn said(response: &Response<Body>) -> Vec<String> {
    let mut lines: Vec<_> = response
        .headers()
        .iter()
        .filter(|(name, _)| name.as_str().contains("ratelimit"))
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    lines.sort();
    lines
}

#[tokio::test]
async fn each_form_says_the_same_in_its_way() {
    let expected: [(&[&str], &[&str]); 4] = [
        (
            &[
                "ratelimit-policy: \"api\";q=10;w=3600",
                "ratelimit: \"api\";r=9;t=360",
            ],
            &[
                "ratelimit-policy: \"api\";q=10;w=3600",
                "ratelimit: \"api\";r=0;t=360",
            ],
        ),
        (
            &[
                "ratelimit-policy: 10;w=3600",
                "ratelimit: limit=10, remaining=9, reset=360",
            ],
            &[
                "ratelimit-policy: 10;w=3600",
                "ratelimit: limit=10, remaining=0, reset=360",
            ],
        ),
        (
            &[
                "ratelimit-limit: 10",
                "ratelimit-remaining: 9",
                "ratelimit-reset: 360",
            ],
            &[
                "ratelimit-limit: 10",
                "ratelimit-remaining: 0",
                "ratelimit-reset: 360",
            ],
        ),
        (
            &[
                "x-ratelimit-limit: 10",
                "x-ratelimit-remaining: 9",
                // A quarter of a second after a whole one, rounded up.
                "x-ratelimit-reset: 1767225961",
            ],
            &[
                "x-ratelimit-limit: 10",
                "x-ratelimit-remaining: 0",
                "x-ratelimit-reset: 1767225961",
            ],
        ),
    ];
    for (form, (when_passed, when_refused)) in FORMS.into_iter().zip(expected) {
        // given a layer that writes this form
        let (layer, _) = ten_an_hour();
        let layer = layer.headers(form);

        // when a caller spends its budget and comes once more
        let passed = send(&layer).await;
        for _ in 0..9 {
            send(&layer).await;
        }
        let refused = send(&layer).await;

        // then both answers say how it stands, in the same numbers
        assert_eq!(
            (passed.status(), refused.status().as_u16()),
            (StatusCode::OK, 429)
        );
        assert_eq!(said(&passed), when_passed);
        assert_eq!(said(&refused), when_refused);
        assert_eq!(header(&refused, "retry-after"), "360");
    }
}

#[tokio::test]
async fn pitfall_reset_times_that_wobble_because_they_were_derived_from_a_ttl() {
    // given a window that ends at a full hour
    let hours = Algorithm::FixedWindow {
        offset: Duration::ZERO,
    };
    let quota = Quota::per_hour(10).using(hours);
    let (limiter, clock) = limiter([Policy::new("api", quota)]);
    let layer = RateLimitLayer::new(limiter).headers(HeaderForm::Legacy);

    // when callers come at odd times, then all are told the same time
    for _ in 0..12 {
        let response = send(&layer).await;
        assert_eq!(header(&response, "x-ratelimit-reset"), "1767229200");
        clock.advance(Duration::from_micros(7_333_333));
    }
}

#[tokio::test]
async fn several_forms_stand_next_to_each_other() {
    let (layer, _) = ten_an_hour();
    let headers = RateLimitHeaders::new([HeaderForm::Draft11, HeaderForm::Legacy]);

    let response = send(&layer.headers(headers)).await;

    assert_eq!(header(&response, "ratelimit"), "\"api\";r=9;t=360");
    assert_eq!(header(&response, "x-ratelimit-remaining"), "9");
    assert_eq!(said(&response).len(), 5);
}

#[tokio::test]
async fn all_policies_can_be_told_of() {
    let policies = [
        Policy::new("api", [Quota::per_hour(10), Quota::per_day(20)]),
        Policy::new("trial", Quota::per_hour(1)).shadow(),
    ];
    let layer = RateLimitLayer::new(limiter(policies).0);
    let layer = layer.headers(RateLimitHeaders::default().of_all_policies());

    let response = send(&layer).await;

    assert_eq!(
        said(&response),
        [
            "ratelimit-policy: \"api\";q=10;w=3600, \"api-2\";q=20;w=86400",
            "ratelimit: \"api\";r=9;t=360, \"api-2\";r=19;t=4320",
        ]
    );
    // and the forms that have room for one tell of the tightest
    let layer = layer.headers(RateLimitHeaders::from(HeaderForm::Draft06).of_all_policies());
    assert_eq!(header(&send(&layer).await, "ratelimit-remaining"), "8");
}

#[tokio::test]
async fn headers_can_wait_until_little_is_left() {
    // given headers for callers that have less than a third of ten left
    let (layer, _) = ten_an_hour();
    let layer = layer.headers(RateLimitHeaders::default().when_below(Share::one_in(3)));

    // when a caller spends its budget
    let mut told = Vec::new();
    for _ in 0..12 {
        told.push(said(&send(&layer).await).len());
    }

    // then it is told from three left on, and when it is refused
    assert_eq!(told, [0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2]);
}

#[tokio::test]
async fn a_small_budget_is_nearly_spent_when_nothing_is_left() {
    let layer = RateLimitLayer::new(limiter([Policy::new("api", Quota::per_hour(2))]).0);
    let layer = layer.headers(RateLimitHeaders::default().when_below(Share::one_in(10)));
    assert_eq!(said(&send(&layer).await).len(), 0);
    assert_eq!(said(&send(&layer).await).len(), 2);
}

#[tokio::test]
async fn lists_of_another_limiter_are_appended_to_and_single_values_left() {
    let inner = answering(
        200,
        &[
            ("ratelimit", "\"other\";r=1;t=1"),
            ("ratelimit-limit", "7"),
            ("x-ratelimit-reset", "soon"),
        ],
    );
    let added = [2, 0, 0, 0];
    for (form, added) in FORMS.into_iter().zip(added) {
        let (layer, _) = ten_an_hour();

        let response = send_to(layer.headers(form).layer(inner.clone())).await;

        let said = said(&response);
        assert_eq!(said.len(), 3 + added, "{form}: {said:?}");
        assert_eq!(header(&response, "ratelimit"), "\"other\";r=1;t=1");
        assert_eq!(header(&response, "ratelimit-limit"), "7");
        assert_eq!(header(&response, "x-ratelimit-reset"), "soon");
    }
}

#[tokio::test]
async fn two_layers_write_once_whatever_the_form() {
    for form in FORMS {
        // given a budget for all, and a smaller one of a route's own
        let layer = |name: &str, limit| {
            let (limiter, _) = limiter([Policy::new(name, Quota::per_hour(limit))]);
            RateLimitLayer::new(limiter).headers(form)
        };
        let service = layer("all", 10).layer(layer("own", 2).layer(answering(200, &[])));
        let mut answers = Vec::new();
        for _ in 0..3 {
            answers.push(send_to(service.clone()).await);
        }

        // then each header stands in each answer once, and speaks of the tighter one
        let expected = if matches!(form, HeaderForm::Draft11 | HeaderForm::Draft07) {
            2
        } else {
            3
        };
        for (answer, status) in answers.iter().zip([200, 200, 429]) {
            assert_eq!(answer.status(), status);
            assert_eq!(said(answer).len(), expected, "{form}: {:?}", said(answer));
        }
        let text = said(&answers[2]).join("\n");
        let of_own = [
            "\"own\";r=0;t=1800",
            "limit=2, remaining=0",
            "-remaining: 0",
        ];
        assert!(of_own.iter().any(|part| text.contains(part)), "{text}");
    }
}

#[tokio::test]
async fn the_outer_of_two_layers_writes_in_its_own_form() {
    let layer = |form| ten_an_hour().0.headers(form);
    let service =
        layer(HeaderForm::Legacy).layer(layer(HeaderForm::Draft11).layer(answering(200, &[])));
    let response = send_to(service).await;
    assert_eq!(said(&response).len(), 3);
    assert_eq!(header(&response, "x-ratelimit-remaining"), "9");
}

#[tokio::test]
async fn a_redirect_says_nothing_of_the_budget_and_a_304_does() {
    for form in FORMS {
        let (layer, _) = ten_an_hour();
        let layer = layer.headers(form);
        for (status, is_told) in [(302, false), (308, false), (304, true), (404, true)] {
            let response = send_to(layer.layer(answering(status, &[]))).await;
            assert_eq!(!said(&response).is_empty(), is_told, "{form} on {status}");
        }
    }
}

#[tokio::test]
async fn over_grpc_headers_are_written_if_asked_for() {
    let call = async |layer: &RateLimitLayer| {
        let mut request = from("10.0.0.1");
        *request.method_mut() = Method::POST;
        *request.uri_mut() = "/shop.v1.Orders/Place".parse().unwrap();
        let grpc = HeaderValue::from_static("application/grpc");
        request.headers_mut().insert(CONTENT_TYPE, grpc);
        layer
            .layer(answering(200, &[]))
            .oneshot(request)
            .await
            .unwrap()
    };
    for (headers, expected) in [
        (RateLimitHeaders::default(), 0),
        (RateLimitHeaders::default().over_grpc(), 2),
    ] {
        let layer = RateLimitLayer::new(Quota::per_hour(1)).headers(headers);

        let (passed, refused) = (call(&layer).await, call(&layer).await);

        assert_eq!(header(&refused, "grpc-status"), "8");
        assert_eq!(header(&refused, "retry-after"), "3600");
        assert_eq!(said(&passed).len(), expected);
        assert_eq!(said(&refused).len(), expected);
        // and a caller that does not speak gRPC is told, on the same layer
        assert_eq!(said(&send(&layer).await).len(), 2);
    }
}

#[tokio::test]
async fn what_a_policy_on_trial_says_stands_in_no_header() {
    let layer = RateLimitLayer::new(limiter([Policy::new("trial", Quota::per_hour(1)).shadow()]).0);
    for form in FORMS {
        assert!(said(&send(&layer.clone().headers(form)).await).is_empty());
    }
}
