//! Time as this process has had it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

const TICK: Duration = Duration::from_millis(5);

/// A stopwatch that goes only while the runtime does.
///
/// A deadline is a promise about the backend's timers, and a busy machine that keeps the process from its processors delays
/// every timer. It delays the ticks of this watch alike: ticks that were missed do not count. So a bound on what the watch
/// shows holds the backend to its promise and not the machine to its pace.
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
