//! Logs of AWS's application load balancer.

use std::borrow::Cow;

use super::dates::{Dates, number};
use super::fields::{Fields, address, microseconds, present, request_line};
use super::{Agent, Entry, Garbled, Parsed};

/// `http TIME BALANCER CLIENT:PORT TARGET:PORT T T T STATUS STATUS RECEIVED SENT "METHOD URL PROTOCOL" "USER-AGENT" ..`.
/// The time is that of the answer, unless it has to be that of the request's beginning.
pub(super) fn parse<'l>(
    line: &'l [u8],
    dates: &mut Dates,
    from_beginnings: bool,
) -> Result<Parsed<'l>, Garbled> {
    let mut fields = Fields(line);
    let _kind = fields.word();
    let time = fields
        .word()
        .and_then(|time| dates.iso(time))
        .ok_or("invalid time")?;
    let _balancer = fields.word();
    let client = fields.word().ok_or("ends before the client")?;
    let caller = without_port(client)
        .and_then(address)
        .ok_or("no address of a client")?;
    let _target = fields.word();
    let mut times = [&b""[..]; 3];
    for time in &mut times {
        *time = fields.word().ok_or("ends before the status")?;
    }
    // A client that left early has no status.
    let status = fields.word().ok_or("ends before the status")?;
    let status = present(status).map_or(Some(0), number).ok_or("no status")?;
    let status = u16::try_from(status).map_err(|_| "no status")?;
    for _target_status_and_bytes in 0..3 {
        fields.word().ok_or("ends before the request")?;
    }
    let request = fields.quoted().ok_or("no \"request\"")?;
    let Some((method, url)) = request_line(request) else {
        return Ok(Parsed::Nothing);
    };
    let (host, target) = split(url);
    let mut entry = Entry::new(time, caller, method, target, status);
    entry.host = host.map(Cow::Borrowed);
    entry.user_agent = Agent::of(fields.quoted().and_then(present));
    if from_beginnings {
        let duration = since_creation(time, fields, dates).or_else(|| sum(times));
        entry.ended(duration);
    }
    Ok(Parsed::Request(entry))
}

/// The microseconds since the balancer had the request, from the rest of a line behind the program:
/// `CIPHER PROTOCOL GROUP "TRACE" "DOMAIN" "CERTIFICATE" PRIORITY CREATION ..`.
fn since_creation(time_us: u64, mut rest: Fields<'_>, dates: &mut Dates) -> Option<u64> {
    for _up_to_the_priority in 0..7 {
        rest.next()?;
    }
    time_us.checked_sub(dates.iso(rest.word()?)?)
}

/// The times in seconds of the request, the target and the response. They are -1 if no target answered.
fn sum(times: [&[u8]; 3]) -> Option<u64> {
    let times = times.into_iter().map(|time| microseconds(time, 1_000_000));
    times.sum()
}

fn without_port(client: &[u8]) -> Option<&[u8]> {
    let end = memchr::memrchr(b':', client)?;
    let address = &client[..end];
    let inside = address
        .strip_prefix(b"[")
        .and_then(|rest| rest.strip_suffix(b"]"));
    Some(inside.unwrap_or(address))
}

/// The host and the target of a URL.
fn split(url: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let Some(scheme) = memchr::memmem::find(url, b"://") else {
        return (None, url);
    };
    let rest = &url[scheme + 3..];
    match memchr::memchr(b'/', rest) {
        Some(end) => (Some(&rest[..end]), &rest[end..]),
        None => (Some(rest), b"/"),
    }
}
