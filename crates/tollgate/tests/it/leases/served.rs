//! Leases over a real Redis.

use std::time::{Duration, Instant};

use tokio::time::sleep;
use tollgate::{Key, Lease, Limiter, Policy, Quota, RedisBackend};
use tollgate_testkit::Standalone;

/// A machine that builds beside the test takes its time.
const PATIENCE: Duration = Duration::from_secs(30);

async fn connected(server: &Standalone) -> RedisBackend {
    let backend = RedisBackend::builder(&server.url()).deadline(PATIENCE);
    backend.connect().await.unwrap()
}

fn day(limit: u64) -> Policy {
    Policy::new("api", Quota::per_day(limit))
}

async fn process(server: &Standalone, limit: u64) -> (Limiter, RedisBackend) {
    let backend = connected(server).await;
    let policy = day(limit).lease(Lease::up_to(1_000_000));
    let limiter = Limiter::builder().policy(policy).backend(backend.clone());
    (limiter.build().unwrap(), backend)
}

/// Waits until this much is left.
async fn until_left(server: &Standalone, limit: u64, wanted: u64) {
    let backend = connected(server).await;
    let beside = Limiter::builder()
        .policy(day(limit))
        .backend(backend)
        .build()
        .unwrap();
    let start = Instant::now();
    loop {
        let left = beside
            .check("api", "alice")
            .probe()
            .await
            .unwrap()
            .remaining();
        if left == wanted {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{left} of {wanted}");
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_admit_all_of_a_budget_and_no_more_and_give_the_rest_back() {
    const LIMIT: u64 = 20_000;
    let server = Standalone::start();
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let (limiter, _) = process(&server, LIMIT).await;
        tasks.push(tokio::spawn(async move {
            let mut admitted = 0;
            for _ in 0..3_000 {
                let checked = limiter.check("api", "alice").await.unwrap();
                admitted += u64::from(checked.is_allowed());
            }
            admitted
        }));
    }
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await.unwrap();
    }
    // There was room for all, and the limiters have gone with their tasks.
    assert_eq!(admitted, 12_000);
    until_left(&server, LIMIT, LIMIT - admitted).await;

    let (limiter, _) = process(&server, LIMIT).await;
    let mut more = 0;
    for _ in 0..10_000 {
        let checked = limiter.check("api", "alice").await.unwrap();
        more += u64::from(checked.is_allowed());
    }
    assert_eq!(admitted + more, LIMIT);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hot_key_costs_redis_few_calls_whatever_its_rate() {
    const LIMIT: u64 = 864_000_000;
    let server = Standalone::start();
    let (limiter, backend) = process(&server, LIMIT).await;
    let ask = async || {
        let start = Instant::now();
        let mut asked = 0_u64;
        while start.elapsed() < Duration::from_secs(1) {
            for _ in 0..100 {
                assert!(limiter.check("api", "alice").await.unwrap().is_allowed());
            }
            asked += 100;
        }
        asked
    };
    ask().await;
    let (before, start) = (backend.stats().requests, Instant::now());
    let asked = ask().await;
    let requests = backend.stats().requests - before;
    // On a machine that stands still for longer than a block lasts, requests ask as well: a part of a percent.
    let bound = 50 * (start.elapsed().as_secs() + 1) + asked / 200;
    assert!(requests <= bound, "{requests} for {asked}, and not {bound}");
    drop(limiter);
}

/// The keys of the callers that a flood brings are not leased, and their budgets are not remembered for long.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_callers_asks_for_no_blocks() {
    let server = Standalone::start();
    let (limiter, backend) = process(&server, 1_000).await;
    let before = backend.stats().requests;
    for caller in 0..2_000_u64 {
        let checked = limiter.check("api", Key::from(caller)).await.unwrap();
        assert!(checked.is_allowed());
    }
    assert_eq!(backend.stats().requests - before, 2_000);
}
