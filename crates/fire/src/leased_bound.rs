//! The bound on what passes of a leased budget.
//!
//! Blocks are asked for beside the requests, so a history of requests does not tell when a unit was taken. It was taken within the
//! time of the lease before it was spent. So over any interval no more may pass than the budget lets through in an interval that
//! begins by that time earlier.

use std::time::Duration;

use tollgate_core::{Algorithm, Lease, Quota};

/// The bound of one leased budget, fed with what passed. It takes the same few steps for each pass, and keeps a few numbers.
///
/// * GCRA: at most `burst + rate × (t + τ)` in every interval of length *t*, where *τ* is the time of the lease.
/// * Interval refill: one refill more, since the interval may begin just before one.
/// * Fixed windows: the limit in each window.
///
/// ```
/// use tollgate_core::{Lease, Quota};
/// use tollgate_fire::LeasedBound;
///
/// // Ten at once, and one for the 100 ms in which a unit may lie in a block.
/// let (quota, lease) = (Quota::per_second(10), Lease::up_to(5));
/// let mut bound = LeasedBound::of(&quota, &lease).expect("it can be leased");
/// assert_eq!(bound.pass(0, 11), 0);
/// assert_eq!(bound.pass(100_000, 2), 1);
/// ```
#[derive(Clone, Debug)]
pub struct LeasedBound {
    course: Course,
    /// The amount that may pass at once: units, times the period in microseconds.
    most: u128,
    limit: u128,
    period_us: u128,
    /// The largest excess over the refill of any interval that ends now, or the count of the window.
    level: u128,
    at_us: u64,
}

#[derive(Clone, Copy, Debug)]
enum Course {
    Refilled,
    Windows { offset_us: u64 },
}

impl LeasedBound {
    /// The bound of a budget of this quota. `None` for an algorithm that cannot be leased, and for calendars.
    #[must_use]
    pub fn of(quota: &Quota, lease: &Lease) -> Option<Self> {
        let [limit, capacity] = [quota.limit(), quota.capacity()].map(u128::from);
        let period_us = micros(quota.period());
        let by_lease = limit * micros(lease.time());
        let (course, most) = match quota.algorithm() {
            Algorithm::Gcra => (Course::Refilled, capacity * period_us + by_lease),
            Algorithm::IntervalRefill { .. } => {
                let most = (capacity + limit) * period_us + by_lease;
                (Course::Refilled, most)
            }
            Algorithm::FixedWindow { offset } => {
                let offset_us = u64::try_from(offset.as_micros()).unwrap_or(u64::MAX);
                (Course::Windows { offset_us }, limit * period_us)
            }
            _ => return None,
        };
        Some(Self {
            course,
            most,
            limit,
            period_us,
            level: 0,
            at_us: 0,
        })
    }

    /// The most that may pass in an interval of this length, wherever it begins.
    #[must_use]
    pub fn most_in(&self, length_us: u64) -> u64 {
        let length_us = u128::from(length_us);
        let most = match self.course {
            Course::Refilled => (self.most + self.limit * length_us).div_ceil(self.period_us),
            Course::Windows { .. } => self.limit * (length_us / self.period_us + 2),
        };
        u64::try_from(most).unwrap_or(u64::MAX)
    }

    /// Counts units that pass at this time, which is not before the last one. Returns the units by which the bound is exceeded now,
    /// in the interval that exceeds it most: 0 is right.
    ///
    /// The windows of a fixed window are those of the clock that is read here, so that this must be the server's.
    #[must_use]
    pub fn pass(&mut self, at_us: u64, units: u64) -> u64 {
        let at_us = at_us.max(self.at_us);
        let elapsed_us = u128::from(at_us - self.at_us);
        self.level = match self.course {
            Course::Refilled => self.level.saturating_sub(self.limit * elapsed_us),
            Course::Windows { offset_us } => {
                let window = |us: u64| {
                    (i128::from(us) - i128::from(offset_us))
                        .div_euclid(self.period_us.cast_signed())
                };
                match window(self.at_us) == window(at_us) {
                    true => self.level,
                    false => 0,
                }
            }
        };
        self.level += u128::from(units) * self.period_us;
        self.at_us = at_us;
        let excess = self.level.saturating_sub(self.most);
        u64::try_from(excess.div_ceil(self.period_us)).unwrap_or(u64::MAX)
    }

    /// Allows units in addition, as by a credit, or as a burst by a reset or a loss of data.
    pub fn allow(&mut self, units: u64) {
        let units = u128::from(units) * self.period_us;
        // The interval of the excess may as well begin after them.
        self.level = self.level.saturating_sub(units);
    }
}

fn micros(time: Duration) -> u128 {
    time.as_micros().max(1)
}
