//! Leases: blocks of a shared budget that one process spends by itself.

mod blocks;
mod demand;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

pub use self::blocks::{Blocks, Part};

use crate::Quota;
use crate::algorithm::Rule;

/// The terms by which a process leases blocks of its callers' budgets: how much at a time, and for how long.
///
/// A decision of a shared backend costs a round trip. With a lease, one call takes a block of units, and the process spends them at
/// memory's speed. It asks for the next block before this one runs out, and gives back what is left when its time is over. So a
/// caller with many requests costs the backend a few calls for each time of the lease, whatever its rate, if the terms allow what
/// it needs in that time. A caller with fewer than five requests in two such times is decided by the backend, request by request:
/// blocks would cost more calls than they save.
///
/// # The limit
///
/// Blocks are taken from the budget before they are spent, so that no two processes spend one unit:
///
/// * GCRA: at most `burst + rate × (t + τ)` pass in every interval of length *t*, where *τ* is the time of the lease. In the long
///   run never more than the rate. Interval refill: at most one refill more, since its units come all at once.
/// * Fixed windows and calendars: never more than the limit in a window, while the server's clock does not step. A block ends with
///   its window.
/// * Others cannot be leased: see `Policy::lease` of the crate `tollgate`.
///
/// A caller may be denied while other processes have units of its budget, for at most *τ*, and for the life of a denial that its
/// process knows. A process that crashes loses what it has leased, which comes back as the budget refills.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Lease, Policy, Quota};
///
/// // Up to a thousand units at a time, for a tenth of a second, which is the default.
/// let api = Policy::new("api", Quota::per_second(10_000)).lease(Lease::up_to(1_000));
/// let slower = Lease::up_to(1_000).within(Duration::from_millis(500));
/// assert_eq!(slower.to_string(), "up to 1000 within 500ms");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    most: u64,
    within: Duration,
}

/// The shortest and the longest time of a lease. In less than a millisecond a block comes too late to be spent, and a minute of a
/// crashed process's requests is more than an operator expects to lose.
const TIMES: [Duration; 2] = [Duration::from_millis(1), Duration::from_secs(60)];

impl Lease {
    /// Leases up to `n` units of one budget at a time, for 100 ms each: a process holds no more, and loses no more if it crashes.
    /// It asks for as many as its requests have needed lately, for fewer near the end of the budget, and never for more than half
    /// of what is left.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Lease;
    ///
    /// assert_eq!(Lease::up_to(500).time(), Duration::from_millis(100));
    /// ```
    #[must_use]
    pub const fn up_to(n: u64) -> Self {
        Self {
            most: n,
            within: Duration::from_millis(100),
        }
    }

    /// Spends a block within this time of the moment at which it was asked for: 1 ms to 60 s, in whole microseconds.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Lease;
    ///
    /// // A quota of a day: calls are rarer, and a crash may lose more.
    /// let lease = Lease::up_to(10_000).within(Duration::from_secs(5));
    /// ```
    #[must_use]
    pub const fn within(mut self, time: Duration) -> Self {
        self.within = time;
        self
    }

    /// The most units that are leased at a time.
    ///
    /// ```
    /// use tollgate::Lease;
    ///
    /// assert_eq!(Lease::up_to(500).most(), 500);
    /// ```
    #[must_use]
    pub const fn most(&self) -> u64 {
        self.most
    }

    /// The time in which a block is spent.
    #[must_use]
    pub const fn time(&self) -> Duration {
        self.within
    }

    /// The reason why no budget of this quota can be leased by these terms; `None` if some can.
    #[doc(hidden)]
    #[must_use]
    pub fn misfit(&self, quota: &Quota) -> Option<String> {
        if self.most < 2 {
            return Some(format!(
                "up to {}: a lease of one unit saves no call; at least 2",
                self.most
            ));
        }
        let [shortest, longest] = TIMES;
        let in_micros = Duration::from_micros(self.time_us());
        if !(shortest..=longest).contains(&self.within) || in_micros != self.within {
            return Some(format!(
                "within {:?}: 1 ms to 60 s, in whole microseconds",
                self.within
            ));
        }
        let reason = match quota.rule() {
            Rule::Gcra(rule) if rule.waits() => {
                "its requests wait in a line that is one for all processes"
            }
            Rule::Gcra(rule) if rule.warm_up().is_some() => {
                "while it warms up, a unit of a block costs more than it is worth"
            }
            Rule::Gcra(_) | Rule::FixedWindow(_) | Rule::IntervalRefill(_) | Rule::Calendar(_) => {
                return None;
            }
            Rule::SlidingWindow(_) | Rule::RollingWindow(_) | Rule::SlidingLog(_) => {
                "twice the limit could pass in a period, since a block is counted when it is leased and not when it is spent; use \
                 the default algorithm, a fixed window or interval refill"
            }
            Rule::Held(_) => "a place is held by one process at a time",
            Rule::Ban(_) => "a ban has no units",
            Rule::Once(_) => "an id has no units",
        };
        Some(format!("the quota {quota} cannot be leased: {reason}"))
    }

    pub(crate) fn time_us(&self) -> u64 {
        u64::try_from(self.within.as_micros()).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "up to {} within {:?}", self.most, self.within)
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({self})")
    }
}
