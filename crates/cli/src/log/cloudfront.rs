//! Logs of CloudFront: columns between tabs, named by a line before them.

use std::borrow::Cow;
use std::rc::Rc;

use super::dates::{Dates, number};
use super::fields::{address, microseconds, present};
use super::{Agent, Entry, Garbled, Parsed};

/// The places of the columns.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Columns {
    names: Rc<[String]>,
}

impl Columns {
    /// Reads a line. Its time is that of the response's end, unless it has to be that of the request's beginning.
    pub(super) fn parse<'l>(
        &mut self,
        line: &'l [u8],
        dates: &mut Dates,
        from_beginnings: bool,
    ) -> Result<Parsed<'l>, Garbled> {
        if let Some(comment) = line.strip_prefix(b"#") {
            if let Some(names) = comment.strip_prefix(b"Fields:") {
                let names = String::from_utf8_lossy(names);
                self.names = names.split_whitespace().map(str::to_owned).collect();
            }
            return Ok(Parsed::Nothing);
        }
        if self.names.is_empty() {
            return Err("no #Fields line stands before it");
        }
        let columns: Vec<&[u8]> = line.split(|byte| *byte == b'\t').collect();
        let column = |name: &str| {
            let place = self.names.iter().position(|known| known == name)?;
            columns.get(place).copied().and_then(present)
        };
        let (date, time) = (
            column("date").ok_or("no date")?,
            column("time").ok_or("no time")?,
        );
        let time_us = dates
            .iso(&[date, b"T", time].concat())
            .ok_or("invalid time")?;
        let caller = column("c-ip")
            .and_then(address)
            .ok_or("no address in c-ip")?;
        let method = column("cs-method").ok_or("no cs-method")?;
        let path = column("cs-uri-stem").ok_or("no cs-uri-stem")?;
        let status = column("sc-status").and_then(number).unwrap_or_default();
        let status = u16::try_from(status).map_err(|_| "invalid sc-status")?;
        let mut entry = Entry::new(time_us, caller, method, path, status);
        if let Some(query) = column("cs-uri-query") {
            entry.target = Cow::Owned([path, b"?", query].concat());
        }
        let host = column("x-host-header").or_else(|| column("cs(Host)"));
        entry.host = host.map(Cow::Borrowed);
        entry.user_agent = Agent::of(column("cs(User-Agent)"));
        if from_beginnings {
            let seconds = column("time-taken");
            entry.ended(seconds.and_then(|seconds| microseconds(seconds, 1_000_000)));
        }
        Ok(Parsed::Request(entry))
    }
}
