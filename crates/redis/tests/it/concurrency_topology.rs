//! Limits on how many at once, while the fleet changes: slots migrate under what is held, a replica becomes the master, and a
//! deploy runs two versions.

use std::collections::HashSet;
use std::time::Duration;

use crate::common::cluster::{callers, slot};
use crate::common::held::{hold, settles};
use crate::common::line::until;
use crate::common::{Budget, HOUR, PATIENT, Patience, harness_name, older, recovered};
use tokio::time::{sleep, timeout};
use tollgate::Policy;
use tollgate_core::{Backend, Concurrent, Quota, Receipt};
use tollgate_redis::{RedisBackend, RedisBackendBuilder};
use tollgate_testkit::{Cluster, Network, Standalone};

const LEASE: Duration = Duration::from_secs(3);

fn at_once(limit: u64) -> Quota {
    Concurrent::at_most(limit).into()
}

async fn connect(builder: RedisBackendBuilder, lease: Duration) -> RedisBackend {
    let builder = builder.held_lease(lease).patient();
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
            backend.refund(ended, 1);
            left.push(kept);
        }
        cluster.move_keys(slot, from, to, 1);
        sleep(LEASE / 100).await;
        cluster.move_keys(slot, from, to, 1_000);
        cluster.end_move(slot, to);
    }
    for [ended, kept] in ends {
        backend.refund(ended, 1);
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
        other.refund(receipt, 1);
    }
    for receipt in left {
        backend.refund(receipt, 2);
    }
    for budget in &budgets {
        settles(&other, budget, 0).await;
    }
    for process in [backend, other] {
        let stats = process.stats();
        assert_eq!((stats.held, stats.lost_leases, stats.twins), (0, 0, 0));
    }
}

const STATE: &str = "tollgate:uploads:0/h:=alice";

/// The digest of what a server has under a key.
fn digest(server: &Standalone, key: &str) -> String {
    let script = "return redis.sha1hex(redis.call('GET', KEYS[1]) or '')";
    server.command(&["EVAL", script, "1", key])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_that_loses_writes_lets_at_most_as_many_more_in_and_the_count_is_exact_again_soon()
 {
    // given a master and its replica, and processes that know one address for both
    let (mut master, replica) = (Standalone::start(), Standalone::start());
    let address = Network::before(master.port());
    let replication = Network::before(master.port());
    let port = replication.port().to_string();
    assert_eq!(
        replica.command(&["REPLICAOF", "127.0.0.1", &port]),
        "+OK\r\n"
    );
    let url = format!("redis://127.0.0.1:{}/", address.port());
    let lease = LEASE * 4;
    let connect = || connect(RedisBackend::builder(&url), lease);
    let (known, lost, asking) = (connect().await, connect().await, connect().await);
    let (five, wide) = (
        Budget::of("uploads", at_once(5)),
        Budget::of("uploads", at_once(100)),
    );

    // when the replica hears of three that are held, and not of the other two, and becomes the master
    let heard = hold(&known, &five, 3).await.unwrap();
    let hears = async {
        while digest(&replica, STATE) != digest(&master, STATE) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENT * 4, hears).await.unwrap();
    replication.part(&[b"REPLCONF"]);
    let unheard = hold(&lost, &five, 2).await.unwrap();
    assert!(hold(&asking, &five, 1).await.is_none());
    address.lead_to(replica.port());
    master.kill();
    assert_eq!(replica.command(&["REPLICAOF", "NO", "ONE"]), "+OK\r\n");
    recovered(&asking, &five).await;

    // then the places of which it has not heard are given once more
    let mut more = Vec::new();
    while let Some(receipt) = hold(&asking, &five, 1).await {
        more.push(receipt);
    }
    // Fewer if the process that holds them has told by then.
    assert!(more.len() <= 2, "{more:?}");
    let all = 5 + more.len() as u64;
    settles(&asking, &wide, all).await;
    // Here the replica's loss shows, whatever was let in.
    let lost_leases = || [&known, &lost, &asking].map(|process| process.stats().lost_leases);
    until(|| lost_leases()[1] > 0).await;
    assert_eq!(lost_leases(), [0, 1, 0]);
    // and stay until they end, while no other is let in
    for receipt in more {
        assert!(hold(&known, &five, 1).await.is_none());
        asking.refund(receipt, 1);
    }
    settles(&known, &wide, 5).await;
    assert!(hold(&known, &five, 1).await.is_none());
    lost.refund(unheard, 2);
    known.refund(heard, 3);
    settles(&asking, &wide, 0).await;
}

/// Each of so many processes holds one more. None is told where its entry stands, since each names the place that it remembers.
async fn all_hold_by_their_places(
    processes: &[RedisBackend],
    budget: &Budget,
    held: &mut Vec<Vec<Receipt>>,
) {
    // A reply with an entry has 84 bytes, one without it has 33.
    const WITHOUT_AN_ENTRY: u64 = 80;

    let mut receipts = Vec::new();
    for process in processes {
        let before = process.stats().bytes_in;
        receipts.push(hold(process, budget, 1).await.unwrap());
        let told = process.stats().bytes_in - before;
        assert!(told < WITHOUT_AN_ENTRY, "a reply of {told} bytes");
    }
    held.push(receipts);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_places_in_a_long_state_are_those_on_the_next_owner_of_its_slot() {
    // From 24 on a state is long.
    const PROCESSES: usize = 30;

    let cluster = Cluster::start();
    let budget = Budget::of("crowd", at_once(1_000));
    let mut processes = Vec::new();
    for _ in 0..PROCESSES {
        // None tells anything meanwhile that would make up for a call.
        processes.push(connect(RedisBackend::cluster(cluster.urls()), HOUR).await);
    }
    let mut held = Vec::new();
    // With the second call a process is told its place.
    for _ in 0..2 {
        let mut receipts = Vec::new();
        for process in &processes {
            receipts.push(hold(process, &budget, 1).await.unwrap());
        }
        held.push(receipts);
    }
    all_hold_by_their_places(&processes, &budget, &mut held).await;

    // Of each process one ends before the key goes, one after that, and one after the slot.
    let all_release_one = async |held: &mut Vec<Vec<Receipt>>| {
        for (process, receipt) in processes.iter().zip(held.pop().unwrap()) {
            process.refund(receipt, 1);
        }
        settles(&processes[0], &budget, (held.len() * PROCESSES) as u64).await;
    };
    let slot = slot(&cluster, &budget);
    let from = cluster.owner_of(slot).unwrap();
    let to = (from + 1) % 3;
    cluster.begin_move(slot, from, to);
    all_release_one(&mut held).await;
    all_hold_by_their_places(&processes, &budget, &mut held).await;
    cluster.move_keys(slot, from, to, 1_000);
    all_hold_by_their_places(&processes, &budget, &mut held).await;
    all_release_one(&mut held).await;
    cluster.end_move(slot, to);
    all_hold_by_their_places(&processes, &budget, &mut held).await;
    all_release_one(&mut held).await;

    assert_eq!(held.len(), 3);
    assert!(hold(&processes[7], &budget, 911).await.is_none());
    for _ in 0..3 {
        all_release_one(&mut held).await;
    }
    for process in &processes {
        let stats = process.stats();
        let lost = (stats.lost_leases, stats.reclaimed, stats.twins);
        assert_eq!((stats.held, lost), (0, (0, 0, 0)));
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
    before.refund(old, 2);
    settles(&after, &five, 3).await;
    assert!(hold(&before, &two, 1).await.is_none());
    after.refund(new, 2);
    settles(&after, &five, 1).await;
    let again = hold(&before, &two, 1).await.unwrap();
    after.refund(last, 1);
    before.refund(again, 1);
    settles(&after, &five, 0).await;
    for version in [before, after] {
        let stats = version.stats();
        assert_eq!((stats.held, stats.lost_leases, stats.twins), (0, 0, 0));
    }
}

#[tokio::test]
async fn a_version_without_held_limits_decides_none_and_leaves_what_is_held_as_it_is() {
    const TEST: &str =
        "a_version_without_held_limits_decides_none_and_leaves_what_is_held_as_it_is";
    const QUOTA: &str = "tollgate:uploads:0/g:=alice";

    if let Some((url, limits)) = older::question() {
        let builder = RedisBackend::builder(&url).patient();
        return older::ask(builder, Policy::new("uploads", &*limits), "alice").await;
    }
    let server = Standalone::start();
    let older = |limits: &str| older::answer(&server, &harness_name(module_path!(), TEST), limits);
    let newer = connect(RedisBackend::builder(&server.url()), HOUR).await;
    let uploads = Budget::of("uploads", at_once(2));
    let _held = hold(&newer, &uploads, 1).await.unwrap();
    let state = digest(&server, STATE);
    let nothing = digest(&server, "nothing");

    // A charge that is held, alone and beside a quota, of which nothing is taken either.
    for limits in ["2 at once", "3/day; 2 at once"] {
        let said = older(limits);
        assert_eq!(said, "true, undecided: ScriptFailed", "{limits}");
        assert_eq!(digest(&server, STATE), state, "{limits}");
        assert_eq!(digest(&server, QUOTA), nothing, "{limits}");
    }

    // What is held, found in the place of a quota's state.
    assert_eq!(server.command(&["COPY", STATE, QUOTA]), ":1\r\n");
    assert_eq!(older("3/day"), "true, undecided: ForeignState");
    assert_eq!(digest(&server, QUOTA), state);
    assert_eq!(server.command(&["DEL", QUOTA]), ":1\r\n");
    assert_eq!(older("3/day"), "true");
    assert!(hold(&newer, &uploads, 1).await.is_some());
    assert!(hold(&newer, &uploads, 1).await.is_none());
}
