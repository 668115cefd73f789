//! Bans: callers that are denied too often are kept out for a time.

mod text;

use std::fmt;
use std::time::Duration;

use crate::algorithm::{Onset, Penalty, Rule, Span};
use crate::bounds::{MAX_PERIOD, MAX_STRIKES};
use crate::quota::whole_micros;
use crate::{Quota, QuotaError};

/// A ban of callers that are denied too often: after a number of strikes within a time, and for a time.
///
/// It stands beside the quotas of a policy and is decided in the same call. Each denial of one of these quotas is a strike. The
/// strike that makes the number full bans the identity: from now on its requests are refused, charge nothing, and count no
/// strike, so that a ban does not feed itself. Retry-after is the end of the ban, exactly.
///
/// ```
/// use std::time::Duration;
/// use tollgate::Ban;
///
/// const MINUTE: Duration = Duration::from_secs(60);
/// const DAY: Duration = Duration::from_secs(24 * 60 * 60);
///
/// /// Five denials within ten minutes ban for a quarter of an hour. The next ban lasts twice as long, up to a day, and each day
/// /// without a ban takes one doubling back.
/// const GUESSING: Ban = Ban::after(5, Duration::from_secs(600))
///     .lasting(Duration::from_secs(15 * 60))
///     .doubling_to(DAY)
///     .forgiven_after(DAY);
///
/// assert_eq!("5 in 10min for 15min doubling to 1day forgiven after 1day".parse(), Ok(GUESSING));
/// ```
///
/// # As text
///
/// `STRIKES in PERIOD [for PERIOD] [doubling to PERIOD] [forgiven after PERIOD] [extending]`, such as `5 in 10min for 1h`.
///
/// # Clocks that step
///
/// The time is that of the backend's clock. A step forward ends a ban early by as much. A clock that steps back to before a ban
/// began starts the ban anew, so that no caller is banned for longer than the ban's own length.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ban(Penalty);

impl Ban {
    /// A ban after this many strikes within this time, and for as long as that.
    ///
    /// # Panics
    ///
    /// While it is built, if the result is invalid: see [`try_after`](Self::try_after).
    #[must_use]
    #[track_caller]
    pub const fn after(strikes: u64, within: Duration) -> Self {
        built(Self::try_after(strikes, within))
    }

    /// A ban after this many strikes within this time, and for as long as that.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Ban, QuotaError};
    ///
    /// let minute = Duration::from_secs(60);
    /// assert_eq!(Ban::try_after(0, minute), Err(QuotaError::Strikes { strikes: 0 }));
    /// assert_eq!(Ban::try_after(65, minute), Err(QuotaError::Strikes { strikes: 65 }));
    /// assert!(Ban::try_after(64, minute).is_ok());
    /// ```
    ///
    /// # Errors
    ///
    /// If the strikes are not 1 to [`MAX_STRIKES`](crate::MAX_STRIKES), or if the time is zero, longer than [`MAX_PERIOD`], or not
    /// a whole number of microseconds.
    pub const fn try_after(strikes: u64, within: Duration) -> Result<Self, QuotaError> {
        if strikes == 0 || strikes > MAX_STRIKES {
            return Err(QuotaError::Strikes { strikes });
        }
        let within = match span(within) {
            Ok(within) => within,
            Err(error) => return Err(error),
        };
        #[expect(clippy::cast_possible_truncation, reason = "just checked")]
        let strikes = strikes as u8;
        Ok(Self(Penalty {
            strikes,
            onset: Onset::Struck,
            within,
            lasting: within,
            longest: within,
            forgiven: within,
        }))
    }

    /// A ban by an operator under the terms of this one: it begins at once, whatever the strikes, and shortens no ban that is in
    /// force already. It doubles nothing and forgives nothing.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Ban, Charge, ImmediateBackend, Key, MemoryBackend, Mode, Quota, Scope};
    ///
    /// let backend = MemoryBackend::new();
    /// let terms = Ban::after(5, Duration::from_secs(600));
    /// let hour = Quota::from(terms.try_imposed(Duration::from_secs(3600))?);
    /// let ban = Charge {
    ///     scope: Scope::of("login", 1, &hour),
    ///     quota: &hour,
    ///     key: &Key::from("mallory"),
    ///     cost: 1,
    ///     mode: Mode::Shadow,
    /// };
    /// let _decision = backend.decide_now(&[ban])?;
    ///
    /// let guard = Quota::from(terms);
    /// let knock = Charge { quota: &guard, cost: 0, mode: Mode::Enforce, ..ban };
    /// let decision = backend.decide_now(&[knock])?;
    /// assert!(!decision.is_admitted() && decision.retry_after() > Some(Duration::from_secs(3590)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`try_lasting`](Self::try_lasting).
    pub const fn try_imposed(self, lasting: Duration) -> Result<Self, QuotaError> {
        match span(lasting) {
            Ok(lasting) => Ok(Self(Penalty {
                onset: Onset::Imposed,
                lasting,
                ..self.0
            })),
            Err(error) => Err(error),
        }
    }

    /// This ban with another length. It does not double, unless [`doubling_to`](Self::doubling_to) says so after this.
    ///
    /// # Panics
    ///
    /// While it is built, if the result is invalid: see [`try_lasting`](Self::try_lasting).
    #[must_use]
    #[track_caller]
    pub const fn lasting(self, length: Duration) -> Self {
        built(self.try_lasting(length))
    }

    /// This ban with another length.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Ban, QuotaError};
    ///
    /// let ban = Ban::after(5, Duration::from_secs(60));
    /// assert_eq!(ban.try_lasting(Duration::ZERO), Err(QuotaError::ZeroPeriod));
    /// ```
    ///
    /// # Errors
    ///
    /// If the length is zero, longer than [`MAX_PERIOD`], or not a whole number of microseconds.
    pub const fn try_lasting(self, length: Duration) -> Result<Self, QuotaError> {
        match span(length) {
            Ok(lasting) => Ok(Self(Penalty {
                lasting,
                longest: lasting,
                forgiven: lasting,
                ..self.0
            })),
            Err(error) => Err(error),
        }
    }

    /// This ban, of which each lasts twice as long as the one before, up to `most`. A doubling is forgiven after a quiet time as
    /// long as `most`, unless [`forgiven_after`](Self::forgiven_after) says otherwise after this.
    ///
    /// # Panics
    ///
    /// While it is built, if the result is invalid: see [`try_doubling_to`](Self::try_doubling_to).
    #[must_use]
    #[track_caller]
    pub const fn doubling_to(self, most: Duration) -> Self {
        built(self.try_doubling_to(most))
    }

    /// This ban, of which each lasts twice as long as the one before, up to `most`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Ban;
    ///
    /// let hour = Ban::after(5, Duration::from_secs(60)).lasting(Duration::from_secs(3600));
    /// let error = hour.try_doubling_to(Duration::from_secs(60)).unwrap_err();
    /// assert_eq!(error.to_string(), "a ban that lasts 3600s at first cannot double up to 60s, which is less");
    /// ```
    ///
    /// # Errors
    ///
    /// If `most` is less than the first length, or no length.
    pub const fn try_doubling_to(self, most: Duration) -> Result<Self, QuotaError> {
        let longest = match span(most) {
            Ok(longest) => longest,
            Err(error) => return Err(error),
        };
        if longest.us() < self.0.lasting.us() {
            let lasting = Duration::from_micros(self.0.lasting.us());
            return Err(QuotaError::Doubling { lasting, most });
        }
        Ok(Self(Penalty {
            longest,
            forgiven: longest,
            ..self.0
        }))
    }

    /// This ban, of which each time of this length without a ban takes one doubling back.
    ///
    /// # Panics
    ///
    /// While it is built, if the result is invalid: see [`try_forgiven_after`](Self::try_forgiven_after).
    #[must_use]
    #[track_caller]
    pub const fn forgiven_after(self, quiet: Duration) -> Self {
        built(self.try_forgiven_after(quiet))
    }

    /// This ban, of which each time of this length without a ban takes one doubling back.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Ban;
    ///
    /// assert!(Ban::after(5, Duration::from_secs(60)).try_forgiven_after(Duration::ZERO).is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// If the time is zero, longer than [`MAX_PERIOD`], or not a whole number of microseconds.
    pub const fn try_forgiven_after(self, quiet: Duration) -> Result<Self, QuotaError> {
        match span(quiet) {
            Ok(forgiven) => Ok(Self(Penalty { forgiven, ..self.0 })),
            Err(error) => Err(error),
        }
    }

    /// This ban, which begins anew with each request of a banned caller. A client that retries blindly never comes in again, so
    /// this is for callers that are known to be hostile.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Ban;
    ///
    /// let ban = Ban::after(5, Duration::from_secs(600)).extending();
    /// assert_eq!(ban.to_string(), "5 in 10min for 10min extending");
    /// ```
    #[must_use]
    pub const fn extending(self) -> Self {
        Self(Penalty {
            onset: Onset::Extended,
            ..self.0
        })
    }

    /// The strikes, the number of the onset, and the times in microseconds: within, lasting, longest, forgiven. For backends.
    #[doc(hidden)]
    #[must_use]
    pub const fn figures(&self) -> (u8, u8, [u64; 4]) {
        let Penalty {
            strikes,
            onset,
            within,
            lasting,
            longest,
            forgiven,
        } = self.0;
        let onset = match onset {
            Onset::Struck => 0,
            Onset::Extended => 1,
            Onset::Imposed => 2,
            Onset::Unheard => 3,
        };
        (
            strikes,
            onset,
            [within.us(), lasting.us(), longest.us(), forgiven.us()],
        )
    }

    /// True if knocks while it lasts begin it anew.
    #[doc(hidden)]
    #[must_use]
    pub const fn is_extending(&self) -> bool {
        matches!(self.0.onset, Onset::Extended)
    }

    pub(crate) const fn penalty(&self) -> &Penalty {
        &self.0
    }
}

impl Quota {
    /// The ban, if this is one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Ban, Quota};
    ///
    /// let ban = Ban::after(5, Duration::from_secs(600));
    /// assert_eq!(Quota::from(ban).ban(), Some(ban));
    /// ```
    #[must_use]
    pub const fn ban(&self) -> Option<Ban> {
        if let Rule::Ban(penalty) = self.rule() {
            Some(Ban(*penalty))
        } else {
            None
        }
    }

    /// This quota; of a ban, one that is in force as ever, and of which no denial of the same call is a strike. For a request that
    /// asks several times before it is refused.
    #[doc(hidden)]
    #[must_use]
    pub const fn unheard(&self) -> Self {
        if let Rule::Ban(penalty) = self.rule() {
            Self::banning(Penalty {
                onset: Onset::Unheard,
                ..*penalty
            })
        } else {
            *self
        }
    }
}

impl From<Ban> for Quota {
    fn from(ban: Ban) -> Self {
        Self::banning(ban.0)
    }
}

impl fmt::Debug for Ban {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ban({self})")
    }
}

const fn span(time: Duration) -> Result<Span, QuotaError> {
    if time.is_zero() {
        return Err(QuotaError::ZeroPeriod);
    }
    if time.as_nanos() > MAX_PERIOD.as_nanos() {
        return Err(QuotaError::PeriodTooLong { period: time });
    }
    match whole_micros(time) {
        Some(us) => Ok(Span::of_us(us)),
        None => Err(QuotaError::PeriodNotWhole { period: time }),
    }
}

#[track_caller]
const fn built(ban: Result<Ban, QuotaError>) -> Ban {
    match ban {
        Ok(ban) => ban,
        #[expect(
            clippy::panic,
            reason = "literals fail while they are built, by design"
        )]
        Err(error) => panic!("{}", error.reason()),
    }
}
