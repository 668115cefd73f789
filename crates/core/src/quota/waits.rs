//! Quotas whose requests wait for their turn.

use std::time::Duration;

use super::{Quota, built};
use crate::algorithm::{Held, Rule};
use crate::bounds::MAX_WAIT;
use crate::quota_error::QuotaError;

impl Quota {
    /// This quota, whose requests may wait up to `wait` for their turn instead of being refused at once: a queue, served in the
    /// order in which the requests were decided.
    ///
    /// The burst passes at once, and each request beyond it when its turn comes: `per_second(10).burst(1)` spaces requests
    /// 100 ms apart. A request whose turn is further away than `wait` is refused.
    ///
    /// A request that leaves before its turn gives it back, and the next that fits gets it; no waiting request passes earlier
    /// for that. While one waits, a request that has passed and costs less than announced gives nothing back.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Quota;
    ///
    /// const SMOOTH: Quota = Quota::per_second(10).burst(1).wait_up_to(Duration::from_secs(2));
    /// assert_eq!("10/s burst 1 wait 2s".parse(), Ok(SMOOTH));
    /// assert_eq!(SMOOTH.longest_wait(), Duration::from_secs(2));
    /// ```
    ///
    /// # Panics
    ///
    /// While it is built, if the result is invalid: see [`try_wait_up_to`](Self::try_wait_up_to).
    #[must_use]
    #[track_caller]
    pub const fn wait_up_to(self, wait: Duration) -> Self {
        built(self.try_wait_up_to(wait))
    }

    /// This quota, whose requests may [wait](Self::wait_up_to).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Algorithm, Quota, QuotaError};
    ///
    /// let window = Quota::per_second(10).using(Algorithm::SlidingWindow);
    /// assert_eq!(window.try_wait_up_to(Duration::from_secs(1)), Err(QuotaError::WaitOfWindow));
    /// // 1,000 intervals of 100 ms.
    /// assert!(Quota::per_second(10).try_wait_up_to(Duration::from_secs(100)).is_ok());
    /// assert!(Quota::per_second(10).try_wait_up_to(Duration::from_secs(101)).is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// If the wait is less than a microsecond, above [`MAX_WAIT`](crate::MAX_WAIT) or
    /// [`MAX_WAIT_INTERVALS`](crate::MAX_WAIT_INTERVALS), or if the algorithm is not [`Gcra`](crate::Algorithm::Gcra): all others give
    /// requests no turns.
    pub const fn try_wait_up_to(self, wait: Duration) -> Result<Self, QuotaError> {
        if wait.as_micros() == 0 {
            return Err(QuotaError::ZeroWait);
        }
        if wait.as_micros() > MAX_WAIT.as_micros() {
            return Err(QuotaError::WaitTooLong { wait });
        }
        self.with_wait(saturating_micros(wait))
    }

    /// This quota for one request that waits at most `most`, because its caller goes away then. A wait is never made longer,
    /// and a quota without one gets none.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Quota;
    ///
    /// let quota = Quota::per_second(10).wait_up_to(Duration::from_secs(2));
    /// let second = Duration::from_secs(1);
    /// assert_eq!(quota.waiting_at_most(second).longest_wait(), second);
    /// assert_eq!(quota.waiting_at_most(second * 3), quota);
    /// ```
    #[must_use]
    pub const fn waiting_at_most(self, most: Duration) -> Self {
        match self.rule.as_gcra() {
            Some(rule) => self.by_gcra(rule.waiting_at_most(saturating_micros(most))),
            None => self,
        }
    }

    /// The longest time that a request may wait for its turn. Zero if a request that does not fit is refused at once.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Quota;
    ///
    /// assert_eq!(Quota::per_second(10).longest_wait(), Duration::ZERO);
    /// ```
    #[must_use]
    pub const fn longest_wait(&self) -> Duration {
        match self.rule.wait_us() {
            Some(us) => Duration::from_micros(us as u64),
            None => Duration::ZERO,
        }
    }

    /// Says whether requests may wait under this quota, be it for no time at all at this moment.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Quota;
    ///
    /// let quota = Quota::per_second(10).wait_up_to(Duration::from_secs(2));
    /// assert!(quota.waits() && quota.waiting_at_most(Duration::ZERO).waits());
    /// ```
    #[must_use]
    #[inline]
    pub const fn waits(&self) -> bool {
        self.rule.wait_us().is_some()
    }

    /// This quota with this wait, or without one if it is 0.
    pub(super) const fn with_wait(self, wait_us: u32) -> Result<Self, QuotaError> {
        if wait_us == 0 {
            return Ok(self);
        }
        match &self.rule {
            Rule::Gcra(rule) => match rule.waiting(wait_us) {
                Ok(rule) => Ok(self.by_gcra(rule)),
                Err(error) => Err(error),
            },
            Rule::Held(rule) => Ok(Self {
                rule: Rule::Held(Held { wait_us, ..*rule }),
                ..self
            }),
            _ => Err(self.refusal(QuotaError::WaitOfWindow)),
        }
    }
}

/// This time in microseconds, rounded down; the most that there is if it is more. No wait is so long.
pub(super) const fn saturating_micros(duration: Duration) -> u32 {
    let micros = duration.as_micros();
    if micros > u32::MAX as u128 {
        return u32::MAX;
    }
    #[expect(clippy::cast_possible_truncation, reason = "just checked")]
    let micros = micros as u32;
    micros
}
