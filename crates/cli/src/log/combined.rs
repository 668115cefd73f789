//! The combined format of nginx and Apache, and the common one, which lacks the last two fields.

use std::borrow::Cow;

use super::dates::{Dates, number};
use super::fields::{Fields, address, present, request_line};
use super::{Agent, Entry, Garbled, Parsed};

/// `203.0.113.7 - alice [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.1" 200 2326 "referrer" "user agent"`.
pub(super) fn parse<'l>(line: &'l [u8], dates: &mut Dates) -> Result<Parsed<'l>, Garbled> {
    let mut fields = Fields(line);
    let caller = fields
        .word()
        .and_then(address)
        .ok_or("no address at the beginning")?;
    fields.word().ok_or("ends before the time")?;
    let user = fields.word().ok_or("ends before the time")?;
    // A user may have a blank in its name.
    if fields.0.first() != Some(&b'[') {
        fields.until(0, b'[').ok_or("no [time]")?;
        fields.0 = &line[line.len() - fields.0.len() - 1..];
    }
    let time = match fields.0.get(27) {
        // As long as it nearly always is.
        Some(b']') => {
            let time = &fields.0[1..27];
            fields.0 = fields.0.get(29..).unwrap_or_default();
            time
        }
        _ => fields.until(1, b']').ok_or("no [time]")?,
    };
    let time_us = dates.common(time).ok_or("invalid time")?;
    let request = fields.quoted().ok_or("no \"request\"")?;
    let status = fields.word().and_then(number).ok_or("no status")?;
    let status = u16::try_from(status).map_err(|_| "no status")?;
    let Some((method, target)) = request_line(request) else {
        // A connection that sent no request, or no HTTP.
        return Ok(Parsed::Nothing);
    };
    let mut entry = Entry::new(time_us, caller, method, target, status);
    entry.user = present(user).map(Cow::Borrowed);
    entry.user_agent = Agent::Behind(fields.0);
    Ok(Parsed::Request(entry))
}

/// The program, in the rest of a line behind the status.
pub(super) fn user_agent(rest: &[u8]) -> Option<&[u8]> {
    let mut fields = Fields(rest);
    fields.word()?;
    fields.quoted()?;
    fields.quoted().and_then(present)
}
