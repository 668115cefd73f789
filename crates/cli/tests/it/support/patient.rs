//! A backend for tests that are not about time.

use std::time::Duration;

use tollgate::{RedisBackend, RedisBackendBuilder};

/// Connects with deadlines that a busy machine keeps.
pub(crate) async fn connect(url: &str) -> RedisBackend {
    connect_to(RedisBackend::builder(url)).await
}

/// Connects to servers of whichever kind.
pub(crate) async fn connect_to(fleet: RedisBackendBuilder) -> RedisBackend {
    const PATIENT: Duration = Duration::from_secs(60);
    let builder = fleet.deadline(PATIENT);
    builder.connect_deadline(PATIENT).connect().await.unwrap()
}
