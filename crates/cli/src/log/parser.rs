//! The formats of logs, and the one that a first line has.

use clap::ValueEnum;

use super::cloudfront::Columns;
use super::dates::Dates;
use super::{FieldNames, Garbled, Parsed, combined, envoy, load_balancer};

/// The format of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// nginx's and Apache's combined format, and the common one.
    Combined,
    /// Lines of JSON.
    Json,
    /// Envoy's default format.
    Envoy,
    /// AWS's application load balancer.
    Alb,
    /// CloudFront.
    Cloudfront,
}

impl Format {
    /// The name by which `--format` takes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Combined => "combined",
            Self::Json => "json",
            Self::Envoy => "envoy",
            Self::Alb => "alb",
            Self::Cloudfront => "cloudfront",
        }
    }

    /// The format of a line.
    pub(super) fn of(line: &[u8]) -> Self {
        let starts = |begin: &str| line.starts_with(begin.as_bytes());
        if starts("{") {
            Self::Json
        } else if starts("[") {
            Self::Envoy
        } else if starts("#") {
            Self::Cloudfront
        } else if ["http ", "https ", "h2 ", "grpcs ", "ws ", "wss "]
            .iter()
            .any(|kind| starts(kind))
        {
            Self::Alb
        } else {
            Self::Combined
        }
    }
}

/// Reads lines of one format.
#[derive(Debug)]
pub(super) struct Parser {
    pub(super) format: Format,
    pub(super) dates: Dates,
    names: FieldNames,
    from_beginnings: bool,
    pub(super) columns: Columns,
}

impl Parser {
    pub(super) fn new(format: Format, names: FieldNames, from_beginnings: bool) -> Self {
        Self {
            format,
            dates: Dates::default(),
            names,
            from_beginnings,
            columns: Columns::default(),
        }
    }

    /// Parses a line that was read before, when columns had these places.
    pub(super) fn parse_again<'l>(
        &mut self,
        line: &'l [u8],
        columns: &Columns,
    ) -> Result<Parsed<'l>, Garbled> {
        let present = std::mem::replace(&mut self.columns, columns.clone());
        let parsed = self.parse(line);
        self.columns = present;
        parsed
    }

    #[inline]
    pub(super) fn parse<'l>(&mut self, line: &'l [u8]) -> Result<Parsed<'l>, Garbled> {
        match self.format {
            Format::Combined => combined::parse(line, &mut self.dates),
            Format::Json => self
                .names
                .parse(line, &mut self.dates, self.from_beginnings),
            Format::Envoy => envoy::parse(line, &mut self.dates),
            Format::Alb => load_balancer::parse(line, &mut self.dates, self.from_beginnings),
            Format::Cloudfront => self
                .columns
                .parse(line, &mut self.dates, self.from_beginnings),
        }
    }
}
