//! A cluster that changes: slots that migrate, nodes that leave, credits that find no owner.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::cluster::{callers, connect, full, on_each_node, slot};
use crate::common::load::{ask_on, waited_only_until_known};
use crate::common::watch::Watch;
use crate::common::{Budget, HOUR, Patience, recovered};
use tokio::time::sleep;
use tollgate_core::{Backend, Call, FailureKind, Outcome, Quota};
use tollgate_redis::RedisBackend;
use tollgate_testkit::{Cluster, Standalone};

const LONG: Duration = Duration::from_secs(90);

/// The number of errors with this code that the nodes have given.
fn told(cluster: &Cluster, code: &str) -> u64 {
    let prefix = format!("errorstat_{code}:count=");
    let count = |node: &Standalone| {
        let info = node.command(&["INFO", "errorstats"]);
        let mut lines = info.lines();
        let count = lines.find_map(|line| line.strip_prefix(&prefix)?.parse().ok());
        count.unwrap_or(0)
    };
    cluster.nodes().iter().map(count).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_slots_that_move_under_load_lose_no_decision_and_repeat_none() {
    let cluster = Arc::new(Cluster::start());
    let backend = connect(&cluster).await;
    // Nothing drains meanwhile.
    let quota = Quota::new(100_000, HOUR * 24 * 300);
    let budgets = callers("moving", quota, 16);
    let two_of_each = callers("moving-too", quota, 16);
    for budget in budgets.iter().chain(&two_of_each) {
        budget.take(&backend, 1).await.unwrap();
    }

    let over = Arc::new(AtomicBool::new(false));
    let moving = {
        let (cluster, over) = (Arc::clone(&cluster), Arc::clone(&over));
        tokio::task::spawn_blocking(move || {
            let keys = (0..64).map(|tag| format!("{{{tag}}}"));
            for slot in keys.map(|key| cluster.slot_of(&key)) {
                let from = cluster.owner_of(slot).unwrap();
                let to = (from + 1) % 3;
                cluster.begin_move(slot, from, to);
                // One by one, so that keys of one call are in two places for a while.
                for _ in 0..6 {
                    cluster.move_keys(slot, from, to, 1);
                    std::thread::sleep(Duration::from_millis(2));
                }
                cluster.move_keys(slot, from, to, 1_000);
                cluster.end_move(slot, to);
            }
            over.store(true, Ordering::Release);
        })
    };
    let mut rounds = 0;
    while !over.load(Ordering::Acquire) {
        let calls: Vec<_> = (budgets.iter().zip(&two_of_each))
            .flat_map(|(one, other)| {
                let both = [one.charge(1), other.charge(1)];
                [
                    backend.decide(Call::of(&both)),
                    backend.decide(Call::of(&both[..1])),
                ]
            })
            .collect();
        for call in calls {
            assert!(call.await.unwrap().is_admitted());
        }
        rounds += 1;
    }
    moving.await.unwrap();

    // Each was answered, so each is counted once: too few or too many would show.
    for (one, other) in budgets.iter().zip(&two_of_each) {
        let left = (one.taken(&backend).await, other.taken(&backend).await);
        assert_eq!(left, (1 + 2 * rounds, 1 + rounds));
    }
    assert!(rounds > 3, "{rounds}");
    // Redirects did happen.
    for code in ["MOVED", "ASK"] {
        assert!(told(&cluster, code) > 0, "no {code} in {rounds} rounds");
    }
}

#[tokio::test]
async fn a_request_whose_keys_are_in_two_places_waits_until_they_are_in_one() {
    let cluster = Cluster::start();
    let backend = connect(&cluster).await;
    let quota = Quota::new(100, HOUR * 24 * 300);
    let [one, ..] = on_each_node(&cluster, "halfway", quota);
    let other = Budget {
        key: one.key.clone(),
        ..Budget::of("halfway-too", quota)
    };
    let charges = [one.charge(1), other.charge(1)];
    assert!(
        backend
            .decide(Call::of(&charges))
            .await
            .unwrap()
            .is_admitted()
    );

    let moving = slot(&cluster, &one);
    let from = cluster.owner_of(moving).unwrap();
    let to = (from + 1) % 3;
    cluster.begin_move(moving, from, to);
    cluster.move_keys(moving, from, to, 1);
    let both = tokio::spawn(backend.decide(Call::of(&charges)));
    while told(&cluster, "TRYAGAIN") == 0 {
        sleep(Duration::from_millis(2)).await;
    }
    // Each by itself is at its place, and is found there.
    for charge in &charges {
        let alone = backend.decide(Call::of(std::slice::from_ref(charge))).await;
        assert_eq!(alone.unwrap().verdicts()[0].remaining(), 98);
    }
    cluster.move_keys(moving, from, to, 1_000);
    cluster.end_move(moving, to);

    let decision = both.await.unwrap().unwrap();
    assert_eq!(decision.verdicts()[0].remaining(), 97);
    assert_eq!(decision.verdicts()[1].remaining(), 97);
}

/// The fate of the first master.
#[derive(Clone, Copy, Debug)]
enum Failure {
    Dies,
    Stalls,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_dies_under_load_is_replaced_and_keeps_nobody_from_the_others() {
    fails_over(Failure::Dies).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stalls_under_load_is_replaced_and_keeps_nobody_from_the_others() {
    fails_over(Failure::Stalls).await;
}

async fn fails_over(failure: Failure) {
    let mut cluster = Cluster::start_with_replicas(1);
    let deadline = Duration::from_secs(2);
    let builder = RedisBackend::cluster(cluster.urls()).connect_deadline(deadline * 2);
    let backend = builder.deadline(deadline).connect().await.unwrap();
    let [on_it, other, another] = on_each_node(&cluster, "failover", Quota::per_day(1_000_000));
    for budget in [&on_it, &other, &another] {
        budget.take(&backend, 1).await.unwrap();
    }

    match failure {
        Failure::Dies => cluster.node_mut(0).unwrap().kill(),
        Failure::Stalls => cluster.nodes()[0].stall(),
    }
    let watch = Arc::new(Watch::start());
    let gone_at = watch.elapsed();
    let is_replaced = |all: &[crate::common::load::Asked]| {
        assert!(watch.elapsed() < LONG, "{failure:?}");
        let failed = all.iter().any(|asked| !asked.is_decided);
        failed && all.iter().rev().take(100).all(|asked| asked.is_decided)
    };
    let alone = [&on_it];
    let others = [&other, &another];
    let (of_it, of_others) = {
        let over = AtomicBool::new(false);
        let of_it = async {
            let all = ask_on(&backend, &watch, &alone, is_replaced).await;
            over.store(true, Ordering::Release);
            all
        };
        let of_others = ask_on(&backend, &watch, &others, |_| over.load(Ordering::Acquire));
        tokio::join!(of_it, of_others)
    };

    waited_only_until_known(&of_it, gone_at, deadline);
    assert!(of_others.iter().all(|asked| asked.is_decided));
    let slowest = of_others.iter().map(|asked| asked.took).max();
    assert!(slowest.unwrap() < deadline, "{slowest:?}");
}

/// By Redis's own default a cluster that has lost a shard decides nothing. It says so, which proves that nothing ran.
#[tokio::test]
async fn a_shard_that_is_lost_costs_callers_of_the_others_no_deadline_whether_full_coverage_is_required_or_not()
 {
    for is_required in [true, false] {
        // given a cluster of which one shard is lost for good
        let mut cluster = Cluster::start();
        let value = if is_required { "yes" } else { "no" };
        for node in cluster.nodes() {
            let words = ["CONFIG", "SET", "cluster-require-full-coverage", value];
            assert!(node.command(&words).starts_with("+OK"));
        }
        // So long that a machine which is busy for seconds does not look like a backend that waits.
        let deadline = Duration::from_secs(60);
        let builder = RedisBackend::cluster(cluster.urls())
            .patient()
            .deadline(deadline);
        let backend = builder.connect().await.unwrap();
        let [on_it, other, _] = on_each_node(&cluster, "covered", Quota::per_hour(1_000));
        for budget in [&on_it, &other] {
            budget.take(&backend, 1).await.unwrap();
        }
        cluster.node_mut(0).unwrap().kill();
        let knows = |node: &Standalone| {
            let nodes = node.command(&["CLUSTER", "NODES"]);
            let state = node.command(&["CLUSTER", "INFO"]);
            nodes.contains("master,fail ") && state.contains("cluster_state:ok") != is_required
        };
        let (began, others) = (Instant::now(), &cluster.nodes()[1..]);
        while !others.iter().all(knows) {
            assert!(began.elapsed() < LONG);
            sleep(Duration::from_millis(20)).await;
        }

        // when callers of all shards ask
        let watch = Watch::start();
        for _ in 0..5 {
            let (asked, before) = (watch.elapsed(), backend.stats().calls);
            let of_it = on_it.take(&backend, 1).await;
            let of_another = other.take(&backend, 1).await;
            let (waited, calls) = (watch.elapsed() - asked, backend.stats().calls - before);

            // then no caller waits, by this process's own time, nor asks again and again, and every other shard decides
            assert!(waited < Duration::from_secs(1), "{waited:?}");
            assert!(calls <= 2, "{calls} calls for two asks");
            assert!(of_it.is_err());
            match of_another {
                Err(error) if is_required => {
                    assert_eq!(error.kind(), FailureKind::Unready, "{error}");
                    assert!(error.detail().contains("(CLUSTERDOWN)"), "{error}");
                }
                said => assert!(!is_required && said.unwrap().is_admitted()),
            }
        }
        // and the outage ends when the shard is back
        cluster.node_mut(0).unwrap().restart();
        for budget in [&on_it, &other] {
            recovered(&backend, budget).await;
        }
    }
}

#[tokio::test]
async fn who_does_not_wait_for_a_cluster_finds_it_when_it_comes() {
    let mut cluster = Cluster::start();
    for node in 0..3 {
        cluster.node_mut(node).unwrap().kill();
    }
    let builder = RedisBackend::cluster(cluster.urls()).patient();
    let backend = builder.start().unwrap();
    let budget = Budget::of("early", Quota::per_hour(10));
    assert!(budget.take(&backend, 1).await.is_err());
    for node in 0..3 {
        cluster.node_mut(node).unwrap().restart();
    }

    recovered(&backend, &budget).await;
    assert_eq!(budget.remaining(&backend).await, 10);
}

#[tokio::test]
async fn what_all_nodes_were_sent_is_counted() {
    let cluster = Cluster::start();
    // One connection to each node: a second would be counted when it comes.
    let builder = RedisBackend::cluster(cluster.urls()).connections(1);
    let backend = builder.patient().connect().await.unwrap();
    let calls = || -> u64 {
        let of = |node: &Standalone| {
            let info = node.command(&["INFO", "commandstats"]);
            let (_, count) = info.split_once("cmdstat_evalsha:calls=")?;
            count.split(',').next()?.parse::<u64>().ok()
        };
        cluster.nodes().iter().filter_map(of).sum()
    };
    let budgets = on_each_node(&cluster, "counted", Quota::per_hour(100));
    // Each node has the script then.
    for budget in &budgets {
        budget.take(&backend, 1).await.unwrap();
    }
    let (before, stats) = (calls(), backend.stats());

    for budget in budgets.iter().cycle().take(30) {
        budget.take(&backend, 1).await.unwrap();
    }

    let made = (calls() - before, backend.stats().calls - stats.calls);
    assert_eq!(made, (30, 30));
    assert_eq!(backend.stats().requests - stats.requests, 30);
}

#[tokio::test]
async fn what_cannot_be_given_back_is_counted() {
    let mut cluster = Cluster::start();
    let builder = RedisBackend::cluster(cluster.urls()).patient();
    let backend = builder.connect().await.unwrap();
    let [first, second, _] = on_each_node(&cluster, "lost", Quota::per_hour(10));
    second.take(&backend, 10).await.unwrap();
    let keys = |cluster: &Cluster| cluster.nodes()[0].command(&["DBSIZE"]);
    assert_eq!(keys(&cluster), ":0\r\n");

    // The first slot is charged, then the node that is to take the credit leaves, then the second denies.
    cluster.nodes()[1].stall();
    let call = tokio::spawn(backend.decide(Call::of(&[first.charge(1), second.charge(1)])));
    while keys(&cluster) != ":1\r\n" {
        sleep(Duration::from_millis(2)).await;
    }
    cluster.node_mut(0).unwrap().kill();
    cluster.nodes()[1].go_on();

    let decision = call.await.unwrap().unwrap();
    assert!(!decision.is_admitted() && decision.verdicts()[1].is_denied());
    // The rest of the first is unknown.
    assert_eq!(decision.verdicts()[0].outcome(), Outcome::Unknown);
    assert_eq!(backend.stats().lost_give_backs, 1);
}

#[tokio::test]
async fn a_credit_outlives_a_cluster_that_is_down_and_does_not_hammer_it() {
    let cluster = Cluster::start();
    let backend = connect(&cluster).await;
    let [budget, ..] = on_each_node(&cluster, "down", Quota::per_hour(10));
    let charges = [budget.charge(5)];
    let decision = backend.decide(Call::of(&charges)).await.unwrap();
    let receipt = decision.receipts(&charges).next().unwrap();

    // A node that misses one slot of its own refuses all, if it is configured so.
    let node = &cluster.nodes()[0];
    let unused = (0..)
        .find(|&other| other != slot(&cluster, &budget))
        .unwrap();
    let unused = unused.to_string();
    for words in [
        ["CONFIG", "SET", "cluster-require-full-coverage", "yes"].as_slice(),
        &["CLUSTER", "DELSLOTS", &unused],
    ] {
        assert!(node.command(words).starts_with("+OK"));
    }
    while !node
        .command(&["CLUSTER", "INFO"])
        .contains("cluster_state:fail")
    {
        sleep(Duration::from_millis(10)).await;
    }
    let before = told(&cluster, "CLUSTERDOWN");
    backend.refund(receipt, 5);
    sleep(Duration::from_secs(2)).await;
    let told = told(&cluster, "CLUSTERDOWN") - before;
    assert!(
        node.command(&["CLUSTER", "ADDSLOTS", &unused])
            .starts_with("+OK")
    );

    assert!((4..20).contains(&told), "{told}");
    recovered(&backend, &budget).await;
    full(&backend, &budget).await;
    assert_eq!(backend.stats().lost_give_backs, 0);
}
