//! Envoy's default format.

use std::borrow::Cow;

use super::dates::{Dates, number};
use super::fields::{Fields, address, microseconds, present, request_line};
use super::{Agent, Entry, Garbled, Parsed, UNKNOWN};

/// `[START_TIME] "METHOD PATH PROTOCOL" CODE FLAGS RECEIVED SENT DURATION UPSTREAM`, then in quotes `X-FORWARDED-FOR`,
/// `USER-AGENT`, `ID`, `AUTHORITY` and others.
pub(super) fn parse<'l>(line: &'l [u8], dates: &mut Dates) -> Result<Parsed<'l>, Garbled> {
    let mut fields = Fields(line);
    let time = fields
        .next()
        .and_then(|time| dates.iso(time))
        .ok_or("invalid time")?;
    let request = fields.quoted().ok_or("no \"request\"")?;
    let status = fields.word().and_then(number).ok_or("no status")?;
    let status = u16::try_from(status).map_err(|_| "no status")?;
    for _flags_and_bytes in 0..3 {
        fields.next().ok_or("ends before the addresses")?;
    }
    let duration = fields.next().ok_or("ends before the addresses")?;
    let _upstream = fields.next().ok_or("ends before the addresses")?;
    let forwarded = fields.quoted().ok_or("ends before the addresses")?;
    let agent = fields.quoted().and_then(present);
    let _id = fields.quoted();
    let authority = fields.quoted().and_then(present);
    let Some((method, target)) = request_line(request) else {
        return Ok(Parsed::Nothing);
    };
    // Envoy adds its peer at the end; what stands before comes from the caller.
    let last = forwarded
        .rsplit(|byte| *byte == b',')
        .next()
        .unwrap_or_default();
    let caller = address(last.trim_ascii());
    let caller = caller.ok_or("no address in X-Forwarded-For: set use_remote_address in Envoy")?;
    let mut entry = Entry::new(time, caller, method, target, status);
    entry.user_agent = Agent::of(agent);
    entry.host = authority.map(Cow::Borrowed);
    entry.duration_us = microseconds(duration, 1_000).unwrap_or(UNKNOWN);
    Ok(Parsed::Request(entry))
}
