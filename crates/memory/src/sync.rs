//! The lock: `parking_lot`'s, or loom's when the locking itself is under test.
//!
//! Not std's, which checks at every lock and unlock whether the thread is panicking: one instruction in twenty of a whole
//! decision. And a poisoned lock would fail every later decision.

#[cfg(not(loom))]
pub(crate) use parking_lot::{Mutex, MutexGuard};

#[cfg(loom)]
pub(crate) use self::model::{Mutex, MutexGuard};

#[cfg(loom)]
mod model {
    use std::sync::PoisonError;

    pub(crate) use loom::sync::MutexGuard;

    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
}
