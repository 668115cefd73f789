//! The decision on the span of the request, and a span for each call to Redis.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::fmt;
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
}

impl Visit for State {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.recorded.push(format!("{}={value:?}", field.name()));
    }
}

impl<S: Subscriber> Layer<S> for Spans {
    fn on_new_span(&self, _span: &Attributes<'_>, _id: &Id, _context: Context<'_, S>) {
        self.0.lock().unwrap().made += 1;
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
