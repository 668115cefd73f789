//! A server that is far away, and more who ask than one call carries: everybody hears within the deadline.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Budget, HOUR, recovered};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate_core::{Backend, Quota};
use tollgate_redis::RedisBackend;
use tollgate_testkit::{Fault, Proxy, Standalone};

/// The deadline as it is unless set.
const DEADLINE: Duration = Duration::from_millis(100);

/// How long the callers ask.
const SPELL: Duration = Duration::from_secs(2);

/// What callers saw who asked again as soon as they had heard.
#[derive(Debug, Default)]
struct Seen {
    decided: u64,
    failed: u64,
    slowest: Duration,
    /// How much later than it should a timer of this runtime rang meanwhile: the machine is busy, and that is not the backend's.
    machine: Duration,
}

async fn ask(backend: &RedisBackend, callers: usize, gives_back: bool) -> Seen {
    let quota = Quota::new(1_000_000, HOUR * 24);
    let budget = Arc::new(Budget::of("far", quota));
    let began = Instant::now();
    let (decided, failed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut asking = JoinSet::new();
    for _ in 0..callers {
        let (backend, budget) = (backend.clone(), Arc::clone(&budget));
        let (decided, failed) = (Arc::clone(&decided), Arc::clone(&failed));
        asking.spawn(async move {
            let mut slowest = Duration::ZERO;
            while began.elapsed() < SPELL {
                let asked = Instant::now();
                let charges = [budget.charge(1)];
                let said = backend.decide(&charges).await;
                slowest = slowest.max(asked.elapsed());
                match said {
                    Ok(decision) => {
                        decided.fetch_add(1, Ordering::Relaxed);
                        for receipt in decision.receipts(&charges).filter(|_| gives_back) {
                            backend.credit(receipt, 1);
                        }
                    }
                    Err(_) => {
                        failed.fetch_add(1, Ordering::Relaxed);
                        // Who is told at once does not ask again at once.
                        sleep(Duration::from_millis(10)).await;
                    }
                }
            }
            slowest
        });
    }
    let mut seen = Seen::default();
    while began.elapsed() < SPELL {
        let slept = Instant::now();
        sleep(DEADLINE / 4).await;
        seen.machine = seen.machine.max(slept.elapsed() - DEADLINE / 4);
    }
    seen.slowest = asking.join_all().await.into_iter().max().unwrap();
    seen.decided = decided.load(Ordering::Relaxed);
    seen.failed = failed.load(Ordering::Relaxed);
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_asks_a_server_that_is_far_away_hears_within_the_deadline() {
    for (round_trip_ms, callers, gives_back) in [(70, 64, false), (90, 256, false), (20, 256, true)]
    {
        // given
        let server = Standalone::start();
        let proxy = Proxy::before(server.port());
        proxy.fail_with(Fault::Delay(Duration::from_millis(round_trip_ms)));
        let builder = RedisBackend::builder(&proxy.url()).deadline(DEADLINE);
        let backend = builder.connect().await.unwrap();
        recovered(&backend, &Budget::of("first", Quota::per_hour(10))).await;

        // when
        let seen = ask(&backend, callers, gives_back).await;

        // then
        println!("{round_trip_ms} ms, {callers} callers: {seen:?}");
        let bound = DEADLINE * 3 / 2 + seen.machine * 2;
        assert!(seen.slowest < bound, "{round_trip_ms} ms: {seen:?}");
    }
}
