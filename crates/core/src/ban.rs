//! Bans: callers that are denied too often are kept out for a time.

mod text;

use std::fmt;
use std::hash::{Hash, Hasher};
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
#[derive(Clone, Copy)]
pub struct Ban {
    penalty: Penalty,
    /// True if the longest length was stated. Otherwise it follows the first one.
    doubles: bool,
    /// True if the quiet time was stated. Otherwise it follows the longest length.
    forgives: bool,
}

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
        Ok(Self {
            penalty: Penalty {
                strikes,
                onset: Onset::Struck,
                within,
                lasting: within,
                longest: within,
                forgiven: within,
            },
            doubles: false,
            forgives: false,
        })
    }

    /// A ban by an operator under the terms of this one: it begins at once, whatever the strikes, and shortens no ban that is in
    /// force already. It doubles nothing and forgives nothing.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Call, Ban, Charge, ImmediateBackend, Key, MemoryBackend, Mode, Quota, Scope};
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
    /// let _decision = backend.decide_now(Call::of(&[ban]))?;
    ///
    /// let guard = Quota::from(terms);
    /// let request = Charge { quota: &guard, cost: 0, mode: Mode::Enforce, ..ban };
    /// let decision = backend.decide_now(Call::of(&[request]))?;
    /// assert!(!decision.is_admitted() && decision.retry_after() > Some(Duration::from_secs(3590)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`try_lasting`](Self::try_lasting).
    pub const fn try_imposed(self, lasting: Duration) -> Result<Self, QuotaError> {
        match span(lasting) {
            Ok(lasting) => Ok(self.with(Penalty {
                onset: Onset::Imposed,
                lasting,
                ..self.penalty
            })),
            Err(error) => Err(error),
        }
    }

    /// This ban with another length.
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
    /// If the length is zero, longer than [`MAX_PERIOD`], not a whole number of microseconds, or longer than the ban may
    /// [double up to](Self::doubling_to).
    pub const fn try_lasting(self, length: Duration) -> Result<Self, QuotaError> {
        match span(length) {
            Ok(lasting) if self.doubles => self.growing(lasting, self.penalty.longest),
            Ok(lasting) => self.growing(lasting, lasting),
            Err(error) => Err(error),
        }
    }

    /// This ban, of which each lasts twice as long as the one before, up to `most`. A doubling is forgiven after a quiet time as
    /// long as `most`, unless [`forgiven_after`](Self::forgiven_after) states another.
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
        match span(most) {
            Ok(longest) => Self {
                doubles: true,
                ..self
            }
            .growing(self.penalty.lasting, longest),
            Err(error) => Err(error),
        }
    }

    /// This ban, of which each time of this length without a ban takes one doubling back. It needs
    /// [`doubling_to`](Self::doubling_to): no limiter is built with a ban that forgives and never doubles.
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
            Ok(forgiven) => Ok(Self {
                penalty: Penalty {
                    forgiven,
                    ..self.penalty
                },
                forgives: true,
                ..self
            }),
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
        self.with(Penalty {
            onset: Onset::Extended,
            ..self.penalty
        })
    }

    /// Refuses a ban that forgives doublings and never doubles. Its words may be stated in any order, so that it is checked where
    /// it is complete: at the end of a text, and when a limiter is built.
    #[doc(hidden)]
    pub const fn check(&self) -> Result<(), QuotaError> {
        if self.forgives && !self.doubles {
            return Err(QuotaError::ForgivenAlone);
        }
        Ok(())
    }

    const fn with(self, penalty: Penalty) -> Self {
        Self { penalty, ..self }
    }

    /// This ban with other lengths, in which a quiet time that was not stated follows the longest.
    const fn growing(self, lasting: Span, longest: Span) -> Result<Self, QuotaError> {
        if longest.us() < lasting.us() {
            return Err(QuotaError::Doubling {
                lasting: Duration::from_micros(lasting.us()),
                most: Duration::from_micros(longest.us()),
            });
        }
        let forgiven = if self.forgives {
            self.penalty.forgiven
        } else {
            longest
        };
        Ok(self.with(Penalty {
            lasting,
            longest,
            forgiven,
            ..self.penalty
        }))
    }

    /// The ban of this rule, whose words are those that make a difference.
    const fn of(penalty: Penalty) -> Self {
        let forgives = penalty.forgiven.us() != penalty.longest.us();
        Self {
            penalty,
            doubles: forgives || penalty.longest.us() > penalty.lasting.us(),
            forgives,
        }
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
        } = self.penalty;
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
        matches!(self.penalty.onset, Onset::Extended)
    }

    pub(crate) const fn penalty(&self) -> &Penalty {
        &self.penalty
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
            Some(Ban::of(*penalty))
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
        Self::banning(ban.penalty)
    }
}

/// Bans are equal if they do the same, however it was stated.
impl PartialEq for Ban {
    fn eq(&self, other: &Self) -> bool {
        self.penalty == other.penalty
    }
}

impl Eq for Ban {}

impl Hash for Ban {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.penalty.hash(state);
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

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    type Word = fn(Ban) -> Result<Ban, QuotaError>;

    fn lasting(ban: Ban) -> Result<Ban, QuotaError> {
        ban.try_lasting(15 * MINUTE)
    }

    fn doubling(ban: Ban) -> Result<Ban, QuotaError> {
        ban.try_doubling_to(60 * MINUTE)
    }

    fn forgiven(ban: Ban) -> Result<Ban, QuotaError> {
        ban.try_forgiven_after(20 * MINUTE)
    }

    /// The quiet time that holds if none is stated before it is.
    fn forgiven_as_unstated(ban: Ban) -> Result<Ban, QuotaError> {
        ban.try_forgiven_after(10 * MINUTE)
    }

    #[expect(
        clippy::unnecessary_wraps,
        reason = "a word among others that may fail"
    )]
    fn extending(ban: Ban) -> Result<Ban, QuotaError> {
        Ok(ban.extending())
    }

    fn said(words: &[Word]) -> Result<Ban, QuotaError> {
        let mut ban = Ban::try_after(5, 10 * MINUTE)?;
        for word in words {
            ban = word(ban)?;
        }
        Ok(ban)
    }

    /// Every order of these words.
    fn orders(words: &[Word]) -> Vec<Vec<Word>> {
        let Some((first, rest)) = words.split_first() else {
            return vec![Vec::new()];
        };
        let shorter = orders(rest).into_iter();
        let longer = shorter.flat_map(|order| {
            (0..=order.len()).map(move |place| {
                let mut longer = order.clone();
                longer.insert(place, *first);
                longer
            })
        });
        longer.collect()
    }

    #[test]
    fn the_order_of_a_bans_words_in_code_changes_nothing() {
        let cases: [(&str, &[Word]); 4] = [
            ("for 15min doubling to h", &[lasting, doubling]),
            (
                "for 10min doubling to h forgiven after 20min",
                &[doubling, forgiven],
            ),
            (
                "for 15min doubling to h forgiven after 20min extending",
                &[lasting, doubling, forgiven, extending],
            ),
            (
                "for 15min doubling to h forgiven after 10min",
                &[lasting, doubling, forgiven_as_unstated],
            ),
        ];
        for (text, words) in cases {
            for order in orders(words) {
                let ban = said(&order).unwrap();
                assert_eq!(ban.to_string(), format!("5 in 10min {text}"));
                assert_eq!(ban.check(), Ok(()));
            }
        }
        // Each word may be said anew, and the others stay.
        let anew = said(&[lasting, doubling, forgiven]).unwrap();
        let anew = anew.lasting(30 * MINUTE).doubling_to(90 * MINUTE);
        let text = "5 in 10min for 30min doubling to 90min forgiven after 20min";
        assert_eq!(text.parse(), Ok(anew));
    }

    #[test]
    fn a_first_length_above_the_longest_is_refused_in_either_order() {
        let error = QuotaError::Doubling {
            lasting: 90 * MINUTE,
            most: 60 * MINUTE,
        };
        let longer: Word = |ban| ban.try_lasting(90 * MINUTE);
        for order in orders(&[doubling, longer]) {
            assert_eq!(said(&order), Err(error));
        }
    }

    #[test]
    fn what_forgives_and_never_doubles_is_refused_when_it_is_complete() {
        for order in orders(&[lasting, forgiven_as_unstated, extending]) {
            assert_eq!(
                said(&order).unwrap().check(),
                Err(QuotaError::ForgivenAlone)
            );
        }
        assert_eq!(said(&[lasting, extending]).unwrap().check(), Ok(()));
    }

    #[test]
    fn a_ban_that_was_a_quota_is_the_ban_that_it_was() {
        let cases: [&[Word]; 4] = [
            &[],
            &[lasting],
            &[lasting, doubling],
            &[lasting, doubling, forgiven, extending],
        ];
        for words in cases {
            let ban = said(words).unwrap();
            let again = Quota::from(ban).ban().unwrap();
            assert_eq!((again, again.check()), (ban, Ok(())));
            // A word that is said anew finds the others.
            for word in [lasting, doubling, forgiven] {
                assert_eq!(word(again), word(ban), "{ban}");
            }
        }
    }

    #[test]
    fn sixty_four_strikes_within_the_longest_period_are_the_most() {
        assert!(Ban::try_after(64, MAX_PERIOD).is_ok());
        assert!(Ban::try_after(64, MAX_PERIOD + Duration::from_micros(1)).is_err());
        assert_eq!(
            Ban::try_after(65, MINUTE),
            Err(QuotaError::Strikes { strikes: 65 })
        );
    }

    /// A hasher without a random seed: hashes are equal in each run.
    const HASHER: std::hash::BuildHasherDefault<std::hash::DefaultHasher> =
        std::hash::BuildHasherDefault::new();

    #[test]
    fn bans_that_do_something_else_are_not_equal() {
        let ban = Ban::after(5, MINUTE);
        assert_ne!(ban, Ban::after(6, MINUTE));
        assert_ne!(ban, ban.extending());
        assert!(!ban.is_extending() && ban.extending().is_extending());
        let hash = |ban: Ban| std::hash::BuildHasher::hash_one(&HASHER, ban);
        assert_ne!(hash(ban), hash(ban.extending()));
    }

    /// The strikes that are left after each of the requests at these seconds, under a quota that lets one through, and whether the
    /// caller is banned then.
    fn after_each(ban: Quota, seconds: impl IntoIterator<Item = u64>) -> Vec<(u64, bool)> {
        use crate::{Call, Charge, Key, Mode, Scope, State, Timestamp, decide};

        let (quota, key) = (Quota::per_day(1), Key::from("a caller"));
        let quotas = [quota, ban];
        let charge = |slot: u16| Charge {
            scope: Scope::of("api", slot, &quotas[usize::from(slot)]),
            quota: &quotas[usize::from(slot)],
            key: &key,
            cost: 1 - u64::from(slot),
            mode: Mode::Enforce,
        };
        let mut states = quotas.map(|quota| State::full(&quota));
        let decided = seconds.into_iter().map(|second| {
            let at = Timestamp::from_micros(1_000_000_000 + second * 1_000_000);
            let decision = decide(at, Call::of(&[charge(0), charge(1)]), &mut states[..]);
            let verdict = decision.verdicts()[1];
            (verdict.remaining(), verdict.is_denied())
        });
        decided.collect()
    }

    #[test]
    fn a_denial_of_an_unheard_question_is_no_strike() {
        let ban = Quota::from(Ban::after(2, MINUTE));
        assert_eq!(after_each(ban, [0, 0])[1], (1, false));
        assert_eq!(after_each(ban.unheard(), [0, 0])[1], (2, false));
    }

    /// The first request passes, and each of the others is a strike, a second after the one before.
    #[test]
    fn the_last_of_64_strikes_bans_if_the_first_still_counts() {
        for (within, is_banned) in [(64, true), (63, false)] {
            let ban = Quota::from(Ban::after(64, Duration::from_secs(within)));
            let after = after_each(ban, 0..=64);
            assert!(after[..64].iter().all(|(_, banned)| !banned), "{within} s");
            assert_eq!(after[63], (1, false), "{within} s");
            assert_eq!(after[64].1, is_banned, "{within} s: {:?}", after[64]);
        }
    }
}
