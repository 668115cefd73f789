//! A clock that moves only when told, and then to the next moment that a task waits for. Time may pass before other tasks have
//! done their work, as on a slow machine.

use std::ops::Add;
use std::pin::pin;
use std::task::{Poll, Waker};
use std::time::Duration;

use shuttle::sync::Mutex;

shuttle::lazy_static! {
    static ref CLOCK: Mutex<Clock> = Mutex::default();
}

#[derive(Default)]
struct Clock {
    now: Instant,
    waiting: Vec<(Instant, Waker)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant(Duration);

impl Instant {
    pub(crate) fn now() -> Self {
        CLOCK.lock().unwrap().now
    }

    pub(crate) fn saturating_duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    pub(crate) fn checked_sub(self, time: Duration) -> Option<Self> {
        self.0.checked_sub(time).map(Self)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0 + time)
    }
}

/// A time that no model reaches.
pub(crate) const NEVER: Duration = Duration::from_secs(1 << 30);

/// Moves time to the next moment that a task waits for.
pub(crate) fn pass() {
    let woken: Vec<Waker> = {
        let clock = &mut *CLOCK.lock().unwrap();
        let next = clock.waiting.iter().map(|(at, _)| *at).min();
        clock.now = next.unwrap_or(clock.now).max(clock.now);
        let now = clock.now;
        let due = clock.waiting.extract_if(.., |(at, _)| *at <= now);
        due.map(|(_, waker)| waker).collect()
    };
    woken.into_iter().for_each(Waker::wake);
}

#[derive(Debug)]
pub(crate) struct Elapsed;

pub(crate) async fn timeout_at<F: Future>(deadline: Instant, run: F) -> Result<F::Output, Elapsed> {
    let mut run = pin!(run);
    std::future::poll_fn(|cx| {
        if let Poll::Ready(output) = run.as_mut().poll(cx) {
            return Poll::Ready(Ok(output));
        }
        let mut clock = CLOCK.lock().unwrap();
        if clock.now >= deadline {
            return Poll::Ready(Err(Elapsed));
        }
        if deadline < Instant(NEVER) {
            clock.waiting.push((deadline, cx.waker().clone()));
        }
        Poll::Pending
    })
    .await
}

pub(crate) async fn sleep(time: Duration) {
    sleep_until(Instant::now() + time).await;
}

pub(crate) async fn sleep_until(at: Instant) {
    let _elapsed = timeout_at(at, std::future::pending::<()>()).await;
}
