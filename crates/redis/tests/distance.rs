//! A server that is far away or sleeps, and more callers than one call carries: each is answered within the deadline.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::watch::Watch;
use common::{Budget, HOUR, recovered};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate_core::{Backend, Quota};
use tollgate_redis::RedisBackend;
use tollgate_testkit::{Fault, Proxy, Standalone};

/// The default deadline.
const DEADLINE: Duration = Duration::from_millis(100);

/// The time for which the callers ask.
const SPELL: Duration = Duration::from_secs(2);

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
        let asks = ask(&backend, callers, gives_back).await;

        // then
        println!("{round_trip_ms} ms, {callers} callers: {asks:?}");
        assert!(
            asks.slowest < DEADLINE * 3 / 2,
            "{round_trip_ms} ms: {asks:?}"
        );
    }
}

/// The number of requests, the number answered after the deadline, and the longest time of an answer.
#[derive(Debug)]
struct Asks {
    all: u64,
    late: u64,
    slowest: Duration,
}

/// By the time that this process has had: the test is about the backend, not about the machine's pace with a thousand callers
/// and a server.
async fn ask(backend: &RedisBackend, callers: usize, gives_back: bool) -> Asks {
    /// The resolution of the watch.
    const COARSE: Duration = Duration::from_millis(10);
    let budget = Arc::new(Budget::of("asked", Quota::new(1_000_000, HOUR * 24)));
    let watch = Arc::new(Watch::start());
    let mut asking = JoinSet::new();
    for _ in 0..callers {
        let (backend, budget) = (backend.clone(), Arc::clone(&budget));
        let watch = Arc::clone(&watch);
        asking.spawn(async move {
            let mut asks = Asks {
                all: 0,
                late: 0,
                slowest: Duration::ZERO,
            };
            while watch.elapsed() < SPELL {
                let asked = watch.elapsed();
                let charges = [budget.charge(1)];
                let said = backend.decide(&charges).await;
                let took = watch.elapsed() - asked;
                asks.all += 1;
                asks.late += u64::from(took > DEADLINE + COARSE);
                asks.slowest = asks.slowest.max(took);
                match said {
                    Ok(decision) => {
                        for receipt in decision.receipts(&charges).filter(|_| gives_back) {
                            backend.credit(receipt, 1);
                        }
                    }
                    // A caller that is refused at once pauses before it asks again.
                    Err(_) => sleep(Duration::from_millis(10)).await,
                }
            }
            asks
        });
    }
    let sum = |sum: Asks, asks: Asks| Asks {
        all: sum.all + asks.all,
        late: sum.late + asks.late,
        slowest: sum.slowest.max(asks.slowest),
    };
    asking.join_all().await.into_iter().reduce(sum).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_callers_of_a_server_that_sleeps_now_and_then_hear_within_the_deadline() {
    // given a server that sleeps for 20 ms ten times in a second
    let server = Standalone::start();
    let builder = RedisBackend::builder(&server.url()).deadline(DEADLINE);
    let backend = builder.connect().await.unwrap();
    recovered(&backend, &Budget::of("first", Quota::per_hour(10))).await;
    let is_over = AtomicBool::new(false);
    let asks = thread::scope(|scope| {
        scope.spawn(|| {
            // A failing test does not wait for it.
            let until = Instant::now() + SPELL * 20;
            while !is_over.load(Ordering::Relaxed) && Instant::now() < until {
                server.stall();
                thread::sleep(Duration::from_millis(20));
                server.go_on();
                thread::sleep(Duration::from_millis(80));
            }
        });

        // when
        let asking = ask(&backend, 1_000, false);
        let asks =
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(asking));
        is_over.store(true, Ordering::Relaxed);
        asks
    });

    // then
    println!("{asks:?}");
    assert!(asks.all > 1_000, "{asks:?}");
    assert!(asks.late * 100 <= asks.all, "{asks:?}");
    assert!(asks.slowest < DEADLINE * 2, "{asks:?}");
}
