//! The bytes of a log: a file or standard input, compressed or not.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;

use super::progress::{Counted, ReadBytes};

/// Opens a log. The name `-` is standard input. Compression is told by the first bytes.
pub(super) fn open(path: &Path, read: &ReadBytes) -> io::Result<Box<dyn Read>> {
    let raw: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(io::stdin())
    } else {
        Box::new(Counted(File::open(path)?, read.clone()))
    };
    let mut raw = BufReader::with_capacity(64 << 10, raw);
    let begin = raw.fill_buf()?;
    if begin.starts_with(&[0x1f, 0x8b]) {
        return Ok(Box::new(Compressed {
            content: MultiGzDecoder::new(raw),
            reader: "zcat",
        }));
    }
    if begin.starts_with(&ZSTD) {
        return Ok(Box::new(Compressed {
            content: Frames(Frame::Between(raw)),
            reader: "zstdcat",
        }));
    }
    Ok(Box::new(raw))
}

/// The content of a compressed file. The words of a decoder say nothing to the reader of a log.
struct Compressed<R> {
    content: R,
    /// The program that gives out what is left of a damaged file.
    reader: &'static str,
}

impl<R: Read> Read for Compressed<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.content.read(into).map_err(|error| {
            // The disk's words, and not the decoder's.
            if error.raw_os_error().is_some() {
                return error;
            }
            let reader = self.reader;
            io::Error::other(format!(
                "the compressed data end too early, or are damaged; {reader} gives out what can be read of them, and the log - takes it"
            ))
        })
    }
}

const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

type Raw = BufReader<Box<dyn Read>>;

/// The frames of a Zstandard file, one after another. The decoder reads one.
struct Frames(Frame);

enum Frame {
    Between(Raw),
    Within(Box<StreamingDecoder<Raw, ruzstd::decoding::FrameDecoder>>),
    Over,
}

impl Read for Frames {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match std::mem::replace(&mut self.0, Frame::Over) {
                Frame::Over => return Ok(0),
                Frame::Between(mut raw) => {
                    if raw.fill_buf()?.is_empty() {
                        return Ok(0);
                    }
                    let decoder = StreamingDecoder::new(raw).map_err(io::Error::other)?;
                    self.0 = Frame::Within(Box::new(decoder));
                }
                Frame::Within(mut decoder) => {
                    let read = decoder.read(into)?;
                    if read > 0 {
                        self.0 = Frame::Within(decoder);
                        return Ok(read);
                    }
                    self.0 = Frame::Between(decoder.into_inner());
                }
            }
        }
    }
}
