//! The runtime that the backend was built on, and what becomes of callers that outlive it.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use tokio::runtime::{self, EnterGuard};
use tokio::sync::oneshot;

/// A runtime that may end before those who ask.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    runtime: runtime::Handle,
    ended: Arc<RwLock<bool>>,
    /// Ends the task that sees the runtime end, with the last who could be concerned.
    _watching: Arc<oneshot::Sender<()>>,
}

/// The runtime lasts for as long as this does.
#[derive(Debug)]
pub(crate) struct RuntimeGuard<'a> {
    _runtime: EnterGuard<'a>,
    _lasts: RwLockReadGuard<'a, bool>,
}

impl Handle {
    /// The runtime that this is called on, if there is one.
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

    /// Lets timers of the runtime be polled from elsewhere; not once it has ended, when they would panic.
    pub(crate) fn enter(&self) -> Option<RuntimeGuard<'_>> {
        let lasts = self.ended.read().unwrap_or_else(PoisonError::into_inner);
        (!*lasts).then(|| RuntimeGuard {
            _runtime: self.runtime.enter(),
            _lasts: lasts,
        })
    }

    /// Runs in the background. On a runtime that has ended it is dropped at once.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.runtime.spawn(task)
    }

    /// Runs in the background, and keeps nothing from being over.
    pub(crate) fn spawn_aside(&self, task: impl Future<Output = ()> + Send + 'static) {
        let _detached = self.runtime.spawn(task);
    }

    /// Has `told` called when the runtime ends, unless what is returned is dropped before.
    pub(crate) fn on_end(&self, told: impl FnOnce() + Send + 'static) -> oneshot::Sender<()> {
        let (concerned, over) = oneshot::channel();
        let _detached = self.runtime.spawn(at_the_end(told, over));
        concerned
    }
}

/// Waits until it is over, and calls `told` if it is dropped before: then the runtime has ended.
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
