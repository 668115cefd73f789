//! Limits on how many at once, while the fleet changes: slots migrate under what is held, and a deploy runs two versions.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod common;

use std::collections::HashSet;
use std::time::Duration;

use common::cluster::{callers, slot};
use common::held::{hold, settles};
use common::{Budget, HOUR, PATIENT};
use tokio::time::sleep;
use tollgate_core::{Backend, Concurrent, Quota};
use tollgate_redis::{RedisBackend, RedisBackendBuilder};
use tollgate_testkit::{Cluster, Standalone};

const LEASE: Duration = Duration::from_millis(1_500);

fn at_once(limit: u64) -> Quota {
    Concurrent::at_most(limit).into()
}

async fn connect(builder: RedisBackendBuilder, lease: Duration) -> RedisBackend {
    let builder = builder.held_lease(lease).deadline(PATIENT);
    builder.connect().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_in_a_slot_that_migrates_stays_held_and_is_given_back_once() {
    const KEYS: usize = 24;

    let cluster = Cluster::start();
    let builder = || RedisBackend::cluster(cluster.urls());
    // The first tells nothing meanwhile that would make up for a call, and the other does nothing else.
    let (backend, other) = (
        connect(builder(), HOUR).await,
        connect(builder(), LEASE).await,
    );
    let budgets = callers("moving", at_once(4), KEYS);
    let (mut held, mut others) = (Vec::new(), Vec::new());
    for budget in &budgets {
        let receipts = [
            hold(&backend, budget, 1).await,
            hold(&backend, budget, 2).await,
        ];
        held.push(receipts.map(Option::unwrap));
        others.push(hold(&other, budget, 1).await.unwrap());
    }

    // Of each key one unit ends before its slot goes, and of some as it goes.
    let mut left = Vec::new();
    let mut moves: Vec<_> = budgets
        .iter()
        .map(|budget| slot(&cluster, budget))
        .collect();
    let mut seen = HashSet::new();
    moves.retain(|slot| seen.insert(*slot));
    let mut ends = held.into_iter();
    for slot in moves {
        let from = cluster.owner_of(slot).unwrap();
        let to = (from + 1) % 3;
        cluster.begin_move(slot, from, to);
        for [ended, kept] in ends.by_ref().take(2) {
            backend.credit(ended, 1);
            left.push(kept);
        }
        cluster.move_keys(slot, from, to, 1);
        sleep(LEASE / 100).await;
        cluster.move_keys(slot, from, to, 1_000);
        cluster.end_move(slot, to);
    }
    for [ended, kept] in ends {
        backend.credit(ended, 1);
        left.push(kept);
    }

    for budget in &budgets {
        settles(&other, budget, 3).await;
        assert!(hold(&backend, budget, 2).await.is_none());
    }
    // Told to the new owners.
    sleep(LEASE * 2).await;
    for budget in &budgets {
        assert_eq!(budget.taken(&other).await, 3);
    }
    let held = (backend.stats().held, other.stats().held);
    assert_eq!(held, (2 * KEYS as u64, KEYS as u64));
    for receipt in others {
        other.credit(receipt, 1);
    }
    for receipt in left {
        backend.credit(receipt, 2);
    }
    for budget in &budgets {
        settles(&other, budget, 0).await;
    }
    for process in [backend, other] {
        let stats = process.stats();
        assert_eq!((stats.held, stats.lost_leases, stats.twins), (0, 0, 0));
    }
}

#[tokio::test]
async fn during_a_deploy_both_versions_count_the_same_places_and_each_keeps_its_own_limit() {
    let server = Standalone::start();
    let builder = || RedisBackend::builder(&server.url());
    // The next version has another limit, and a lease that is four times as long.
    let (before, after) = (
        connect(builder(), LEASE).await,
        connect(builder(), LEASE * 4).await,
    );
    let (two, five) = (
        Budget::of("uploads", at_once(2)),
        Budget::of("uploads", at_once(5)),
    );

    let old = hold(&before, &two, 2).await.unwrap();
    let new = hold(&after, &five, 2).await.unwrap();
    assert!(hold(&before, &two, 1).await.is_none());
    let last = hold(&after, &five, 1).await.unwrap();
    assert!(hold(&after, &five, 1).await.is_none());

    // Each tells by its own lease, and neither takes the other's entry for one of the dead.
    for _ in 0..25 {
        sleep(LEASE / 5).await;
        assert!(hold(&before, &two, 1).await.is_none());
        assert_eq!(five.taken(&after).await, 5);
    }
    before.credit(old, 2);
    settles(&after, &five, 3).await;
    assert!(hold(&before, &two, 1).await.is_none());
    after.credit(new, 2);
    settles(&after, &five, 1).await;
    let again = hold(&before, &two, 1).await.unwrap();
    after.credit(last, 1);
    before.credit(again, 1);
    settles(&after, &five, 0).await;
    for version in [before, after] {
        let stats = version.stats();
        assert_eq!((stats.held, stats.lost_leases, stats.twins), (0, 0, 0));
    }
}
