//! Under pressure the unimportant goes first, before anything is asked or charged for it.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod common;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::tokio_clock::in_tokio_time;
use common::{Body, Strict, at_a_standstill, from, header};
use http::{Method, Request, Response};
use tokio::time::{Instant, sleep};
use tollgate::key::{self, Extension, Global, Header, Query};
use tollgate::{
    Answer, Backend, Cause, Charge, CheckError, ClientIp, Concurrent, Decision, Event, Key,
    Limiter, LimiterBuilder, MemoryBackend, PlainText, Policy, Pressure, PressureGauge, Quota,
    Quotas, RateLimitLayer, Receipt, Scope, Shedding,
};
use tower::{Layer, ServiceExt, service_fn};

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

/// A backend that counts the questions it is asked.
#[derive(Debug)]
struct Counting(MemoryBackend, Arc<AtomicUsize>);

impl Backend for Counting {
    fn decide(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.decide(charges)
    }

    fn credit(&self, receipt: Receipt, n: u64) {
        self.0.credit(receipt, n);
    }

    fn debit(&self, receipt: &Receipt, n: u64) {
        self.0.debit(receipt, n);
    }

    fn reset(&self, scope: Scope, key: &Key) -> Answer<()> {
        self.0.reset(scope, key)
    }
}

#[tokio::test]
async fn the_least_important_are_refused_first_and_let_in_again_last() {
    let gauge = PressureGauge::new();
    let limiter = shedding(&gauge, AT).build().unwrap();

    let steps: [(f64, &[&str]); 11] = [
        (0.0, &[]),
        (0.699_999, &[]),
        (0.7, &["batch"]),
        (0.899_999, &["batch"]),
        (0.9, &["normal", "batch"]),
        (1.0, &["normal", "batch"]),
        // Each is let in below its threshold less the margin.
        (0.85, &["normal", "batch"]),
        (0.849_999, &["batch"]),
        (0.65, &["batch"]),
        (0.649_999, &[]),
        (0.69, &[]),
    ];
    for (level, expected) in steps {
        gauge.set(level);
        assert_eq!(refused(&limiter).await, expected, "{level}");
    }
}

/// The signal is followed, and not only looked at by requests.
#[tokio::test]
async fn a_peak_between_two_requests_is_remembered_until_the_signal_has_fallen() {
    let gauge = PressureGauge::new();
    let limiter = shedding(&gauge, Shedding::at(AT).margin(0.3))
        .build()
        .unwrap();

    gauge.set(1.0);
    gauge.set(0.61);
    assert_eq!(refused(&limiter).await, ["normal", "batch"]);
    gauge.set(0.41);
    assert_eq!(refused(&limiter).await, ["batch"]);
    gauge.set(0.39);
    assert_eq!(refused(&limiter).await, [""; 0]);
}

#[tokio::test]
async fn without_a_margin_a_class_is_let_in_at_once_below_its_threshold() {
    let gauge = PressureGauge::new();
    let limiter = shedding(&gauge, Shedding::at(AT).margin(0.0))
        .build()
        .unwrap();

    gauge.set(1.0);
    gauge.set(0.7);
    assert_eq!(refused(&limiter).await, ["batch"]);
    gauge.set(0.699_999);
    assert_eq!(refused(&limiter).await, [""; 0]);
}

#[tokio::test]
async fn pressure_from_before_the_limiter_was_built_counts() {
    let gauge = PressureGauge::new();
    gauge.set(0.8);

    let limiter = shedding(&gauge, AT).build().unwrap();

    assert_eq!(refused(&limiter).await, ["batch"]);
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

/// The caller, as an outer layer has identified it.
#[derive(Clone)]
struct Customer {
    plan: &'static str,
}

#[tokio::test]
async fn a_request_without_a_known_class_is_of_the_last() {
    let gauge = PressureGauge::new();
    gauge.set(0.8);

    let by_header = shedding(&gauge, AT).build().unwrap();
    for odd in ["", "Critical", "critical ,", "critica", "BATCH"] {
        assert_eq!(send(&by_header, of(odd)).await.status(), 503, "{odd:?}");
    }
    assert_eq!(send(&by_header, from("10.0.0.1")).await.status(), 503);
    assert_eq!(send(&by_header, of("normal")).await.status(), 200);

    let by_query = Limiter::builder()
        .classes(CLASSES, Query::new("class"))
        .shed(&gauge, AT)
        .build()
        .unwrap();
    for (query, status) in [
        ("/?class=critical", 200),
        ("/?class=critical&class=batch", 503),
        ("/", 503),
    ] {
        let mut request = from("10.0.0.1");
        *request.uri_mut() = query.parse().unwrap();
        assert_eq!(send(&by_query, request).await.status(), status, "{query}");
    }

    let by_plan = Limiter::builder()
        .classes(CLASSES, Extension::new(|customer: &Customer| customer.plan))
        .shed(&gauge, AT)
        .build()
        .unwrap();
    for (plan, status) in [("critical", 200), ("batch", 503), ("unheard of", 503)] {
        // The caller's own word counts for nothing.
        let mut request = of("critical");
        request.extensions_mut().insert(Customer { plan });
        assert_eq!(send(&by_plan, request).await.status(), status, "{plan}");
    }
}

#[tokio::test]
async fn a_class_that_is_not_named_is_never_refused() {
    let gauge = PressureGauge::new();
    let limiter = shedding(&gauge, [("batch", 0.7)]).build().unwrap();
    assert!(!limiter.is_shedding());

    gauge.set(1.0);

    assert!(limiter.is_shedding());
    assert_eq!(refused(&limiter).await, ["batch"]);
}

#[tokio::test]
async fn refused_callers_are_told_the_operator_s_wait_and_never_less() {
    let wait = Duration::from_secs(30);
    let gauge = PressureGauge::new();
    let limiter = shedding(&gauge, Shedding::at(AT).retry_after(wait))
        .build()
        .unwrap();
    let usual = shedding(&gauge, AT).build().unwrap();
    gauge.set(1.0);
    let layer = || RateLimitLayer::new(&limiter);
    let cases = [
        // Of thirty-one times that are about as likely, two hundred callers miss twenty-one once in 10^80 runs.
        (layer(), 30..=60, 10),
        (layer().respond(PlainText), 30..=60, 10),
        (layer().without_headers(), 30..=60, 10),
        (layer().jitter(Duration::from_secs(10)), 30..=40, 5),
        (layer().jitter(Duration::ZERO), 30..=30, 1),
        (RateLimitLayer::new(&usual), 5..=10, 2),
    ];
    for (layer, expected, different) in cases {
        let service = layer.layer(Strict::default());
        let mut told = BTreeSet::new();
        for _ in 0..200 {
            let answer = service.clone().oneshot(of("batch")).await.unwrap();
            let seconds: u64 = header(&answer, "retry-after").parse().unwrap();
            assert!(expected.contains(&seconds), "{seconds} of {expected:?}");
            told.insert(seconds);
        }
        assert!(told.len() >= different, "{told:?} of {expected:?}");
    }
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

/// The cause of an event, its class, and true if it was enforced.
type Heard = (Cause, Option<String>, bool);

fn listening(builder: LimiterBuilder) -> (LimiterBuilder, Arc<Mutex<Vec<Heard>>>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ear = Arc::clone(&heard);
    let builder = builder.observe(move |event: &Event<'_>| {
        let is_shed = event.cause() == Cause::Shed;
        assert_eq!(event.policy().is_empty(), is_shed);
        assert!(
            !is_shed
                || (event.key().is_none() && event.quota().is_none() && event.verdict().is_none())
        );
        let class = event.class().map(str::to_owned);
        ear.lock()
            .unwrap()
            .push((event.cause(), class, event.is_enforced()));
    });
    (builder, heard)
}

#[tokio::test]
async fn an_observer_hears_of_each_request_that_is_refused() {
    let gauge = PressureGauge::new();
    let (builder, heard) = listening(shedding(&gauge, AT).policy(api()));
    let limiter = builder.build().unwrap();
    gauge.set(0.7);

    for class in ["batch", "unheard of", "normal"] {
        send(&limiter, of(class)).await;
    }
    limiter
        .check("api", limiter.client_key("10.0.0.1".parse().unwrap()))
        .await
        .unwrap();
    limiter
        .check("api", limiter.client_key("10.0.0.1".parse().unwrap()))
        .probe()
        .await
        .unwrap();

    let shed = |enforced| (Cause::Shed, Some("batch".to_owned()), enforced);
    assert_eq!(
        *heard.lock().unwrap(),
        [
            shed(true),
            shed(true),
            (Cause::Backend, None, true),
            shed(true),
            shed(false)
        ]
    );
}

#[tokio::test]
async fn on_trial_a_request_is_heard_of_let_in_and_charged() {
    let gauge = PressureGauge::new();
    let (builder, heard) = listening(shedding(&gauge, Shedding::at(AT).shadow()).policy(api()));
    let limiter = builder.backend(at_a_standstill().0).build().unwrap();
    gauge.set(1.0);

    assert_eq!(refused(&limiter).await, [""; 0]);

    let shed = |class: &str| (Cause::Shed, Some(class.to_owned()), false);
    let decided = || (Cause::Backend, None, true);
    assert_eq!(
        *heard.lock().unwrap(),
        [
            decided(),
            shed("normal"),
            decided(),
            shed("batch"),
            decided()
        ]
    );
    assert_eq!(left(&limiter).await, 6);
}

#[tokio::test]
async fn limiters_that_share_a_signal_have_thresholds_of_their_own() {
    let (gauge, memory) = (PressureGauge::new(), PressureGauge::new());
    let one = shedding(&gauge, AT).build().unwrap();
    let both = Limiter::builder()
        .classes(CLASSES, Header::new("x-class"))
        .shed(Pressure::from(&gauge).max(&memory), [("batch", 0.5)])
        .build()
        .unwrap();

    gauge.set(0.6);
    assert_eq!(refused(&one).await, [""; 0]);
    assert_eq!(refused(&both).await, ["batch"]);
    gauge.set(0.0);
    memory.set(1.0);
    assert_eq!(refused(&one).await, [""; 0]);
    assert_eq!(refused(&both).await, ["batch"]);
    // No task measures any more.
    drop(memory);
    assert_eq!(refused(&both).await, [""; 0]);
}

#[tokio::test]
async fn new_policies_change_nothing_about_what_is_shed() {
    let gauge = PressureGauge::new();
    let limiter = shedding(&gauge, AT).policy(api()).build().unwrap();
    gauge.set(0.7);

    limiter.replace([api().key(Global)]).unwrap();

    assert_eq!(refused(&limiter).await, ["batch"]);
}

#[test]
fn the_most_classes_the_longest_name_and_the_longest_wait_are_allowed() {
    let gauge = PressureGauge::new();
    let mut names: Vec<_> = (0..63).map(|n| format!("c{n}")).collect();
    let longest = "x".repeat(64);
    names.push(longest.clone());
    let day = Duration::from_secs(24 * 60 * 60);
    let builder = Limiter::builder().policy(api()).classes(names, Global);
    let limiter = builder.shed(&gauge, Shedding::at([(longest, 0.5)]).retry_after(day));
    assert!(limiter.build().is_ok());
}

#[test]
fn what_means_nothing_is_refused_with_its_reason() {
    let gauge = PressureGauge::new();
    let builder = || Limiter::builder().policy(api());
    let classes =
        |names: &[&'static str]| builder().classes(names.to_vec(), Header::new("x-class"));
    let at = |at: &[(&'static str, f64)]| classes(&CLASSES).shed(&gauge, Shedding::at(at.to_vec()));
    let batch = || Shedding::at([("batch", 0.7)]);
    let with = |shedding: Shedding| classes(&CLASSES).shed(&gauge, shedding);
    let long = "x".repeat(65);
    let many: Vec<_> = (0..65).map(|n| format!("c{n}")).collect();
    let cases = [
        (
            builder().shed(&gauge, AT),
            "there are no classes to refuse; add `.classes([..], extractor)`",
        ),
        (
            classes(&CLASSES),
            "classes are named, and none is ever refused; add `.shed(pressure, [..])`",
        ),
        (classes(&[]).shed(&gauge, AT), "`classes` names none"),
        (
            at(&AT).classes(CLASSES, Global),
            "`classes` is called twice; a limiter has one order of classes",
        ),
        (
            at(&AT).shed(&gauge, AT),
            "`shed` is called twice; `one.max(other)` is the higher of two signals",
        ),
        (
            builder().classes(many, Global).shed(&gauge, AT),
            "there are 65 classes; a limiter has at most 64",
        ),
        (
            builder()
                .classes(["a", "b", "a"], Global)
                .shed(&gauge, [("b", 0.5)]),
            "class \"a\": two classes have this name",
        ),
        (
            builder()
                .classes(["a", ""], Global)
                .shed(&gauge, [("a", 0.5)]),
            "class \"\": invalid name; use 1 to 64 bytes",
        ),
        (
            builder().classes([long], Global).shed(&gauge, [("a", 0.5)]),
            "class \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\": invalid name; use 1 to 64 bytes",
        ),
        (
            at(&[]),
            "no class has a threshold, so that none is ever refused",
        ),
        (
            at(&[("bulk", 0.7)]),
            "class \"bulk\": there is no class of this name; there are critical, normal, batch",
        ),
        (
            at(&[("batch", 0.7), ("batch", 0.8)]),
            "class \"batch\": it has two thresholds",
        ),
        (
            at(&[("batch", 0.0)]),
            "class \"batch\": a threshold of 0 is not above 0 and at most 1",
        ),
        (
            at(&[("batch", -0.5)]),
            "class \"batch\": a threshold of -0.5 is not above 0 and at most 1",
        ),
        (
            at(&[("batch", 1.1)]),
            "class \"batch\": a threshold of 1.1 is not above 0 and at most 1",
        ),
        (
            at(&[("batch", f64::NAN)]),
            "class \"batch\": a threshold of NaN is not above 0 and at most 1",
        ),
        (
            at(&[("batch", 0.9), ("normal", 0.7)]),
            "class \"batch\": it is less important than \"normal\", and its threshold is not lower",
        ),
        (
            at(&[("batch", 0.9), ("normal", 0.9)]),
            "class \"batch\": it is less important than \"normal\", and its threshold is not lower",
        ),
        (
            at(&[("normal", 0.9)]),
            "class \"batch\": it is less important than \"normal\", which is refused, and has no threshold",
        ),
        (
            with(batch().margin(0.7)),
            "class \"batch\": a margin of 0.7 is not below its threshold of 0.7, so that it would never be let in again",
        ),
        (
            with(batch().margin(-0.1)),
            "a margin of -0.1 is not between 0 and 1",
        ),
        (
            with(batch().margin(f64::NAN)),
            "a margin of NaN is not between 0 and 1",
        ),
        (
            with(batch().retry_after(Duration::ZERO)),
            "`retry_after` is 0, so that refused callers come back at once",
        ),
        (
            with(batch().retry_after(Duration::from_secs(86_401))),
            "`retry_after` is longer than a day",
        ),
        (
            builder()
                .classes(["a"], key::Cookie::new("s=id"))
                .shed(&gauge, [("a", 0.5)]),
            "the class of a request: ",
        ),
    ];
    for (builder, reason) in cases {
        let refused = builder.build().unwrap_err().to_string();
        let expected = format!("shedding: {reason}");
        assert!(
            refused == expected || (reason.ends_with(": ") && refused.starts_with(&expected)),
            "{refused}"
        );
    }
    for all_right in [
        at(&[("batch", 0.7), ("normal", 1.0)]),
        at(&[("normal", 0.9), ("batch", 0.7)]),
        classes(&["all"]).shed(&gauge, [("all", 1.0)]),
    ] {
        assert!(all_right.build().is_ok());
    }
}

#[cfg(feature = "axum")]
mod over_a_socket {
    use axum::Router;
    use axum::routing::get;
    use tollgate::MethodRouterExt;

    use super::common::served::Served;
    use super::*;

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
