//! Servers that take seconds to start, lent to one test after the other.

use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

/// Those that nobody has at present.
#[derive(Debug, Default)]
pub struct Pool<T>(Mutex<Vec<T>>);

/// One of a pool, to which it returns when it is dropped. Whoever takes it next finds what was left there.
#[derive(Debug)]
pub struct Lent<T: 'static> {
    pool: &'static Pool<T>,
    one: Option<T>,
}

impl<T> Pool<T> {
    /// A pool of none.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// One that is free, or a new one.
    pub fn lend(&'static self, start: impl FnOnce() -> T) -> Lent<T> {
        // Not under the lock: others may be given back meanwhile.
        let free = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Lent {
            pool: self,
            one: Some(free.unwrap_or_else(start)),
        }
    }
}

impl<T> Deref for Lent<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.one.as_ref().expect("lent until it is dropped")
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        let mut free = self.pool.0.lock().unwrap_or_else(PoisonError::into_inner);
        free.extend(self.one.take());
    }
}
