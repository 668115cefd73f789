//! The lines of a source, without a copy of each.

use std::io::{self, Read};

use memchr::memchr;

/// The longest line that is read. A longer one is garbled.
const LONGEST: usize = 64 << 10;

/// A buffer over a source, from which lines are taken.
pub(super) struct Lines {
    source: Box<dyn Read>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// True while the rest of a line that is too long is thrown away.
    skips: bool,
}

/// A line, or the beginning of one that is too long.
pub(super) struct Line<'l> {
    pub(super) text: &'l [u8],
    pub(super) is_cut: bool,
}

impl Lines {
    pub(super) fn new(source: Box<dyn Read>) -> Self {
        Self {
            source,
            buffer: vec![0; 4 * LONGEST],
            start: 0,
            end: 0,
            skips: false,
        }
    }

    /// The next line, without its end.
    pub(super) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        loop {
            if let Some(length) = memchr(b'\n', &self.buffer[self.start..self.end]) {
                let from = self.start;
                self.start += length + 1;
                if std::mem::take(&mut self.skips) {
                    continue;
                }
                if length > LONGEST {
                    let text = &self.buffer[from..from + LONGEST];
                    return Ok(Some(Line { text, is_cut: true }));
                }
                return Ok(Some(whole(&self.buffer[from..from + length])));
            }
            let held = self.end - self.start;
            if held > LONGEST {
                let from = self.start;
                self.start = self.end;
                if std::mem::replace(&mut self.skips, true) {
                    continue;
                }
                let text = &self.buffer[from..from + LONGEST];
                return Ok(Some(Line { text, is_cut: true }));
            }
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, held);
            let read = self.source.read(&mut self.buffer[held..])?;
            self.end += read;
            if read == 0 {
                self.start = self.end;
                let is_rest = held > 0 && !std::mem::take(&mut self.skips);
                return Ok(is_rest.then(|| whole(&self.buffer[..held])));
            }
        }
    }
}

fn whole(line: &[u8]) -> Line<'_> {
    Line {
        text: line.strip_suffix(b"\r").unwrap_or(line),
        is_cut: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_longest_length_is_whole_wherever_it_stands_in_the_buffer() {
        let line = "x".repeat(LONGEST) + "\n";
        let mut lines = Lines::new(Box::new(io::Cursor::new(line.repeat(9))));
        for number in 0..9 {
            let line = lines.next().unwrap().unwrap();
            assert!(!line.is_cut, "{number}");
        }
        assert!(lines.next().unwrap().is_none());
    }

    #[test]
    fn every_line_comes_once_however_long_it_is() {
        let long = "x".repeat(3 * LONGEST);
        let text = format!("a\r\n\n{long}\nb\n{long}{long}\nlast");
        let mut lines = Lines::new(Box::new(io::Cursor::new(text)));
        let mut seen = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            seen.push((line.text.len(), line.is_cut));
        }
        assert_eq!(
            seen,
            [
                (1, false),
                (0, false),
                (LONGEST, true),
                (1, false),
                (LONGEST, true),
                (4, false)
            ]
        );
    }
}
