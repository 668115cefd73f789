//! Servers that take seconds to start, lent to one test after another.

use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

/// The servers that no test has at present.
#[derive(Debug, Default)]
pub struct Pool<T>(Mutex<Vec<T>>);

/// A server of a pool, to which it returns when it is dropped. The next test finds it as this one left it.
#[derive(Debug)]
pub struct PoolGuard<T: 'static> {
    pool: &'static Pool<T>,
    one: Option<T>,
}

impl<T> Pool<T> {
    /// An empty pool.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// A free server, or a new one.
    pub fn lend(&'static self, start: impl FnOnce() -> T) -> PoolGuard<T> {
        // The start is outside of the lock: other servers may be given back meanwhile.
        let free = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        PoolGuard {
            pool: self,
            one: Some(free.unwrap_or_else(start)),
        }
    }
}

impl<T> Deref for PoolGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.one.as_ref().expect("lent until it is dropped")
    }
}

impl<T> Drop for PoolGuard<T> {
    fn drop(&mut self) {
        let mut free = self.pool.0.lock().unwrap_or_else(PoisonError::into_inner);
        free.extend(self.one.take());
    }
}
