//! The decision on the span of the request, and a span for each call to Redis.

use std::fmt;
use std::future::IntoFuture;
use std::sync::{Arc, Mutex};

use tollgate::key::Header;
use tollgate::{Limiter, ManualClock, MemoryBackend, Policy, Quota};
use tracing::Subscriber;
use tracing::field::{Empty, Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// Keeps what is recorded on spans, and counts them.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    recorded: Vec<String>,
    made: usize,
    calls: Vec<String>,
}

impl Visit for State {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.recorded.push(format!("{}={value:?}", field.name()));
    }
}

impl<S: Subscriber> Layer<S> for Spans {
    fn on_new_span(&self, span: &Attributes<'_>, _id: &Id, _context: Context<'_, S>) {
        let state = &mut *self.0.lock().unwrap();
        state.made += 1;
        if span.metadata().name() == "redis_call" {
            let mut call = State::default();
            span.record(&mut call);
            let level = span.metadata().level();
            state
                .calls
                .push(format!("{level} {}", call.recorded.join(" ")));
        }
    }

    fn on_record(&self, _span: &Id, values: &Record<'_>, _context: Context<'_, S>) {
        values.record(&mut *self.0.lock().unwrap());
    }
}

impl Spans {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().recorded)
    }
}

fn limiter() -> Limiter {
    let day = Policy::new("day", Quota::per_day(9)).key(Header::new("x-key"));
    let hour = Policy::new("api", ["1/s burst 5", "2/h"]).key(Header::new("x-key"));
    let trial = Policy::new("trial", Quota::per_day(1))
        .key(Header::new("x-key"))
        .shadow();
    let backend = MemoryBackend::builder().clock(ManualClock::new()).build();
    let limiter = Limiter::builder().policies([day, hour, trial]);
    limiter.backend(backend).build().unwrap()
}

#[test]
fn a_span_that_declares_the_fields_gets_the_verdict_that_says_most() {
    let spans = Spans::default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let subscriber = tracing_subscriber::registry().with(spans.clone());
    tracing::subscriber::with_default(subscriber, || {
        let limiter = limiter();
        let ask = |span: tracing::Span, policy| {
            let _entered = span.entered();
            runtime
                .block_on(limiter.check(policy, "alice").into_future())
                .unwrap();
            spans.take()
        };
        let declared = || {
            tracing::info_span!(
                "request",
                rate_limit.policy = Empty,
                rate_limit.result = Empty,
                rate_limit.remaining = Empty,
                rate_limit.retry_after_ms = Empty
            )
        };

        let allowed = ask(declared(), "api");
        assert_eq!(
            allowed,
            [
                "rate_limit.policy=\"api\"",
                "rate_limit.result=\"allowed\"",
                "rate_limit.remaining=1"
            ]
        );
        ask(declared(), "api");
        let denied = ask(declared(), "api");
        assert_eq!(
            denied,
            [
                "rate_limit.policy=\"api\"",
                "rate_limit.result=\"denied\"",
                "rate_limit.remaining=0",
                "rate_limit.retry_after_ms=1800000"
            ]
        );
        // A policy on trial says nothing of the request, and a span that declares nothing gets nothing.
        assert_eq!(ask(declared(), "trial"), Vec::<String>::new());
        assert_eq!(
            ask(tracing::info_span!("request"), "day"),
            Vec::<String>::new()
        );
        // The limiter makes no span of its own.
        let made = spans.0.lock().unwrap().made;
        assert_eq!(made, 5);
    });
}

/// The results on the page, each with a case below.
fn documented() -> Vec<String> {
    let page = include_str!("../../../../docs/operating/traces.md");
    let (_, table) = page
        .split_once("| `rate_limit.result` | meaning |")
        .unwrap();
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with("| `"));
    rows.map(|row| row.split('`').nth(1).unwrap().to_owned())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn each_result_on_the_page_is_found_on_a_span() {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use crate::common::failing::Failing;
    use crate::common::tokio_clock::in_tokio_time;
    use crate::common::{Strict, from};
    use tollgate::key::KeyList;
    use tollgate::{
        Ban, Block, Concurrent, Key, OnFailure, OnMissing, OnUnknown, Once, PressureGauge,
        RateLimitLayer, Share, Switch, Tiers,
    };
    use tower::{Layer as _, ServiceExt};
    use tracing::Instrument;

    // given a policy for each result
    let minute = Duration::from_secs(60);
    let policy = |name: &str| Policy::new(name, Quota::per_hour(1)).on_demand();
    let list = |key: &str| [key].into_iter().collect::<KeyList>();
    let away = |_: Key| async { Err::<Option<String>, _>("a database that is away") };
    let tiers = Tiers::by_async(minute, away).tier("gold", Quota::per_hour(9));
    let keyed = Policy::new("keyed", Quota::per_hour(9)).route("/keyed");
    let (gauge, fails) = (PressureGauge::new(), Arc::new(AtomicBool::new(false)));
    let limiter = Limiter::builder()
        .policy(policy("api"))
        .policy(policy("guarded").ban(Ban::after(2, minute)))
        .policy(Policy::new("slow", Quota::per_minute(1).wait_up_to(minute)).on_demand())
        .policy(Policy::new("places", Concurrent::at_most(1).wait_up_to(minute)).on_demand())
        .policy(policy("orders").once(Once::default()))
        .policy(policy("listed").block_keys(list("alice"), Block::Forbidden))
        .policy(policy("exempt").exempt_keys(list("alice")))
        .policy(policy("switched"))
        .policy(policy("tiered").tiers(tiers.on_unknown(OnUnknown::Deny)))
        .policy(policy("open"))
        .policy(policy("closed").on_failure(OnFailure::Deny))
        .policy(policy("local").on_failure(OnFailure::Local(Share::WHOLE)))
        .policy(keyed.key(Header::new("x-key")).on_missing(OnMissing::Deny))
        .classes(["normal", "batch"], Header::new("x-class"))
        .shed(&gauge, [("batch", 0.5)])
        .backend(Failing(in_tokio_time(), Arc::clone(&fails)))
        .build()
        .unwrap();
    limiter.switch("switched", Switch::Off).unwrap();
    let spans = Spans::default();
    let subscriber = tracing_subscriber::registry().with(spans.clone());
    let _listening = tracing::subscriber::set_default(subscriber);
    let declared = || {
        tracing::info_span!(
            "request",
            rate_limit.policy = Empty,
            rate_limit.result = Empty
        )
    };
    let told = |policy: &str| {
        let mut fields = spans.take().into_iter();
        let is_about = |field: &String| *field == format!("rate_limit.policy={policy:?}");
        assert!(fields.next().is_none_or(|field| is_about(&field)));
        let result = fields.next()?;
        let result = result.strip_prefix("rate_limit.result=")?;
        Some(result.trim_matches('"').to_owned())
    };
    let check = async |policy: &str| {
        // Some are refused by an error.
        let check = limiter.check(policy, "alice").into_future();
        let _ruled = check.instrument(declared()).await;
        told(policy)
    };
    let acquire = async |policy: &str| {
        let acquire = limiter.acquire(policy, "alice").into_future();
        let _acquired = acquire.instrument(declared()).await.unwrap();
        told(policy)
    };

    // when
    let mut results = vec![
        check("api").await,
        check("api").await,
        check("guarded").await,
        check("guarded").await,
        check("guarded").await,
        acquire("slow").await,
        acquire("slow").await,
        check("listed").await,
        check("tiered").await,
    ];
    for _ in 0..2 {
        let order = limiter.check("orders", "alice").id("7").into_future();
        let _ordered = order.instrument(declared()).await.unwrap();
        results.push(told("orders"));
    }
    let place = limiter.acquire("places", "alice").await.unwrap();
    let frees = async {
        tokio::time::sleep(minute / 2).await;
        drop(place);
    };
    let waits = limiter.acquire("places", "alice").into_future();
    let (_placed, ()) = tokio::join!(waits.instrument(declared()), frees);
    results.push(told("places"));
    for (path, policy, pressure) in [("/keyed", "keyed", 0.0), ("/else", "", 0.9)] {
        gauge.set(pressure);
        let mut request = from("10.0.0.1");
        *request.uri_mut() = path.parse().unwrap();
        let service = RateLimitLayer::new(&limiter).layer(Strict::default());
        let _answer = service.oneshot(request).instrument(declared()).await;
        results.push(told(policy));
    }
    gauge.set(0.0);
    // These say nothing: another policy may have more to say.
    assert_eq!(
        [check("exempt").await, check("switched").await],
        [None, None]
    );
    fails.store(true, Ordering::Relaxed);
    results.extend([
        check("open").await,
        check("closed").await,
        check("local").await,
        check("local").await,
    ]);

    // then
    let results: Vec<_> = results.into_iter().map(Option::unwrap).collect();
    assert_eq!(
        results,
        [
            "allowed",
            "denied",
            "allowed",
            "denied",
            "banned",
            "allowed",
            "waited",
            "blocked",
            "tier_unknown",
            "allowed",
            "replayed",
            "waited",
            "unidentified",
            "shed",
            "passed_undecided",
            "refused_undecided",
            "allowed_by_share",
            "denied_by_share",
        ]
    );
    let found: std::collections::BTreeSet<_> = results.into_iter().collect();
    assert_eq!(found, documented().into_iter().collect());
}

/// As a service has it: the span of the request around the layer, and a decision that comes later.
#[cfg(feature = "redis")]
#[tokio::test]
async fn a_request_through_the_layer_leaves_its_decision_on_its_span() {
    use std::convert::Infallible;

    use http::{Request, Response};
    use tollgate::{OnFailure, RateLimitLayer, RedisBackend};
    use tollgate_testkit::Standalone;
    use tower::{Layer as _, ServiceExt, service_fn};
    use tracing::Instrument;

    // given
    let server = Standalone::start();
    // A known denial would be told as such while the server is away.
    let backend = RedisBackend::builder(&server.url()).ask_every_denial();
    let backend = backend
        .connect_deadline(crate::common::PATIENT)
        .deadline(crate::common::PATIENT);
    let backend = backend.connect().await.unwrap();
    let open = Policy::new("open", Quota::per_day(1)).key(Header::new("x-open"));
    let open = open.on_missing(tollgate::OnMissing::Pass);
    let closed = Policy::new("closed", Quota::per_day(1)).key(Header::new("x-closed"));
    let closed = closed.on_missing(tollgate::OnMissing::Pass);
    let closed = closed.on_failure(OnFailure::Deny);
    let limiter = Limiter::builder().policies([open, closed]).backend(backend);
    let limited = RateLimitLayer::new(limiter.build().unwrap());
    let spans = Spans::default();
    let subscriber = tracing_subscriber::registry().with(spans.clone());
    let _listening = tracing::subscriber::set_default(subscriber);
    let ask = async |header: &str| {
        let service = limited.layer(service_fn(async |_: Request<String>| {
            Ok::<_, Infallible>(Response::new(String::new()))
        }));
        let span = tracing::info_span!(
            "request",
            rate_limit.policy = Empty,
            rate_limit.result = Empty
        );
        let request = Request::builder().header(header, "alice");
        let request = request.body(String::new()).unwrap();
        let _answer = service.oneshot(request).instrument(span).await.unwrap();
        spans.take()
    };
    let told = |policy: &str, result: &str| {
        let policy = format!("rate_limit.policy=\"{policy}\"");
        vec![policy, format!("rate_limit.result=\"{result}\"")]
    };

    // when, then
    assert_eq!(ask("x-open").await, told("open", "allowed"));
    assert_eq!(ask("x-open").await, told("open", "denied"));
    drop(server);
    assert_eq!(ask("x-open").await, told("open", "passed_undecided"));
    assert_eq!(ask("x-closed").await, told("closed", "refused_undecided"));
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn each_call_to_redis_has_a_span_at_debug_and_no_decision_has_one() {
    use tollgate_testkit::Standalone;
    use tracing_subscriber::filter::LevelFilter;

    // given
    let server = Standalone::start();
    let backend = crate::common::in_redis(&server.url()).await;
    let policy = Policy::new("api", Quota::per_day(9));
    let limiter = Limiter::builder().policy(policy).backend(backend);
    let limiter = limiter.build().unwrap();
    let spans_of = async |level: LevelFilter, asked: usize| {
        let spans = Spans::default();
        let subscriber = tracing_subscriber::registry()
            .with(spans.clone())
            .with(level);
        let _listening = tracing::subscriber::set_default(subscriber);
        for _ in 0..asked {
            assert!(limiter.check("api", "alice").await.unwrap().is_allowed());
        }
        let state = spans.0.lock().unwrap();
        (state.made, state.calls.clone())
    };

    // when, then: one that comes alone is one call
    let calls = vec!["DEBUG requests=1".to_owned(); 3];
    assert_eq!(spans_of(LevelFilter::DEBUG, 3).await, (3, calls));
    assert_eq!(spans_of(LevelFilter::INFO, 3).await, (0, Vec::new()));
}
