//! The work that a refusal spares, and the work that is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Method, Request};
use tokio::time::{Instant, sleep};
use tollgate::key::Global;
use tollgate::{
    Admin, Answer, Backend, Call, CheckError, ClientIp, Concurrent, Decision, MemoryBackend,
    Policy, PressureGauge, Quota, Quotas, RateLimitLayer, Settlement, Shedding, key,
};
use tower::{Layer, ServiceExt, service_fn};

use crate::common::tokio_clock::in_tokio_time;
use crate::common::{Body, Strict, at_a_standstill, header};
use crate::shedding::{AT, SECOND, api, left, of, send, shedding};

/// A backend that counts the questions it is asked.
#[derive(Debug)]
struct Counting(MemoryBackend, Arc<AtomicUsize>);

impl Backend for Counting {
    fn decide(&self, call: Call<'_>) -> Answer<Decision> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.decide(call)
    }

    fn settle(&self, settlement: Settlement<'_>) {
        self.0.settle(settlement);
    }

    fn admin(&self) -> &dyn Admin {
        self.0.admin()
    }
}

/// A shed request touches nothing: no key is read, the backend hears nothing, the budget stays, and the handler never runs.
#[tokio::test]
async fn nothing_is_asked_and_nothing_is_charged_for_a_request_that_is_refused() {
    // given policies by a key that counts, with routes and without, on a backend that counts
    let sole = |policy: Policy| policy;
    let by_route = |policy: Policy| policy.route("/{*path}").route("/");
    for with in [sole, by_route] {
        let (keys, asked) = (Arc::new(AtomicUsize::new(0)), Arc::default());
        let count = Arc::clone(&keys);
        let by_count = key::from_fn(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            Some("everybody")
        });
        let gauge = PressureGauge::new();
        let limiter = shedding(&gauge, AT)
            .policy(with(Policy::new("api", Quota::per_hour(9)).key(by_count)))
            .backend(Counting(at_a_standstill().0, Arc::clone(&asked)))
            .build()
            .unwrap();
        let inner = Strict::default();
        let service = RateLimitLayer::new(&limiter).layer(inner.clone());
        gauge.set(0.7);

        // when twenty requests of a refused class come
        for _ in 0..20 {
            let answer = service.clone().oneshot(of("batch")).await.unwrap();
            assert_eq!(answer.status(), 503);
            assert_eq!(header(&answer, "ratelimit"), "");
        }

        // then no key, no backend and no handler was asked
        assert_eq!(inner.calls(), 0);
        assert_eq!(keys.load(Ordering::SeqCst), 0);
        assert_eq!(asked.load(Ordering::SeqCst), 0);
        gauge.set(0.0);
        for passed in 0..10 {
            let answer = service.clone().oneshot(of("batch")).await.unwrap();
            assert_eq!(answer.status() == 200, passed < 9, "{passed}");
        }
        assert_eq!((inner.calls(), asked.load(Ordering::SeqCst)), (9, 10));
    }
}

/// No short cut goes around it: the sole policy by address, none at all, a route that does not match, exemptions of every kind.
#[tokio::test]
async fn every_request_that_reaches_the_layer_is_load() {
    let preflight = || {
        let mut request = of("batch");
        *request.method_mut() = Method::OPTIONS;
        for (name, value) in [
            ("origin", "https://example.com"),
            ("access-control-request-method", "PUT"),
        ] {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        request
    };
    let plain = || of("batch");
    let gauge = PressureGauge::new();
    let builder = || shedding(&gauge, AT);
    let inside = tollgate::Networks::new(["10.0.0.0/8"]);
    let cases = [
        ("by address", builder().policy(api())),
        ("by another key", builder().policy(api().key(Global))),
        ("another route", builder().policy(api().route("/other"))),
        ("no policy", builder()),
        (
            "an exempt caller",
            builder().policy(api().key(ClientIp).exempt_networks(inside)),
        ),
        ("on trial", builder().policy(api().shadow())),
        ("on demand", builder().policy(api().on_demand())),
    ];
    for (case, builder) in cases {
        let limiter = builder.build().unwrap();
        gauge.set(0.0);
        assert_eq!(send(&limiter, plain()).await.status(), 200, "{case}");
        gauge.set(0.8);
        assert_eq!(send(&limiter, plain()).await.status(), 503, "{case}");
    }

    let limiter = builder().policy(api()).exempt_preflights().build().unwrap();
    for (request, level, status) in [
        (preflight(), 0.0, 200),
        (preflight(), 0.8, 503),
        (plain(), 0.8, 503),
    ] {
        gauge.set(level);
        assert_eq!(send(&limiter, request).await.status(), status);
    }
    assert_eq!(left(&limiter).await, 9);
}

/// A layer of the same limiter further in does not ask again, and one of another limiter asks for itself.
#[tokio::test]
async fn a_request_that_was_let_in_is_not_refused_further_in_by_the_same_limiter() {
    let gauge = PressureGauge::new();
    let limiter = shedding(&gauge, AT)
        .policy(api())
        .backend(at_a_standstill().0)
        .build()
        .unwrap();
    let other = shedding(&gauge, AT).build().unwrap();
    for (inner, status, then_left) in [(&limiter, 200, 7), (&other, 503, 9)] {
        let raise = gauge.clone();
        let handler = Strict::default();
        let inner = RateLimitLayer::new(inner).layer(handler.clone());
        // The pressure rises between the two.
        let between = service_fn(move |request: Request<Body>| {
            raise.set(1.0);
            inner.clone().oneshot(request)
        });
        let service = RateLimitLayer::new(&limiter).layer(between);
        gauge.set(0.0);

        let answer = service.oneshot(of("batch")).await.unwrap();

        assert_eq!(answer.status(), status);
        assert_eq!(handler.calls(), usize::from(status == 200));
        // What the outer layer took for a request that is refused in the end comes back.
        assert_eq!(left(&limiter).await, then_left);
        let caller = limiter.client_key("10.0.0.1".parse().unwrap());
        limiter.reset("api", caller).await.unwrap();
    }
}

#[tokio::test]
async fn work_that_is_no_request_is_refused_by_its_class() {
    let gauge = PressureGauge::new();
    let wait = Duration::from_secs(30);
    let asked = Arc::new(AtomicUsize::new(0));
    let limiter = shedding(&gauge, Shedding::at(AT).retry_after(wait))
        .policies([
            Policy::new("mail", Quota::per_hour(9)),
            Policy::new("trial", Quota::per_hour(9)).shadow(),
        ])
        .backend(Counting(at_a_standstill().0, Arc::clone(&asked)))
        .build()
        .unwrap();
    let check = || limiter.check("mail", "alice");
    gauge.set(0.7);

    for (check, is_shed) in [
        (check(), true),
        (check().class("batch"), true),
        (check().class("batch").probe(), true),
        (limiter.check("trial", "alice"), true),
        (check().class("normal"), false),
        (check().class("critical").cost(2), false),
    ] {
        let checked = check.await.unwrap();
        assert_eq!(checked.is_shed(), is_shed);
        assert_eq!(checked.is_allowed(), !is_shed);
        assert_eq!(checked.retry_after(), is_shed.then_some(wait));
        assert_eq!(checked.verdicts().is_empty(), is_shed);
        assert!(checked.blocked().is_none() && checked.undecided().is_none());
    }
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    assert_eq!(
        check().class("critical").probe().await.unwrap().remaining(),
        6
    );

    let unknown = check().class("urgent").await;
    assert!(matches!(unknown, Err(CheckError::UnknownClass { .. })));
}

#[tokio::test(start_paused = true)]
async fn work_that_waits_is_refused_before_its_wait_and_keeps_the_turn_that_it_has() {
    // given one a second, and work that waits for its turn or for a place
    let turns = Quota::per_second(1).burst(1).wait_up_to(SECOND * 5);
    let places = Concurrent::at_most(1).wait_up_to(SECOND * 5);
    for quotas in [Quotas::from(turns), Quotas::from(places)] {
        let gauge = PressureGauge::new();
        let limiter = shedding(&gauge, AT)
            .policy(Policy::new("mail", quotas))
            .backend(in_tokio_time())
            .build()
            .unwrap();
        let acquire = || limiter.acquire("mail", "alice").class("batch");
        let first = acquire().await.unwrap();
        assert!(first.is_allowed());

        // when the pressure rises while a second one waits
        let began = Instant::now();
        let (second, third) = tokio::join!(acquire(), async {
            sleep(SECOND / 2).await;
            gauge.set(1.0);
            let third = acquire().await.unwrap();
            drop(first);
            third
        });

        // then a third is refused at once, and the second passes at its turn
        assert!(third.is_shed() && !third.is_allowed());
        let second = second.unwrap();
        assert!(second.is_allowed() && !second.is_shed());
        assert!(began.elapsed() <= SECOND + SECOND / 100);

        // and the refused one has taken nothing: the next turn is a second after the last
        drop(second);
        gauge.set(0.0);
        assert!(acquire().await.unwrap().is_allowed());
        assert!(began.elapsed() <= 2 * SECOND + SECOND / 100);
    }
}
