//! The periods that Envoy has words for.

use std::time::Duration;

use crate::proto::rate_limit_response::rate_limit::Unit;

/// The units with their seconds. A month and a year are those of envoy/ratelimit: 30 and 365 days.
const UNITS: [(Unit, u64); 7] = [
    (Unit::Second, 1),
    (Unit::Minute, 60),
    (Unit::Hour, 3_600),
    (Unit::Day, 86_400),
    (Unit::Week, 604_800),
    (Unit::Month, 2_592_000),
    (Unit::Year, 31_536_000),
];

/// The unit that is so many seconds long.
pub(crate) fn unit_of(seconds: u64) -> Unit {
    let found = UNITS.iter().find(|(_, length)| *length == seconds);
    found.map_or(Unit::Unknown, |(unit, _)| *unit)
}

/// The unit of this name, in whatever case.
pub(crate) fn unit_named(name: &str) -> Option<Unit> {
    let mut units = UNITS.iter().map(|(unit, _)| *unit);
    units.find(|unit| unit.as_str_name().eq_ignore_ascii_case(name))
}

/// The length of a unit; zero for the unknown one.
pub(crate) fn period(unit: Unit) -> Duration {
    let found = UNITS.iter().find(|(known, _)| *known == unit);
    Duration::from_secs(found.map_or(0, |(_, seconds)| *seconds))
}
