//! Limits on how many at once, while the server's clock steps.
//!
//! The server's time is what the test puts there, and moves only so. The processes tell what they hold by their own time.

use std::time::Duration;

use crate::common::held::{hold, settles};
use crate::common::line::{NOW_US, set_clock, until};
use crate::common::{Budget, Patience};
use tollgate_core::{Backend, Concurrent};
use tollgate_redis::RedisBackend;
use tollgate_testkit::Standalone;

/// Short, so that tests are; long enough for a machine that is busy.
const LEASE: Duration = Duration::from_millis(1_500);
const LEASE_US: u64 = 1_500_000;

/// Processes that tell nothing while a test runs have leases of an hour.
const LONG: Duration = Duration::from_secs(3_600);
const LONG_US: u64 = 3_600_000_000;

async fn holder(server: &Standalone, lease: Duration) -> RedisBackend {
    let builder = RedisBackend::builder(&server.url()).clock("clock");
    let builder = builder.held_lease(lease).patient();
    builder.connect().await.unwrap()
}

fn at_once(limit: u64) -> Budget {
    Budget::of("uploads", Concurrent::at_most(limit).into())
}

/// A server whose time is known.
fn at_noon() -> Standalone {
    let server = Standalone::start();
    set_clock(&server, NOW_US);
    server
}

/// Waits until a process has told twice more what it holds: the second time after all that came before.
async fn tells(backend: &RedisBackend) {
    let before = backend.stats().tells;
    until(|| backend.stats().tells >= before + 2).await;
}

#[tokio::test]
async fn a_clock_that_steps_by_less_than_a_lease_forth_and_back_frees_no_place_and_takes_none() {
    let server = at_noon();
    let (one, other) = (holder(&server, LONG).await, holder(&server, LONG).await);
    let uploads = at_once(4);
    let mut held = vec![
        (&one, hold(&one, &uploads, 2).await.unwrap()),
        (&other, hold(&other, &uploads, 2).await.unwrap()),
    ];

    // Half a lease at most lies between any two of these.
    for (forth, back) in [(LONG_US / 4, 0), (0, LONG_US / 4), (LONG_US / 8, 0), (0, 0)] {
        set_clock(&server, NOW_US + forth - back);

        assert!(hold(&one, &uploads, 1).await.is_none());
        assert!(hold(&other, &uploads, 1).await.is_none());
        // A place that comes free is free once, and for both.
        let (owner, receipt) = held.remove(0);
        owner.refund(receipt, 2);
        settles(&other, &uploads, 2).await;
        assert!(hold(&other, &uploads, 3).await.is_none());
        held.push((&one, hold(&one, &uploads, 2).await.unwrap()));
    }

    for (owner, receipt) in held {
        owner.refund(receipt, 2);
    }
    settles(&other, &uploads, 0).await;
    for process in [one, other] {
        let stats = process.stats();
        let lost = (stats.lost_leases, stats.reclaimed, stats.twins);
        assert_eq!((stats.held, lost), (0, (0, 0, 0)));
    }
}

#[tokio::test]
async fn a_clock_that_steps_forth_by_more_than_a_lease_is_a_loss_of_data_and_is_told() {
    let server = at_noon();
    let (one, other) = (holder(&server, LEASE).await, holder(&server, LEASE).await);
    // By another limit it shows how many are held above the first.
    let (uploads, all) = (at_once(3), at_once(100));
    let first = hold(&one, &uploads, 3).await.unwrap();
    tells(&one).await;

    set_clock(&server, NOW_US + 2 * LEASE_US);

    // As many again may pass until it is told, and not one more.
    let mut more = Vec::new();
    while let Some(receipt) = hold(&other, &uploads, 1).await {
        more.push(receipt);
    }
    assert!(more.len() <= 3);
    tells(&one).await;
    assert_eq!(all.taken(&other).await, 3 + more.len() as u64);
    let lost = |backend: &RedisBackend| backend.stats().lost_leases;
    assert_eq!((lost(&one), lost(&other)), (1, 0));
    // The process that found the place free has counted the freed units.
    let reclaimed = one.stats().reclaimed + other.stats().reclaimed;
    assert!(reclaimed == 0 || reclaimed == 3, "{reclaimed}");

    // Its way back frees nothing, though these leases now run for longer, and all places come back as their requests end.
    set_clock(&server, NOW_US);
    assert!(hold(&one, &uploads, 1).await.is_none());
    one.refund(first, 3);
    let left = more.len() as u64;
    settles(&other, &all, left).await;
    for receipt in more {
        other.refund(receipt, 1);
    }
    settles(&one, &uploads, 0).await;
    assert!(hold(&one, &uploads, 3).await.is_some());
}

#[tokio::test]
async fn what_a_dead_process_held_comes_back_later_by_the_step_back_of_the_clock() {
    let server = at_noon();
    let (dead, other) = (holder(&server, LONG).await, holder(&server, LONG).await);
    let uploads = at_once(2);
    let receipt = hold(&dead, &uploads, 2).await.unwrap();
    // The end of its lease: see `lua/held.lua`.
    let ends_us = NOW_US - NOW_US % (LONG_US / 4) + LONG_US;

    // Half a lease back, which is half a lease more until then.
    for (at_us, held) in [
        (NOW_US - LONG_US / 2, 2),
        (NOW_US, 2),
        (ends_us - 1_000, 2),
        (ends_us, 0),
    ] {
        set_clock(&server, at_us);
        assert_eq!(uploads.taken(&other).await, held);
    }
    assert_eq!(other.stats().reclaimed, 2);
    drop((dead, receipt));
}

#[tokio::test]
async fn the_dead_hold_for_four_leases_at_most_however_far_the_clock_steps_back() {
    const YEAR_US: u64 = 365 * 86_400_000_000;

    let server = at_noon();
    let uploads = at_once(3);
    let (dead, other) = (holder(&server, LEASE).await, holder(&server, LEASE).await);
    let _lost = hold(&dead, &uploads, 2).await.unwrap();
    drop(dead);
    let kept = hold(&other, &uploads, 1).await.unwrap();

    set_clock(&server, NOW_US - YEAR_US);
    assert!(hold(&other, &uploads, 1).await.is_none());

    // The next call came at once. From then on time passes as it does for the processes.
    let quarters = 4 * 4;
    for quarter in 1..=quarters {
        tells(&other).await;
        set_clock(&server, NOW_US - YEAR_US + quarter * LEASE_US / 4);
        let held = uploads.taken(&other).await;
        assert_eq!(held, if quarter < quarters { 3 } else { 1 }, "{quarter}");
    }
    let stats = other.stats();
    assert_eq!((stats.reclaimed, stats.lost_leases, stats.held), (2, 0, 1));
    other.refund(kept, 1);
    settles(&other, &uploads, 0).await;
}
