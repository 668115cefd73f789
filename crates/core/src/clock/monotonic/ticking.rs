//! The processor's counter, if the kernel trusts it.

use std::fs;
use std::sync::LazyLock;

use quanta::Clock;

use super::system;
use crate::clock::counter::{Counter, Reading, UNITS_PER_MICRO};

/// The source by which the kernel tells the time. It is the counter only if the kernel has found that it ticks evenly and alike
/// on all processors.
const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// One counter for the whole process: one calibration, and one comparison a millisecond.
static TICKING: LazyLock<Option<Ticking>> = LazyLock::new(Ticking::new);

#[derive(Debug)]
pub(super) struct Ticking {
    ticks: Clock,
    counter: Counter,
}

impl Ticking {
    /// The counter, if there is one that can be trusted.
    pub(super) fn of_this_process() -> Option<&'static Self> {
        TICKING.as_ref()
    }

    #[inline]
    pub(super) fn micros(&self) -> u64 {
        let tick = self.ticks.raw();
        match self.counter.read(tick) {
            Some(micros) => micros,
            None => self.compare(),
        }
    }

    fn new() -> Option<Self> {
        let source = fs::read_to_string(CLOCK_SOURCE).ok()?;
        if source.trim() != "tsc" {
            return None;
        }
        // It has a calibration of its own. A thread that is interrupted there gets a wrong one.
        let ticks = Clock::new();
        let counter = Counter::calibrated(|| read(&ticks))?;
        Some(Self { ticks, counter })
    }

    #[cold]
    fn compare(&self) -> u64 {
        self.counter.compare(read(&self.ticks))
    }
}

fn read(ticks: &Clock) -> Reading {
    let before = ticks.raw();
    let now = system();
    let after = ticks.raw();
    let micros = now.tv_sec.cast_unsigned() * 1_000_000;
    let units = micros * UNITS_PER_MICRO + now.tv_nsec.cast_unsigned() * UNITS_PER_MICRO / 1_000;
    Reading {
        before,
        units,
        after,
    }
}
