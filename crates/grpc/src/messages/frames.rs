//! Finds the beginnings of messages in the bytes of a gRPC stream.
//!
//! Five bytes precede each message: a flag for compression, which does not matter here, and the length. No part of a message is
//! kept, and the length is trusted only for the place of the next message.

/// The bytes before each message.
pub const PREFIX: usize = 5;

/// Reads a stream, however it is cut into chunks.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    prefix: [u8; PREFIX],
    /// The bytes of the prefix that have been read.
    read: usize,
    /// The bytes of the message that are still to come.
    left: u32,
}

/// The next piece of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// The beginning of a message of this length, with the last bytes of its prefix.
    Begin {
        /// The number of given bytes that belong to the prefix. Its other bytes came before.
        bytes: usize,
        /// The length that the prefix states.
        length: u32,
    },
    /// A number of bytes of the message that has begun.
    Within(usize),
    /// A part of a prefix, up to the end of what was given.
    Prefix(usize),
}

impl Piece {
    /// The number of given bytes that it takes.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::Begin { bytes, .. } | Self::Within(bytes) | Self::Prefix(bytes) => bytes,
        }
    }
}

impl Frames {
    /// The piece at the beginning of `bytes`, which follow the pieces before; `None` if there are no bytes.
    pub fn next(&mut self, bytes: &[u8]) -> Option<Piece> {
        if bytes.is_empty() {
            return None;
        }
        if self.left > 0 {
            let left = usize::try_from(self.left).unwrap_or(usize::MAX);
            let within = left.min(bytes.len());
            // It is at most what is left.
            self.left -= u32::try_from(within).unwrap_or(self.left);
            return Some(Piece::Within(within));
        }
        let missing = self.prefix.iter_mut().skip(self.read);
        let taken = missing
            .zip(bytes)
            .map(|(place, byte)| *place = *byte)
            .count();
        self.read += taken;
        if self.read < PREFIX {
            return Some(Piece::Prefix(taken));
        }
        self.read = 0;
        let [_, length @ ..] = self.prefix;
        self.left = u32::from_be_bytes(length);
        Some(Piece::Begin {
            bytes: taken,
            length: self.left,
        })
    }

    /// True if a message has begun and is not complete.
    #[must_use]
    pub fn is_within_message(&self) -> bool {
        self.left > 0
    }

    /// True if a gRPC decoder would go on with these bytes. It would not if a message began with an invalid flag.
    #[must_use]
    pub fn could_go_on(&self, bytes: &[u8]) -> bool {
        let begins = self.left == 0 && self.read == 0;
        !begins || bytes.first().is_none_or(|flag| *flag <= 1)
    }

    /// The part of a prefix that was read and is not complete.
    #[must_use]
    pub fn unfinished_prefix(&self) -> &[u8] {
        self.prefix.get(..self.read).unwrap_or_default()
    }

    /// The first `n` bytes of the prefix that was completed last.
    #[must_use]
    pub fn last_prefix(&self, n: usize) -> &[u8] {
        self.prefix.get(..n).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// The stated lengths of the messages in these chunks, and how many bytes of them there were.
    fn read(chunks: &[&[u8]]) -> (Vec<u32>, Vec<usize>, Frames) {
        let mut frames = Frames::default();
        let (mut stated, mut came) = (Vec::new(), Vec::new());
        for chunk in chunks {
            let mut rest = *chunk;
            while let Some(piece) = frames.next(rest) {
                assert!(piece.bytes() > 0, "it would go on for ever");
                rest = &rest[piece.bytes()..];
                match piece {
                    Piece::Begin { length, .. } => {
                        stated.push(length);
                        came.push(0);
                    }
                    Piece::Within(bytes) => *came.last_mut().unwrap() += bytes,
                    Piece::Prefix(_) => assert!(rest.is_empty(), "only the end cuts a prefix"),
                }
            }
        }
        (stated, came, frames)
    }

    fn could_end(frames: &Frames) -> bool {
        !frames.is_within_message() && frames.unfinished_prefix().is_empty()
    }

    fn cut<'a>(mut stream: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
        let mut chunks = Vec::new();
        for length in lengths {
            let (chunk, rest) = stream.split_at((*length).min(stream.len()));
            chunks.push(chunk);
            stream = rest;
        }
        chunks.push(stream);
        chunks
    }

    fn framed(messages: &[Vec<u8>]) -> Vec<u8> {
        let framed = messages.iter().flat_map(|message| {
            let length = u32::try_from(message.len()).unwrap();
            let prefix = [&[1][..], &length.to_be_bytes()].concat();
            [prefix, message.clone()].concat()
        });
        framed.collect()
    }

    proptest! {
        #[test]
        fn messages_are_found_however_the_stream_is_cut(
            messages in vec(vec(any::<u8>(), 0..40), 0..20),
            cuts in vec(0_usize..12, 0..60),
        ) {
            let stream = framed(&messages);

            let (stated, came, frames) = read(&cut(&stream, &cuts));

            let lengths: Vec<_> = messages.iter().map(Vec::len).collect();
            prop_assert_eq!(&came, &lengths);
            prop_assert_eq!(stated.len(), lengths.len());
            prop_assert!(could_end(&frames));
        }

        #[test]
        fn whatever_comes_is_read_to_its_end_and_alike_however_it_is_cut(
            stream in vec(any::<u8>(), 0..200),
            cuts in vec(0_usize..12, 0..60),
        ) {
            let (stated, came, frames) = read(&[&stream]);
            let (stated_cut, came_cut, frames_cut) = read(&cut(&stream, &cuts));
            prop_assert_eq!((stated, came), (stated_cut, came_cut));
            prop_assert_eq!(frames.is_within_message(), frames_cut.is_within_message());
            prop_assert_eq!(frames.unfinished_prefix(), frames_cut.unfinished_prefix());
        }

        #[test]
        fn a_stream_that_is_cut_off_is_seen_to_be(
            message in vec(any::<u8>(), 0..40),
            missing in 1_usize..45,
        ) {
            let stream = framed(&[message]);
            let kept = stream.len().saturating_sub(missing);
            let (_, _, frames) = read(&[&stream[..kept]]);
            prop_assert_eq!(could_end(&frames), kept == 0);
        }
    }

    #[test]
    fn a_length_is_taken_at_its_word_only_for_where_the_next_message_begins() {
        let (stated, came, frames) = read(&[&[0, 0xff, 0xff, 0xff, 0xff, 7, 7]]);
        assert_eq!((stated, came), (vec![u32::MAX], vec![2]));
        assert!(frames.is_within_message());
    }
}
