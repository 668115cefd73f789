//! Limits on how many at once.

use std::fmt;
use std::time::Duration;

use crate::{Quota, QuotaError};

/// A limit on how much may be held at one moment: requests in flight, open streams, uploads at once.
///
/// It stands wherever a [`Quota`] does, alone or beside others, and is decided in the same call. A request that passes *holds*
/// its cost (1 unless set) until it is over, however it ends, and then gives it back. No refill and no window give it back
/// earlier: in a fleet, the units of a process that died come back when its lease has run out.
///
/// A refused request is told no time after which it would pass, because the end of another request is unknown.
///
/// ```
/// use tollgate::{Concurrent, Limiter, Policy, Quota};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// // At most thirty exports a minute for each caller, and five at once.
/// let exports = Policy::new("exports", (Quota::per_minute(30), Concurrent::at_most(5)));
/// let limiter = Limiter::builder().policy(exports).build()?;
/// # Ok(()) }
/// ```
///
/// # As text
///
/// `N at once`: `5 at once`. `5 concurrent` and `5 in flight` are read as well.
///
/// ```
/// use tollgate::{Algorithm, Concurrent, Quota};
///
/// let five: Quota = Concurrent::at_most(5).into();
/// assert_eq!("5 at once".parse(), Ok(five));
/// assert_eq!((five.limit(), five.algorithm()), (5, Algorithm::Concurrent));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Concurrent(Quota);

impl Concurrent {
    /// At most `limit` at once.
    ///
    /// # Panics
    ///
    /// While it is built, if `limit` is 0 or too large: see [`try_at_most`](Self::try_at_most).
    #[must_use]
    #[track_caller]
    pub const fn at_most(limit: u64) -> Self {
        match Self::try_at_most(limit) {
            Ok(concurrent) => concurrent,
            #[expect(
                clippy::panic,
                reason = "literals fail while they are built, by design"
            )]
            Err(error) => panic!("{}", error.reason()),
        }
    }

    /// At most `limit` at once.
    ///
    /// ```
    /// use tollgate::{Concurrent, MAX_LIMIT, QuotaError};
    ///
    /// assert_eq!(Concurrent::try_at_most(0), Err(QuotaError::ZeroLimit));
    /// assert!(Concurrent::try_at_most(MAX_LIMIT).is_ok());
    /// assert!(Concurrent::try_at_most(MAX_LIMIT + 1).is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// If `limit` is 0 or above [`MAX_LIMIT`](crate::MAX_LIMIT).
    pub const fn try_at_most(limit: u64) -> Result<Self, QuotaError> {
        match Quota::held(limit) {
            Ok(quota) => Ok(Self(quota)),
            Err(error) => Err(error),
        }
    }

    /// This limit, whose requests may wait up to `wait` for a place instead of being refused at once: in a queue of each process
    /// and key, first come, first served. The first of a queue asks again when something is given back in its process, and ten
    /// times a second, so that places come to it that another process gave back. A request for several places blocks all
    /// requests behind it, even those that would fit.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Concurrent, Quota};
    ///
    /// let uploads = Concurrent::at_most(2).wait_up_to(Duration::from_secs(5));
    /// assert_eq!("2 at once wait 5s".parse(), Ok(Quota::from(uploads)));
    /// ```
    ///
    /// # Panics
    ///
    /// While it is built, if the wait is zero or above [`MAX_WAIT`](crate::MAX_WAIT).
    #[must_use]
    #[track_caller]
    pub const fn wait_up_to(self, wait: Duration) -> Self {
        Self(self.0.wait_up_to(wait))
    }

    /// The most that may be held at once.
    #[must_use]
    pub const fn limit(self) -> u64 {
        self.0.limit()
    }
}

impl From<Concurrent> for Quota {
    fn from(concurrent: Concurrent) -> Self {
        concurrent.0
    }
}

impl fmt::Display for Concurrent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Concurrent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Concurrent({self})")
    }
}
