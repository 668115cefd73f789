//! Holding on a real server, and waiting until it shows.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tollgate_core::{Backend, Call, Receipt};
use tollgate_redis::RedisBackend;
use tollgate_testkit::Standalone;

use super::{Budget, PATIENT};

/// Holds so much, if it passes.
pub(crate) async fn hold(backend: &RedisBackend, budget: &Budget, cost: u64) -> Option<Receipt> {
    let charges = [budget.charge(cost)];
    let decision = backend.decide(Call::of(&charges)).await.unwrap();
    decision.receipts(&charges).next()
}

/// Waits until every process can see as much held.
pub(crate) async fn settles(backend: &RedisBackend, budget: &Budget, held: u64) {
    let settling = async {
        while budget.taken(backend).await != held {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let settled = timeout(PATIENT, settling).await;
    settled.unwrap_or_else(|_| panic!("{held} are never held"));
}

/// A state in which this many others hold one each, until then.
pub(crate) fn crowd(others: u64, expires_ms: u64) -> Vec<u8> {
    let mut state = vec![252];
    state.extend((others as f64).to_le_bytes());
    state.extend(&expires_ms.to_le_bytes()[..6]);
    state.extend(&expires_ms.to_le_bytes()[..6]);
    for other in 0..others {
        state.extend((0x1234_5678_0000 + other).to_le_bytes());
        for part in [0, 1, 255, expires_ms] {
            state.extend(&part.to_le_bytes()[..6]);
        }
    }
    state
}

pub(crate) fn put(server: &Standalone, name: &str, state: &[u8]) {
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    let mut set = redis::cmd("SET");
    set.arg(name).arg(state).arg("PX").arg(100_000);
    set.exec(&mut connection).unwrap();
}
