//! The runtime of the backend, and callers that outlive it.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use tokio::runtime::{self, EnterGuard};
use tokio::sync::oneshot;

/// A runtime that may end before the callers.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    runtime: runtime::Handle,
    ended: Arc<RwLock<bool>>,
    /// Ends the task that watches for the runtime's end, once no handle is left.
    _watching: Arc<oneshot::Sender<()>>,
}

/// Lives for as long as the runtime does.
#[derive(Debug)]
pub(crate) struct RuntimeGuard<'a> {
    _runtime: EnterGuard<'a>,
    _lasts: RwLockReadGuard<'a, bool>,
}

impl Handle {
    /// The current runtime, if this is called on one.
    pub(crate) fn current() -> Option<Self> {
        let runtime = runtime::Handle::try_current().ok()?;
        let ended = Arc::new(RwLock::new(false));
        let (watching, over) = oneshot::channel();
        let told = Arc::clone(&ended);
        let _detached = runtime.spawn(at_the_end(
            move || *told.write().unwrap_or_else(PoisonError::into_inner) = true,
            over,
        ));
        Some(Self {
            runtime,
            ended,
            _watching: Arc::new(watching),
        })
    }

    /// Lets timers of the runtime be polled from elsewhere. Not once it has ended: then they would panic.
    pub(crate) fn enter(&self) -> Option<RuntimeGuard<'_>> {
        let lasts = self.ended.read().unwrap_or_else(PoisonError::into_inner);
        (!*lasts).then(|| RuntimeGuard {
            _runtime: self.runtime.enter(),
            _lasts: lasts,
        })
    }

    /// Runs a task in the background. On a runtime that has ended the task is dropped at once.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.runtime.spawn(task)
    }

    /// Runs a task in the background, and does not keep the backend from ending.
    pub(crate) fn spawn_aside(&self, task: impl Future<Output = ()> + Send + 'static) {
        let _detached = self.runtime.spawn(task);
    }

    /// Calls `told` when the runtime ends, unless the returned value is dropped before.
    pub(crate) fn on_end(&self, told: impl FnOnce() + Send + 'static) -> oneshot::Sender<()> {
        let (concerned, over) = oneshot::channel();
        let _detached = self.runtime.spawn(at_the_end(told, over));
        concerned
    }
}

/// Waits for the end of the watch, and calls `told` if it is dropped before: then the runtime has ended.
fn at_the_end(
    told: impl FnOnce() + Send + 'static,
    over: oneshot::Receiver<()>,
) -> impl Future<Output = ()> + Send + 'static {
    let mut ending = Ending(Some(told));
    async move {
        let _dropped = over.await;
        ending.is_over();
    }
}

struct Ending<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Ending<F> {
    fn is_over(&mut self) {
        self.0 = None;
    }
}

impl<F: FnOnce()> Drop for Ending<F> {
    fn drop(&mut self) {
        if let Some(told) = self.0.take() {
            told();
        }
    }
}
