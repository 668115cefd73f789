//! The words of the decide form, by which gateways ask the script that tells them what came out: see `lua/README.md`.

use tollgate_core::{Charge, Mode, Timestamp, Unit};

use super::calendars::Calendars;
use super::numbers::{Words, put};
use super::request::{ENFORCE, Interval, PROBE, SHADOW, put_charge};

/// The onset of a ban by hand, which strikes by itself.
const IMPOSED: u8 = 2;

/// A charge of a call, by a calendar as it stands at this time. If it is a ban, it guards the charges whose bits are set, the
/// first for the charge directly before it. `None` if the form does not decide about such charges.
pub(crate) fn words(charge: &Charge<'_>, guards: u32, time: Timestamp) -> Option<Words> {
    let quota = charge.quota;
    let mode = match charge.mode {
        Mode::Enforce => ENFORCE,
        Mode::Shadow => SHADOW,
        Mode::Probe => PROBE,
        _ => return None,
    };
    let mut words = Words::new();
    // Above the capacity no cost passes, however large.
    let cost = charge.cost.min(quota.capacity() + 1);
    let mut calendars = Calendars::at(time.as_micros());
    put_charge(&mut words, mode, cost, quota, &mut calendars);
    match quota.unit() {
        Unit::Gcra if quota.waits() => return None,
        Unit::Gcra => {
            let period_us = u64::try_from(quota.period().as_micros()).unwrap_or(u64::MAX);
            let (us, rest) = Interval::of(period_us, quota.limit()).times(1);
            put(&mut words, us);
            put(&mut words, rest);
        }
        Unit::Ban => {
            let onset = quota.ban().map_or(IMPOSED, |ban| ban.figures().1);
            if onset == IMPOSED || cost > 0 {
                return None;
            }
            words.extend_from_slice(&guards.to_le_bytes());
        }
        Unit::Held | Unit::Once => return None,
        Unit::FixedWindow { .. }
        | Unit::SlidingWindow { .. }
        | Unit::RollingWindow { .. }
        | Unit::SlidingLog { .. }
        | Unit::IntervalRefill { .. }
        | Unit::Calendar(_) => {}
    }
    Some(words)
}
