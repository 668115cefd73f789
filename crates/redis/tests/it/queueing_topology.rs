//! Requests that wait for their turn, while the fleet changes: a failover, a slot that migrates, and a deploy of two versions.
//!
//! The servers' time stands still, so that the turns are exact on a busy machine. Requests wait by their own timers.

use std::time::Duration;

use crate::common::cluster::slot;
use crate::common::line::{NOW_US, Process, leaves, set_clock, until};
use crate::common::{Budget, PATIENT, Patience, harness_name, older};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tollgate::{Policy, Quota};
use tollgate_redis::RedisBackend;
use tollgate_testkit::{Cluster, Sentinels, Standalone};

const QUOTA: &str = "2/s burst 1 wait 4s";
const INTERVAL: Duration = Duration::from_millis(500);

/// The requests of a full budget: one at once, and those in line.
const MOST: u32 = 9;

/// The state of the only key.
const STATE: &str = "tollgate:smooth:0/g:=alice";

/// The turn of a request, in intervals from the time at which the servers stand.
const fn turn(turn: u32) -> Duration {
    INTERVAL.saturating_mul(turn)
}

async fn waited(waits: JoinHandle<Duration>) -> Duration {
    waits.await.unwrap()
}

/// Waits until the turn that a request has given back is free, and takes it: the end of the line is further away.
async fn takes_over(process: &Process, free: Duration) {
    let taken = async {
        loop {
            let asked = process.limiter.acquire("smooth", "alice");
            let acquired = asked.up_to(free + INTERVAL / 2).await.unwrap();
            if acquired.is_allowed() {
                break acquired.waited();
            }
        }
    };
    let taken = timeout(PATIENT * 4, taken).await;
    assert_eq!(taken.expect("a turn is given back"), free);
}

async fn two_behind_sentinels(all: &Sentinels) -> (Process, Process) {
    let now = NOW_US.to_string();
    assert_eq!(all.command(&["SET", "clock", &now]), "+OK\r\n");
    let builder = || RedisBackend::sentinel(all.master_name(), all.urls()).clock("clock");
    let connect = || Process::connect(builder(), QUOTA);
    (connect().await, connect().await)
}

fn is_master(server: &Standalone) -> bool {
    let role = server.try_command(&["ROLE"]);
    role.is_ok_and(|role| role.contains("master"))
}

/// How far a server has come in what it replicates.
fn offset(server: &Standalone) -> u64 {
    let info = server.command(&["INFO", "replication"]);
    let mut lines = info.lines();
    let offset = lines.find_map(|line| line.strip_prefix("master_repl_offset:"));
    offset.unwrap().parse().unwrap()
}

async fn master_dies(all: &mut Sentinels, processes: [&Process; 2]) {
    let old = all.named();
    all.kill_master();
    // Longer than a failover takes that is given up and planned again.
    for _ in 0..4 {
        if all.named() == old {
            let _named = timeout(PATIENT * 4, until(|| all.agree())).await;
        }
    }
    assert!(all.agree(), "nobody is promoted");
    for process in processes {
        process.decides_again().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_keeps_the_turn_in_a_failover_and_later_ones_stand_behind() {
    let mut all = Sentinels::start();
    let (one, other) = two_behind_sentinels(&all).await;
    assert!(one.acquire().await.is_allowed());
    let second = one.one_waits().await;
    let third = other.one_waits().await;
    let fourth = one.one_waits().await;
    let last = other.one_waits().await;
    // The replica has heard of all of them.
    let said = all.servers().iter().filter(|it| is_master(it)).map(offset);
    let said = said.max().unwrap();
    until(|| all.servers().iter().all(|server| offset(server) >= said)).await;

    // Requests whose turns come meanwhile do not need the server.
    master_dies(&mut all, [&one, &other]).await;

    let mut turns = Vec::new();
    for waits in [second, third, fourth, last] {
        turns.push(waited(waits).await);
    }
    assert_eq!(turns, [1, 2, 3, 4].map(turn));
    // By the time of the servers, which stands still, all these turns are yet to come. One of them is left and given to another.
    let leaver = one.one_waits().await;
    let behind = other.one_waits().await;
    leaves(leaver).await;
    takes_over(&other, turn(5)).await;
    assert_eq!(waited(behind).await, turn(6));
    assert_eq!(one.acquire().await.waited(), turn(7));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_that_loses_the_line_lets_one_more_burst_and_one_more_line_pass() {
    let mut all = Sentinels::start();
    let (one, other) = two_behind_sentinels(&all).await;
    assert!(one.acquire().await.is_allowed());
    let second = one.one_waits().await;
    let third = other.one_waits().await;
    // As if the replica had heard of no request.
    let replica = all.servers().iter().find(|server| !is_master(server));
    let replica = replica.unwrap();
    let words = ["CONFIG", "SET", "replica-read-only", "no"];
    assert_eq!(replica.command(&words), "+OK\r\n");
    until(|| replica.command(&["DEL", STATE]) == ":1\r\n").await;

    master_dies(&mut all, [&one, &other]).await;

    assert_eq!(other.pass_of(12).await, MOST);
    assert_eq!(one.pass_of(3).await, 0);
    assert_eq!(waited(second).await, turn(1));
    assert_eq!(waited(third).await, turn(2));
}

/// Puts the time where each node finds one.
fn stop_the_clocks(cluster: &Cluster) {
    for tag in 0..64 {
        let clock = format!("clock{{{tag}}}");
        let owner = cluster.owner_of(cluster.slot_of(&clock)).unwrap();
        let words = ["SET", &clock, &NOW_US.to_string()];
        assert_eq!(cluster.nodes()[owner].command(&words), "+OK\r\n");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_in_a_slot_that_migrates_goes_on_in_its_order() {
    let cluster = Cluster::start();
    stop_the_clocks(&cluster);
    let builder = || RedisBackend::cluster(cluster.urls()).clock("clock");
    let one = Process::connect(builder(), QUOTA).await;
    let other = Process::connect(builder(), QUOTA).await;
    let moving = slot(&cluster, &Budget::of("smooth", Quota::per_second(2)));
    let from = cluster.owner_of(moving).unwrap();
    let to = (from + 1) % 3;

    assert!(one.acquire().await.is_allowed());
    let first = one.one_waits().await;
    let leaves_as_it_moves = other.one_waits().await;
    let third = other.one_waits().await;
    cluster.begin_move(moving, from, to);
    // The state is still at its old place.
    let leaves_at_the_end = one.one_waits().await;
    cluster.move_keys(moving, from, to, 1_000);
    // It is at its new one, to which each call is sent on.
    let fifth = other.one_waits().await;
    leaves(leaves_as_it_moves).await;
    takes_over(&one, turn(2)).await;
    cluster.end_move(moving, to);
    let sixth = one.one_waits().await;
    leaves(leaves_at_the_end).await;
    takes_over(&other, turn(4)).await;

    let mut turns = Vec::new();
    for waits in [first, third, fifth, sixth] {
        turns.push(waited(waits).await);
    }
    assert_eq!(turns, [1, 3, 5, 6].map(turn));
    assert_eq!(other.acquire().await.waited(), turn(7));
    assert_eq!(cluster.owner_of(moving), Some(to));
}

#[tokio::test]
async fn a_version_without_waiting_leaves_the_line_as_it_is_and_its_failure_rule_decides() {
    const TEST: &str =
        "a_version_without_waiting_leaves_the_line_as_it_is_and_its_failure_rule_decides";
    const SECOND_US: u64 = 1_000_000;

    // The older version's quota lets no request wait, and it hears what a server makes of its script.
    if let Some((url, quota)) = older::question() {
        let builder = RedisBackend::builder(&url).clock("clock").patient();
        return older::ask(builder, Policy::new("smooth", &*quota), "alice").await;
    }
    let server = Standalone::start();
    let older = || older::answer(&server, &harness_name(module_path!(), TEST), "2/s burst 1");
    set_clock(&server, NOW_US);
    let builder = RedisBackend::builder(&server.url()).clock("clock");
    let newer = Process::connect(builder, QUOTA).await;
    let digest = || {
        let script = "return redis.sha1hex(redis.call('GET', KEYS[1]))";
        server.command(&["EVAL", script, "1", STATE])
    };

    // As long as no request waits, both count the same.
    assert!(newer.acquire().await.is_allowed());
    assert_eq!(older(), "false");

    let (second, third) = (newer.one_waits().await, newer.one_waits().await);
    let line = digest();
    assert_eq!(older(), "true, undecided: ForeignState");
    assert_eq!(digest(), line);
    assert_eq!(newer.acquire().await.waited(), turn(3));
    assert_eq!(waited(second).await, turn(1));
    assert_eq!(waited(third).await, turn(2));

    // When the line is over, the next charge leaves what both can read.
    set_clock(&server, NOW_US + 10 * SECOND_US);
    assert_eq!(older(), "true, undecided: ForeignState");
    assert_eq!(newer.acquire().await.waited(), Duration::ZERO);
    assert_eq!(older(), "false");
    set_clock(&server, NOW_US + 20 * SECOND_US);
    assert_eq!(older(), "true");
    assert_eq!(newer.acquire().await.waited(), turn(1));
}
