//! The model's part of the backend's `sync`.

use std::sync::Arc;

use tokio::sync::oneshot;

pub(crate) use shuttle::sync::atomic::AtomicBool;
pub(crate) use shuttle::sync::{Mutex, MutexGuard, RwLock};

pub(crate) use super::clock::{Instant, sleep, sleep_until, timeout_at};

pub(crate) struct RuntimeGuard;

/// A runtime that knows its tasks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handle(Arc<Mutex<Vec<shuttle::future::JoinHandle<()>>>>);

impl Handle {
    pub(crate) fn enter(&self) -> Option<RuntimeGuard> {
        Some(RuntimeGuard)
    }

    /// Lives for as long as the model does.
    pub(crate) fn on_end(&self, _told: impl FnOnce() + Send + 'static) -> oneshot::Sender<()> {
        oneshot::channel().0
    }

    /// Runs a task that no other task waits for.
    pub(crate) fn spawn_aside(&self, run: impl Future<Output = ()> + Send + 'static) {
        let _detached = shuttle::future::spawn(run);
    }

    pub(crate) fn spawn(&self, run: impl Future<Output = ()> + Send + 'static) {
        let task = shuttle::future::spawn(run);
        self.0.lock().unwrap().push(task);
    }

    /// Waits for all tasks, and those that they have started.
    pub(crate) async fn ended(&self) {
        loop {
            let Some(task) = self.0.lock().unwrap().pop() else {
                return;
            };
            task.await.unwrap();
        }
    }
}
