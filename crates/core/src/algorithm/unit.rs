//! The units of states, and how they are told outside of the process: in the names of states, and on wires.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use crate::Calendar;

/// The unit that the states of a quota are counted in. Quotas of one unit can read each other's states, whatever their limits.
///
/// Not `#[non_exhaustive]`, on purpose: a backend that keeps states elsewhere has to know each unit. One that forgot a new one
/// would give its states another unit's names, and so it does not compile.
///
/// `Display` is how a unit stands in the name of a state, `f60000000+0`, and [`read`](Self::read) reads it back.
///
/// ```
/// use tollgate::{Quota, Unit};
///
/// let day: Quota = "1000/day fixed-window offset 6h".parse()?;
/// let unit = day.unit();
/// assert_eq!((unit.number(), unit.letter()), (2, 'f'));
/// assert_eq!(unit.period_us(), Some(86_400_000_000));
/// assert_eq!(unit.detail(), Some(('+', 21_600_000_000)));
///
/// let text = unit.to_string();
/// assert_eq!(text, "f86400000000+21600000000");
/// assert_eq!(Unit::read(&text), Some(unit));
/// # Ok::<(), tollgate::ParseQuotaError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(
    missing_docs,
    reason = "each is the algorithm of its name, with the parameters that its states depend on"
)]
pub enum Unit {
    Gcra,
    FixedWindow { period_us: u64, offset_us: u64 },
    SlidingWindow { period_us: u64 },
    RollingWindow { period_us: u64, buckets: u32 },
    SlidingLog { period_us: u64 },
    IntervalRefill { period_us: u64, offset_us: u64 },
    Calendar(Calendar),
    Held,
    Ban,
    Once,
}

/// The kinds of units, one line each: the number on wires, and the letter in names. The number and the letter are never reused
/// for another kind, since states outlive the process that wrote them. Behind the kinds stand the numbers of rules whose states
/// are of a kind above.
macro_rules! kinds {
    ($($kind:ident $number:literal $letter:literal,)+ ; $($rule:ident $rule_number:literal,)+) => {
        /// A number that stands twice in the list does not compile.
        #[derive(Clone, Copy)]
        #[repr(u8)]
        enum WireNumber {
            $($kind = $number,)+
            $($rule = $rule_number,)+
        }

        #[derive(Clone, Copy)]
        enum Kind {
            $($kind,)+
        }

        impl Kind {
            const ALL: &[Self] = &[$(Self::$kind,)+];

            const fn number(self) -> u8 {
                match self {
                    $(Self::$kind => WireNumber::$kind as u8,)+
                }
            }

            const fn letter(self) -> char {
                match self {
                    $(Self::$kind => $letter,)+
                }
            }
        }
    };
}

kinds! {
    Gcra 1 'g',
    FixedWindow 2 'f',
    SlidingWindow 3 's',
    RollingWindow 4 'r',
    SlidingLog 5 'l',
    Held 6 'h',
    Ban 8 'b',
    IntervalRefill 9 'i',
    Calendar 10 'c',
    Once 12 'o',
    ;
    Turns 7,
    WarmUp 11,
}

impl Unit {
    /// The number on wires of [`Gcra`](Self::Gcra) under which requests wait for their turn. Its states are those of GCRA.
    pub const TURNS_NUMBER: u8 = WireNumber::Turns as u8;

    /// The number on wires of [`Gcra`](Self::Gcra) that warms up. Its states are those of GCRA, behind those of a store.
    pub const WARM_UP_NUMBER: u8 = WireNumber::WarmUp as u8;

    const fn kind(self) -> Kind {
        match self {
            Self::Gcra => Kind::Gcra,
            Self::FixedWindow { .. } => Kind::FixedWindow,
            Self::SlidingWindow { .. } => Kind::SlidingWindow,
            Self::RollingWindow { .. } => Kind::RollingWindow,
            Self::SlidingLog { .. } => Kind::SlidingLog,
            Self::IntervalRefill { .. } => Kind::IntervalRefill,
            Self::Calendar(_) => Kind::Calendar,
            Self::Held => Kind::Held,
            Self::Ban => Kind::Ban,
            Self::Once => Kind::Once,
        }
    }

    /// The number of the algorithm on wires: not 0, and no other algorithm's.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.kind().number()
    }

    /// The letter of the algorithm in names: ASCII, and no other algorithm's.
    #[must_use]
    pub const fn letter(self) -> char {
        self.kind().letter()
    }

    /// The length of a window, if states depend on it.
    #[must_use]
    pub const fn period_us(self) -> Option<u64> {
        match self {
            Self::Gcra | Self::Calendar(_) | Self::Held | Self::Ban | Self::Once => None,
            Self::FixedWindow { period_us, .. }
            | Self::SlidingWindow { period_us }
            | Self::RollingWindow { period_us, .. }
            | Self::SlidingLog { period_us }
            | Self::IntervalRefill { period_us, .. } => Some(period_us),
        }
    }

    /// The other figure that states depend on, if there is one beside the period: the number, and the ASCII sign that stands
    /// before it in names.
    #[must_use]
    pub const fn detail(self) -> Option<(char, u64)> {
        match self {
            Self::FixedWindow { offset_us, .. } | Self::IntervalRefill { offset_us, .. } => {
                Some(('+', offset_us))
            }
            Self::RollingWindow { buckets, .. } => Some(('x', buckets as u64)),
            _ => None,
        }
    }

    /// The calendar, if windows are its own.
    ///
    /// ```
    /// use tollgate::{Quota, Unit};
    ///
    /// assert_eq!(Unit::Gcra.calendar(), None);
    /// # #[cfg(feature = "calendar")] {
    /// let quota: Quota = "1000/month in Europe/Berlin".parse()?;
    /// let calendar = quota.unit().calendar().expect("a calendar");
    /// assert_eq!(calendar.to_string(), "month in Europe/Berlin");
    /// # }
    /// # Ok::<(), tollgate::ParseQuotaError>(())
    /// ```
    #[must_use]
    pub const fn calendar(self) -> Option<Calendar> {
        match self {
            Self::Calendar(calendar) => Some(calendar),
            _ => None,
        }
    }

    /// The unit of this text; `None` if `Display` writes no such text. The numbers need not be those of a quota that exists.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let letter = text.chars().next()?;
        let numbers = text.strip_prefix(letter)?;
        let kind = Kind::ALL.iter().find(|kind| kind.letter() == letter)?;
        let unit = match kind {
            Kind::Gcra => Self::Gcra,
            Kind::FixedWindow => {
                let (period_us, offset_us) = pair(numbers, '+')?;
                Self::FixedWindow {
                    period_us,
                    offset_us,
                }
            }
            Kind::SlidingWindow => Self::SlidingWindow {
                period_us: numbers.parse().ok()?,
            },
            Kind::RollingWindow => {
                let (period_us, buckets) = pair(numbers, 'x')?;
                Self::RollingWindow { period_us, buckets }
            }
            Kind::SlidingLog => Self::SlidingLog {
                period_us: numbers.parse().ok()?,
            },
            Kind::IntervalRefill => {
                let (period_us, offset_us) = pair(numbers, '+')?;
                Self::IntervalRefill {
                    period_us,
                    offset_us,
                }
            }
            Kind::Calendar => Self::Calendar(Calendar::of_name(numbers)?),
            Kind::Held => Self::Held,
            Kind::Ban => Self::Ban,
            Kind::Once => Self::Once,
        };
        // Each unit has one text: without a `+` the number is 1.
        (unit.to_string() == text).then_some(unit)
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char(self.letter())?;
        if let Some(period_us) = self.period_us() {
            write!(f, "{period_us}")?;
        }
        if let Some((sign, number)) = self.detail() {
            write!(f, "{sign}{number}")?;
        }
        if let Some(calendar) = self.calendar() {
            f.write_str(&calendar.to_name())?;
        }
        Ok(())
    }
}

fn pair<A: FromStr, B: FromStr>(numbers: &str, between: char) -> Option<(A, B)> {
    let (first, second) = numbers.split_once(between)?;
    Some((first.parse().ok()?, second.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_unit_has_the_number_the_letter_or_the_text_of_another() {
        let period_us = 60_000_000;
        let units = [
            (Unit::Gcra, 1, "g"),
            (
                Unit::FixedWindow {
                    period_us,
                    offset_us: 5,
                },
                2,
                "f60000000+5",
            ),
            (Unit::SlidingWindow { period_us }, 3, "s60000000"),
            (
                Unit::RollingWindow {
                    period_us,
                    buckets: 10,
                },
                4,
                "r60000000x10",
            ),
            (Unit::SlidingLog { period_us }, 5, "l60000000"),
            (Unit::Held, 6, "h"),
            (Unit::Ban, 8, "b"),
            (Unit::Once, 12, "o"),
            (
                Unit::IntervalRefill {
                    period_us,
                    offset_us: 5,
                },
                9,
                "i60000000+5",
            ),
        ];
        #[cfg(feature = "calendar")]
        let units = {
            let days = Calendar::day(crate::Zone::UTC);
            let mut units = units.to_vec();
            units.push((Unit::Calendar(days), 10, "cday@UTC"));
            units
        };
        let without_zones = usize::from(cfg!(not(feature = "calendar")));
        assert_eq!(units.len() + without_zones, Kind::ALL.len());
        for (unit, number, text) in units.iter().copied() {
            assert_eq!((unit.number(), &*unit.to_string()), (number, text));
            assert_eq!(Unit::read(text), Some(unit));
        }
        let letters: HashSet<_> = Kind::ALL.iter().map(|kind| kind.letter()).collect();
        let numbers: HashSet<_> = Kind::ALL.iter().map(|kind| kind.number()).collect();
        let all = Kind::ALL.len();
        assert_eq!((letters.len(), numbers.len()), (all, all));
        assert!(letters.iter().all(char::is_ascii) && !numbers.contains(&0));
    }

    #[test]
    fn a_text_that_no_unit_has_is_none() {
        for text in [
            "",
            "g1",
            "h1",
            "b1",
            "q5",
            "f5",
            "f+5",
            "f5+",
            "i5",
            "i5x2",
            "s+5",
            "s05",
            "r5x",
            "é",
            "c",
            "cday@",
            "cday@utc",
            "cmonth@UTC",
            "cmonth01@UTC",
            "cmonth29@UTC",
            "cweek8@UTC",
            "cyear2-29@UTC",
            "cyear4-6",
            "cday@Mars/Phobos",
        ] {
            assert_eq!(Unit::read(text), None, "{text}");
        }
    }
}
