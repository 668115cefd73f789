//! The line about each change of the fleet: the operator, the change, the caller, the place and the outcome.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::failure::Failure;
use crate::figures::moment;

/// A change that is about to be made. A line about the change is written first, so that every change has its line.
pub(super) struct Change {
    file: Option<(PathBuf, File)>,
    parts: Vec<(&'static str, String)>,
}

impl Change {
    /// Begins a line, which ends up on the standard error and at the end of this file.
    pub(super) fn begin(verb: &str, file: Option<&Path>) -> Result<Self, Failure> {
        let open = |path: &Path| {
            let file = OpenOptions::new().append(true).create(true).open(path);
            let fault =
                |error: io::Error| Failure::invalid(format_args!("{}: {error}", path.display()));
            Ok((path.to_owned(), file.map_err(fault)?))
        };
        let parts = vec![("at", now()), ("by", operator()), ("verb", verb.to_owned())];
        Ok(Self {
            file: file.map(open).transpose()?,
            parts,
        })
    }

    /// Adds a part.
    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.parts.push((name, value.into()));
        self
    }

    /// Writes to the file that the change begins.
    pub(super) fn intend(&self) -> Result<(), Failure> {
        self.write(&self.line("begun"), "the change is not made")
    }

    /// Writes the line.
    pub(super) fn end(self, outcome: &str) -> Result<(), Failure> {
        let line = self.line(outcome);
        drop(writeln!(io::stderr(), "audit: {line}"));
        self.write(&line, &format!("the outcome is {outcome}"))
    }

    fn line(&self, outcome: &str) -> String {
        let outcome = ("outcome", outcome.to_owned());
        let parts = self.parts.iter().chain([&outcome]).map(|(name, value)| {
            let is_plain = !value.is_empty() && value.chars().all(|c| c.is_ascii_graphic());
            match is_plain && !value.contains('"') {
                true => format!("{name}={value}"),
                false => format!("{name}={value:?}"),
            }
        });
        parts.collect::<Vec<_>>().join(" ")
    }

    fn write(&self, line: &str, otherwise: &str) -> Result<(), Failure> {
        let Some((path, file)) = &self.file else {
            return Ok(());
        };
        let mut file: &File = file;
        writeln!(file, "{line}").map_err(|error| {
            let path = path.display();
            Failure::invalid(format_args!("{path}: {error}; {otherwise}"))
        })
    }
}

/// The time of this host, in UTC.
fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let us = since.map_or(0, |since| since.as_micros());
    let time = moment(u64::try_from(us).unwrap_or(u64::MAX));
    time.replacen(' ', "T", 1) + "Z"
}

/// The user, also behind `sudo`, and the host.
fn operator() -> String {
    let user = ["SUDO_USER", "USER", "LOGNAME"];
    let user = user.iter().find_map(|name| std::env::var(name).ok());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let host = host.or_else(|| std::env::var("HOSTNAME").ok());
    let known = |name: Option<String>| name.unwrap_or_else(|| "unknown".to_owned());
    format!("{}@{}", known(user), known(host).trim())
}
