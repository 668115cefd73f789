//! Limits on how many at once, on a real server: the held units and their holders, and their fate when a process, a call or the
//! server's data is lost.

use std::sync::Arc;
use std::time::Duration;

use crate::common::held::{crowd, hold, put, settles};
use crate::common::line::until;
use crate::common::{Budget, HOUR, Patience, recovered};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tollgate_core::{
    Backend, Call, Charge, Concurrent, FailureKind, Key, Mode, Quota, Receipt, Settlement,
    Timestamp, Verdict,
};
use tollgate_redis::RedisBackend;
use tollgate_testkit::{Cluster, Fault, Proxy, Standalone};

/// Short, so that tests are; long enough for a machine that is busy.
const LEASE: Duration = Duration::from_secs(4);

async fn holder_at(url: &str) -> RedisBackend {
    let builder = RedisBackend::builder(url).held_lease(LEASE).patient();
    builder.connect().await.unwrap()
}

async fn holder(server: &Standalone) -> RedisBackend {
    holder_at(&server.url()).await
}

fn at_once(policy: &str, limit: u64) -> Budget {
    Budget::of(policy, Concurrent::at_most(limit).into())
}

#[tokio::test]
async fn several_processes_hold_one_limit() {
    let server = Standalone::start();
    let (one, other) = (holder(&server).await, holder(&server).await);
    let uploads = at_once("uploads", 3);

    let first = hold(&one, &uploads, 2).await.unwrap();
    let second = hold(&other, &uploads, 1).await.unwrap();
    let denied = uploads.take(&one, 1).await.unwrap();

    assert!(!denied.is_admitted());
    assert_eq!(
        (denied.retry_after(), denied.verdicts()[0].remaining()),
        (None, 0)
    );
    assert_eq!((one.stats().held, other.stats().held), (2, 1));
    assert!(uploads.take(&one, 4).await.unwrap().verdicts()[0].never_passes());

    one.refund(first, 2);
    settles(&other, &uploads, 1).await;
    assert!(hold(&other, &uploads, 2).await.is_some());
    other.refund(second, 1);
    settles(&one, &uploads, 2).await;
    assert_eq!(one.stats().held, 0);
}

#[tokio::test]
async fn a_key_of_which_nothing_is_held_is_gone_and_an_entry_takes_32_bytes() {
    let server = Standalone::start();
    let uploads = at_once("uploads", 100);
    let mut held = Vec::new();
    for processes in 1..=10 {
        let backend = holder(&server).await;
        let receipt = hold(&backend, &uploads, 3).await.unwrap();
        held.push((backend, receipt));
        let length = server.command(&["STRLEN", "tollgate:uploads:0/h:=alice"]);
        assert_eq!(length, format!(":{}\r\n", 21 + 32 * processes));
    }
    held.truncate(1);
    // The others' leases run out.
    settles(&held[0].0, &uploads, 3).await;
    let (backend, receipt) = held.pop().unwrap();
    backend.refund(receipt, 3);
    settles(&backend, &uploads, 0).await;

    // It was told what is held, and goes with its lease. One that is held for less than a heartbeat goes at once.
    let short = at_once("short", 1);
    let receipt = hold(&backend, &short, 1).await.unwrap();
    assert_eq!(
        server.command(&["EXISTS", "tollgate:short:0/h:=alice"]),
        ":1\r\n"
    );
    backend.refund(receipt, 1);
    settles(&backend, &short, 0).await;
    assert_eq!(
        server.command(&["EXISTS", "tollgate:short:0/h:=alice"]),
        ":0\r\n"
    );
    let gone = async {
        while server.command(&["DBSIZE"]) != ":0\r\n" {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LEASE * 2, gone)
        .await
        .expect("everything goes within a lease");
}

#[tokio::test]
async fn what_is_held_for_longer_than_a_lease_stays_held() {
    let server = Standalone::start();
    let backend = holder(&server).await;
    let uploads = at_once("uploads", 2);
    let _receipt = hold(&backend, &uploads, 2).await.unwrap();

    let began = Instant::now();
    for _ in 0..20 {
        sleep(LEASE / 10).await;
        assert_eq!(uploads.taken(&backend).await, 2);
    }

    let stats = backend.stats();
    // Three times in each lease, and a tenth earlier at most.
    let rounds = began.elapsed().as_secs_f64() / LEASE.as_secs_f64() * 3.0;
    assert!((stats.tells as f64) <= rounds / 0.9 + 1.0, "{stats:?}");
    assert_eq!((stats.lost_leases, stats.twins, stats.held), (0, 0, 2));
}

#[tokio::test]
async fn what_a_process_that_died_held_comes_back_after_its_lease() {
    let server = Standalone::start();
    let (dying, other) = (holder(&server).await, holder(&server).await);
    let uploads = at_once("uploads", 2);
    let _receipt = hold(&dying, &uploads, 2).await.unwrap();
    drop(dying);

    sleep(LEASE / 2).await;
    assert_eq!(
        uploads.taken(&other).await,
        2,
        "three quarters of a lease at least"
    );
    sleep(LEASE / 2).await;
    assert_eq!(uploads.taken(&other).await, 0);
}

#[tokio::test]
async fn pitfall_an_emptied_server_is_told_again_within_one_heartbeat() {
    let server = Standalone::start();
    let (one, other) = (holder(&server).await, holder(&server).await);
    let uploads = at_once("uploads", 5);
    let first = hold(&one, &uploads, 3).await.unwrap();
    let _second = hold(&other, &uploads, 2).await.unwrap();

    assert_eq!(server.command(&["FLUSHALL"]), "+OK\r\n");
    // As many again may pass meanwhile, and not one more.
    let mut more = Vec::new();
    while let Some(receipt) = hold(&other, &uploads, 1).await {
        more.push(receipt);
    }
    assert!((1..=5).contains(&more.len()), "{more:?}");
    let held = 5 + more.len() as u64;
    // The one that asked knows by now.
    assert_eq!(other.stats().lost_leases, 1);
    until(|| [&one, &other].map(|process| process.stats().lost_leases) == [1, 1]).await;
    assert_eq!(one.stats().held + other.stats().held, held);
    // They stay until they end.
    for receipt in more {
        assert!(hold(&one, &uploads, 1).await.is_none());
        other.refund(receipt, 1);
    }
    sleep(LEASE / 10).await;
    assert!(hold(&one, &uploads, 1).await.is_none());
    one.refund(first, 3);
    settles(&other, &uploads, 2).await;
}

/// Otherwise each release of a place that was lost would count against one that was acquired since, below nothing and for as long
/// as no heartbeat finds anything held.
#[tokio::test]
async fn a_process_that_finds_its_entry_gone_tells_what_it_holds_at_once() {
    let server = Standalone::start();
    // No heartbeat comes while the test runs.
    let long = || RedisBackend::builder(&server.url()).held_lease(Duration::from_secs(3_000));
    let one = long().patient().connect().await.unwrap();
    let other = long().patient().connect().await.unwrap();
    let uploads = at_once("gone", 3);
    let lost = hold(&one, &uploads, 1).await.unwrap();
    assert_eq!(
        server.command(&["DEL", "tollgate:gone:0/h:=alice"]),
        ":1\r\n"
    );

    let since = hold(&one, &uploads, 1).await.unwrap();

    settles(&other, &uploads, 2).await;
    until(|| one.stats().tells == 2).await;
    assert_eq!(one.stats().lost_leases, 1);
    one.refund(lost, 1);
    settles(&other, &uploads, 1).await;
    one.refund(since, 1);
    settles(&other, &uploads, 0).await;
    let [first, second, third] = [1; 3].map(|units| hold(&one, &uploads, units));
    assert!(first.await.is_some() && second.await.is_some() && third.await.is_some());
    assert!(hold(&one, &uploads, 1).await.is_none());
}

/// The books have no row of the key any more when the reply comes.
#[tokio::test]
async fn a_release_that_finds_no_entry_counts_a_lost_lease_and_tells_what_is_held() {
    let server = Standalone::start();
    let long = || RedisBackend::builder(&server.url()).held_lease(HOUR);
    let one = long().patient().connect().await.unwrap();
    let other = long().patient().connect().await.unwrap();
    let (alone, beside) = (at_once("alone", 3), at_once("beside", 3));
    let last = hold(&one, &alone, 2).await.unwrap();
    let first = hold(&one, &beside, 1).await.unwrap();
    let _goes_on = hold(&one, &beside, 2).await.unwrap();
    assert_eq!(server.command(&["FLUSHALL"]), "+OK\r\n");

    one.refund(last, 2);
    one.refund(first, 1);

    settles(&other, &beside, 2).await;
    until(|| one.stats().lost_leases == 2).await;
    settles(&other, &alone, 0).await;
    assert_eq!((one.stats().held, other.stats().lost_leases), (2, 0));
}

/// What is told is the number before the releases, and the releases before it find nothing to release from.
async fn tellings_beside_releases_leave_no_place_held(
    mut server: Standalone,
    loses_data: impl FnOnce(&mut Standalone),
) {
    let proxy = Proxy::before(server.port());
    // No beat comes, and no lease ends.
    let long = |url: &str| RedisBackend::builder(url).held_lease(HOUR).patient();
    let one = long(&proxy.url()).connect().await.unwrap();
    let other = long(&server.url()).connect().await.unwrap();
    let (uploads, beside) = (at_once("uploads", 3), at_once("beside", 3));
    let mut held = Vec::new();
    for budget in callers(&uploads, 150) {
        held.push(hold(&one, &budget, 1).await.unwrap());
    }
    loses_data(&mut server);
    recovered(&other, &beside).await;
    recovered(&one, &beside).await;

    // The tellings wait for the answer to an earlier call.
    proxy.fail_with(Fault::Delay(Duration::from_millis(500)));
    let asking = (one.clone(), beside.clone());
    let earlier = tokio::spawn(async move { asking.1.take(&asking.0, 1).await });
    settles(&other, &beside, 1).await;
    for budget in callers(&uploads, 150) {
        one.settle(Settlement::Assume(&budget.charge(1)));
    }
    sleep(Duration::from_millis(100)).await;
    for receipt in held {
        one.refund(receipt, 1);
    }
    assert!(earlier.await.unwrap().unwrap().is_admitted());

    // The first telling leaves the release out, and the second does not.
    for budget in callers(&uploads, 150) {
        settles(&other, &budget, 1).await;
    }
    assert_eq!((one.stats().held, one.stats().lost_leases), (151, 150));
}

#[tokio::test]
async fn an_emptied_server_keeps_no_place_of_150_keys_whose_releases_come_beside_tellings() {
    let emptied = |server: &mut Standalone| {
        assert_eq!(server.command(&["FLUSHALL"]), "+OK\r\n");
    };
    tellings_beside_releases_leave_no_place_held(Standalone::start(), emptied).await;
}

#[tokio::test]
async fn a_killed_server_that_comes_back_empty_keeps_no_place_whose_release_comes_beside_a_telling()
{
    tellings_beside_releases_leave_no_place_held(Standalone::start(), Standalone::restart).await;
}

/// A refused request leaves no entry behind, so that the telling finds none either.
#[tokio::test]
async fn a_lost_lease_is_counted_once_whatever_finds_it() {
    let server = Standalone::start();
    let long = || RedisBackend::builder(&server.url()).held_lease(HOUR);
    let one = long().patient().connect().await.unwrap();
    let other = long().patient().connect().await.unwrap();
    let (uploads, wide) = (at_once("gone", 3), at_once("gone", 10));
    let _lost = hold(&one, &uploads, 2).await.unwrap();
    assert_eq!(
        server.command(&["DEL", "tollgate:gone:0/h:=alice"]),
        ":1\r\n"
    );
    let _taken = hold(&other, &uploads, 3).await.unwrap();

    for _ in 0..3 {
        assert!(hold(&one, &uploads, 1).await.is_none());
    }

    settles(&other, &wide, 3 + 2).await;
    for _ in 0..3 {
        assert!(hold(&one, &uploads, 1).await.is_none());
    }
    let lost = [&one, &other].map(|process| process.stats().lost_leases);
    assert_eq!(lost, [1, 0]);
    // The first finds no entry, and the second what the first told.
    until(|| one.stats().tells == 2).await;
}

/// The replies of calls over two connections overtake each other, and requests of one call find what there was before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_acquires_that_come_together_are_no_lost_lease_and_no_reason_to_tell() {
    let server = Standalone::start();
    let builder = RedisBackend::builder(&server.url()).held_lease(HOUR);
    let backend = builder.patient().connect().await.unwrap();
    let uploads = at_once("uploads", 8);
    let mut holding = JoinSet::new();
    for budget in callers(&uploads, 50) {
        let budget = Arc::new(budget);
        for _ in 0..8 {
            let (backend, budget) = (backend.clone(), Arc::clone(&budget));
            holding.spawn(async move { hold(&backend, &budget, 1).await.unwrap() });
        }
    }

    let held = holding.join_all().await;

    let stats = backend.stats();
    assert_eq!((stats.held, stats.lost_leases, stats.tells), (400, 0, 0));
    let acquired = stats.calls;
    assert!(acquired * 8 <= 400, "{acquired} calls for 400 places");
    for receipt in held {
        backend.refund(receipt, 1);
    }
    until(|| backend.stats().requests >= 800).await;
    let released = backend.stats().calls - acquired;
    assert!(released * 8 <= 400, "{released} calls for 400 places");
    for budget in callers(&uploads, 50) {
        settles(&backend, &budget, 0).await;
    }
    assert_eq!((backend.stats().held, backend.stats().tells), (0, 0));
}

#[tokio::test]
async fn pitfall_a_lost_answer_and_a_lost_release_are_told_and_hold_nothing() {
    let server = Standalone::start();
    let proxy = Proxy::before(server.port());
    let deadline = Duration::from_secs(2);
    let long = |url: &str| RedisBackend::builder(url).held_lease(Duration::from_secs(3_000));
    let backend = long(&proxy.url())
        .deadline(deadline)
        .connect()
        .await
        .unwrap();
    let other = long(&server.url()).patient().connect().await.unwrap();
    for (n, fault) in [Fault::Drop, Fault::Truncate, Fault::HalfClose, Fault::Stall]
        .into_iter()
        .enumerate()
    {
        let uploads = at_once(&format!("uploads-{n}"), 10);
        recovered(&backend, &uploads).await;
        let held = hold(&backend, &uploads, 2).await.unwrap();
        let released = hold(&backend, &uploads, 3).await.unwrap();

        // An acquire that may have run, and a release of which nothing is known.
        proxy.fail_with(fault);
        let unknown = uploads.take(&backend, 1).await;
        assert!(unknown.is_err(), "{unknown:?}");
        backend.refund(released, 3);
        sleep(deadline).await;
        proxy.fail_with(Fault::None);

        // Long before the lease is over.
        settles(&other, &uploads, 2).await;
        recovered(&backend, &uploads).await;
        backend.refund(held, 2);
        settles(&other, &uploads, 0).await;
    }
    assert_eq!((backend.stats().held, backend.stats().lost_leases), (0, 0));
}

#[tokio::test]
async fn a_release_that_the_server_refuses_is_told_once_it_takes_writes_again() {
    let server = Standalone::start();
    let (backend, other) = (holder(&server).await, holder(&server).await);
    let uploads = at_once("uploads", 5);
    let held = [
        hold(&backend, &uploads, 3).await,
        hold(&backend, &uploads, 1).await,
    ];
    assert_eq!(
        server.command(&["CONFIG", "SET", "maxmemory", "1"]),
        "+OK\r\n"
    );
    assert!(uploads.take(&backend, 1).await.is_err());
    let [Some(released), Some(kept)] = held else {
        panic!("{held:?}");
    };
    backend.refund(released, 3);
    sleep(LEASE / 20).await;
    assert_eq!(
        server.command(&["CONFIG", "SET", "maxmemory", "0"]),
        "+OK\r\n"
    );

    recovered(&other, &uploads).await;
    settles(&other, &uploads, 1).await;
    assert_eq!(backend.stats().held, 1);
    backend.refund(kept, 1);
    settles(&other, &uploads, 0).await;
}

#[tokio::test]
async fn what_is_held_without_a_decision_is_told_and_its_end_as_well() {
    let mut server = Standalone::start();
    let url = server.url();
    let (backend, other) = (holder_at(&url).await, holder_at(&url).await);
    let uploads = at_once("uploads", 5);
    let decided = hold(&backend, &uploads, 1).await.unwrap();
    server.kill();
    assert!(uploads.take(&backend, 2).await.is_err());
    let charge = uploads.charge(2);
    backend.settle(Settlement::Assume(&charge));
    let receipt = Receipt::of(&charge, &Verdict::assumed(&charge), Timestamp::default()).unwrap();
    server.restart();

    recovered(&other, &uploads).await;
    settles(&other, &uploads, 3).await;
    // Of the first unit the server had known. The server says so in the reply, after others see what it holds.
    until(|| backend.stats().lost_leases == 1).await;
    backend.refund(receipt, 2);
    settles(&other, &uploads, 1).await;
    backend.refund(decided, 1);
    settles(&other, &uploads, 0).await;
    // Of these it has never known.
    let unknown = at_once("unknown", 5);
    let charge = unknown.charge(2);
    backend.settle(Settlement::Assume(&charge));
    let receipt = Receipt::of(&charge, &Verdict::assumed(&charge), Timestamp::default()).unwrap();
    settles(&other, &unknown, 2).await;
    backend.refund(receipt, 2);
    settles(&other, &unknown, 0).await;
    assert_eq!((backend.stats().held, backend.stats().lost_leases), (0, 1));
}

#[test]
fn a_process_that_was_stopped_for_longer_than_its_lease_says_what_it_lost() {
    let server = Standalone::start();
    let stopped = Builder::new_current_thread().enable_all().build().unwrap();
    let others = Builder::new_current_thread().enable_all().build().unwrap();
    let uploads = at_once("uploads", 2);
    let (backend, receipt) = stopped.block_on(async {
        let backend = holder(&server).await;
        let receipt = hold(&backend, &uploads, 2).await.unwrap();
        (backend, receipt)
    });

    // None of its tasks runs meanwhile, and another process takes the places.
    let (other, taken) = others.block_on(async {
        let other = holder(&server).await;
        assert!(hold(&other, &uploads, 1).await.is_none());
        sleep(LEASE + LEASE / 10).await;
        let taken = hold(&other, &uploads, 1).await.unwrap();
        (other, taken)
    });
    stopped.block_on(async { sleep(LEASE / 2).await });

    assert_eq!(backend.stats().lost_leases, 1);
    // Three are held of two, until they end.
    others.block_on(async {
        assert!(hold(&other, &uploads, 1).await.is_none());
        other.refund(taken, 1);
        sleep(LEASE / 10).await;
        assert!(hold(&other, &uploads, 1).await.is_none());
    });
    stopped.block_on(async {
        backend.refund(receipt, 2);
        settles(&backend, &uploads, 0).await;
    });
}

/// A state in which this many others hold one each, for five seconds.
fn forged(others: u64) -> Vec<u8> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    crowd(
        others,
        u64::try_from(now.unwrap().as_millis()).unwrap() + 5_000,
    )
}

#[tokio::test]
async fn of_more_than_1024_processes_the_next_fails_and_takes_nothing() {
    let server = Standalone::start();
    let backend = holder(&server).await;
    let (full, room) = (at_once("full", 10_000), at_once("room", 10_000));
    put(&server, "tollgate:full:0/h:=alice", &forged(1_024));
    put(&server, "tollgate:room:0/h:=alice", &forged(1_023));

    let together = [full.charge(1), room.charge(1)];
    let (refused, both, passed) = tokio::join!(
        backend.decide(Call::of(&together[..1])),
        backend.decide(Call::of(&together)),
        backend.decide(Call::of(&together[1..])),
    );

    assert_eq!(refused.unwrap_err().kind(), FailureKind::Full);
    assert_eq!(both.unwrap_err().kind(), FailureKind::Full);
    assert!(passed.unwrap().is_admitted());
    assert_eq!(room.taken(&backend).await, 1_024);
    assert_eq!(backend.stats().held, 1);
    // Dead processes leave room within a lease.
    sleep(Duration::from_millis(5_100)).await;
    assert!(full.take(&backend, 1).await.unwrap().is_admitted());
    assert_eq!(full.taken(&backend).await, 1);
}

#[tokio::test]
async fn what_is_held_and_quotas_are_taken_together_or_not_at_all() {
    let server = Standalone::start();
    let backend = holder(&server).await;
    let (uploads, rate) = (
        at_once("uploads", 2),
        Budget::of("rate", Quota::per_hour(3)),
    );
    let both = |held, rated| [uploads.charge(held), rate.charge(rated)];

    assert!(
        backend
            .decide(Call::of(&both(1, 1)))
            .await
            .unwrap()
            .is_admitted()
    );
    assert!(
        !backend
            .decide(Call::of(&both(2, 1)))
            .await
            .unwrap()
            .is_admitted()
    );
    assert!(
        !backend
            .decide(Call::of(&both(1, 3)))
            .await
            .unwrap()
            .is_admitted()
    );

    assert_eq!(uploads.taken(&backend).await, 1);
    assert_eq!(rate.taken(&backend).await, 1);
    let shadow = Charge {
        mode: Mode::Shadow,
        ..uploads.charge(1)
    };
    let decision = backend.decide(Call::of(&[shadow])).await.unwrap();
    assert!(decision.is_admitted() && decision.verdicts()[0].taken() == 1);
    assert_eq!(
        (uploads.taken(&backend).await, backend.stats().held),
        (2, 2)
    );
}

#[tokio::test]
async fn a_decision_that_nobody_waits_for_is_released() {
    let server = Standalone::start();
    let backend = holder(&server).await;
    let uploads = at_once("uploads", 64);
    for _ in 0..10 {
        let calls: Vec<_> = (0..8)
            .map(|_| backend.decide(Call::of(&[uploads.charge(1)])))
            .collect();
        // Some are on their way, and some are not.
        tokio::task::yield_now().await;
        drop(calls);
    }

    settles(&backend, &uploads, 0).await;
    assert_eq!(backend.stats().held, 0);
}

/// In memory no telling brings it back.
#[tokio::test]
async fn after_a_reset_others_take_the_places_until_what_is_still_held_is_told() {
    let server = Standalone::start();
    // No beat comes while the test runs.
    let long = || RedisBackend::builder(&server.url()).held_lease(HOUR);
    let one = long().patient().connect().await.unwrap();
    let other = long().patient().connect().await.unwrap();
    let (uploads, wide) = (at_once("uploads", 3), at_once("uploads", 10));
    let ends_soon = hold(&one, &uploads, 1).await.unwrap();
    let goes_on = hold(&one, &uploads, 2).await.unwrap();

    let reset = other.admin().reset(uploads.scope, &uploads.key);
    reset.await.unwrap();

    let later = hold(&other, &uploads, 3).await.unwrap();
    // It gives back nothing of what the later ones hold, and shows that the process has more to tell.
    one.refund(ends_soon, 1);
    settles(&other, &wide, 3 + 2).await;
    let lost = [&one, &other].map(|process| process.stats().lost_leases);
    assert_eq!(lost, [1, 0]);
    other.refund(later, 3);
    settles(&other, &wide, 2).await;
    assert!(hold(&other, &uploads, 2).await.is_none());
    one.refund(goes_on, 2);
    settles(&other, &wide, 0).await;
}

/// The budgets of so many callers under one limit.
fn callers(of: &Budget, count: u64) -> impl Iterator<Item = Budget> {
    let (scope, quota) = (of.scope, of.quota);
    (0..count).map(move |caller| Budget {
        scope,
        quota,
        key: Key::from(caller),
    })
}

#[tokio::test]
async fn a_thousand_keys_are_told_three_times_in_a_lease_and_not_more_often() {
    let server = Standalone::start();
    let backend = holder(&server).await;
    let uploads = at_once("uploads", 1);
    let mut held = Vec::new();
    for budget in callers(&uploads, 1_000) {
        held.push(hold(&backend, &budget, 1).await.unwrap());
    }

    let (before, began) = (backend.stats(), Instant::now());
    sleep(LEASE * 2).await;
    let after = backend.stats();

    let tells = after.tells - before.tells;
    // A quarter above what is told in the time that has passed, which a busy machine makes longer.
    let most = 1_250.0 * 3.0 * began.elapsed().as_secs_f64() / LEASE.as_secs_f64();
    assert!(tells >= 1_000 && tells as f64 <= most, "{tells} of {most}");
    let calls = after.calls - before.calls;
    assert!(calls * 15 <= tells, "{tells} in {calls} calls");
    assert_eq!((after.held, after.lost_leases), (1_000, 0));
}

/// Rounds of half an interval, of which one begins each third of a lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_processes_with_a_thousand_keys_each_tell_at_most_12500_entries_in_ten_seconds() {
    let server = Standalone::start();
    let uploads = at_once("uploads", 10);
    let (mut processes, mut holding) = (Vec::new(), JoinSet::new());
    for _ in 0..10 {
        // With the lease that is the default.
        let builder = RedisBackend::builder(&server.url()).patient();
        let backend = builder.connect().await.unwrap();
        processes.push(backend.clone());
        let budgets: Vec<_> = callers(&uploads, 1_000).collect();
        holding.spawn(async move {
            for budget in budgets {
                let _held = hold(&backend, &budget, 1).await.unwrap();
            }
        });
    }
    holding.join_all().await;
    let stats = || {
        let stats = processes.iter().map(RedisBackend::stats);
        stats.fold((0, 0, 0), |(tells, calls, lost), it| {
            (tells + it.tells, calls + it.calls, lost + it.lost_leases)
        })
    };
    // The first round of each.
    sleep(Duration::from_secs(10)).await;

    let (before, began) = (stats(), Instant::now());
    sleep(Duration::from_secs(10)).await;
    let after = stats();

    let (tells, calls) = (after.0 - before.0, after.1 - before.1);
    let most = 1_250.0 * began.elapsed().as_secs_f64();
    assert!(tells >= 1_000 && tells as f64 <= most, "{tells} of {most}");
    assert!(calls * 15 <= tells, "{tells} in {calls} calls");
    assert_eq!(after.2, 0);
}

#[tokio::test]
async fn a_process_that_is_always_in_doubt_about_one_key_keeps_the_leases_of_all_others() {
    let server = Standalone::start();
    let lease = LEASE * 2;
    let builder = RedisBackend::builder(&server.url()).held_lease(lease);
    let backend = builder.patient().connect().await.unwrap();
    let other = holder(&server).await;
    let uploads = at_once("uploads", 1);
    let mut held = Vec::new();
    for budget in callers(&uploads, 1_000) {
        held.push(hold(&backend, &budget, 1).await.unwrap());
    }

    // What is held without a decision puts its key in doubt, and so does its end.
    let doubtful = at_once("doubtful", 5);
    let charge = doubtful.charge(1);
    let receipt = || Receipt::of(&charge, &Verdict::assumed(&charge), Timestamp::default());
    let began = Instant::now();
    while began.elapsed() < lease * 3 {
        sleep(Duration::from_millis(10)).await;
        backend.settle(Settlement::Assume(&charge));
        backend.refund(receipt().unwrap(), 1);
    }

    let stats = backend.stats();
    assert_eq!((stats.held, stats.lost_leases), (1_000, 0));
    for budget in callers(&uploads, 1_000) {
        assert_eq!(budget.taken(&other).await, 1);
    }
    settles(&other, &doubtful, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_in_a_cluster_is_told_to_the_node_of_its_slot() {
    let cluster = Cluster::start();
    let builder = RedisBackend::cluster(cluster.urls())
        .held_lease(LEASE)
        .patient();
    let (backend, other) = (
        builder.clone().connect().await.unwrap(),
        builder.connect().await.unwrap(),
    );
    let uploads = at_once("uploads", 2);
    let caller = |caller: u64| Budget {
        scope: uploads.scope,
        quota: uploads.quota,
        key: Key::from(caller),
    };
    let mut held = Vec::new();
    for number in 0..30 {
        held.push(hold(&backend, &caller(number), 2).await.unwrap());
    }

    sleep(LEASE * 2).await;
    for number in 0..30 {
        assert_eq!(caller(number).taken(&other).await, 2);
    }
    assert_eq!(backend.stats().lost_leases, 0);
    // Of a call over two slots, of which the second denies, nothing is held.
    let (free, taken) = (caller(100), caller(3));
    for order in [
        [free.charge(1), taken.charge(1)],
        [taken.charge(1), free.charge(1)],
    ] {
        assert!(
            !backend
                .decide(Call::of(&order))
                .await
                .unwrap()
                .is_admitted()
        );
    }
    settles(&other, &free, 0).await;
    for receipt in held {
        backend.refund(receipt, 2);
    }
    for number in 0..30 {
        settles(&other, &caller(number), 0).await;
    }
    assert_eq!(backend.stats().held, 0);
}
