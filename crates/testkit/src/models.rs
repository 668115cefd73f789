//! Helpers for models that try every order in which threads may run.

use std::sync::Arc;

use loom::sync::Mutex;
use loom::thread::JoinHandle;

/// Every order in which three threads are interrupted at most three times.
pub fn in_every_order(play: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(play);
}

/// Waits for all of them.
pub fn end<const N: usize>(threads: [JoinHandle<()>; N]) {
    for thread in threads {
        thread.join().expect("a thread of a model does not panic");
    }
}

/// The model's `arc_swap::ArcSwap`: a value that is read and replaced at once, but not changed.
#[derive(Debug, Default)]
pub struct ArcSwap<T>(Mutex<Arc<T>>);

impl<T> ArcSwap<T> {
    /// The value.
    pub fn load(&self) -> Arc<T> {
        Arc::clone(&self.0.lock().expect("no thread of a model panics"))
    }

    /// Replaces the value.
    pub fn store(&self, value: Arc<T>) {
        *self.0.lock().expect("no thread of a model panics") = value;
    }

    /// Replaces the value by what `f` makes of it. Again, if another value has come in between.
    pub fn rcu<R: Into<Arc<T>>>(&self, f: impl Fn(&Arc<T>) -> R) {
        loop {
            let seen = self.load();
            let next = f(&seen).into();
            let mut now = self.0.lock().expect("no thread of a model panics");
            if Arc::ptr_eq(&now, &seen) {
                *now = next;
                return;
            }
        }
    }
}
