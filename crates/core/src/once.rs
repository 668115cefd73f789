//! Charges that count once, although the request comes again.

use std::fmt;
use std::time::Duration;

use crate::algorithm::{OnceRule, PackedInteger, Rule};
use crate::{Charge, MAX_ONCE_LIFE, MAX_REPLAYS, Quota, QuotaError};

/// The terms by which requests with one id are charged once: for how long an id is remembered, and how often a request may come
/// again uncharged. 30 seconds and two replays unless set.
///
/// Only admissions are remembered. After as many replays, or after the id's life, the next request with the id is charged like
/// any other. A caller with one id for ever spends a budget at a third of the usual rate, and no slower.
///
/// ```
/// use tollgate::{Call, Charge, ImmediateBackend, Key, MemoryBackend, Mode, Once, Quota, Scope};
///
/// let backend = MemoryBackend::new();
/// let (quota, once) = (Quota::per_hour(5), Quota::from(Once::default()));
/// let caller = Key::from("alice");
/// let order = Charge {
///     scope: Scope::of("orders", 0, &quota),
///     quota: &quota,
///     key: &caller,
///     cost: 1,
///     mode: Mode::Enforce,
/// };
/// let id = Charge {
///     scope: Scope::of("orders", 0, &once),
///     quota: &once,
///     key: &Key::tuple([&caller, &Key::from("order-7")]),
///     ..order
/// };
/// for left in [4, 4, 4, 3] {
///     let decision = backend.decide_now(Call::of(&[order, id]))?;
///     assert_eq!(decision.verdicts()[0].remaining(), left);
/// }
/// # Ok::<(), tollgate::BackendError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Once(OnceRule);

impl Once {
    /// Remembers an id for this long after its admission, and lets two replays pass.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Once, QuotaError};
    ///
    /// let week = Duration::from_secs(7 * 86_400);
    /// assert_eq!(Once::try_within(week), Err(QuotaError::OnceLife { life: week }));
    /// assert!(Once::try_within(Duration::from_secs(3600)).is_ok());
    /// ```
    ///
    /// # Errors
    ///
    /// If the time is zero, longer than [`MAX_ONCE_LIFE`](crate::MAX_ONCE_LIFE), or not a whole number of microseconds.
    pub fn try_within(life: Duration) -> Result<Self, QuotaError> {
        if life.is_zero() {
            return Err(QuotaError::ZeroPeriod);
        }
        if life > MAX_ONCE_LIFE {
            return Err(QuotaError::OnceLife { life });
        }
        let us = u64::try_from(life.as_micros()).unwrap_or(u64::MAX);
        if Duration::from_micros(us) != life {
            return Err(QuotaError::PeriodNotWhole { period: life });
        }
        Ok(Self(OnceRule {
            life_us: PackedInteger::of(us),
            replays: 2,
        }))
    }

    /// Lets this many replays pass uncharged.
    ///
    /// ```
    /// use tollgate::{Once, QuotaError};
    ///
    /// assert_eq!(Once::default().try_replays(0), Err(QuotaError::Replays { replays: 0 }));
    /// assert!(Once::default().try_replays(1).is_ok());
    /// ```
    ///
    /// # Errors
    ///
    /// If they are not 1 to [`MAX_REPLAYS`](crate::MAX_REPLAYS).
    pub fn try_replays(self, replays: u64) -> Result<Self, QuotaError> {
        match u8::try_from(replays) {
            Ok(few @ 1..) if replays <= MAX_REPLAYS => Ok(Self(OnceRule {
                replays: few,
                ..self.0
            })),
            _ => Err(QuotaError::Replays { replays }),
        }
    }

    /// The life in microseconds, and the replays. For backends.
    #[doc(hidden)]
    #[must_use]
    pub const fn figures(&self) -> (u64, u8) {
        (self.0.life_us.get(), self.0.replays)
    }
}

impl Default for Once {
    fn default() -> Self {
        Self(OnceRule {
            life_us: PackedInteger::of(30_000_000),
            replays: 2,
        })
    }
}

impl From<Once> for Quota {
    fn from(once: Once) -> Self {
        Self::counting_once(once.0)
    }
}

impl fmt::Display for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let life = Duration::from_micros(self.0.life_us.get());
        write!(f, "once within {life:?}, {} replays", self.0.replays)
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Once({self})")
    }
}

impl Quota {
    /// The terms, if this stands for charges that count once.
    ///
    /// ```
    /// use tollgate::{Once, Quota};
    ///
    /// assert_eq!(Quota::from(Once::default()).once(), Some(Once::default()));
    /// assert_eq!(Quota::per_second(5).once(), None);
    /// ```
    #[must_use]
    pub fn once(&self) -> Option<Once> {
        match self.rule() {
            Rule::Once(rule) => Some(Once(*rule)),
            _ => None,
        }
    }

    /// Says whether this is [`Once`], which has no budget.
    ///
    /// ```
    /// use tollgate::{Once, Quota};
    ///
    /// assert!(Quota::from(Once::default()).is_once());
    /// assert!(!Quota::per_second(5).is_once());
    /// ```
    #[must_use]
    #[inline]
    pub const fn is_once(&self) -> bool {
        matches!(self.rule(), Rule::Once(_))
    }
}

impl Charge<'_> {
    /// Says whether this is the id of `other`: [`Once`] of the same policy and in the same mode, beside a budget.
    pub(crate) fn is_id_of(&self, other: &Self) -> bool {
        let is_budget = !other.quota.is_ban() && !other.quota.is_held();
        is_budget && self.is_id_beside(other)
    }

    /// Says whether this is [`Once`] of the policy of `other` and in its mode, and `other` is not an id itself. For backends.
    #[doc(hidden)]
    #[must_use]
    pub fn is_id_beside(&self, other: &Self) -> bool {
        let is_together = self.mode == other.mode && self.scope.is_of_policy_of(other.scope);
        self.quota.is_once() && !other.quota.is_once() && is_together
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ban, Concurrent, Key, Mode, Scope};

    const MICROSECOND: Duration = Duration::from_micros(1);

    #[test]
    fn terms_have_whole_lives_and_some_replays_within_their_bounds() {
        let terms = |life: Duration, replays| Once::try_within(life)?.try_replays(replays);
        let bound = MAX_ONCE_LIFE;
        for (life, replays) in [(MICROSECOND, 1), (bound, MAX_REPLAYS), (MICROSECOND * 7, 3)] {
            let us = u64::try_from(life.as_micros()).expect("a life");
            let figures = terms(life, replays).map(|once| once.figures());
            let figures = figures.map(|(us, replays)| (us, u64::from(replays)));
            assert_eq!(figures, Ok((us, replays)), "{life:?}");
        }
        assert_eq!(Once::default().figures(), (30_000_000, 2));
        assert_eq!(
            Once::try_within(MICROSECOND).map(|once| once.figures()),
            Ok((1, 2))
        );

        let life = bound + MICROSECOND;
        assert_eq!(terms(life, 2), Err(QuotaError::OnceLife { life }));
        let period = MICROSECOND + Duration::from_nanos(1);
        assert_eq!(terms(period, 2), Err(QuotaError::PeriodNotWhole { period }));
        assert_eq!(terms(Duration::ZERO, 2), Err(QuotaError::ZeroPeriod));
        for replays in [0, MAX_REPLAYS + 1, 255, 256, u64::MAX] {
            let refused = terms(MICROSECOND, replays);
            assert_eq!(refused, Err(QuotaError::Replays { replays }));
        }
    }

    #[test]
    fn a_quota_tells_its_terms_of_ids() {
        let once = Once::try_within(MICROSECOND).expect("terms");

        assert_eq!(Quota::from(once).once(), Some(once));
        assert!(Quota::from(once).is_once());
        assert_eq!(Quota::per_second(5).once(), None);
        assert!(!Quota::per_second(5).is_once());
    }

    #[test]
    fn an_id_belongs_to_the_budgets_of_its_policy_and_mode() {
        let once = Quota::from(Once::default());
        let quota = Quota::per_day(5);
        let ban = Quota::from(Ban::after(2, MICROSECOND * 7).lasting(MICROSECOND));
        let held = Quota::from(Concurrent::at_most(3));
        let key = Key::from("alice");
        let charge = |policy, quota, mode| Charge {
            scope: Scope::of(policy, 0, quota),
            quota,
            key: &key,
            cost: 1,
            mode,
        };
        let id = charge("orders", &once, Mode::Enforce);

        for (other, is_of, is_beside) in [
            (charge("orders", &quota, Mode::Enforce), true, true),
            (charge("orders", &held, Mode::Enforce), false, true),
            (charge("orders", &ban, Mode::Enforce), false, true),
            (charge("orders", &quota, Mode::Shadow), false, false),
            (charge("exports", &quota, Mode::Enforce), false, false),
            (id, false, false),
        ] {
            assert_eq!(id.is_id_of(&other), is_of, "{other:?}");
            assert_eq!(id.is_id_beside(&other), is_beside, "{other:?}");
            assert!(!other.is_id_beside(&id) && !other.is_id_of(&id));
        }
    }
}
