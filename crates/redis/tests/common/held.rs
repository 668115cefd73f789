//! Holding on a real server, and waiting until it shows.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tollgate_core::{Backend, Receipt};
use tollgate_redis::RedisBackend;

use super::{Budget, PATIENT};

/// Holds so much, if it passes.
pub(crate) async fn hold(backend: &RedisBackend, budget: &Budget, cost: u64) -> Option<Receipt> {
    let charges = [budget.charge(cost)];
    let decision = backend.decide(&charges).await.unwrap();
    decision.receipts(&charges).next()
}

/// Waits until as much is held as anybody can see.
pub(crate) async fn settles(backend: &RedisBackend, budget: &Budget, held: u64) {
    let settling = async {
        while budget.taken(backend).await != held {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let settled = timeout(PATIENT, settling).await;
    settled.unwrap_or_else(|_| panic!("{held} are never held"));
}
