//! The ends of waits beside tokio's own timers, in real time.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tollgate::{Limiter, Policy, Quota};

/// No divisor of a thousand, so that turns lie anywhere within a tick of tokio's timers.
const PER_SECOND: u32 = 197;

/// The waits of which the median is taken.
const WAITS: u32 = 200;

const MOST: Duration = Duration::from_millis(1);

/// Both wake up in one runtime for the same instant, so that other load holds both up.
#[tokio::test]
async fn the_median_wait_ends_a_millisecond_after_tokios_own_timer_at_most() {
    let quota = Quota::per_second(PER_SECOND.into()).burst(1);
    let quota = quota.wait_up_to(Duration::from_secs(2));
    let limiter = Limiter::from(Policy::new("smooth", quota));
    // The turns are counted from the first request, which comes a little later.
    let began = Instant::now();
    let first = limiter.acquire("smooth", "alice").await.unwrap();
    assert!(first.is_allowed());

    let mut waits = JoinSet::new();
    let mut timers = JoinSet::new();
    for turn in 1..=WAITS {
        let limiter = limiter.clone();
        waits.spawn(async move {
            let waited = limiter.acquire("smooth", "alice").await.unwrap();
            assert!(waited.is_allowed());
            Instant::now()
        });
        timers.spawn(async move {
            sleep_until(began + Duration::from_secs(1) * turn / PER_SECOND).await;
            Instant::now()
        });
    }
    let (mut waits, mut timers) = (waits.join_all().await, timers.join_all().await);
    waits.sort_unstable();
    timers.sort_unstable();

    let pairs = waits.iter().zip(&timers);
    let mut late: Vec<_> = pairs
        .map(|(wait, timer)| wait.saturating_duration_since(*timer))
        .collect();
    late.sort_unstable();
    let (median, last) = (late[late.len() / 2], late[late.len() - 1]);
    assert!(median <= MOST, "{median:?} at the median, {last:?} at most");
}
