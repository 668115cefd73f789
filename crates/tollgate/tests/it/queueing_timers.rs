//! The ends of waits beside tokio's own timers.
//!
//! Time is paused and moves from timer to timer, so that the machine's speed has no say in what is compared.

use std::time::Duration;

use crate::common::tokio_clock::in_tokio_time;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tollgate::{Limiter, Policy, Quota};

/// No divisor of a thousand, so that turns lie anywhere within a tick of tokio's timers.
const PER_SECOND: u32 = 197;

const WAITS: u32 = 200;

/// One tick of tokio's timers.
const MOST: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn no_wait_ends_later_than_a_millisecond_after_tokios_own_timer_or_before_its_turn() {
    let quota = Quota::per_second(PER_SECOND.into()).burst(1);
    let quota = quota.wait_up_to(Duration::from_secs(2));
    let limiter = Limiter::builder()
        .policy(Policy::new("smooth", quota))
        .backend(in_tokio_time())
        .build()
        .unwrap();
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

    for (turn, (wait, timer)) in (1_u32..).zip(waits.into_iter().zip(timers)) {
        let due = began + Duration::from_secs(1) * turn / PER_SECOND;
        assert!(wait >= due, "turn {turn}: {:?} early", due - wait);
        let late = wait.saturating_duration_since(timer);
        assert!(late <= MOST, "turn {turn}: {late:?} late");
    }
}
