//! The turn of the one request that asks about a known denial that has just run out. The others of its key wait for what it hears.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::Semaphore;

use crate::sync::{Handle, Instant, sleep_until};

/// The turn. It is over when its answer has been learned, and when it is dropped, with a request that has failed.
#[derive(Debug)]
pub(crate) struct Turn(Arc<Course>);

/// A turn that others wait for.
#[derive(Clone, Debug)]
pub(crate) struct TurnUnderWay(Arc<Course>);

#[derive(Debug)]
struct Course {
    /// It has no permits, and is closed at the end.
    end: Semaphore,
    /// The deadline of the request whose turn it is: a server that stalls holds the others up no longer.
    until: Instant,
}

impl Turn {
    pub(super) fn until(until: Instant) -> (Self, TurnUnderWay) {
        let end = Semaphore::new(0);
        let course = Arc::new(Course { end, until });
        (Self(Arc::clone(&course)), TurnUnderWay(course))
    }

    pub(crate) fn end(&self) {
        self.0.end.close();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.end();
    }
}

impl TurnUnderWay {
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.0.end.is_closed() || now >= self.0.until
    }

    /// Waits for the end. The timer is of the backend's runtime, whichever task polls it. Once that has ended, so has the wait.
    pub(crate) async fn over(self, runtime: &Handle) {
        let timer = runtime.enter().map(|_lasts| sleep_until(self.0.until));
        let (mut timer, mut end) = (pin!(timer), pin!(self.0.end.acquire()));
        poll_fn(|cx| {
            if end.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            match (runtime.enter(), timer.as_mut().as_pin_mut()) {
                (Some(_lasts), Some(timer)) => timer.poll(cx),
                _ => Poll::Ready(()),
            }
        })
        .await;
    }
}
