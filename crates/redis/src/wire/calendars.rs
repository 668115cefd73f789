//! The bounds of calendars' windows that travel with a call.
//!
//! The script knows no time zones, and this process does not know the server's time. So a call has the bounds of two windows each
//! way around this process's time, and the server's time chooses among them. A server's time outside of them is an error: the two
//! clocks differ by days.

use std::time::SystemTime;

use smallvec::SmallVec;
use tollgate_core::{BackendError, Calendar, FailureKind, Timestamp};

/// The number of bounds that travel: see [`Calendar::bounds_around`].
pub(super) const BOUNDS: usize = 7;
/// The place of the last window's end. The bound behind it tells how far ahead a state may lie.
const LAST_END: usize = BOUNDS - 2;

/// The calendars of one call, all at one time, which is read when the first is met.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Calendars {
    time_us: Option<u64>,
    known: SmallVec<[(Calendar, [u64; BOUNDS]); 1]>,
}

impl Calendars {
    /// The calendars at this time, in place of the system's.
    pub(super) fn at(time_us: u64) -> Self {
        Self {
            time_us: Some(time_us),
            ..Self::default()
        }
    }

    /// The bounds of the windows around this process's time.
    pub(super) fn bounds(&mut self, calendar: Calendar) -> [u64; BOUNDS] {
        if let Some(bounds) = self.find(calendar) {
            return *bounds;
        }
        let time_us = *self.time_us.get_or_insert_with(system_time_us);
        let bounds = calendar.bounds_around(time_us);
        self.known.push((calendar, bounds));
        bounds
    }

    fn find(&self, calendar: Calendar) -> Option<&[u64; BOUNDS]> {
        let mut known = self.known.iter();
        let found = known.find(|(known, _)| *known == calendar)?;
        Some(&found.1)
    }

    /// Says whether the server's time lies in one of the windows that travelled.
    ///
    /// # Errors
    ///
    /// If it does not: then the script has decided nothing.
    pub(super) fn check(&self, calendar: Calendar, server: Timestamp) -> Result<(), BackendError> {
        let server_us = server.as_micros();
        // A reset names no window, and a foreign call has none.
        let holds = |bounds: &[u64; BOUNDS]| bounds[0] <= server_us && server_us < bounds[LAST_END];
        match self.find(calendar) {
            Some(bounds) if holds(bounds) => Ok(()),
            _ => Err(apart(server_us, self.time_us.unwrap_or_default())),
        }
    }
}

fn system_time_us() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let us = since.map_or(0, |since| since.as_micros());
    Timestamp::from_micros(u64::try_from(us).unwrap_or(u64::MAX)).as_micros()
}

fn apart(server_us: u64, process_us: u64) -> BackendError {
    let (server_s, process_s) = (server_us / 1_000_000, process_us / 1_000_000);
    BackendError::new(
        FailureKind::Unready,
        format!(
            "the clocks differ by more than two windows of a calendar: the server's shows {server_s} and this process's \
             {process_s}, in seconds since 1970"
        ),
    )
}

#[cfg(test)]
mod tests {
    use tollgate_core::Zone;

    use super::*;

    const DAY_US: u64 = 86_400_000_000;

    #[test]
    fn a_server_within_two_days_of_this_process_is_served() {
        // given
        let days = Calendar::day(Zone::UTC);
        let mut calendars = Calendars::at(100 * DAY_US + 5);
        let bounds = calendars.bounds(days);
        assert_eq!(bounds, std::array::from_fn(|n| (98 + n as u64) * DAY_US));

        // when
        let check = |server_us| calendars.check(days, Timestamp::from_micros(server_us));

        // then
        assert!(check(98 * DAY_US).is_ok() && check(103 * DAY_US - 1).is_ok());
        for server_us in [98 * DAY_US - 1, 103 * DAY_US] {
            let error = check(server_us).unwrap_err();
            assert_eq!(error.kind(), FailureKind::Unready);
            let (server_s, process_s) = (server_us / 1_000_000, 100 * DAY_US / 1_000_000);
            assert_eq!(
                error.detail(),
                format!(
                    "the clocks differ by more than two windows of a calendar: the server's shows {server_s} and this \
                     process's {process_s}, in seconds since 1970"
                )
            );
        }
    }

    #[test]
    fn a_calendar_that_no_charge_named_is_an_error() {
        let calendars = Calendars::at(100 * DAY_US);
        let now = Timestamp::from_micros(100 * DAY_US);
        assert!(calendars.check(Calendar::day(Zone::UTC), now).is_err());
    }
}
