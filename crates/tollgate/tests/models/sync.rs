//! What is in the crate's `sync`.

use std::sync::Arc;

pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64};
pub(crate) use loom::sync::{Mutex, MutexGuard};

/// What can be read and replaced at once, but not changed.
#[derive(Debug, Default)]
pub(crate) struct ArcSwap<T>(Mutex<Arc<T>>);

impl<T> ArcSwap<T> {
    pub(crate) fn load(&self) -> Arc<T> {
        Arc::clone(&self.0.lock().unwrap())
    }

    pub(crate) fn store(&self, value: Arc<T>) {
        *self.0.lock().unwrap() = value;
    }

    /// Again, if another value has come in between.
    pub(crate) fn rcu<R: Into<Arc<T>>>(&self, f: impl Fn(&Arc<T>) -> R) {
        loop {
            let seen = self.load();
            let next = f(&seen).into();
            let mut now = self.0.lock().unwrap();
            if Arc::ptr_eq(&now, &seen) {
                *now = next;
                return;
            }
        }
    }
}
