//! Lets the messages of one direction of a call pass as they are paid for.

use std::mem;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::Response;

use super::amount::Amount;
use super::frames::{Frames, PREFIX, Piece};
use super::meter::{Excess, Meter};

/// The bytes of a stream on their way. It keeps at most the chunk that has just come, and copies only a prefix that came in
/// two chunks.
#[derive(Debug)]
pub(super) struct Gate {
    direction: Direction,
    reading: Reading,
    /// Nothing, if no policy charges this direction.
    meter: Option<Meter>,
    frames: Frames,
    chunk: Bytes,
    /// The bytes of the chunk that are paid for.
    cleared: usize,
    /// The bytes that follow.
    next: Option<Piece>,
    /// The reason why nothing more passes.
    excess: Option<Excess>,
}

/// The kind of the bytes.
#[derive(Debug)]
enum Reading {
    /// Messages.
    Messages,
    /// Messages, as long as they can be.
    Tentatively,
    /// Bytes that may be messages. The first message ends the stream, because the call is refused, if it is one.
    Refused(Box<Response<Bytes>>),
    /// Something else, which passes as it is.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From the caller. The stated length of a message is not trusted.
    Received,
    /// From the service.
    Sent,
}

/// The answer of the gate.
#[derive(Debug)]
pub(super) enum GateItem {
    /// These bytes pass.
    Bytes(Bytes),
    /// It waits for what comes.
    Nothing,
}

impl Gate {
    pub(super) fn new(direction: Direction, meter: Option<Meter>) -> Self {
        Self {
            direction,
            reading: Reading::Messages,
            meter,
            frames: Frames::default(),
            chunk: Bytes::new(),
            cleared: 0,
            next: None,
            excess: None,
        }
    }

    /// Makes a gate for bytes that may not be messages.
    pub(super) fn tentative(
        direction: Direction,
        charged: Result<Meter, Box<Response<Bytes>>>,
    ) -> Self {
        let (meter, reading) = match charged {
            Ok(meter) => (Some(meter), Reading::Tentatively),
            Err(refusal) => (None, Reading::Refused(refusal)),
        };
        Self {
            reading,
            ..Self::new(direction, meter)
        }
    }

    /// True if what comes is known to be messages.
    pub(super) fn is_certain(&self) -> bool {
        matches!(self.reading, Reading::Messages)
    }

    /// The number of bytes that are held back.
    pub(super) fn held(&self) -> usize {
        self.chunk.len() + self.frames.unfinished_prefix().len()
    }

    /// The next bytes of the stream. The last ones have passed.
    pub(super) fn come(&mut self, chunk: Bytes) {
        self.chunk = chunk;
    }

    /// Ends the stream and releases a held part of a prefix, so that its reader sees that the stream is cut off.
    pub(super) fn end(&mut self) -> Option<Bytes> {
        let prefix = Bytes::copy_from_slice(self.frames.unfinished_prefix());
        self.frames = Frames::default();
        (!prefix.is_empty()).then_some(prefix)
    }

    /// True if what has passed ends with a message.
    pub(super) fn is_between_messages(&self) -> bool {
        match self.next {
            Some(Piece::Begin { .. }) => self.cleared == 0,
            Some(_) => false,
            None => self.chunk.is_empty() && !self.frames.is_within_message(),
        }
    }

    /// True if nothing is held back.
    pub(super) fn is_empty(&self) -> bool {
        self.chunk.is_empty() && self.frames.unfinished_prefix().is_empty()
    }

    /// The bytes that pass next. After an excess none do.
    pub(super) fn poll_pass(&mut self, cx: &mut Context<'_>) -> Poll<Result<GateItem, Excess>> {
        if let Some(excess) = self.excess.take() {
            return Poll::Ready(Err(excess));
        }
        loop {
            let Some(piece) = self.next.or_else(|| self.read()) else {
                return Poll::Ready(Ok(self.pass()));
            };
            self.next = Some(piece);
            match self.poll_pay(piece, cx) {
                Poll::Ready(Ok(())) => self.next = None,
                // Bytes that are paid for do not wait for those that are not.
                Poll::Pending if self.cleared > 0 => return Poll::Ready(Ok(self.pass())),
                Poll::Ready(Err(excess)) if self.cleared > 0 => {
                    self.excess = Some(excess);
                    return Poll::Ready(Ok(self.pass()));
                }
                Poll::Ready(Err(excess)) => return Poll::Ready(Err(excess)),
                Poll::Pending => return Poll::Pending,
            }
            match piece {
                Piece::Within(bytes)
                | Piece::Begin {
                    bytes: bytes @ PREFIX,
                    ..
                } => {
                    self.cleared += bytes;
                }
                // It began in another chunk, of which everything else has passed.
                Piece::Begin { bytes, .. } => {
                    self.cleared += bytes;
                    let began = self.frames.last_prefix(PREFIX - bytes);
                    return Poll::Ready(Ok(GateItem::Bytes(Bytes::copy_from_slice(began))));
                }
                // A part of a prefix waits until the rest has come and tells the message.
                Piece::Prefix(bytes) => {
                    let passing = self.pass();
                    self.chunk.advance(bytes);
                    if let GateItem::Bytes(_) = passing {
                        return Poll::Ready(Ok(passing));
                    }
                }
            }
        }
    }

    /// No bytes wait behind the held ones any longer.
    pub(super) fn catch_up(&mut self) {
        if let Some(meter) = &mut self.meter {
            meter.catch_up();
        }
    }

    /// The reason why the held bytes cannot wait any longer.
    pub(super) fn give_up(&mut self) -> Excess {
        let meter = self.meter.as_mut();
        meter.map_or(Excess::Undecided, Meter::give_up)
    }

    fn read(&mut self) -> Option<Piece> {
        let mut rest = self.chunk.get(self.cleared..).unwrap_or_default();
        if !self.frames.could_go_on(rest) && !self.is_certain() {
            self.reading = Reading::Other;
            // The units that were taken ahead come back.
            self.meter = None;
        }
        if let Reading::Other = self.reading {
            return (!rest.is_empty()).then_some(Piece::Within(rest.len()));
        }
        // More than a full budget holds is paid for in parts.
        if self.direction == Direction::Received
            && let Some(most) = self.meter.as_ref().and_then(Meter::most_bytes)
        {
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            rest = rest.get(..most).unwrap_or(rest);
        }
        self.frames.next(rest)
    }

    fn poll_pay(&mut self, piece: Piece, cx: &mut Context<'_>) -> Poll<Result<(), Excess>> {
        if let (Reading::Refused(refusal), Piece::Begin { .. }) = (&self.reading, piece) {
            return Poll::Ready(Err(Excess::Refused(refusal.clone())));
        }
        let Some(meter) = &mut self.meter else {
            return Poll::Ready(Ok(()));
        };
        let amount = match (piece, self.direction) {
            (Piece::Begin { .. }, Direction::Received) => Amount {
                messages: 1,
                bytes: meter.most_bytes().unwrap_or(u64::MAX).min(PREFIX as u64),
            },
            (Piece::Within(bytes), Direction::Received) => Amount {
                messages: 0,
                bytes: bytes as u64,
            },
            (Piece::Begin { length, .. }, Direction::Sent) => Amount {
                messages: 1,
                bytes: PREFIX as u64 + u64::from(length),
            },
            (Piece::Within(_), Direction::Sent) | (Piece::Prefix(_), _) => {
                return Poll::Ready(Ok(()));
            }
        };
        meter.poll_pay(amount, cx)
    }

    /// Releases the bytes that are paid for.
    fn pass(&mut self) -> GateItem {
        match mem::take(&mut self.cleared) {
            0 => GateItem::Nothing,
            cleared => GateItem::Bytes(self.chunk.split_to(cleared)),
        }
    }
}
