//! The lateness of the runtime.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use super::Level;
use super::sampler::SmoothLevel;
use super::signal::Signal;

/// The handle of a task that measures. The task ends when it is dropped.
pub(super) struct Lag(AbortHandle);

const PERIOD: Duration = Duration::from_millis(50);

impl Lag {
    /// Starts the task on this runtime. The signal is 1 if the runtime is late by `full`.
    pub(super) fn start(runtime: &Handle, signal: &Arc<Signal>, full: Duration) -> Self {
        let measured = SignalSetter(Arc::downgrade(signal));
        let task = async move {
            let mut smooth = SmoothLevel::default();
            loop {
                let due = Instant::now() + PERIOD;
                sleep_until(due).await;
                let level = level(due.elapsed(), full);
                measured.set(smooth.add(Some(level)));
            }
        };
        Self(runtime.spawn(task).abort_handle())
    }
}

impl Drop for Lag {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn level(late: Duration, full: Duration) -> Level {
    Level::ratio(late.as_nanos(), full.as_nanos()).unwrap_or_default()
}

/// A signal that the task sets. If the runtime ends, it is not measured any more, and sheds nothing.
struct SignalSetter(Weak<Signal>);

impl SignalSetter {
    fn set(&self, level: Level) {
        if let Some(signal) = self.0.upgrade() {
            signal.set(level);
        }
    }
}

impl Drop for SignalSetter {
    fn drop(&mut self) {
        self.set(Level::NONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_is_the_lateness_as_a_part_of_the_stated_one() {
        let ms = Duration::from_millis;
        for (late, expected) in [(0, 0.0), (1, 0.01), (50, 0.5), (100, 1.0), (5_000, 1.0)] {
            assert_eq!(
                Some(level(ms(late), ms(100))),
                Level::of(expected),
                "{late} ms"
            );
        }
    }
}
