//! Requests that wait for a place under a limit on how many at once: two processes, one server, and what happens to it meanwhile.
//!
//! Questions are counted, since a busy machine asks later than it should, and never earlier.

use std::time::{Duration, Instant};

use crate::common::Patience;
use crate::common::line::{NOW_US, Process, acquire, set_clock, until};
use tokio::task::JoinHandle;
use tollgate::{CheckError, CheckOutcome, Concurrent, Limiter, OnFailure, Policy, Quota};
use tollgate_redis::RedisBackend;
use tollgate_testkit::Standalone;

/// Nothing here takes so long on any machine. A call that a killed server leaves unanswered ends with its deadline of a minute, and
/// only then is its process sure what it holds.
const LONG: &str = "1 at once wait 10min";

/// The time after which the first of a queue asks again.
const PAUSE: Duration = Duration::from_millis(100);

/// A lease so long that no heartbeat falls into a test.
const LEASE: Duration = Duration::from_secs(600);

async fn two(server: &Standalone, quota: &str) -> (Process, Process) {
    let builder = || RedisBackend::builder(&server.url()).held_lease(LEASE);
    (
        Process::connect(builder(), quota).await,
        Process::connect(builder(), quota).await,
    )
}

fn asked(process: &Process) -> u64 {
    process.backend.stats().requests
}

/// A request that stands in the queue of this process.
async fn stands(process: &Process) -> JoinHandle<Result<CheckOutcome, CheckError>> {
    let (before, limiter) = (process.limiter.waiting(), process.limiter.clone());
    let stands = tokio::spawn(async move { limiter.acquire("smooth", "alice").await });
    until(|| process.limiter.waiting() > before).await;
    stands
}

#[tokio::test]
async fn a_place_that_another_process_frees_is_found_with_the_next_question() {
    let server = Standalone::start();
    let (one, other) = two(&server, LONG).await;
    let held = one.acquire().await;
    assert!(held.is_allowed());
    let (began, before) = (Instant::now(), asked(&other));
    let first = stands(&other).await;
    let second = stands(&other).await;
    // The first alone asks, and no more often than each tenth of a second. Both have asked when they came.
    until(|| asked(&other) - before >= 5).await;
    let most = 3 + began.elapsed().as_micros() / PAUSE.as_micros();
    assert!(u128::from(asked(&other) - before) <= most);

    let released = asked(&one);
    drop(held);
    until(|| asked(&one) > released).await;
    let (free, freed_at) = (asked(&other), Instant::now());
    let first = first.await.unwrap().unwrap();

    assert!(first.is_allowed());
    // One may have been under way, one finds it, and the server may take its time to free it.
    let most = 2 + freed_at.elapsed().as_micros() / PAUSE.as_micros();
    assert!(u128::from(asked(&other) - free) <= most);
    // The next of the same process is woken and asks at once, however often it would have asked by itself.
    drop(first);
    assert!(second.await.unwrap().unwrap().is_allowed());
}

#[tokio::test]
async fn a_process_that_always_comes_too_late_waits_for_one_wait_and_no_longer() {
    const WAIT: Duration = Duration::from_millis(450);

    let server = Standalone::start();
    let (one, other) = two(&server, "1 at once wait 450ms").await;
    let held = one.acquire().await;
    let began = Instant::now();

    let starved = other.acquire().await;

    assert!(!starved.is_allowed() && starved.undecided().is_none());
    assert_eq!(starved.retry_after(), None);
    assert!(starved.waited() >= WAIT && began.elapsed() >= WAIT);
    // It asks no more, and has left nothing behind.
    assert_eq!(other.limiter.waiting(), 0);
    drop(held);
    until(|| one.backend.stats().held == 0).await;
    assert!(other.acquire().await.is_allowed());
}

/// The data tell of no place any more that is taken. The holder tells of its own with its next heartbeat.
#[tokio::test]
async fn when_the_data_are_lost_one_who_waits_finds_a_place_that_another_still_holds() {
    let server = Standalone::start();
    let (one, other) = two(&server, LONG).await;
    let held = one.acquire().await;
    let first = stands(&other).await;
    let second = stands(&other).await;

    assert_eq!(server.command(&["FLUSHALL"]), "+OK\r\n");

    let first = first.await.unwrap().unwrap();
    assert!(held.is_allowed() && first.is_allowed());
    // One more than the limit, and not another.
    let before = asked(&other);
    until(|| asked(&other) > before + 2).await;
    assert_eq!(other.limiter.waiting(), 1);
    drop(first);
    assert!(second.await.unwrap().unwrap().is_allowed());
    drop(held);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_server_is_gone_the_failure_rule_decides_about_those_who_wait() {
    for rule in [OnFailure::Allow, OnFailure::Deny] {
        let mut server = Standalone::start();
        let (one, other) = two(&server, LONG).await;
        let policy = || Policy::new("smooth", LONG).on_failure(rule);
        other.limiter.replace([policy()]).unwrap();
        let held = one.acquire().await;
        let first = stands(&other).await;
        let second = stands(&other).await;

        server.kill();

        for stood in [first, second] {
            match stood.await.unwrap() {
                Ok(passed) => {
                    assert!(passed.is_allowed() && passed.undecided().is_some());
                    assert!(matches!(rule, OnFailure::Allow));
                }
                Err(refused) => {
                    assert!(matches!(refused, CheckError::Unavailable(_)));
                    assert!(matches!(rule, OnFailure::Deny));
                }
            }
        }
        assert_eq!(other.limiter.waiting(), 0);
        drop(held);
        // When it is back, all is as it was.
        server.restart();
        other.decides_again().await;
        assert!(acquire(&other.limiter).await.is_allowed());
    }
}

/// A quota whose requests wait for their turn, and a limit on how many at once. If the turn is now, one request to the server
/// decides about both. Otherwise the place is given back or was not there, and it is asked for when the turn has come.
#[tokio::test]
async fn a_turn_and_a_place_take_three_requests_if_the_turn_is_still_to_come() {
    let turns = Quota::per_second(5)
        .burst(1)
        .wait_up_to(Duration::from_secs(60));
    for (is_free, is_free_then, costs) in [(true, true, 3), (false, true, 3), (false, false, 4)] {
        let server = Standalone::start();
        set_clock(&server, NOW_US);
        let backend = RedisBackend::builder(&server.url()).held_lease(LEASE);
        let backend = backend.clock("clock").patient().connections(1);
        let backend = backend.connect().await.unwrap();
        let limiter = Limiter::builder()
            .policy(Policy::new("smooth", (turns, Concurrent::at_most(1))))
            .backend(backend.clone())
            .build()
            .unwrap();
        let requests = || backend.stats().requests;
        let mut first = Some(acquire(&limiter).await);
        assert_eq!(requests(), 1);
        if is_free {
            first = None;
            until(|| requests() == 2).await;
        }
        let before = requests();
        let waits = tokio::spawn({
            let limiter = limiter.clone();
            async move { acquire(&limiter).await }
        });
        until(|| requests() == before + 2).await;
        let released = u64::from(is_free_then && first.is_some());
        if is_free_then {
            first = None;
        }

        let second = waits.await.unwrap();

        assert_eq!(second.is_allowed(), is_free_then);
        assert_eq!(second.waited(), Duration::from_millis(200));
        // One that is refused then gives its turn back.
        until(|| requests() == before + costs + released).await;
        drop((first, second));
    }
}
