//! The backend on a master that Sentinels watch.

mod common;

use std::time::{Duration, Instant};

use common::{Budget, recovered};
use tokio::time::sleep;
use tollgate_core::{Backend, Quota};
use tollgate_redis::RedisBackend;
use tollgate_testkit::Sentinels;

/// Far more than a failover on a busy machine takes.
const LONG: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_under_load_costs_no_request_more_than_its_deadline() {
    let mut all = Sentinels::start();
    let deadline = Duration::from_millis(500);
    let builder = RedisBackend::sentinel(all.master_name(), all.urls()).deadline(deadline);
    let backend = builder.connect().await.unwrap();
    let budget = Budget::of("failover", Quota::per_day(1_000_000));
    budget.take(&backend, 1).await.unwrap();

    let kill_at = Instant::now() + Duration::from_millis(200);
    let mut killed = false;
    let (mut failed, mut decided_after) = (0, 0);
    let started = Instant::now();
    let mut slowest = Duration::ZERO;
    while decided_after < 50 {
        assert!(
            started.elapsed() < LONG,
            "{failed} failed, {decided_after} decided"
        );
        if !killed && Instant::now() > kill_at {
            all.kill_master();
            killed = true;
        }
        let asked = Instant::now();
        let calls: Vec<_> = (0..20)
            .map(|_| backend.decide(&[budget.charge(1)]))
            .collect();
        for call in calls {
            match call.await {
                Ok(decision) => {
                    assert!(decision.is_admitted());
                    decided_after += usize::from(failed > 0);
                }
                Err(_gone) => failed += 1,
            }
        }
        slowest = slowest.max(asked.elapsed());
        sleep(Duration::from_millis(2)).await;
    }

    // The machine is busy: what counts is that nothing waits for the failover, which takes longer.
    assert!(slowest < deadline * 2, "{slowest:?}");
    assert!(failed > 0);
}

#[tokio::test]
async fn a_sentinel_that_is_gone_leaves_the_others_and_a_silent_one_too() {
    let all = Sentinels::start();
    let [first, second, third] = all.urls();
    all.sentinels()[0].stall();
    let urls = ["redis://127.0.0.1:1/".to_owned(), first, second, third];
    let backend = RedisBackend::sentinel(all.master_name(), urls);
    let backend = backend.connect().await.unwrap();
    all.sentinels()[0].go_on();
    recovered(&backend, &Budget::of("others", Quota::per_hour(10))).await;
}
