//! The lock: std's, or loom's when the locking itself is under test.

#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};

use std::sync::PoisonError;

/// Locks, whatever happened to whoever held the lock before. A panic between two writes of a shard would be a defect of
/// ours; refusing to limit anybody from then on would make it worse.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
