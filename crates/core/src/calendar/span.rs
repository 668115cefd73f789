//! The windows of calendars, without their zone.

/// The days that make a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Span {
    Day,
    Week {
        /// The first day: 1 is Monday, and 7 is Sunday.
        weekday: u8,
    },
    Month {
        /// The first day: 1 to 28, which every month has.
        day: u8,
    },
    Year {
        /// The month of the first day: 1 to 12.
        month: u8,
        /// The first day: one that this month has in every year.
        day: u8,
    },
}

impl Span {
    /// The years from this day; `None` if it does not exist, or not in every year.
    pub(super) fn year_from(month: u8, day: u8) -> Option<Self> {
        let days = match month {
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => 0,
        };
        (1..=days)
            .contains(&day)
            .then_some(Self::Year { month, day })
    }
}
