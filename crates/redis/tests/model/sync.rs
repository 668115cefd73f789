//! What is in the backend's `sync`.

use std::sync::Arc;

pub(crate) use shuttle::sync::atomic::AtomicBool;
pub(crate) use shuttle::sync::{Mutex, MutexGuard, RwLock};

pub(crate) use super::clock::{Instant, sleep, timeout_at};

pub(crate) struct Entered;

/// A runtime that knows its tasks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handle(Arc<Mutex<Vec<shuttle::future::JoinHandle<()>>>>);

impl Handle {
    pub(crate) fn enter(&self) -> Entered {
        Entered
    }

    pub(crate) fn spawn(&self, run: impl Future<Output = ()> + Send + 'static) {
        let task = shuttle::future::spawn(run);
        self.0.lock().unwrap().push(task);
    }

    /// Waits for all tasks, and those that they have begun.
    pub(crate) async fn ended(&self) {
        loop {
            let Some(task) = self.0.lock().unwrap().pop() else {
                return;
            };
            task.await.unwrap();
        }
    }
}
