//! The machine's clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate_core::{Clock, Timestamp};

/// The machine's clock: wall time when it was made, and monotonic time from then on.
///
/// Windows are anchored to the Unix epoch, so the wall clock is asked, once. From then on only the monotonic clock counts: an
/// operator or a time daemon that sets the wall clock neither refills a budget nor takes one away.
///
/// ```
/// use tollgate::{Clock, SystemClock};
///
/// let clock = SystemClock::new();
/// let before = clock.now();
/// assert!(clock.now() >= before);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    /// The wall time at which the monotonic clock was at zero.
    zero_us: u64,
}

/// The time for which a clock can go on: 35 years. A machine whose wall clock is past 2077 is taken to be at that limit.
const LONGEST_RUN_US: u64 = 1 << 50;

impl SystemClock {
    /// A clock that shows the machine's wall time now, and moves with its monotonic clock.
    #[must_use]
    pub fn new() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        Self::begun_at(wall.unwrap_or(Duration::ZERO))
    }

    fn begun_at(wall: Duration) -> Self {
        let wall_us = u64::try_from(wall.as_micros()).unwrap_or(u64::MAX);
        let wall_us = wall_us.min(Timestamp::MAX.as_micros() - LONGEST_RUN_US);
        Self {
            // Wraps, and later wraps back, on a machine whose wall clock starts in 1970 and that has been up for longer than that
            // clock says.
            zero_us: wall_us.wrapping_sub(monotonic_us()),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.zero_us.wrapping_add(monotonic_us()))
    }
}

/// The clock that `Instant` reads. `Instant`'s arithmetic on `Duration`s costs 70 instructions, a fifth of a decision.
#[cfg(unix)]
#[inline]
fn monotonic_us() -> u64 {
    use rustix::time::{ClockId, clock_gettime};

    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.unwrap_or(0) * 1_000_000 + nanos.unwrap_or(0) / 1_000
}

/// Time since it was first asked for.
#[cfg(not(unix))]
fn monotonic_us() -> u64 {
    use std::sync::LazyLock;
    use std::time::Instant;

    static ZERO: LazyLock<Instant> = LazyLock::new(Instant::now);

    u64::try_from(ZERO.elapsed().as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Instant;

    use super::*;

    #[test]
    fn no_thread_sees_it_step_back() {
        let clock = SystemClock::new();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut last = clock.now();
                    for _ in 0..100_000 {
                        let now = clock.now();
                        assert!(last <= now, "{last:?} and then {now:?}");
                        last = now;
                    }
                });
            }
        });
    }

    #[test]
    fn it_moves_with_the_monotonic_clock() {
        let clock = SystemClock::new();
        for _ in 0..1_000 {
            let outer = Instant::now();
            let from = clock.now();
            let inner = Instant::now();
            thread::yield_now();
            let least = inner.elapsed().as_micros();
            let shown = u128::from(clock.now().as_micros() - from.as_micros());
            let most = outer.elapsed().as_micros();

            // Either reading is rounded down.
            assert!(
                least <= shown + 1 && shown <= most + 1,
                "{least} {shown} {most}"
            );
        }
    }

    #[test]
    fn it_begins_with_the_wall_clock_s_time_and_moves_even_if_that_is_absurd() {
        let years = |years: u64| Duration::from_secs(years * 365 * 86_400);

        let clock = SystemClock::begun_at(years(50));
        assert!(clock.now() >= Timestamp::from_micros(0).saturating_add(years(50)));

        let absurd = SystemClock::begun_at(years(5_000));
        assert!(absurd.now().saturating_add(years(30)) < Timestamp::MAX);
    }
}
