//! The backend on a master that Sentinels watch.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::load::{Asked, ask_on, waited_only_until_known};
use common::watch::Watch;
use common::{Budget, recovered};
use tollgate_core::Quota;
use tollgate_redis::RedisBackend;
use tollgate_testkit::Sentinels;

/// Far more than a failover on a busy machine takes.
const LONG: Duration = Duration::from_secs(30);

/// What becomes of the master.
#[derive(Clone, Copy, Debug)]
enum Failure {
    Dies,
    Stalls,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_dies_under_load_costs_no_request_more_than_its_deadline() {
    fails_over(Failure::Dies).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_stalls_under_load_costs_no_request_more_than_its_deadline() {
    fails_over(Failure::Stalls).await;
}

async fn fails_over(failure: Failure) {
    let mut all = Sentinels::start();
    let deadline = Duration::from_millis(500);
    let builder = RedisBackend::sentinel(all.master_name(), all.urls()).deadline(deadline);
    let backend = builder.connect().await.unwrap();
    let budget = Budget::of("failover", Quota::per_day(1_000_000));
    budget.take(&backend, 1).await.unwrap();

    let mut gone_at = None;
    let watch = Arc::new(Watch::start());
    let is_over = |said: &[Asked]| {
        assert!(watch.elapsed() < LONG, "{failure:?}");
        if gone_at.is_none() && said.len() > 200 {
            match failure {
                Failure::Dies => all.kill_master(),
                Failure::Stalls => all.stall_master(),
            }
            gone_at = Some(watch.elapsed());
        }
        let failed = said.iter().any(|asked| !asked.is_decided);
        failed && said.iter().rev().take(100).all(|asked| asked.is_decided)
    };
    let said = ask_on(&backend, &watch, &[&budget], is_over).await;

    waited_only_until_known(&said, gone_at.unwrap(), deadline);
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
