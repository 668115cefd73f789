//! A thread that reads a signal's files now and then.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use super::Level;
use super::signal::Signal;

/// The handle of a thread that samples. The thread ends when it is dropped, without being waited for.
pub(super) struct Sampler {
    _alive: Sender<Infallible>,
}

impl Sampler {
    /// Sets the signal to a sample in each period.
    pub(super) fn start(
        name: &'static str,
        period: Duration,
        signal: &Arc<Signal>,
        mut sample: impl FnMut() -> Level + Send + 'static,
    ) -> io::Result<Self> {
        let (alive, dropped) = mpsc::channel();
        // The last handle may be dropped while a sample is taken.
        let signal = Arc::downgrade(signal);
        let run = move || {
            while let Err(RecvTimeoutError::Timeout) = dropped.recv_timeout(period) {
                let level = sample();
                match signal.upgrade() {
                    Some(signal) => signal.set(level),
                    None => return,
                }
            }
        };
        thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { _alive: alive })
    }
}

/// A level that moves half of the way to each sample, so that a single one does not decide.
#[derive(Debug, Default)]
pub(super) struct SmoothLevel(Level);

impl SmoothLevel {
    /// The level after a sample. `None` says nothing, and the level stays.
    pub(super) fn add(&mut self, sample: Option<Level>) -> Level {
        if let Some(sample) = sample {
            self.0 = self.0.half_way_to(sample);
        }
        self.0
    }
}

/// The result of a sample that may fail. A signal that is not measured sheds nothing, and the log says so once.
#[derive(Debug)]
pub(super) struct SampleReport {
    name: &'static str,
    warned: bool,
}

impl SampleReport {
    pub(super) fn of(name: &'static str) -> Self {
        Self {
            name,
            warned: false,
        }
    }

    pub(super) fn level(&mut self, sampled: Result<Level, String>) -> Level {
        sampled.unwrap_or_else(|error| {
            if !std::mem::replace(&mut self.warned, true) {
                tracing::warn!(
                    signal = self.name,
                    error,
                    "the pressure cannot be measured, and counts as 0"
                );
            }
            Level::NONE
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Instant;

    use tollgate_testkit::Log;

    use super::*;

    const SOON: Duration = Duration::from_millis(1);

    fn eventually(what: &str, holds: impl Fn() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
            thread::sleep(SOON);
        }
    }

    #[test]
    fn a_sampler_sets_the_signal_and_ends_with_its_handle() {
        let (signal, taken) = (Arc::<Signal>::default(), Arc::new(AtomicU32::new(0)));
        let count = Arc::clone(&taken);
        let sampler = Sampler::start("test", SOON, &signal, move || {
            count.fetch_add(1, Ordering::SeqCst);
            Level::FULL
        });
        eventually("it samples", || taken.load(Ordering::SeqCst) > 3);
        assert_eq!(signal.level(), Level::FULL);

        drop(sampler);

        // The closure's own values go with the thread.
        eventually("it ends", || Arc::strong_count(&taken) == 1);
        assert_eq!(Arc::strong_count(&signal), 1);
    }

    #[test]
    fn a_handle_that_is_dropped_does_not_wait_for_the_period_to_end() {
        let (signal, held) = (Arc::<Signal>::default(), Arc::new(()));
        let holds = Arc::clone(&held);
        let hour = Duration::from_secs(3_600);
        let sampler = Sampler::start("test", hour, &signal, move || {
            let _held = &holds;
            Level::FULL
        });

        drop(sampler);

        eventually("it ends", || Arc::strong_count(&held) == 1);
    }

    #[test]
    fn a_smooth_level_reaches_both_ends() {
        let mut smooth = SmoothLevel::default();
        let up: Vec<_> = (0..40).map(|_| smooth.add(Some(Level::FULL))).collect();
        assert_eq!(
            up[..3],
            [0.5, 0.75, 0.875].map(|part| Level::of(part).unwrap())
        );
        assert_eq!(up[39], Level::FULL);
        assert_eq!(smooth.add(None), Level::FULL);
        let down = (0..40).map(|_| smooth.add(Some(Level::NONE))).last();
        assert_eq!(down, Some(Level::NONE));
    }

    #[test]
    fn a_sample_that_fails_counts_as_nothing_and_the_log_hears_of_the_first() {
        let log = Log::default();
        let _guard = log.listen();
        let mut level = SampleReport::of("cpu");
        for gone in ["cpu.stat", "cpu.max", "cpu.stat"] {
            assert_eq!(level.level(Ok(Level::FULL)), Level::FULL);
            assert_eq!(level.level(Err(gone.to_owned())), Level::NONE);
        }
        let text = log.text();
        assert_eq!(text.matches("cannot be measured").count(), 1, "{text}");
        assert!(text.contains("cpu.stat"), "{text}");
    }
}
