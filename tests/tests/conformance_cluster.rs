//! The backend on a cluster conforms. If one call's budgets live in several slots, it does so except for promises that need one
//! server to hold them all.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate_conformance::{Budget, Elapsed, FAR_AHEAD_US, Subject};
use tollgate_core::{Backend, Quota};
use tollgate_redis::RedisBackend;
use tollgate_testkit::{Cluster, Pool, PoolGuard};

static FREE: Pool<Nodes> = Pool::new();

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
        // Behind the queue of each slot. So many keys leave one of 64 partitions out only once in millions of times.
        let keys = if self.partitions == 1 { 1 } else { 1_000 };
        let budget = Budget::of("settle", Quota::per_second(1));
        let peeks: Vec<_> = (0_u64..keys)
            .map(|key| self.backend.decide(&[budget.for_key(key).charge(0)]))
            .collect();
        Box::pin(async {
            for peek in peeks {
                let _decision = peek.await.unwrap();
            }
        })
    }
}

/// If all budgets share a slot, nothing is taken in parts.
mod in_one_slot {
    use super::*;

    tollgate_conformance::conformance!(OnCluster::over(1));
}

mod in_many_slots {
    use super::*;

    tollgate_conformance::conformance! { in_parts: OnCluster::over(64) }
}
