//! Helpers for tests on a cluster.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tollgate_core::{Key, Quota};
use tollgate_redis::RedisBackend;
use tollgate_testkit::Cluster;

use super::{Budget, PATIENT, Patience};

pub(crate) async fn connect(cluster: &Cluster) -> RedisBackend {
    let builder = RedisBackend::cluster(cluster.urls()).patient();
    builder.connect().await.unwrap()
}

/// Budgets of this many callers, all over the cluster.
pub(crate) fn callers(policy: &str, quota: Quota, count: usize) -> Vec<Budget> {
    let one = |n| Budget {
        key: Key::from(format!("caller-{n}").as_str()),
        ..Budget::of(policy, quota)
    };
    (0..count).map(one).collect()
}

/// A budget on each of the three masters.
pub(crate) fn on_each_node(cluster: &Cluster, policy: &str, quota: Quota) -> [Budget; 3] {
    let mut all: Vec<_> = (callers(policy, quota, 32).into_iter())
        .map(|budget| (cluster.owner_of(slot(cluster, &budget)), budget))
        .collect();
    [0, 1, 2].map(|node| {
        let place = all.iter().position(|(owner, _)| *owner == Some(node));
        all.swap_remove(place.unwrap()).1
    })
}

/// The slot in which a budget lives.
pub(crate) fn slot(cluster: &Cluster, budget: &Budget) -> u16 {
    let name = format!("={}", String::from_utf8_lossy(&budget.key.as_bytes()[1..]));
    let tag = cluster.slot_of(&name) % 64;
    cluster.slot_of(&format!("{{{tag}}}"))
}

/// Two budgets in two slots: that of the first caller, and the first one that is elsewhere.
pub(crate) fn apart(cluster: &Cluster, policy: &str, quota: Quota) -> [Budget; 2] {
    let mut all = callers(policy, quota, 8).into_iter();
    let first = all.next().unwrap();
    let other = all.find(|other| slot(cluster, other) != slot(cluster, &first));
    let other = other.unwrap();
    [first, other]
}

/// Waits until a credit is done, since no caller is told.
pub(crate) async fn full(backend: &RedisBackend, budget: &Budget) {
    let given_back = async {
        while budget.taken(backend).await > 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = timeout(PATIENT, given_back).await;
    waited.unwrap_or_else(|_| panic!("{} is not given back", budget.quota));
}
