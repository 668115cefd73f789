//! Handles that handlers keep, while free ones are used again for the next request.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::thread;

use crate::common::{Body, at_a_standstill, from};
use http::{Request, Response};
use tollgate::{Limiter, Policy, Quota, RateLimitLayer, RateLimitStatus};
use tower::{Layer, Service, ServiceExt, service_fn};

type Kept = Arc<Mutex<Vec<RateLimitStatus>>>;

/// Layers with headers, without them, and around each other: what becomes of a handle is not the same in any two of them.
fn layers() -> [Vec<RateLimitLayer>; 4] {
    let layer = |name: &str| {
        let (backend, _) = at_a_standstill();
        let policy = Policy::new(name, Quota::per_hour(100_000));
        RateLimitLayer::new(
            Limiter::builder()
                .policy(policy)
                .backend(backend)
                .build()
                .unwrap(),
        )
    };
    [
        vec![layer("tokens")],
        vec![layer("tokens").without_headers()],
        vec![layer("tokens").without_headers(), layer("inner")],
        vec![layer("tokens"), layer("inner").without_headers()],
    ]
}

/// Sends requests through the layers, the first of which is the outermost, to a handler that keeps the handle of each `every`th.
async fn serve(layers: &[RateLimitLayer], requests: usize, every: usize, kept: &Kept) {
    let kept = Arc::clone(kept);
    let mut count = 0;
    let handler = service_fn(move |request: Request<Body>| {
        let status = request.extensions().get::<RateLimitStatus>().unwrap();
        count += 1;
        if count % every == 0 {
            kept.lock().unwrap().push(status.clone());
        }
        async { Ok::<_, Infallible>(Response::new(Body::default())) }
    });
    let mut service = tower::util::BoxCloneService::new(handler);
    for layer in layers.iter().rev() {
        service = tower::util::BoxCloneService::new(layer.layer(service));
    }
    for _ in 0..requests {
        let response = service.ready().await.unwrap().call(from("10.0.0.1"));
        response.await.unwrap();
    }
}

/// The rest of the first policy's budget, and the number of verdicts.
fn says(status: &RateLimitStatus) -> (u64, usize) {
    let verdicts = status.verdicts();
    let tokens = verdicts.iter().find(|one| one.policy() == "tokens");
    (tokens.unwrap().verdict().remaining(), verdicts.len())
}

#[tokio::test]
async fn a_handle_that_is_kept_says_what_it_said_whoever_comes_next() {
    for layers in layers() {
        for every in [1, 2, 7] {
            // given what earlier rounds have spent
            let spent = {
                let kept = Kept::default();
                serve(&layers, 1, 1, &kept).await;
                100_000 - says(&kept.lock().unwrap()[0]).0
            };

            // when some of 300 handlers keep theirs
            let kept = Kept::default();
            serve(&layers, 300, every, &kept).await;

            // then each says how the budget stood when it was made
            let kept = kept.lock().unwrap();
            assert_eq!(kept.len(), 300 / every);
            for (index, status) in kept.iter().enumerate() {
                let so_far = spent + ((index + 1) * every) as u64;
                assert_eq!(says(status), (100_000 - so_far, layers.len()));
            }
        }
    }
}

#[tokio::test]
async fn a_handle_that_was_dropped_elsewhere_tells_the_next_request_nothing() {
    for layers in layers() {
        // given handles that are dropped on another thread, where they have been settled
        let kept = Kept::default();
        serve(&layers, 200, 1, &kept).await;
        let handles = std::mem::take(&mut *kept.lock().unwrap());
        thread::spawn(move || {
            for status in handles {
                status.settle("tokens", 3).unwrap();
            }
        })
        .join()
        .unwrap();

        // when others follow
        serve(&layers, 200, 1, &kept).await;

        // then they know of themselves, and of what was spent
        for (index, status) in kept.lock().unwrap().iter().enumerate() {
            let expected = 100_000 - 600 - (index as u64 + 1);
            assert_eq!(says(status), (expected, layers.len()));
        }
    }
}

#[tokio::test]
async fn a_handle_is_settled_for_its_own_request() {
    for layers in layers() {
        // given two requests, of which the first keeps its handle
        let kept = Kept::default();
        serve(&layers, 2, 1, &kept).await;
        let [first, second] = &kept.lock().unwrap()[..] else {
            panic!("two requests, two handles");
        };
        let before = says(second);

        // when the first one turns out to be expensive
        first.settle("tokens", 1000).unwrap();

        // then that is what its handle says, and the other one says what it said
        assert_eq!(says(first), (100_000 - 1000, layers.len()));
        assert_eq!(says(second), before);
    }
}
