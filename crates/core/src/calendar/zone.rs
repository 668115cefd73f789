//! Time zones.

use std::fmt;
use std::str::FromStr;

use super::dates::{self, Known};
use crate::ParseQuotaError;
use crate::words::syntax;

/// A time zone of the IANA's list, such as `Europe/Berlin`. A value of two bytes.
///
/// Its text is read in capitals or not, and written as the list has it. The rules of all zones up to the year 2099 are part of the
/// program; later years have the rules of the last. Zones need the feature `calendar`: without it no name is known.
///
/// ```
/// # #[cfg(feature = "calendar")] {
/// use tollgate::Zone;
///
/// let zone: Zone = "europe/berlin".parse()?;
/// assert_eq!(zone.name(), "Europe/Berlin");
/// assert_eq!("utc".parse(), Ok(Zone::UTC));
///
/// let error = "Europe/Bern".parse::<Zone>().unwrap_err();
/// assert!(error.to_string().contains("a time zone of the IANA's list"));
/// # }
/// # Ok::<(), tollgate::ParseQuotaError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Zone(pub(super) Known);

impl Zone {
    /// Coordinated universal time, which never changes its clocks.
    #[cfg(feature = "calendar")]
    pub const UTC: Self = Self(chrono_tz::Tz::UTC);

    /// The zone of this name, for literals: input from outside goes through [`FromStr`](std::str::FromStr).
    ///
    /// ```
    /// # #[cfg(feature = "calendar")] {
    /// use tollgate::{Calendar, Quota, Zone};
    ///
    /// let quota = Quota::per_calendar(1_000, Calendar::month(Zone::named("Europe/Berlin")));
    /// assert_eq!(quota.to_string(), "1000/month in Europe/Berlin");
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If the name is not in the list.
    #[must_use]
    #[track_caller]
    pub fn named(name: &str) -> Self {
        match name.parse() {
            Ok(zone) => zone,
            #[expect(
                clippy::panic,
                reason = "literals fail while they are built, by design"
            )]
            Err(error) => panic!("{error}"),
        }
    }

    /// The name in the list.
    #[must_use]
    pub fn name(self) -> &'static str {
        dates::name(self.0)
    }
}

impl FromStr for Zone {
    type Err = ParseQuotaError;

    fn from_str(text: &str) -> Result<Self, ParseQuotaError> {
        dates::find(text)
            .map(Self)
            .ok_or_else(|| syntax(text, dates::EXPECTED))
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
