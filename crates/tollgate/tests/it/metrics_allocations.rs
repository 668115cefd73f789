//! A decision with metrics allocates no more than one without, with a recorder that counts and without any.

#![cfg(feature = "metrics")]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use allocation_counter::measure;
use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use tollgate::{Limiter, LimiterBuilder, Policy, Quota};

/// The allocations of a hundred checks, of which the last fifty are denied, after a first one of each kind.
fn allocations(builder: LimiterBuilder) -> u64 {
    let policy = Policy::new("api", [Quota::per_hour(51), Quota::per_day(500)]);
    let limiter = builder.policy(policy).build().unwrap();
    let check = |key: &'static str, cost: u64| {
        let check = pin!(limiter.check("api", key).cost(cost).into_future());
        let mut check = check;
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(checked) = check.as_mut().poll(&mut cx) else {
            return;
        };
        drop(checked.unwrap());
    };
    check("alice", 1);
    check("bob", 51);
    check("bob", 1);
    measure(|| (0..100).for_each(|_| check("alice", 1))).count_total
}

#[test]
fn metrics_allocate_nothing() {
    let without = allocations(Limiter::builder());
    let with = allocations(Limiter::builder().metrics());
    assert_eq!(with, without);
}

/// Counts everything that it hears of into one number.
#[derive(Default)]
struct Counting(Arc<AtomicU64>);

struct Samples(Arc<AtomicU64>);

impl HistogramFn for Samples {
    fn record(&self, _value: f64) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Recorder for Counting {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::clone(&self.0))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::clone(&self.0))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(Samples(Arc::clone(&self.0))))
    }
}

#[test]
fn metrics_for_a_recorder_allocate_nothing_once_their_series_exist() {
    let without = allocations(Limiter::builder());
    let recorder = Counting::default();

    let with =
        metrics::with_local_recorder(&recorder, || allocations(Limiter::builder().metrics()));

    assert_eq!(with, without);
    // A count and a sample for each of 103 decisions.
    assert_eq!(recorder.0.load(Ordering::Relaxed), 206);
}
