//! A signal of the application's own.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Level;
use super::signal::Signal;

/// A [`Pressure`](crate::Pressure) that the application sets: the length of a queue, the connections in use, the latency of a
/// database, each as a part of what it can bear. Clones set one signal.
///
/// ```
/// use tollgate::{Limiter, Policy, PressureGauge, Quota, key};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let queue = PressureGauge::new();
/// let limiter = Limiter::builder()
///     .policy(Policy::new("api", Quota::per_second(100)))
///     .classes(["critical", "normal", "batch"], key::Header::new("x-class"))
///     .shed(&queue, [("batch", 0.7), ("normal", 0.9)])
///     .build()?;
///
/// // Later, wherever the queue grows or shrinks.
/// let (length, room) = (40_u32, 50_u32);
/// queue.set(f64::from(length) / f64::from(room));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct PressureGauge(Arc<Needle>);

#[derive(Default)]
struct Needle {
    signal: Arc<Signal>,
    warned_of_nan: AtomicBool,
}

impl PressureGauge {
    /// Makes a gauge at level 0.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::default())
    }

    /// Sets the level, from 0 to 1. A value below 0 is 0, and one above 1 is 1, as are the infinities. NaN changes nothing, and
    /// the log warns once.
    ///
    /// The level stays until it is set again. Once the last clone of a gauge is dropped, none can change it any more, and it is 0:
    /// a task that measures and dies sheds nothing for ever.
    ///
    /// ```
    /// use tollgate::{Pressure, PressureGauge};
    ///
    /// let gauge = PressureGauge::new();
    /// let pressure = Pressure::from(&gauge);
    /// for (set, level) in [(0.8, 0.8), (-0.5, 0.0), (7.0, 1.0), (f64::NAN, 1.0)] {
    ///     gauge.set(set);
    ///     assert_eq!(pressure.level(), level);
    /// }
    /// drop(gauge);
    /// assert_eq!(pressure.level(), 0.0);
    /// ```
    pub fn set(&self, level: f64) {
        match Level::of(level) {
            Some(level) => self.0.signal.set(level),
            None => self.0.warn_of_nan(),
        }
    }

    /// Sets the level to a part of a whole, such as the length of a queue and its room. A whole of 0 has no room: the level is 1.
    ///
    /// ```
    /// use tollgate::{Pressure, PressureGauge};
    ///
    /// let queue = PressureGauge::new();
    /// queue.set_ratio(30, 40);
    /// assert_eq!(Pressure::from(&queue).level(), 0.75);
    /// queue.set_ratio(41, 40);
    /// assert_eq!(Pressure::from(&queue).level(), 1.0);
    /// queue.set_ratio(0, 0);
    /// assert_eq!(Pressure::from(&queue).level(), 1.0);
    /// ```
    pub fn set_ratio(&self, part: usize, whole: usize) {
        let level = Level::ratio(part as u128, whole as u128);
        self.0.signal.set(level.unwrap_or(Level::FULL));
    }

    pub(super) fn signal(&self) -> &Arc<Signal> {
        &self.0.signal
    }
}

impl Needle {
    #[cold]
    fn warn_of_nan(&self) {
        if !self.warned_of_nan.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "a pressure gauge was set to NaN, and stays as it was; is there a division of 0 by 0?"
            );
        }
    }
}

impl Drop for Needle {
    fn drop(&mut self) {
        self.signal.set(Level::NONE);
    }
}

impl Default for PressureGauge {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for PressureGauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PressureGauge")
            .field(&self.0.signal.level())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use tollgate_testkit::Log;

    use super::*;

    #[test]
    fn the_log_hears_of_the_first_nan_of_a_gauge() {
        let log = Log::default();
        let _guard = log.listen();
        let gauge = PressureGauge::new();
        let told = || log.text().matches("set to NaN").count();
        gauge.set(0.5);
        assert_eq!(told(), 0);
        for _ in 0..3 {
            gauge.set(f64::NAN);
            assert_eq!(told(), 1);
        }
        assert_eq!(gauge.signal().level(), Level::of(0.5).unwrap());
    }

    #[test]
    fn a_part_of_a_whole_is_a_level_and_a_whole_of_nothing_has_no_room() {
        let gauge = PressureGauge::new();
        for ((part, whole), level) in [
            ((30, 40), 0.75),
            ((41, 40), 1.0),
            ((0, 5), 0.0),
            ((0, 0), 1.0),
        ] {
            gauge.set_ratio(part, whole);
            assert_eq!(gauge.signal().level(), Level::of(level).unwrap());
        }
    }
}
