//! A processor's counter of ticks as a clock, for as long as a second clock, slower to read, confirms it.

use std::iter;
use std::sync::atomic::Ordering;

use crate::sync::AtomicU64;

/// The fine unit of time. Rounding in this unit is far below a microsecond.
pub(super) const UNITS_PER_MICRO: u64 = 1 << 10;
/// The time for which the counter is believed before the system is asked again.
const BELIEVED_MICROS: u64 = 1_000;
/// Two ticks that are no further apart than this count as one moment.
const MOMENT_MICROS: u64 = 1;
/// A counter that is further ahead of the system than this is not believed again. Not zero, because a processor may read its
/// counter a little earlier than the program says.
const AHEAD: u64 = UNITS_PER_MICRO;

/// The largest error in the counter's pace: one part in 2^12, a quarter of the deliberate slowness.
const UNKNOWN: u32 = 12;
/// A counter whose pace is not known after this long is not used.
const LONGEST_CALIBRATION: u64 = 100_000 * UNITS_PER_MICRO;

/// One reading of the system's clock, in units, between two ticks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) before: u64,
    pub(super) units: u64,
    pub(super) after: u64,
}

impl Reading {
    fn width(&self) -> u64 {
        self.after.wrapping_sub(self.before)
    }

    /// The least time that 2^32 ticks can have taken since the first reading, in nanoseconds; `None` before that is known well
    /// enough. A thread may be interrupted for any time between a tick and the system's reading, but the reading was taken
    /// between the two ticks.
    fn nanos_since(&self, first: &Self) -> Option<u64> {
        let ticks = self.after.wrapping_sub(first.before);
        // One less, because the first may have been rounded.
        let units = self.units.saturating_sub(first.units).saturating_sub(1);
        let is_known =
            self.width().saturating_add(first.width()) <= ticks >> UNKNOWN && units >> UNKNOWN > 0;
        let nanos = u128::from(units) * 1_000 / u128::from(UNITS_PER_MICRO);
        is_known
            .then(|| (nanos << 32).checked_div(ticks.into()))
            .and_then(|nanos| u64::try_from(nanos?).ok())
    }
}

/// Tells the time by ticks, and says when the system has to be asked.
///
/// It is deliberately slow by a thousandth. So the system's clock is always ahead when the two are compared, each comparison
/// moves this clock forward, and no thread ever sees it step back. A counter that is ahead nevertheless is broken, and is not
/// used from then on. This clock is behind by at most a thousandth of a millisecond. After an idle time it is not behind at
/// all, because then the system is asked first.
#[derive(Debug)]
pub(super) struct Counter {
    first: u64,
    /// The pace, times 2^64.
    units_per_tick: u64,
    /// The number of ticks for which the counter is believed. Zero once it was wrong.
    believed: AtomicU64,
    moment: u64,
    /// The tick at which the system was asked.
    asked_at: AtomicU64,
    /// The time at the first tick. It grows with each closer pair of readings, and never shrinks.
    first_units: AtomicU64,
}

impl Counter {
    /// A counter whose pace is measured by readings of it and of the system. This takes less than a millisecond on an idle
    /// machine. `None` if the measurement does not end, or if the counter cannot tell the time.
    pub(super) fn calibrated(mut read: impl FnMut() -> Reading) -> Option<Self> {
        // The closest pair of a few: a wide pair leaves an error that takes long to make up for.
        let first = iter::repeat_with(&mut read)
            .take(8)
            .min_by_key(Reading::width)?;
        loop {
            let reading = read();
            if let Some(nanos) = reading.nanos_since(&first) {
                return Self::new(first.before, nanos);
            }
            if reading.units.saturating_sub(first.units) > LONGEST_CALIBRATION {
                return None;
            }
        }
    }

    /// A counter that takes `nanos` for 2^32 ticks, from its `first` tick of interest on. `None` if it is too slow or too fast
    /// to tell the time.
    pub(super) fn new(first: u64, nanos: u64) -> Option<Self> {
        let units = u128::from(nanos) * u128::from(UNITS_PER_MICRO) / 1_000;
        let slowed = units * 999 / 1_000;
        let ticks_in = |micros: u64| {
            let nanos_each = u128::from(nanos.max(1));
            u64::try_from(((u128::from(micros) * 1_000) << 32) / nanos_each).ok()
        };
        let (units_per_tick, believed) = (
            u64::try_from(slowed << 32).ok()?,
            ticks_in(BELIEVED_MICROS)?,
        );
        let moment = ticks_in(MOMENT_MICROS)?;
        (units_per_tick > 0 && moment > 0).then(|| Self {
            first,
            units_per_tick,
            believed: AtomicU64::new(believed),
            moment,
            asked_at: AtomicU64::new(first.wrapping_sub(believed)),
            first_units: AtomicU64::new(0),
        })
    }

    /// The time at `tick` in microseconds, or `None` if the system has to be asked.
    #[inline]
    pub(super) fn read(&self, tick: u64) -> Option<u64> {
        // Read before the time of the first tick. So a thread that sees that the system was asked also sees the answer.
        let asked_at = self.asked_at.load(Ordering::Acquire);
        // A tick from before then, of another processor or of a counter that was set back, is as far away as a number can be.
        let is_believed = tick.wrapping_sub(asked_at) < self.believed.load(Ordering::Relaxed);
        is_believed.then(|| self.units(tick) / UNITS_PER_MICRO)
    }

    /// The time in microseconds, after the system was asked.
    #[cold]
    pub(super) fn compare(&self, reading: Reading) -> u64 {
        let Reading {
            before,
            units,
            after,
        } = reading;
        let is_wrong = self.units(before) > units.saturating_add(AHEAD);
        if is_wrong || self.believed.load(Ordering::Relaxed) == 0 {
            self.believed.store(0, Ordering::Relaxed);
            return units / UNITS_PER_MICRO;
        }
        // One less, because a later tick may be rounded up.
        let first_units = units.saturating_sub(self.since_first(after) + 1);
        self.first_units.fetch_max(first_units, Ordering::Relaxed);
        // Otherwise this thread was interrupted between its readings, and the next one asks again.
        if reading.width() <= self.moment {
            self.asked_at.store(after, Ordering::Release);
        }
        self.units(after) / UNITS_PER_MICRO
    }

    #[inline]
    pub(super) fn units(&self, tick: u64) -> u64 {
        let first_units = self.first_units.load(Ordering::Relaxed);
        first_units.wrapping_add(self.since_first(tick))
    }

    #[inline]
    fn since_first(&self, tick: u64) -> u64 {
        let ticks = tick.wrapping_sub(self.first);
        let units = (u128::from(ticks) * u128::from(self.units_per_tick)) >> 64;
        // The product of two numbers below 2^64.
        u64::try_from(units).unwrap_or(u64::MAX)
    }
}
