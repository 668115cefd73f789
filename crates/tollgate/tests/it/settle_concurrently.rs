//! The charge of a request, corrected by several threads at once: by its handler, a layer further out, the end of its body.
//!
//! One lock guards all that a request was charged, so there are no orders to model; what counts is that the sum is right.

use std::convert::Infallible;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use axum::body::Body;
use http::{Request, Response};
use tollgate::key::Global;
use tollgate::{Limiter, Policy, Quota, RateLimitLayer, RateLimitStatus};
use tower::{Layer, ServiceExt, service_fn};

const CHARGED: u64 = 5;
const LIMIT: u64 = 100;
const ROUNDS: usize = 200;

fn limiter(policy: &str) -> Limiter {
    let quota = Quota::per_day(LIMIT);
    Limiter::from(Policy::new(policy, quota).key(Global).cost(CHARGED))
}

/// The handle of a request that has passed two layers.
async fn handle(layers: &[RateLimitLayer; 2]) -> RateLimitStatus {
    let seen = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&seen);
    let service = service_fn(move |request: Request<Body>| {
        let status = request.extensions().get::<RateLimitStatus>().cloned();
        *keep.lock().unwrap() = status;
        async { Ok::<_, Infallible>(Response::new(Body::empty())) }
    });
    let [outer, inner] = layers;
    let service = outer.layer(inner.layer(service));
    service.oneshot(Request::new(Body::empty())).await.unwrap();
    let status = seen.lock().unwrap().take();
    status.unwrap()
}

async fn left(limiter: &Limiter, policy: &str) -> u64 {
    let check = limiter.check(policy, tollgate::Key::global());
    check.cost(0).await.unwrap().remaining()
}

#[tokio::test]
async fn what_is_taken_is_what_was_settled_last_whichever_thread_settles() {
    for round in 0..ROUNDS {
        // given a request within two layers
        let limiters = [limiter("outer"), limiter("inner")];
        let layers = limiters.each_ref().map(RateLimitLayer::new);
        let status = handle(&layers).await;

        // when several threads settle both charges, each at a cost of its own
        let begin = Barrier::new(4);
        thread::scope(|scope| {
            for cost in 0..4 {
                let (begin, status) = (&begin, &status);
                scope.spawn(move || {
                    begin.wait();
                    status.settle("outer", cost).unwrap();
                    status.settle("inner", 3 - cost).unwrap();
                });
            }
        });

        // then each budget lacks what the handle says was taken
        let verdicts = status.verdicts();
        for (limiter, verdict) in limiters.iter().zip(&verdicts) {
            let taken = verdict.verdict().taken();
            assert!(taken <= 3, "round {round}: {taken}");
            let left = left(limiter, verdict.policy()).await;
            assert_eq!(left, LIMIT - taken, "round {round}: {}", verdict.policy());
        }
    }
}
