//! The backend on a cluster.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Budget, HOUR, PATIENT, every_algorithm};
use tokio::time::{sleep, timeout};
use tollgate_core::{Backend, BackendError, Charge, Key, Mode, Quota};
use tollgate_redis::RedisBackend;
use tollgate_testkit::Cluster;

const LONG: Duration = Duration::from_secs(30);

async fn connect(cluster: &Cluster) -> RedisBackend {
    let builder = RedisBackend::cluster(cluster.urls()).deadline(PATIENT);
    builder.connect().await.unwrap()
}

/// Budgets of so many callers, all over the cluster.
fn callers(policy: &str, quota: Quota, count: usize) -> Vec<Budget> {
    let one = |n| Budget {
        key: Key::from(format!("caller-{n}").as_str()),
        ..Budget::of(policy, quota)
    };
    (0..count).map(one).collect()
}

/// A budget on each of the three masters.
fn on_each_node(cluster: &Cluster, policy: &str, quota: Quota) -> [Budget; 3] {
    let mut all: Vec<_> = (callers(policy, quota, 32).into_iter())
        .map(|budget| (cluster.owner_of(slot(cluster, &budget)), budget))
        .collect();
    [0, 1, 2].map(|node| {
        let place = all.iter().position(|(owner, _)| *owner == Some(node));
        all.swap_remove(place.unwrap()).1
    })
}

/// The slot in which a budget lives.
fn slot(cluster: &Cluster, budget: &Budget) -> u16 {
    let name = format!("b{}", String::from_utf8_lossy(&budget.key.as_bytes()[1..]));
    let tag = cluster.slot_of(&name) % 64;
    cluster.slot_of(&format!("{{{tag}}}"))
}

/// Two budgets in two slots: of the callers the first, and the first that is elsewhere.
fn apart(cluster: &Cluster, policy: &str, quota: Quota) -> [Budget; 2] {
    let mut all = callers(policy, quota, 8).into_iter();
    let first = all.next().unwrap();
    let other = all.find(|other| slot(cluster, other) != slot(cluster, &first));
    let other = other.unwrap();
    [first, other]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_who_share_budgets_all_over_a_cluster_admit_exactly_what_they_hold() {
    let cluster = Cluster::start();
    for (n, quota) in every_algorithm(20, HOUR * 24 * 300).into_iter().enumerate() {
        let mut hammering = Vec::new();
        for _ in 0..3 {
            let backend = connect(&cluster).await;
            hammering.push(tokio::spawn(async move {
                let budgets = callers(&format!("shared-{n}"), quota, 20);
                let calls: Vec<_> = (budgets.iter().cycle().take(20 * 15))
                    .map(|budget| backend.decide(&[budget.charge(1)]))
                    .collect();
                let mut admitted = 0;
                for call in calls {
                    admitted += usize::from(call.await.unwrap().is_admitted());
                }
                admitted
            }));
        }
        let mut admitted = 0;
        for backend in hammering {
            admitted += backend.await.unwrap();
        }
        assert_eq!(admitted, 20 * 20, "{quota}");
    }
    let keys: Vec<_> = (cluster.nodes().iter())
        .map(|node| node.command(&["DBSIZE"]))
        .collect();
    assert!(!keys.contains(&":0\r\n".to_owned()), "{keys:?}");
}

#[tokio::test]
async fn what_was_taken_in_one_slot_is_given_back_when_another_denies() {
    let cluster = Cluster::start();
    let backend = connect(&cluster).await;
    for (n, quota) in every_algorithm(5, HOUR).into_iter().enumerate() {
        let [first, second] = apart(&cluster, &format!("back-{n}"), quota);
        second.take(&backend, 5).await.unwrap();

        let decision = backend
            .decide(&[first.charge(2), second.charge(1)])
            .await
            .unwrap();
        let reversed = backend
            .decide(&[second.charge(1), first.charge(2)])
            .await
            .unwrap();
        let shadow = Charge {
            mode: Mode::Shadow,
            ..first.charge(1)
        };
        let with_shadow = backend.decide(&[shadow, second.charge(1)]).await.unwrap();

        // Its state is reported as if the request had not come, and so it is.
        for (decision, place) in [(decision, 0), (reversed, 1)] {
            assert!(!decision.is_admitted());
            let verdicts = decision.verdicts();
            assert!(verdicts[place].is_allowed() && verdicts[1 - place].is_denied());
            assert_eq!(
                (verdicts[place].remaining(), verdicts[place].taken()),
                (5, 0),
                "{quota}"
            );
        }
        assert!(!with_shadow.is_admitted());
        assert_eq!(
            first.remaining(&backend).await,
            4,
            "{quota}: a shadow is taken on its own"
        );
        let both = backend
            .decide(&[first.charge(2), second.charge(0)])
            .await
            .unwrap();
        assert!(both.is_admitted());
        assert_eq!(first.remaining(&backend).await, 2);
    }
    assert_eq!(backend.stats().lost_give_backs, 0);
}

/// Waits until what was given back is there: nobody is told.
async fn full(backend: &RedisBackend, budget: &Budget) {
    let given_back = async {
        while budget.taken(backend).await > 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = timeout(PATIENT, given_back).await;
    waited.unwrap_or_else(|_| panic!("{} is not given back", budget.quota));
}

#[tokio::test]
async fn nodes_whose_clocks_are_hours_apart_give_back_and_promise_by_their_own() {
    let cluster = Cluster::start_ahead([0, 3 * 3_600, -3 * 3_600]);
    let backend = connect(&cluster).await;
    for (n, quota) in every_algorithm(10, HOUR).into_iter().enumerate() {
        let [one, two, three] = on_each_node(&cluster, &format!("clocks-{n}"), quota);
        for order in [[&one, &two, &three], [&three, &one, &two]] {
            let charges = order.map(|budget| budget.charge(4));
            let decision = backend.decide(&charges).await.unwrap();
            let receipts: Vec<_> = decision.receipts(&charges).collect();
            assert_eq!(receipts.len(), 3, "{decision:?}");
            for receipt in receipts {
                backend.credit(receipt, 4);
            }
            for budget in order {
                full(&backend, budget).await;
            }
        }

        // Whichever denies, it says when by the clock that will keep the promise.
        for spent in [&one, &two, &three] {
            spent.take(&backend, 10).await.unwrap();
            let charges = [one.charge(1), two.charge(1), three.charge(1)];
            let denied = backend.decide(&charges).await.unwrap();
            let wait = denied.retry_after().unwrap();
            assert!(!wait.is_zero() && wait <= HOUR * 2, "{quota}: {wait:?}");
            let _reset = backend.reset(spent.scope, &spent.key).await;
        }
    }
    assert_eq!(backend.stats().lost_give_backs, 0);
}

#[tokio::test]
async fn who_is_dropped_between_two_slots_has_taken_nothing() {
    let cluster = Cluster::start();
    let backend = connect(&cluster).await;
    let [first, second] = apart(&cluster, "dropped", Quota::per_hour(1_000));
    for patience in (0..200).map(|n| Duration::from_micros(n * 20)) {
        let call = backend.decide(&[first.charge(1), second.charge(1)]);
        // Some are dropped before, some between, and some are answered.
        if let Ok(decision) = timeout(patience, call).await {
            let charges = [first.charge(1), second.charge(1)];
            for receipt in decision.unwrap().receipts(&charges) {
                backend.credit(receipt, 1);
            }
        }
    }
    full(&backend, &first).await;
    full(&backend, &second).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_that_move_under_load_lose_no_decision_and_repeat_none() {
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
                [backend.decide(&both), backend.decide(&both[..1])]
            })
            .collect();
        for call in calls {
            assert!(call.await.unwrap().is_admitted());
        }
        rounds += 1;
    }
    moving.await.unwrap();

    // Each was answered, so that each is counted, once: too few or too many would show.
    for (one, other) in budgets.iter().zip(&two_of_each) {
        let left = (one.taken(&backend).await, other.taken(&backend).await);
        assert_eq!(left, (1 + 2 * rounds, 1 + rounds));
    }
    assert!(rounds > 3, "{rounds}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_fails_under_load_is_replaced_and_keeps_nobody_from_the_others() {
    let mut cluster = Cluster::start_with_replicas(1);
    let deadline = Duration::from_millis(500);
    let builder = RedisBackend::cluster(cluster.urls()).deadline(deadline);
    let backend = builder.connect().await.unwrap();
    let budgets = callers("failover", Quota::per_day(1_000_000), 16);
    let (mut on_it, mut elsewhere) = (Vec::new(), Vec::new());
    for budget in budgets {
        budget.take(&backend, 1).await.unwrap();
        let caller = String::from_utf8_lossy(&budget.key.as_bytes()[1..]).into_owned();
        let keys = cluster.nodes()[0].command(&["KEYS", &format!("*:b{caller}")]);
        let part = if keys.contains("tollgate") {
            &mut on_it
        } else {
            &mut elsewhere
        };
        part.push(budget);
    }
    assert!(!on_it.is_empty() && !elsewhere.is_empty());

    cluster.node_mut(0).unwrap().kill();
    let started = Instant::now();
    let mut failed = 0;
    loop {
        assert!(started.elapsed() < LONG, "{failed} failed");
        let asked = Instant::now();
        let calls: Vec<_> = on_it
            .iter()
            .map(|budget| backend.decide(&[budget.charge(1)]))
            .collect();
        for budget in &elsewhere {
            assert!(budget.take(&backend, 1).await.unwrap().is_admitted());
        }
        let mut said: Vec<Result<_, BackendError>> = Vec::new();
        for call in calls {
            said.push(call.await);
        }
        assert!(asked.elapsed() < deadline * 2, "{:?}", asked.elapsed());
        if said.iter().all(Result::is_ok) {
            break;
        }
        failed += said.iter().filter(|said| said.is_err()).count();
        sleep(Duration::from_millis(10)).await;
    }
    assert!(failed > 0);
}
