//! A log from its first line to its last: in the order of its times, with garbled lines counted.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;
use std::time::Duration;

use super::cloudfront::Columns;
use super::lines::Lines;
use super::parser::Parser;
use super::progress::{Progress, ReadBytes};
use super::{Entry, FieldNames, Format, Parsed, source};
use crate::failure::Failure;
use crate::figures::{Share, duration, shown};

/// The lines that are read before the share of garbled ones is judged.
const BEFORE_JUDGING: u64 = 1_000;

/// The most lines that wait to be sorted: some hundred megabytes.
const MOST_SORTED: usize = 1_000_000;

/// The mark that some programs write before a text in UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// No server writes a line later than this: its clock was wrong, or files were joined in the wrong order.
const MOST_LATE_US: u64 = 12 * 3_600_000_000;

/// Garbled lines that are shown.
const SAMPLES: usize = 3;

/// The terms on which a log is read.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// Nothing, if the first line says it.
    pub(crate) format: Option<Format>,
    pub(crate) names: FieldNames,
    /// True if the time of a request is that of its beginning, although the log has that of its end.
    pub(crate) from_beginnings: bool,
    /// The share of garbled lines above which the reading stops.
    pub(crate) garbled: Share,
    /// The time by which a line may be late, and is sorted in.
    pub(crate) reorder: Duration,
}

/// The facts about a log that was read.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// All lines that are not empty.
    pub(crate) lines: u64,
    pub(crate) requests: u64,
    /// Well-formed lines that tell of no request.
    pub(crate) without_request: u64,
    pub(crate) garbled: u64,
    /// The first garbled lines: number, reason, text.
    pub(crate) samples: Vec<(u64, Cow<'static, str>, String)>,
    /// Requests that were sorted in, because a later one stood before them.
    pub(crate) sorted: u64,
    /// True if no time has a fraction of a second.
    pub(crate) has_whole_seconds: bool,
    /// Requests with the status 429.
    pub(crate) refused_then: u64,
    pub(crate) format: Option<Format>,
}

impl Reading {
    fn garble(&mut self, line: &[u8], number: u64, reason: impl Into<Cow<'static, str>>) {
        self.garbled += 1;
        if self.samples.len() < SAMPLES {
            let text = String::from_utf8_lossy(line).chars().take(200).collect();
            self.samples.push((number, reason.into(), text));
        }
    }

    fn give(
        &mut self,
        entry: &Entry<'_>,
        line: &[u8],
        number: u64,
        each: &mut Each<'_>,
    ) -> Result<(), Failure> {
        match each(entry, line, number) {
            Ok(()) => {
                self.requests += 1;
                self.refused_then += u64::from(entry.status == 429);
            }
            Err(Unused::Line(reason)) => self.garble(line, number, reason),
            Err(Unused::Rest(failure)) => return Err(failure),
        }
        Ok(())
    }
}

/// The reason why a request of a log was not used.
pub(crate) enum Unused {
    /// The line lacks a part: it counts as garbled.
    Line(String),
    /// Nothing can go on.
    Rest(Failure),
}

impl From<Failure> for Unused {
    fn from(failure: Failure) -> Self {
        Self::Rest(failure)
    }
}

/// The use of a request: its entry, its line, and the number of that.
pub(crate) type Each<'e> = dyn FnMut(&Entry<'_>, &[u8], u64) -> Result<(), Unused> + 'e;

/// Reads a log, and gives each request with its line and the number of that to `each`, in the order of their times.
pub(crate) fn read(path: &Path, terms: &Terms, each: &mut Each<'_>) -> Result<Reading, Failure> {
    let unreadable = |error| Failure::invalid(format_args!("{}: {error}", path.display()));
    let bytes = ReadBytes::default();
    let mut lines = Lines::new(source::open(path, &bytes).map_err(unreadable)?);
    let mut progress = Progress::of(path, bytes);
    let mut parser: Option<Parser> = None;
    let mut reading = Reading::default();
    let mut order = Order::new(terms.reorder);
    let mut number = 0;
    while let Some(mut line) = lines.next().map_err(unreadable)? {
        number += 1;
        if number == 1 {
            line.text = line.text.strip_prefix(MARK).unwrap_or(line.text);
        }
        progress.at(number);
        if line.text.is_empty() {
            continue;
        }
        reading.lines += 1;
        let garbled = reading.garbled;
        let parser = parser.get_or_insert_with(|| {
            let format = terms.format.unwrap_or_else(|| Format::of(line.text));
            Parser::new(format, terms.names.clone(), terms.from_beginnings)
        });
        let parsed = match line.is_cut {
            true => Err("longer than 65536 bytes"),
            false => parser.parse(line.text),
        };
        match parsed {
            Ok(Parsed::Request(entry)) => {
                if terms.reorder.is_zero() {
                    order
                        .follow(entry.time_us)
                        .map_err(|late| late.at(path, number))?;
                    reading.give(&entry, line.text, number, each)?;
                } else {
                    let time_us = entry.time_us;
                    reading.sorted += u64::from(time_us < order.latest_us);
                    order
                        .keep(time_us, line.text, number, parser.columns.clone())
                        .map_err(|late| late.at(path, number))?;
                    while let Some(kept) = order.next() {
                        give(&kept, parser, &mut reading, each)?;
                    }
                }
            }
            Ok(Parsed::Nothing) => reading.without_request += 1,
            Err(reason) => reading.garble(line.text, number, reason),
        }
        if reading.garbled > garbled && reading.lines >= BEFORE_JUDGING {
            judge(path, &reading, parser.format, terms.garbled)?;
        }
    }
    if let Some(parser) = &mut parser {
        while let Some(kept) = order.rest() {
            give(&kept, parser, &mut reading, each)?;
        }
        reading.format = Some(parser.format);
        reading.has_whole_seconds = !parser.dates.saw_fraction;
        judge(path, &reading, parser.format, terms.garbled)?;
    }
    if reading.requests == 0 {
        let empty = format_args!("{}: no line tells of a request", path.display());
        return Err(Failure::invalid(empty));
    }
    Ok(reading)
}

fn give(
    kept: &WaitingLine,
    parser: &mut Parser,
    reading: &mut Reading,
    each: &mut Each<'_>,
) -> Result<(), Failure> {
    // It could be read before.
    match parser.parse_again(&kept.line, &kept.columns) {
        Ok(Parsed::Request(entry)) => reading.give(&entry, &kept.line, kept.number, each),
        _ => Ok(()),
    }
}

/// Stops at too many garbled lines: the log is of another format than it is taken for.
fn judge(path: &Path, reading: &Reading, format: Format, most: Share) -> Result<(), Failure> {
    if !most.is_exceeded(reading.garbled, reading.lines) {
        return Ok(());
    }
    let mut message = format!(
        "{}: {} of {} lines cannot be used, read as {}: more than {most}; name another format with --format, or go on with --garbled 100%",
        path.display(),
        reading.garbled,
        reading.lines,
        format.name()
    );
    for (number, reason, text) in &reading.samples {
        message += &format!("\n  line {number}: {reason}: {}", shown(text));
    }
    Err(Failure::invalid(message))
}

/// A request that came too late for the order of times.
#[derive(Debug)]
enum Late {
    By { late_us: u64, tolerance: Duration },
    TooMany,
}

impl Late {
    fn at(&self, path: &Path, number: u64) -> Failure {
        let path = path.display();
        Failure::invalid(match self {
            Self::By { late_us, tolerance } => {
                let late = duration(*late_us);
                let allowed = match tolerance.is_zero() {
                    true => "the order of times is expected".to_owned(),
                    false => format!("--reorder allows {tolerance:?}"),
                };
                let remedy = match *late_us > MOST_LATE_US {
                    true => {
                        "sort the files of the log, or look for a line before with a wrong time"
                            .to_owned()
                    }
                    false => format!(
                        "sort such lines with a longer --reorder, such as --reorder {}s",
                        late_us.div_ceil(1_000_000).max(1)
                    ),
                };
                format!(
                    "{path}:{number}: the request is {late} earlier than one before it, and {allowed}; {remedy}"
                )
            }
            Self::TooMany => format!(
                "{path}:{number}: more than {MOST_SORTED} lines would have to be sorted at one time; take a shorter --reorder"
            ),
        })
    }
}

/// The order of times.
struct Order {
    tolerance: Duration,
    tolerance_us: u64,
    latest_us: u64,
    kept: BinaryHeap<Reverse<WaitingLine>>,
}

/// A line that waits for earlier ones.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WaitingLine {
    time_us: u64,
    number: u64,
    line: Box<[u8]>,
    columns: Columns,
}

impl Order {
    fn new(tolerance: Duration) -> Self {
        Self {
            tolerance,
            tolerance_us: u64::try_from(tolerance.as_micros()).unwrap_or(u64::MAX),
            latest_us: 0,
            kept: BinaryHeap::new(),
        }
    }

    /// Goes on to a time, which must not be earlier than the last one by more than the tolerance.
    fn follow(&mut self, time_us: u64) -> Result<(), Late> {
        let late_us = self.latest_us.saturating_sub(time_us);
        if late_us > self.tolerance_us {
            return Err(Late::By {
                late_us,
                tolerance: self.tolerance,
            });
        }
        self.latest_us = self.latest_us.max(time_us);
        Ok(())
    }

    fn keep(
        &mut self,
        time_us: u64,
        line: &[u8],
        number: u64,
        columns: Columns,
    ) -> Result<(), Late> {
        self.follow(time_us)?;
        if self.kept.len() >= MOST_SORTED {
            return Err(Late::TooMany);
        }
        let line = line.into();
        self.kept.push(Reverse(WaitingLine {
            time_us,
            number,
            line,
            columns,
        }));
        Ok(())
    }

    /// The earliest line that no other can come before.
    fn next(&mut self) -> Option<WaitingLine> {
        let Reverse(earliest) = self.kept.peek()?;
        if earliest.time_us.saturating_add(self.tolerance_us) > self.latest_us {
            return None;
        }
        self.rest()
    }

    /// The earliest line, at the end.
    fn rest(&mut self) -> Option<WaitingLine> {
        self.kept.pop().map(|Reverse(kept)| kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One time of the year 5138 would else have asked for a tolerance of centuries.
    #[test]
    fn a_line_that_is_days_late_is_no_case_for_a_tolerance() {
        let mut order = Order::new(Duration::ZERO);
        order.follow(2 * 86_400_000_000).unwrap();
        let words = |late: Late| late.at(Path::new("app.log"), 2).to_string();

        assert_eq!(
            words(order.follow(0).unwrap_err()),
            "app.log:2: the request is 2 day earlier than one before it, and the order of times is expected; sort the files of the log, or look for a line before with a wrong time"
        );
        let hours = 2 * 86_400_000_000 - MOST_LATE_US;
        assert!(words(order.follow(hours).unwrap_err()).ends_with("such as --reorder 43200s"));
    }

    #[test]
    fn no_more_lines_wait_to_be_sorted_than_memory_has_room_for() {
        let mut order = Order::new(Duration::from_secs(3_600));
        let mut keep = |number| order.keep(number, b"", number, Columns::default());
        for number in 0..MOST_SORTED as u64 {
            assert!(keep(number).is_ok());
        }

        let late = keep(MOST_SORTED as u64).unwrap_err();

        assert_eq!(
            late.at(Path::new("app.log"), 1_000_001).to_string(),
            "app.log:1000001: more than 1000000 lines would have to be sorted at one time; take a shorter --reorder"
        );
    }
}
