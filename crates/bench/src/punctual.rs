//! The ends of waits, by the machine's own clock, beside tokio's timers for the same instants.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tollgate::{Limiter, Policy, Quota};

use crate::Result;

/// No divisor of a thousand, so that turns lie anywhere within a tick of tokio's timers.
const PER_SECOND: u32 = 197;

const WAITS: u32 = 980;

/// Longer than the last of these waits.
const WAIT: Duration = Duration::from_secs(5);

/// Prints how much later than its turn each wait ends, and each timer.
pub(crate) fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(measure())
}

async fn measure() -> Result<()> {
    let quota = Quota::per_second(PER_SECOND.into()).burst(1);
    let limiter = Limiter::builder()
        .policy(Policy::new("smooth", quota.wait_up_to(WAIT)))
        .build()?;
    let before = Instant::now();
    let _first = limiter.acquire("smooth", "alice").await?;
    // The turns are counted from the first request, which was decided between these.
    let began = before + before.elapsed() / 2;
    let mut waits = JoinSet::new();
    let mut timers = JoinSet::new();
    for turn in 1..=WAITS {
        let limiter = limiter.clone();
        waits.spawn(async move {
            let _waited = limiter.acquire("smooth", "alice").await;
            Instant::now()
        });
        timers.spawn(async move {
            sleep_until(due(began, turn)).await;
            Instant::now()
        });
    }
    let waits = late(began, waits.join_all().await);
    let timers = late(began, timers.join_all().await);
    for (who, late) in [("a wait", &waits), ("tokio's timer", &timers)] {
        let [median, high] = [2, 100].map(|part| late[late.len() - late.len() / part]);
        println!(
            "{who} ends {median:?} after its turn at the median, and {high:?} at the 99th percentile"
        );
    }
    Ok(())
}

fn due(began: Instant, turn: u32) -> Instant {
    began + Duration::from_secs(1) * turn / PER_SECOND
}

/// The times by which these came after their turns, in order.
fn late(began: Instant, mut ends: Vec<Instant>) -> Vec<Duration> {
    ends.sort_unstable();
    let turns = (1..).map(|turn| due(began, turn));
    let mut late: Vec<_> = ends
        .iter()
        .zip(turns)
        .map(|(end, due)| end.saturating_duration_since(due))
        .collect();
    late.sort_unstable();
    late
}
