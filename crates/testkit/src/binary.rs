//! The server that tests run against.

use std::env;

/// The server binary that tests run against.
#[must_use]
pub fn server_binary() -> String {
    env::var("TOLLGATE_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}
