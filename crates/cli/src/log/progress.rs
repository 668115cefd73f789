//! The progress of a reading, on a terminal: the share of the file that is read, or the lines if that is not known.

use std::fs;
use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::figures::grouped;

/// Lines between two looks at the clock.
const LINES: u64 = 4_096;

/// The time between two pictures.
const PAUSE: Duration = Duration::from_millis(100);

/// The places of the bar.
const WIDTH: usize = 30;

/// The bytes of a file that are read, compressed or not.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadBytes(Arc<AtomicU64>);

/// A source whose bytes are counted.
#[derive(Debug)]
pub(super) struct Counted<R>(pub(super) R, pub(super) ReadBytes);

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Self(source, ReadBytes(bytes)) = self;
        let read = source.read(into)?;
        let _before = bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// The picture of a progress. Nothing is drawn if no person looks.
#[derive(Debug)]
pub(super) struct Progress {
    bytes: ReadBytes,
    of_bytes: Option<u64>,
    drawn_at: Option<Instant>,
    is_seen: bool,
}

impl Progress {
    pub(super) fn of(path: &Path, bytes: ReadBytes) -> Self {
        let size = fs::metadata(path).ok().filter(fs::Metadata::is_file);
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self {
            bytes,
            of_bytes: size.map(|file| file.len()),
            drawn_at: None,
            is_seen: io::stderr().is_terminal() && !is_dumb,
        }
    }

    /// Goes on to this line.
    #[inline]
    pub(super) fn at(&mut self, line: u64) {
        if self.is_seen && line.is_multiple_of(LINES) {
            self.draw(line);
        }
    }

    fn draw(&mut self, line: u64) {
        let now = Instant::now();
        if self.drawn_at.is_some_and(|at| now < at + PAUSE) {
            return;
        }
        self.drawn_at = Some(now);
        let read = self.bytes.0.load(Ordering::Relaxed);
        let picture = picture(read, self.of_bytes, line);
        drop(write!(io::stderr(), "\r{picture}\u{1b}[K"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn_at.is_some() {
            // Reports and errors begin on an empty line.
            drop(write!(io::stderr(), "\r\u{1b}[K"));
        }
    }
}

fn picture(read: u64, of_bytes: Option<u64>, line: u64) -> String {
    let lines = format!("{} lines", grouped(line));
    let Some(of_bytes) = of_bytes.filter(|bytes| *bytes > 0) else {
        return lines;
    };
    let part = |whole: u64| {
        let part = u128::from(read.min(of_bytes)) * u128::from(whole) / u128::from(of_bytes);
        usize::try_from(part).unwrap_or_default()
    };
    let filled = part(WIDTH as u64);
    let bar = "█".repeat(filled) + &"░".repeat(WIDTH - filled);
    format!("{bar} {:>3} %  {lines}", part(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_the_share_that_is_read() {
        let half = format!("{}{}  50 %  8,192 lines", "█".repeat(15), "░".repeat(15));
        assert_eq!(picture(500, Some(1_000), 8_192), half);
        let all = picture(2_000, Some(1_000), 9_000);
        assert_eq!(all, format!("{} 100 %  9,000 lines", "█".repeat(30)));
        assert_eq!(picture(500, None, 4_096), "4,096 lines");
    }
}
