//! The backend on a cluster conforms. If one call's budgets live in several slots, it does so except for promises that need one
//! server to hold them all.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tollgate_conformance::{Budget, Elapsed, FAR_AHEAD_US, Subject};
use tollgate_core::{Backend, Call, Quota};
use tollgate_redis::RedisBackend;
use tollgate_testkit::{Cluster, Pool, PoolGuard};

static FREE: Pool<Nodes> = Pool::new();

const PARTITIONS: u16 = 64;

/// A key of each partition. The checksum of an identity chooses it, and the partitions divide the slots evenly.
static KEYS: OnceLock<Vec<String>> = OnceLock::new();

fn key_of_each_partition(cluster: &Cluster) -> Vec<String> {
    let mut keys = BTreeMap::new();
    for key in (0..).map(|n: u64| n.to_string()) {
        let partition = cluster.slot_of(&format!("={key}")) % PARTITIONS;
        keys.entry(partition).or_insert(key);
        if keys.len() == usize::from(PARTITIONS) {
            break;
        }
    }
    keys.into_values().collect()
}

/// A cluster, and for each node a name of its own for the clock.
struct Nodes {
    cluster: Cluster,
    clocks: Vec<(usize, String)>,
    now: AtomicU64,
}

impl Nodes {
    fn start() -> Self {
        let cluster = Cluster::start();
        let mut clocks: Vec<(usize, String)> = Vec::new();
        for clock in (0..64).map(|n| format!("clock{{{n}}}")) {
            let owner = cluster.owner_of(cluster.slot_of(&clock)).unwrap();
            if clocks.iter().all(|(node, _)| *node != owner) {
                clocks.push((owner, clock));
            }
        }
        Self {
            cluster,
            clocks,
            now: AtomicU64::new(FAR_AHEAD_US),
        }
    }

    fn advance(&self, by: u64) {
        let now = self.now.fetch_add(by, Ordering::SeqCst) + by;
        for (node, clock) in &self.clocks {
            let answer = self.cluster.nodes()[*node].command(&["SET", clock, &now.to_string()]);
            assert_eq!(answer, "+OK\r\n");
        }
    }
}

struct OnCluster {
    backend: Arc<RedisBackend>,
    nodes: PoolGuard<Nodes>,
    partitions: u16,
}

impl OnCluster {
    async fn over(partitions: u16) -> Self {
        let nodes = FREE.lend(Nodes::start);
        for node in nodes.cluster.nodes() {
            let _flushed = node.command(&["FLUSHALL"]);
        }
        nodes.advance(0);
        let backend = RedisBackend::cluster(nodes.cluster.urls())
            .partitions(partitions)
            .clock("clock")
            // In order: a credit is done when the next decision is.
            .connections(1)
            // No test here is about real time, and the machine may be busy.
            .deadline(Duration::from_secs(20))
            .connect()
            .await
            .unwrap();
        Self {
            backend: Arc::new(backend),
            nodes,
            partitions,
        }
    }
}

impl OnCluster {
    /// A budget in each partition.
    fn one_of_each_partition(&self) -> impl Iterator<Item = Budget> {
        let budget = Budget::of("settle", Quota::per_second(1));
        let keys = KEYS.get_or_init(|| key_of_each_partition(&self.nodes.cluster));
        let keys = keys.iter().take(usize::from(self.partitions));
        keys.map(move |key| budget.for_key(key.as_str()))
    }
}

impl Subject for OnCluster {
    fn backend(&self) -> Arc<dyn Backend> {
        self.backend.clone()
    }

    fn advance(&self, by: Duration) -> Elapsed<'_> {
        let by = u64::try_from(by.as_micros()).unwrap();
        self.nodes.advance(by);
        Box::pin(std::future::ready(()))
    }

    fn settle(&self) -> Elapsed<'_> {
        // Behind the queue of each slot.
        let peeks: Vec<_> = self
            .one_of_each_partition()
            .map(|budget| self.backend.decide(Call::of(&[budget.charge(0)])))
            .collect();
        Box::pin(async {
            for peek in peeks {
                let _decision = peek.await.unwrap();
            }
        })
    }
}

// If all budgets share a slot, nothing is taken in parts.
tollgate_conformance::conformance!(one_test budgets_in_one_slot_conform: OnCluster::over(1));
tollgate_conformance::conformance! { one_test budgets_in_many_slots_conform in_parts: OnCluster::over(PARTITIONS) }

/// So that settling leaves no queue out.
#[tokio::test]
async fn what_settles_is_asked_of_each_partition() {
    let subject = OnCluster::over(PARTITIONS).await;

    for budget in subject.one_of_each_partition() {
        let decision = subject
            .backend
            .decide(Call::of(&[budget.charge(1)]))
            .await
            .unwrap();
        assert!(decision.is_admitted());
    }

    let nodes = subject.nodes.cluster.nodes();
    let names: String = nodes
        .iter()
        .map(|node| node.command(&["KEYS", "tollgate:*"]))
        .collect();
    let tags = names
        .split("tollgate:{")
        .skip(1)
        .map(|rest| rest.split('}').next());
    assert_eq!(tags.collect::<HashSet<_>>().len(), usize::from(PARTITIONS));
}
