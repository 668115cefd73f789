//! Calendars: the days, weeks, months and years of a time zone.
//!
//! The start and the end of a window are a pure function of a time: the zones' rules are tables within the program, so that
//! neither a file nor a clock is read.

#[cfg(feature = "calendar")]
mod dates;
#[cfg(not(feature = "calendar"))]
#[path = "calendar/absent.rs"]
mod dates;
mod span;
mod text;
mod zone;

use std::time::Duration;

pub(crate) use self::text::is_calendar;
pub use self::zone::Zone;

use self::dates::Window;
use self::span::Span;

/// The windows of a calendar: days, weeks, months or years, as the clocks of a time zone tell them.
///
/// A day begins with its first instant on those clocks. It has 23 or 25 hours where they change, it begins at one o'clock where
/// they skip midnight, and a day that they skip altogether, as Samoa's 30 December 2011, has no window. Weeks begin on Monday,
/// months on the first, and years on 1 January, unless `from` names another day in the text.
///
/// A [`Quota`](crate::Quota) is decided by one through [`Quota::per_calendar`](crate::Quota::per_calendar). The days of all zones
/// are those of the version of the IANA's data that this library was built with. If two processes have different versions, a
/// window ends at the time that the process which began it stated.
///
/// Calendars need the feature `calendar`.
///
/// # As text
///
/// `day`, `week`, `month` or `year`, `in ZONE`, and `from` with a weekday, a day of the month (1 to 28) or a month and a day:
///
/// ```
/// # #[cfg(feature = "calendar")] {
/// use tollgate::{Calendar, Zone};
///
/// let berlin: Zone = "Europe/Berlin".parse()?;
/// assert_eq!("month in Europe/Berlin".parse(), Ok(Calendar::month(berlin)));
///
/// let billed: Calendar = "month in Europe/Berlin from 15".parse()?;
/// let fiscal: Calendar = "year in Europe/London from 04-06".parse()?;
/// let week: Calendar = "week in UTC from sunday".parse()?;
/// assert_eq!(billed.to_string(), "month in Europe/Berlin from 15");
///
/// // No month of February has a 30th day.
/// assert!("month in Europe/Berlin from 30".parse::<Calendar>().is_err());
/// # }
/// # Ok::<(), tollgate::ParseQuotaError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Calendar {
    span: Span,
    zone: Zone,
}

impl Calendar {
    /// The days of this zone.
    ///
    /// ```
    /// # #[cfg(feature = "calendar")] {
    /// use tollgate::{Calendar, Zone};
    ///
    /// const DAYS: Calendar = Calendar::day(Zone::UTC);
    /// assert_eq!(DAYS.to_string(), "day in UTC");
    /// # }
    /// ```
    #[must_use]
    pub const fn day(zone: Zone) -> Self {
        Self {
            span: Span::Day,
            zone,
        }
    }

    /// The weeks of this zone, from Monday to Sunday.
    ///
    /// ```
    /// # #[cfg(feature = "calendar")] {
    /// use tollgate::{Calendar, Zone};
    ///
    /// assert_eq!(Calendar::week(Zone::UTC).to_string(), "week in UTC");
    /// # }
    /// ```
    #[must_use]
    pub const fn week(zone: Zone) -> Self {
        Self {
            span: Span::Week { weekday: 1 },
            zone,
        }
    }

    /// The months of this zone, from the first of each.
    ///
    /// ```
    /// # #[cfg(feature = "calendar")] {
    /// use tollgate::{Calendar, Zone};
    ///
    /// assert_eq!(Calendar::month(Zone::UTC).to_string(), "month in UTC");
    /// # }
    /// ```
    #[must_use]
    pub const fn month(zone: Zone) -> Self {
        Self {
            span: Span::Month { day: 1 },
            zone,
        }
    }

    /// The years of this zone, from 1 January.
    ///
    /// ```
    /// # #[cfg(feature = "calendar")] {
    /// use tollgate::{Calendar, Zone};
    ///
    /// assert_eq!(Calendar::year(Zone::UTC).to_string(), "year in UTC");
    /// # }
    /// ```
    #[must_use]
    pub const fn year(zone: Zone) -> Self {
        Self {
            span: Span::Year { month: 1, day: 1 },
            zone,
        }
    }

    /// The time zone.
    ///
    /// ```
    /// # #[cfg(feature = "calendar")] {
    /// use tollgate::{Calendar, Zone};
    ///
    /// assert_eq!(Calendar::day(Zone::UTC).zone(), Zone::UTC);
    /// # }
    /// ```
    #[must_use]
    pub const fn zone(self) -> Zone {
        self.zone
    }

    /// The usual length of its windows, the longest if it varies: 24 hours, 7 days, 31 days or 366 days.
    ///
    /// ```
    /// # #[cfg(feature = "calendar")] {
    /// use std::time::Duration;
    /// use tollgate::{Calendar, Zone};
    ///
    /// let day = Duration::from_secs(24 * 60 * 60);
    /// assert_eq!(Calendar::month(Zone::UTC).period(), 31 * day);
    /// # }
    /// ```
    #[must_use]
    pub const fn period(self) -> Duration {
        let days = match self.span {
            Span::Day => 1,
            Span::Week { .. } => 7,
            Span::Month { .. } => 31,
            Span::Year { .. } => 366,
        };
        Duration::from_secs(days * 24 * 60 * 60)
    }

    /// The bounds of the windows around a time, in microseconds since the epoch, for backends that decide elsewhere: the starts of
    /// the two windows before the time's own, of its own, and of the four after it. Each ends where the next begins. Before the
    /// epoch all bounds are 0.
    ///
    /// ```
    /// # #[cfg(feature = "calendar")] {
    /// use tollgate::{Calendar, Zone};
    ///
    /// let day = 86_400_000_000;
    /// let bounds = Calendar::day(Zone::UTC).bounds_around(10 * day + 5);
    /// assert_eq!(bounds, [8, 9, 10, 11, 12, 13, 14].map(|days| days * day));
    /// # }
    /// ```
    #[must_use]
    pub fn bounds_around(self, time_us: u64) -> [u64; 7] {
        let mut window = Window::holding(self.span, self.zone.0, time_us);
        for _ in 0..2 {
            window = window.preceding(self.span, self.zone.0);
        }
        std::array::from_fn(|_| {
            let start_us = window.start_us();
            window = window.following(self.span, self.zone.0);
            start_us
        })
    }

    /// The start and the end of the window that holds a time, and the end of the one behind it.
    pub(crate) fn window(self, time_us: u64) -> [u64; 3] {
        let window = Window::holding(self.span, self.zone.0, time_us);
        let next = window.following(self.span, self.zone.0);
        [window.start_us(), next.start_us(), next.end_us()]
    }
}
