//! The server binary that tests run.

use std::env;

/// The server binary that tests run.
#[must_use]
pub fn server_binary() -> String {
    env::var("TOLLGATE_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}
