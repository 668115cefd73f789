//! The time that this process has had.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

const TICK: Duration = Duration::from_millis(5);

/// A stopwatch that goes only while the runtime does.
///
/// A deadline is a promise about the backend's timers. A busy machine that keeps the process off its processors delays every
/// timer, and the ticks of this watch alike: missed ticks do not count. So a bound on the watch's time tests the backend and
/// not the pace of the machine.
pub(crate) struct Watch {
    ticks: Arc<AtomicU32>,
    ticking: JoinHandle<()>,
}

impl Watch {
    pub(crate) fn start() -> Self {
        let ticks = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&ticks);
        let ticking = tokio::spawn(async move {
            let mut clock = interval(TICK);
            clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
            // The first tick comes at once.
            clock.tick().await;
            loop {
                clock.tick().await;
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { ticks, ticking }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        TICK * self.ticks.load(Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ticking.abort();
    }
}
