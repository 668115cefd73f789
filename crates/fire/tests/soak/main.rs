//! What many callers and long runs leave behind. The resources are those of the whole process: one test at a time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod decisions;
mod http;
mod leftovers;

use tokio::sync::{Mutex, MutexGuard};

/// Keeps other tests from running while this one measures.
async fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::const_new(());
    ALONE.lock().await
}
