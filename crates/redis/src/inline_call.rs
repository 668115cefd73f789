//! A call that runs inline: the future that waits for its answer drives it.
//!
//! A request that leaves alone needs no task: its own future sends it and reads the answer. That saves a lone decision the
//! way through the runtime, a third of its latency. But no other caller may depend on the polling of that future. So the call
//! can be taken over at any time: as soon as another caller has to wait for the connection, or when the future is dropped,
//! the call goes on as a task, like all others.

use std::mem;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::sync::oneshot;

use crate::job::Delivery;
use crate::sync::{Handle, Mutex, MutexGuard};

type Run = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The call, shared between the future that waits for it and the lane that it occupies.
pub(crate) struct InlineCall {
    runtime: Handle,
    slot: Mutex<Slot>,
}

enum Slot {
    /// The call rests, with the waker of the task that polled it last: taking the call over wakes that task.
    Here(Run, Option<Waker>),
    /// A task polls the call, and has taken it out of the lock, because the end of a call sends others.
    Polled,
    /// The call is out, and must be taken over when it comes back.
    Wanted,
    /// The call is over, or runs as a task.
    Gone,
}

impl InlineCall {
    pub(crate) fn new(
        runtime: Handle,
        run: impl Future<Output = ()> + Send + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            runtime,
            slot: Mutex::new(Slot::Here(Box::pin(run), None)),
        })
    }

    /// Makes the call a task, if it is not over.
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

    /// Polls the call. Says whether it must still be driven from here. If not, the answer is there, or will come from a task.
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
        // Its timers are of the backend's runtime, whichever task polls it. The call ends with that runtime, and its callers
        // have been told.
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

impl std::fmt::Debug for InlineCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InlineCall")
    }
}

/// The future that waits for an answer, and drives the call if that runs inline.
#[derive(Debug)]
pub(crate) struct AnswerFuture {
    pub(crate) answer: oneshot::Receiver<Delivery>,
    pub(crate) inline: Option<Arc<InlineCall>>,
}

impl Future for AnswerFuture {
    type Output = Result<Delivery, oneshot::error::RecvError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // An answer that this very poll brings must not wake the task: a task that wakes itself moves to another thread.
        if self.inline.as_ref().is_some_and(|inline| inline.poll(cx)) {
            // The call goes on after the deadline, and has told its caller so.
            return match self.answer.try_recv() {
                Ok(delivery) => Poll::Ready(Ok(delivery)),
                Err(_) => Poll::Pending,
            };
        }
        Pin::new(&mut self.answer).poll(cx)
    }
}

impl Drop for AnswerFuture {
    fn drop(&mut self) {
        // The withdrawal comes first, so that an unsent job is not sent.
        self.answer.close();
        if let Some(inline) = &self.inline {
            inline.take_over();
        }
    }
}
