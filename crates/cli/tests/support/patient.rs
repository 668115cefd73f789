//! A backend for tests that are not about time.

use std::time::Duration;

use tollgate::RedisBackend;

/// Connects with deadlines that a busy machine keeps.
pub(crate) async fn connect(url: &str) -> RedisBackend {
    const PATIENT: Duration = Duration::from_secs(60);
    let builder = RedisBackend::builder(url).deadline(PATIENT);
    builder.connect_deadline(PATIENT).connect().await.unwrap()
}
