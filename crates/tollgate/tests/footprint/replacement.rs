//! Policies that are replaced while requests come.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::convert::Infallible;
use std::time::Duration;

use crate::ALLOCATOR;
use crate::common::{Body, Strict, at_a_standstill, from, header};
use http::{Request, Response};
use stats_alloc::Region;
use tollgate::key::{Global, Header};
use tollgate::{
    Algorithm, Ban, Concurrent, Key, Limiter, Policy, Quota, QuotaLookup, RateLimitLayer,
    RateLimitStatus, Share, Tiers,
};
use tower::{Layer, ServiceExt, service_fn};

const FIXED_WINDOW: Algorithm = Algorithm::FixedWindow {
    offset: Duration::ZERO,
};

async fn send(layer: &RateLimitLayer) -> Response<Body> {
    let service = layer.layer(Strict::default());
    service.oneshot(from("10.0.0.1")).await.unwrap()
}

#[tokio::test]
async fn a_layer_that_is_in_place_limits_by_the_policies_that_were_replaced_last() {
    if !tollgate_testkit::alone!() {
        return;
    }
    let (backend, clock) = at_a_standstill();
    let limiter = Limiter::builder()
        .policy(Policy::new("api", Quota::per_hour(1)))
        .backend(backend)
        .build()
        .unwrap();
    let layer = RateLimitLayer::new(&limiter);
    assert_eq!(send(&layer).await.status(), 200);
    assert_eq!(send(&layer).await.status(), 429);

    // A larger quota is as full as the smaller one was, drains faster, and headers speak of it.
    limiter
        .replace([Policy::new("api", Quota::per_hour(10))])
        .unwrap();
    assert_eq!(send(&layer).await.status(), 429);
    clock.advance(Duration::from_secs(6 * 60));
    let response = send(&layer).await;
    assert_eq!(response.status(), 200);
    assert_eq!(header(&response, "ratelimit-policy"), "\"api\";q=10;w=3600");

    // Another name is another budget, and what it was before is what it comes back to.
    limiter
        .replace([Policy::new("new", Quota::per_hour(1))])
        .unwrap();
    assert_eq!(send(&layer).await.status(), 200);
    assert_eq!(send(&layer).await.status(), 429);
    limiter
        .replace([Policy::new("api", Quota::per_hour(1))])
        .unwrap();
    assert_eq!(send(&layer).await.status(), 429);
}

#[tokio::test]
async fn policies_that_no_limiter_could_have_replace_nothing() {
    if !tollgate_testkit::alone!() {
        return;
    }
    let limiter = Limiter::from(Policy::new("api", Quota::per_hour(1)));

    let twice = [
        Policy::new("b", Quota::per_hour(9)),
        Policy::new("b", Quota::per_hour(9)),
    ];
    let error = limiter.replace(twice).unwrap_err();

    assert_eq!(
        error.to_string(),
        "policy \"b\": two policies have this name"
    );
    assert!(limiter.replace([]).is_err());
    assert_eq!(limiter.policies()[0].name(), "api");
}

#[tokio::test]
async fn a_request_is_settled_under_the_policies_that_let_it_in() {
    if !tollgate_testkit::alone!() {
        return;
    }
    // given a request that was charged 5 and is being served
    let policy = |cost| {
        Policy::new("api", Quota::per_day(10))
            .key(Global)
            .cost(cost)
    };
    let limiter = Limiter::from(policy(5));
    let replaced = limiter.clone();
    let service = service_fn(move |request: Request<Body>| {
        let limiter = replaced.clone();
        async move {
            // when the policies are replaced, and the handler settles
            limiter.replace([policy(1)]).unwrap();
            let status = request.extensions().get::<RateLimitStatus>().unwrap();
            status.settle("api", 2).unwrap();
            Ok::<_, Infallible>(Response::new(Body::default()))
        }
    });
    let service = RateLimitLayer::new(&limiter).layer(service);
    service.oneshot(from("10.0.0.1")).await.unwrap();

    // then three of five have come back
    let left = limiter.check("api", Key::global()).cost(0).await;
    assert_eq!(left.unwrap().remaining(), 8);
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn a_route_that_names_a_policy_has_the_one_that_was_replaced_last() {
    use axum::Router;
    use axum::routing::get;
    use tollgate::MethodRouterExt;

    if !tollgate_testkit::alone!() {
        return;
    }
    let policy = |limit| {
        Policy::new("search", Quota::per_hour(limit))
            .key(Global)
            .on_demand()
    };
    let (backend, clock) = at_a_standstill();
    let limiter = Limiter::builder()
        .policy(policy(1))
        .backend(backend)
        .build()
        .unwrap();
    let app: Router = Router::new()
        .route("/", get(|| async { "found" }).rate_limit_by("search"))
        .layer(RateLimitLayer::new(&limiter));
    let status = async || {
        let request = Request::new(axum::body::Body::empty());
        app.clone().oneshot(request).await.unwrap().status()
    };
    assert_eq!(status().await, 200);
    assert_eq!(status().await, 429);

    limiter.replace([policy(10)]).unwrap();
    clock.advance(Duration::from_secs(6 * 60));

    assert_eq!(status().await, 200);
}

#[tokio::test]
async fn a_hundred_thousand_replacements_leave_nothing_behind() {
    if !tollgate_testkit::alone!() {
        return;
    }
    let limiter = Limiter::from(Policy::new("api", Quota::per_hour(1)));
    let layer = RateLimitLayer::new(&limiter);
    let replace = async |from: u64, to: u64| {
        for limit in from..to {
            limiter
                .replace([Policy::new("api", Quota::per_hour(limit))])
                .unwrap();
            // Answers are rendered for some of them.
            if limit % 1_000 == 0 {
                send(&layer).await;
            }
        }
    };
    replace(1, 10_000).await;

    let region = Region::new(ALLOCATOR);
    replace(10_000, 100_000).await;
    let change = region.change();

    let kept = change.bytes_allocated as i64 - change.bytes_deallocated as i64;
    assert!(kept.abs() < 64 * 1024, "{kept} bytes are left behind");
}

/// A policy of each kind that keeps something beside its quotas.
#[tokio::test]
async fn replacements_of_policies_of_every_kind_leave_nothing_behind() {
    type Kind = (&'static str, fn(u64) -> Policy);
    let kinds: [Kind; 7] = [
        ("a ban", |n| {
            let ban = Ban::after(5, Duration::from_secs(60)).lasting(Duration::from_secs(n));
            Policy::new("api", Quota::per_hour(n)).ban(ban)
        }),
        ("classes", |n| {
            Policy::new("api", Quota::per_hour(n * 10))
                .class_by(Header::new("x-class"))
                .keep_for("important", Share::percent(20))
        }),
        ("tiers", |n| {
            let tiers = Tiers::by_key([("a", "gold"), ("b", "silver")])
                .tier("gold", Quota::per_hour(n * 3))
                .tier("silver", Quota::per_hour(n * 2));
            Policy::new("api", Quota::per_hour(n))
                .key(Header::new("x-api-key"))
                .tiers(tiers)
        }),
        ("stated quotas", |n| {
            let stated = move |_: Key| async move { Ok::<_, &str>(Some(Quota::per_hour(n))) };
            let lookup = QuotaLookup::new(Duration::from_secs(60), stated);
            Policy::new("api", Quota::per_hour(n)).quota_by_async(lookup)
        }),
        ("places", |n| {
            Policy::new("api", (Quota::per_hour(n), Concurrent::at_most(n)))
        }),
        ("waits and routes", |n| {
            let quota = Quota::per_second(n).wait_up_to(Duration::from_millis(50));
            Policy::new("api", quota).route("/a/{b}").route("/c/{*d}")
        }),
        ("annotations", |n| {
            Policy::new("api", Quota::per_hour(n)).on_demand()
        }),
    ];
    if !tollgate_testkit::alone!() {
        return;
    }
    for (what, policy) in kinds {
        // With everything on that keeps something for a policy.
        let builder = Limiter::builder().policy(policy(1));
        let builder = builder
            .track_offenders()
            .observe(|_: &tollgate::Event<'_>| {});
        #[cfg(feature = "metrics")]
        let builder = builder.metrics();
        let limiter = builder.build().unwrap();
        let layer = RateLimitLayer::new(&limiter);
        let replace = async |from: u64, to: u64| {
            for n in from..to {
                limiter.replace([policy(n)]).unwrap();
                if n % 100 == 0 {
                    send(&layer).await;
                }
            }
        };
        replace(1, 2_000).await;

        let region = Region::new(ALLOCATOR);
        replace(2_000, 10_000).await;
        let change = region.change();

        let kept = change.bytes_allocated as i64 - change.bytes_deallocated as i64;
        assert!(
            kept.abs() < 64 * 1024,
            "{what}: {kept} bytes are left behind"
        );
    }
}

#[tokio::test]
async fn a_replacement_that_makes_a_new_budget_leaves_its_name_and_nothing_else() {
    if !tollgate_testkit::alone!() {
        return;
    }
    let limiter = Limiter::from(Policy::new("api", Quota::per_hour(1)));
    // Each has a name of its own, and a window of a length of its own.
    let replace = |from: u64, to: u64| {
        for n in from..to {
            let quota = Quota::new(1, Duration::from_secs(n)).using(FIXED_WINDOW);
            limiter
                .replace([Policy::new(&format!("api-{n:06}"), quota)])
                .unwrap();
        }
    };
    replace(1, 20_000);

    let region = Region::new(ALLOCATOR);
    replace(20_000, 100_000);
    let change = region.change();

    let kept = change.bytes_allocated as i64 - change.bytes_deallocated as i64;
    let each = kept / 80_000;
    assert!((1..=150).contains(&each), "{each} bytes for each name");
}

/// A file with other limits each time, as an operator would write it each working day for ten years.
#[cfg(feature = "serde")]
#[tokio::test]
async fn thousands_of_reloads_of_a_file_leave_nothing_behind() {
    use tollgate::config;

    if !tollgate_testkit::alone!() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.json");
    let write = |n: u64| {
        let name = ["api", "app"][usize::from(n.is_multiple_of(2))];
        let quotas = format!("{}/h; {}/day sliding-window", n, n * 3);
        let policy = serde_json::json!({ "name": name, "quotas": quotas, "routes": ["/a/{b}"] });
        let text = serde_json::json!({ "policies": [policy] }).to_string();
        // One in ten is wrong.
        let text = if n.is_multiple_of(10) {
            text.replace("/h", "/hourly")
        } else {
            text
        };
        std::fs::write(&path, text).unwrap();
    };
    write(1);
    let mut file = config::watch(&path, |text| serde_json::from_str(text));
    let limiter = file.load().unwrap().build().unwrap();
    // A thread without a runtime: no task looks at the file.
    let watch = std::thread::scope(|scope| scope.spawn(|| file.follow(&limiter)).join()).unwrap();
    let reload = |from: u64, to: u64| {
        for n in from..to {
            write(n);
            assert_eq!(watch.reload().is_err(), n.is_multiple_of(10));
        }
    };
    reload(2, 500);

    let region = Region::new(ALLOCATOR);
    reload(500, 3_000);
    let change = region.change();

    let kept = change.bytes_allocated as i64 - change.bytes_deallocated as i64;
    assert!(kept.abs() < 64 * 1024, "{kept} bytes are left behind");
}

/// Far more than a thousand in a second, while requests come through a layer.
#[test]
fn replacements_all_the_time_lead_to_no_wrong_decision_and_leave_memory_flat() {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    const LIMIT: u64 = 5_000;
    if !tollgate_testkit::alone!() {
        return;
    }
    // given a budget that no time refills, of a policy beside others that change
    let (backend, _clock) = at_a_standstill();
    let policies = |n: u64| {
        let others = (0..n % 3).map(move |other| {
            Policy::new(&format!("other-{other}"), Quota::per_second(1_000_000 + n)).on_demand()
        });
        [Policy::new("api", Quota::per_day(LIMIT))]
            .into_iter()
            .chain(others)
    };
    let limiter = Limiter::builder().policies(policies(0)).backend(backend);
    let limiter = limiter.build().unwrap();
    let layer = RateLimitLayer::new(&limiter);
    let (is_over, replaced) = (AtomicBool::new(false), AtomicU64::new(0));
    let ask = |requests: u64| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut allowed = 0;
            for _ in 0..requests {
                let status = send(&layer).await.status();
                assert!(status == 200 || status == 429, "{status}");
                allowed += u64::from(status == 200);
            }
            allowed
        })
    };

    std::thread::scope(|scope| {
        let replacing = scope.spawn(|| {
            let mut n = 0;
            while !is_over.load(Ordering::Relaxed) {
                n += 1;
                limiter.replace(policies(n)).unwrap();
                replaced.store(n, Ordering::Relaxed);
            }
        });
        let until = |count: u64| {
            while replaced.load(Ordering::Relaxed) < count {
                std::thread::yield_now();
            }
        };

        // when requests come between thousands of replacements
        let mut allowed = 0;
        for round in 1..=10 {
            allowed += ask(LIMIT / 5);
            until(round * 200);
        }

        // then exactly the limit was let in
        assert_eq!(allowed, LIMIT);
        let region = Region::new(ALLOCATOR);
        until(replaced.load(Ordering::Relaxed) + 5_000);
        ask(1_000);
        let change = region.change();
        let kept = change.bytes_allocated as i64 - change.bytes_deallocated as i64;
        assert!(kept.abs() < 64 * 1024, "{kept} bytes are left behind");
        is_over.store(true, Ordering::Relaxed);
        replacing.join().unwrap();
    });
}
