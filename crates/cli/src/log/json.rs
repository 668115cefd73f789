//! Lines of JSON with named fields.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::dates::{Dates, number};
use super::fields::{address, microseconds, present, request_line};
use super::{Agent, Entry, Garbled, Parsed, UNKNOWN};

/// The parts of a request, and the names that fields with them have in the field's logs. The first is ours.
const KNOWN: &[(Part, &[&str])] = &[
    (
        Part::Time,
        &["time", "timestamp", "@timestamp", "ts", "time_us"],
    ),
    // As nginx calls the time at which it writes the line.
    (
        Part::Ended,
        &["ended", "time_iso8601", "time_local", "msec"],
    ),
    // As Envoy calls it.
    (Part::Started, &["started", "start_time"]),
    (
        Part::Address,
        &[
            "address",
            "ip",
            "remote_addr",
            "remote_ip",
            "client_ip",
            "client",
            "peer",
        ],
    ),
    (Part::Method, &["method", "request_method", "http_method"]),
    (
        Part::Target,
        &["target", "path", "uri", "request_uri", "url"],
    ),
    (Part::Request, &["request"]),
    (Part::Host, &["host", "http_host", "authority"]),
    (
        Part::Status,
        &["status", "status_code", "code", "response_code"],
    ),
    (Part::User, &["user", "remote_user"]),
    (Part::UserAgent, &["user_agent", "http_user_agent"]),
    (Part::Cost, &["cost"]),
    (Part::DurationUs, &["duration_us"]),
    (Part::DurationMs, &["duration_ms", "elapsed_ms"]),
    (Part::Duration, &["duration", "request_time"]),
];

/// A part of a request that a field may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The time of a request, whichever it is.
    Time,
    /// The time of its end.
    Ended,
    /// The time of its beginning.
    Started,
    Address,
    Method,
    Target,
    Request,
    Host,
    Status,
    User,
    UserAgent,
    Cost,
    DurationUs,
    DurationMs,
    /// In seconds, as nginx has it; in milliseconds beside the time that Envoy logs.
    Duration,
}

impl Part {
    fn is_time(self) -> bool {
        matches!(self, Self::Time | Self::Ended | Self::Started)
    }
}

const PARTS: usize = 15;

/// The names of the fields that a log has.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldNames {
    /// Names of the operator's, which go before those that are known.
    stated: Vec<(String, Place)>,
}

/// The place to which a field belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Part(Part),
    Header(String),
}

impl FieldNames {
    /// Names from texts such as `address=clientIp` and `header:x-api-key=apiKey`.
    pub(crate) fn read(texts: &[String]) -> Result<Self, String> {
        let mut names = Self::default();
        for text in texts {
            let (place, field) = text.split_once('=').ok_or_else(|| {
                format!("--field {text:?}: expected PART=NAME, such as address=clientIp")
            })?;
            let place = match place.strip_prefix("header:") {
                Some(header) => Place::Header(header.to_ascii_lowercase()),
                None => {
                    let mut known = KNOWN.iter();
                    let part = known.find(|(_, names)| names[0] == place);
                    let parts: Vec<_> = KNOWN.iter().map(|(_, names)| names[0]).collect();
                    let unknown = || {
                        let parts = parts.join(", ");
                        format!("--field {text:?}: {place:?} is not one of {parts} and header:NAME")
                    };
                    Place::Part(part.ok_or_else(unknown)?.0)
                }
            };
            names.stated.push((field.to_owned(), place));
        }
        Ok(names)
    }

    fn place(&self, name: &str) -> Option<Place> {
        let mut stated = self.stated.iter();
        if let Some((_, place)) = stated.find(|(stated, _)| stated == name) {
            return Some(place.clone());
        }
        if let Some((part, _)) = KNOWN.iter().find(|(_, names)| names.contains(&name)) {
            return (!self.is_stated(*part)).then_some(Place::Part(*part));
        }
        // As nginx calls the headers of a request.
        let header = name.strip_prefix("http_")?;
        Some(Place::Header(header.replace('_', "-")))
    }

    /// True if the operator has named a field with this part.
    fn is_stated(&self, part: Part) -> bool {
        let is_it = |known: Part| known == part || known.is_time() && part.is_time();
        let mut stated = self.stated.iter();
        stated.any(|(_, place)| matches!(place, Place::Part(known) if is_it(*known)))
    }

    /// Reads a line. If `from_beginnings`, the time is that of the request's beginning, if the line tells how long it took.
    pub(super) fn parse<'l>(
        &self,
        line: &'l [u8],
        dates: &mut Dates,
        from_beginnings: bool,
    ) -> Result<Parsed<'l>, Garbled> {
        let mut reader = serde_json::Deserializer::from_slice(line);
        let LineFields { parts, headers } = reader
            .deserialize_map(self)
            .map_err(|_| "not an object of JSON")?;
        // A line that was torn or joined: the request behind the first one would be lost.
        reader.end().map_err(|_| "text behind the object of JSON")?;
        let [
            time,
            ended,
            started,
            caller,
            method,
            target,
            request,
            host,
            status,
            user,
            agent,
            cost,
            duration_us,
            duration_ms,
            duration,
        ] = parts;
        let is_of_end = time.is_none() && started.is_none();
        let is_of_envoy = started.is_some() && !self.is_stated(Part::Duration);
        let mut time_us = time
            .or(started)
            .or(ended)
            .and_then(|time| dates.any(time.as_bytes()))
            .ok_or("no time that can be read")?;
        let caller = caller.and_then(|text| address(text.as_bytes()));
        let caller = caller.ok_or("no address that can be read")?;
        let (method, target) = match (method, target, &request) {
            (method, Some(target), _) => (
                method.map_or(Cow::Borrowed(&b"GET"[..]), bytes),
                bytes(target),
            ),
            (_, None, Some(request)) => match request_line(request.as_bytes()) {
                Some((method, target)) => {
                    (Cow::Owned(method.to_owned()), Cow::Owned(target.to_owned()))
                }
                None => return Ok(Parsed::Nothing),
            },
            (_, None, None) => return Err("no target, path or request"),
        };
        let whole = |text: Option<Cow<'l, str>>, fault| match text {
            None => Ok(None),
            Some(text) => number(text.as_bytes()).map(Some).ok_or(fault),
        };
        let durations = [
            (duration_us, 1),
            (duration_ms, 1_000),
            (duration, if is_of_envoy { 1_000 } else { 1_000_000 }),
        ];
        let duration_us = durations
            .into_iter()
            .find_map(|(text, unit_us)| microseconds(text?.as_bytes(), unit_us));
        if let Some(duration_us) = duration_us.filter(|_| from_beginnings && is_of_end) {
            time_us = time_us.saturating_sub(duration_us);
        }
        let status = whole(status, "invalid status")?.unwrap_or_default();
        let there = |text: Option<Cow<'l, str>>| {
            text.filter(|text| present(text.as_bytes()).is_some())
                .map(bytes)
        };
        Ok(Parsed::Request(Entry {
            time_us,
            caller,
            method,
            target,
            host: there(host),
            status: u16::try_from(status).map_err(|_| "invalid status")?,
            user: there(user),
            user_agent: Agent::of(there(agent)),
            cost: whole(cost, "invalid cost")?,
            duration_us: duration_us.unwrap_or(UNKNOWN),
            headers,
        }))
    }
}

fn bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// The fields of one line.
#[derive(Default)]
pub(crate) struct LineFields<'l> {
    parts: [Option<Cow<'l, str>>; PARTS],
    headers: Vec<(String, String)>,
}

impl<'l> Visitor<'l> for &FieldNames {
    type Value = LineFields<'l>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a line of a log")
    }

    fn visit_map<A: MapAccess<'l>>(self, mut fields: A) -> Result<LineFields<'l>, A::Error> {
        let mut found = LineFields::default();
        while let Some(Text(name)) = fields.next_key_seed(Text(None))? {
            match self.place(&name.unwrap_or_default()) {
                None => drop(fields.next_value::<IgnoredAny>()?),
                Some(Place::Part(part)) => {
                    let Text(text) = fields.next_value_seed(Text(None))?;
                    let place = &mut found.parts[part as usize];
                    *place = place.take().or(text);
                }
                Some(Place::Header(header)) => {
                    let Text(text) = fields.next_value_seed(Text(None))?;
                    if let Some(text) = text.filter(|text| present(text.as_bytes()).is_some()) {
                        found.headers.push((header, text.into_owned()));
                    }
                }
            }
        }
        Ok(found)
    }
}

/// A value as text, whether it is written as a text, a number or a truth. A field with an object or a list counts as absent.
struct Text<'l>(Option<Cow<'l, str>>);

impl<'l> DeserializeSeed<'l> for Text<'l> {
    type Value = Self;

    fn deserialize<D: serde::Deserializer<'l>>(self, reader: D) -> Result<Self, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'l> Visitor<'l> for Text<'l> {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a number")
    }

    fn visit_borrowed_str<E>(self, text: &'l str) -> Result<Self, E> {
        Ok(Self(Some(Cow::Borrowed(text))))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self, E> {
        Ok(Self(Some(Cow::Owned(text.to_owned()))))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self, E> {
        Ok(Self(Some(Cow::Owned(number.to_string()))))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self, E> {
        Ok(Self(Some(Cow::Owned(number.to_string()))))
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Self, E> {
        Ok(Self(Some(Cow::Owned(truth.to_string()))))
    }

    fn visit_map<A: MapAccess<'l>>(self, fields: A) -> Result<Self, A::Error> {
        IgnoredAny.visit_map(fields)?;
        Ok(Self(None))
    }

    fn visit_seq<A: SeqAccess<'l>>(self, values: A) -> Result<Self, A::Error> {
        IgnoredAny.visit_seq(values)?;
        Ok(Self(None))
    }

    // Seconds with a fraction. A double tells microseconds of our century apart.
    fn visit_f64<E>(self, number: f64) -> Result<Self, E> {
        Ok(Self(Some(Cow::Owned(format!("{number:.6}")))))
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(Self(Some(Cow::Borrowed(""))))
    }
}
