//! A call that the one who waits for it drives.
//!
//! A request that leaves alone needs no task: its own future can send it and see the answer come, which saves a lone
//! decision a third of its latency on the way through the runtime. But nobody else may depend on whether that future is
//! polled. So the call can be taken over at any time: as soon as somebody has to wait for the connection, or when the
//! future is dropped, the call goes on as a task, as all others do.

use std::mem;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::sync::oneshot;

use crate::job::Heard;
use crate::sync::{Handle, Mutex, MutexGuard};

type Run = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The call, shared between the one who waits for it and the lane that it occupies.
pub(crate) struct Handed {
    runtime: Handle,
    slot: Mutex<Slot>,
}

enum Slot {
    /// With the waker of the one who polled it last: whoever takes the call over has to tell.
    Here(Run, Option<Waker>),
    /// Out with the one who polls it. Not under the lock, since the end of a call sends others.
    Polled,
    /// The same, and to be taken over when it comes back.
    Wanted,
    /// Over, or a task by now.
    Gone,
}

impl Handed {
    pub(crate) fn new(
        runtime: Handle,
        run: impl Future<Output = ()> + Send + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            runtime,
            slot: Mutex::new(Slot::Here(Box::pin(run), None)),
        })
    }

    /// Makes it a task, if it is not over.
    pub(crate) fn take_over(&self) {
        let mut slot = self.slot();
        match mem::replace(&mut *slot, Slot::Gone) {
            Slot::Here(run, waker) => {
                drop(slot);
                self.spawn(run);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            Slot::Polled | Slot::Wanted => *slot = Slot::Wanted,
            Slot::Gone => {}
        }
    }

    /// Whether the call is still to be driven from here. If not, the answer is there, or comes from a task.
    fn poll(&self, cx: &mut Context<'_>) -> bool {
        let mut slot = self.slot();
        let mut run = match mem::replace(&mut *slot, Slot::Polled) {
            Slot::Here(run, _) => run,
            other => {
                *slot = other;
                return false;
            }
        };
        drop(slot);
        // Its timers are the backend's runtime's, whoever polls it. With that ends the call, and nobody is left to answer.
        let Some(entered) = self.runtime.enter() else {
            *self.slot() = Slot::Gone;
            return false;
        };
        let is_over = run.as_mut().poll(cx).is_ready();
        drop(entered);
        let mut slot = self.slot();
        match mem::replace(&mut *slot, Slot::Gone) {
            _ if is_over => false,
            Slot::Wanted => {
                drop(slot);
                self.spawn(run);
                false
            }
            _ => {
                *slot = Slot::Here(run, Some(cx.waker().clone()));
                true
            }
        }
    }

    fn spawn(&self, run: Run) {
        let _detached = self.runtime.spawn(run);
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Handed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handed")
    }
}

/// What one waits for: the answer, and the call if it is one's own to drive.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) answer: oneshot::Receiver<Heard>,
    pub(crate) handed: Option<Arc<Handed>>,
}

impl Future for Waiting {
    type Output = Result<Heard, oneshot::error::RecvError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Not to be woken by an answer that comes out of this very poll: a task that wakes itself moves to another thread.
        if self.handed.as_ref().is_some_and(|handed| handed.poll(cx)) {
            return Poll::Pending;
        }
        Pin::new(&mut self.answer).poll(cx)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // First it is known that nobody waits, so that what was not sent is not sent.
        self.answer.close();
        if let Some(handed) = &self.handed {
            handed.take_over();
        }
    }
}
