//! Layers within layers: what one of them charges, another one may give back, and none gives it back twice.

use std::convert::Infallible;
use std::time::Duration;

use crate::common::{Body, at_a_standstill, from, header};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tollgate::key::Global;
use tollgate::{
    Algorithm, HeaderForm, Key, Limiter, Policy, Quota, RateLimitLayer, RateLimitStatus,
    ResponseView,
};
use tower::{Layer, Service, ServiceExt, service_fn};

/// A policy of so many an hour for all callers, counted in a window: what is given back shows to the unit, whatever others
/// have spent meanwhile.
fn policy(name: &str, limit: u64) -> Policy {
    let hours = Algorithm::FixedWindow {
        offset: Duration::ZERO,
    };
    Policy::new(name, Quota::per_hour(limit).using(hours)).key(Global)
}

fn limiter(policies: impl IntoIterator<Item = Policy>) -> Limiter {
    let builder = Limiter::builder().policies(policies);
    builder.backend(at_a_standstill().0).build().unwrap()
}

async fn left(limiter: &Limiter, policy: &str) -> u64 {
    let peek = limiter.check(policy, Key::global()).cost(0);
    peek.await.unwrap().remaining()
}

/// Spends some of it for other callers, which no layer may give back.
async fn spend(limiter: &Limiter, policy: &str, cost: u64) {
    let spent = limiter.check(policy, Key::global()).cost(cost);
    assert!(spent.await.unwrap().is_allowed());
}

fn failed(response: &ResponseView<'_>) -> bool {
    response.status() == StatusCode::UNAUTHORIZED
}

/// Settles the policy `own` to the cost that the path names, if it names one, and answers with ten bytes.
fn settling()
-> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone
{
    service_fn(async |request: Request<Body>| {
        let status: &RateLimitStatus = request.extensions().get().unwrap();
        if let Ok(cost) = request.uri().path().trim_start_matches('/').parse() {
            status.settle("own", cost).unwrap();
        }
        Ok(Response::new(Body::new("0123456789".into())))
    })
}

async fn send<S>(service: S, path: &str) -> Response<Body>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    let mut request = from("10.0.0.1");
    *request.uri_mut() = path.parse().unwrap();
    service.oneshot(request).await.unwrap()
}

#[tokio::test]
async fn what_a_handler_gave_back_the_response_does_not_give_back_once_more() {
    let cases: [(Policy, &str, u64); 4] = [
        (policy("own", 10).cost(2).count_if(failed), "/0", 0),
        (policy("own", 10).cost(2).count_if(failed), "/5", 5),
        (policy("own", 10).cost(2).settle_by(|_| Some(1)), "/0", 0),
        (policy("own", 10).cost(2).settle_by_bytes(|_| 0), "/0", 0),
    ];
    for (own, path, cost) in cases {
        // given a layer with an outcome within another layer, and others that have spent three
        let (all, own) = (limiter([policy("all", 100)]), limiter([own]));
        spend(&own, "own", 3).await;
        let service = RateLimitLayer::new(&own).layer(settling());
        let service = RateLimitLayer::new(&all).layer(service);

        // when a handler says what its request has cost
        let response = send(service, path).await;
        response.into_body().collect().await.unwrap();

        // then that is what it costs, and what the others have spent stays spent
        assert_eq!(left(&own, "own").await, 10 - 3 - cost, "{path}");
        assert_eq!(left(&all, "all").await, 99);
    }
}

#[tokio::test]
async fn one_policy_in_two_layers_is_charged_in_both_and_given_back_in_both() {
    for depth in [1, 2, 3] {
        // given layers of one limiter within each other
        let limiter = limiter([policy("own", 10).count_if(failed)]);
        spend(&limiter, "own", 3).await;
        let layer = RateLimitLayer::new(&limiter);
        let answer = |status| {
            let service = service_fn(move |_: Request<Body>| async move {
                let mut response = Response::new(Body::default());
                *response.status_mut() = status;
                Ok::<_, Infallible>(response)
            });
            tower::util::BoxCloneService::new(
                (0..depth).fold(tower::util::BoxCloneService::new(service), |service, _| {
                    tower::util::BoxCloneService::new(layer.layer(service))
                }),
            )
        };

        // then each counts a request that counts, and none counts another
        send(answer(StatusCode::OK), "/").await;
        assert_eq!(left(&limiter, "own").await, 7, "{depth}");
        let response = send(answer(StatusCode::UNAUTHORIZED), "/").await;
        assert_eq!(left(&limiter, "own").await, 7 - depth, "{depth}");
        let said = format!("\"own\";r={};", 7 - depth);
        assert!(header(&response, "ratelimit").starts_with(&said));
    }
}

#[tokio::test]
async fn the_outer_layer_tells_what_is_left_after_the_inner_one_has_given_back() {
    let (all, own) = (
        limiter([policy("all", 100)]),
        limiter([policy("own", 10).count_if(failed)]),
    );
    let service = RateLimitLayer::new(&own).layer(settling());
    let service = RateLimitLayer::new(&all).layer(service);

    let response = send(service, "/").await;

    assert_eq!(left(&own, "own").await, 10);
    assert!(
        header(&response, "ratelimit").starts_with("\"all\";r=99;"),
        "{response:?}"
    );
}

#[tokio::test]
async fn what_an_inner_refusal_gives_back_no_outcome_gives_back_once_more() {
    // given two layers with an outcome each, and a third whose budget is spent
    let all = limiter([policy("all", 10).count_if(failed)]);
    let some = limiter([policy("some", 10).count_if(failed)]);
    let own = limiter([policy("own", 1)]);
    for (limiter, name) in [(&all, "all"), (&some, "some")] {
        spend(limiter, name, 3).await;
    }
    spend(&own, "own", 1).await;
    let service = RateLimitLayer::new(&own).layer(settling());
    let service = RateLimitLayer::new(&some).layer(service);
    let service = RateLimitLayer::new(&all).layer(service);

    // when it refuses a request
    let response = send(service, "/").await;

    // then the others have it back, and no more than that
    assert_eq!(response.status(), 429);
    assert_eq!(left(&all, "all").await, 7);
    assert_eq!(left(&some, "some").await, 7);
}

#[tokio::test]
async fn of_three_layers_one_writes_also_if_that_between_two_that_would_writes_nothing() {
    let limiters = ["inner", "middle", "outer"].map(|name| limiter([policy(name, 10)]));
    let [inner, middle, outer] = limiters.each_ref().map(RateLimitLayer::new);
    let inner = inner.headers(HeaderForm::Legacy).layer(settling());
    let service = outer.layer(middle.without_headers().layer(inner));

    let response = send(service, "/").await;

    // The outermost, in its form, for all of them.
    assert!(response.headers().contains_key("ratelimit"), "{response:?}");
    assert!(
        !response.headers().contains_key("x-ratelimit-limit"),
        "{response:?}"
    );
}
