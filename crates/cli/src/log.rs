//! Access logs: their lines become requests with a time, a caller and a target.

mod cloudfront;
mod combined;
mod dates;
mod envoy;
mod fields;
mod json;
mod lines;
mod load_balancer;
mod parser;
mod progress;
mod reading;
mod source;

use std::borrow::Cow;
use std::net::IpAddr;

pub(crate) use self::json::FieldNames;
pub(crate) use self::parser::Format;
pub(crate) use self::reading::{Reading, Terms, Unused, read};

/// A request, as a line of a log tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'l> {
    /// Microseconds since the Unix epoch.
    pub(crate) time_us: u64,
    /// The address of the caller.
    pub(crate) caller: IpAddr,
    pub(crate) method: Cow<'l, [u8]>,
    /// The path, and the query if there is one.
    pub(crate) target: Cow<'l, [u8]>,
    pub(crate) host: Option<Cow<'l, [u8]>>,
    pub(crate) status: u16,
    pub(crate) user: Option<Cow<'l, [u8]>>,
    user_agent: Agent<'l>,
    pub(crate) cost: Option<u64>,
    /// [`UNKNOWN`], or the duration: an `Option` of it would make each entry longer.
    duration_us: u64,
    /// Other headers of the request, in lower case.
    pub(crate) headers: Vec<(String, String)>,
}

/// The duration of a request whose line does not tell it.
const UNKNOWN: u64 = u64::MAX;

impl<'l> Entry<'l> {
    /// A request of which nothing else is known.
    pub(crate) fn new(
        time_us: u64,
        caller: IpAddr,
        method: &'l [u8],
        target: &'l [u8],
        status: u16,
    ) -> Self {
        Self {
            time_us,
            caller,
            method: Cow::Borrowed(method),
            target: Cow::Borrowed(target),
            host: None,
            status,
            user: None,
            user_agent: Agent::None,
            cost: None,
            duration_us: UNKNOWN,
            headers: Vec::new(),
        }
    }

    /// The line has the time of the request's end, and maybe how long it took: makes the time that of its beginning.
    fn ended(&mut self, duration_us: Option<u64>) {
        self.time_us = self.time_us.saturating_sub(duration_us.unwrap_or_default());
        self.duration_us = duration_us.unwrap_or(UNKNOWN);
    }

    /// The time from the request's beginning, which `time_us` is, to its end.
    pub(crate) fn duration_us(&self) -> Option<u64> {
        (self.duration_us != UNKNOWN).then_some(self.duration_us)
    }

    /// The program that the caller uses, if the line says it.
    pub(crate) fn user_agent(&self) -> Option<&[u8]> {
        match &self.user_agent {
            Agent::None => None,
            Agent::Known(agent) => Some(agent),
            Agent::Behind(rest) => combined::user_agent(rest),
        }
    }

    /// The program, if it was read with the line. Within a plain line it has no character that a header cannot have.
    #[inline]
    pub(crate) fn read_user_agent(&self) -> Option<&[u8]> {
        match &self.user_agent {
            Agent::Known(agent) => Some(agent),
            Agent::None | Agent::Behind(_) => None,
        }
    }

    /// The target without its query.
    pub(crate) fn path(&self) -> &[u8] {
        let end = memchr::memchr(b'?', &self.target);
        &self.target[..end.unwrap_or(self.target.len())]
    }
}

/// The program that a caller uses, of which few requests are asked.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Agent<'l> {
    None,
    Known(Cow<'l, [u8]>),
    /// The rest of a line in the combined format, which has it at its end.
    Behind(&'l [u8]),
}

impl<'l> Agent<'l> {
    fn of(text: Option<impl Into<Cow<'l, [u8]>>>) -> Self {
        text.map_or(Self::None, |text| Self::Known(text.into()))
    }
}

/// The outcome for one line.
#[derive(Debug, PartialEq, Eq)]
enum Parsed<'l> {
    Request(Entry<'l>),
    /// A line that is well-formed and tells of no request, such as a header, or a connection that sent none.
    Nothing,
}

/// The reason why a line is garbled.
type Garbled = &'static str;
