//! A decision with metrics allocates no more than one without.

#![cfg(feature = "metrics")]
#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use allocation_counter::measure;
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
