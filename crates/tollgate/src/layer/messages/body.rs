//! A body whose messages are charged.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::call::Call;
use super::gate::{Direction, Gate, Passing};
use super::meter::Meter;
use crate::{BodyWatch, ResponseBody};

pub(super) type BoxError = Box<dyn Error + Send + Sync>;

pin_project! {
    /// The body of a request or response under a [`MessageLimitLayer`](super::MessageLimitLayer). That of a call whose messages
    /// are not charged, and of what is no call, is as it was.
    pub struct MessageBody<B> {
        #[pin]
        body: B,
        charged: Option<Box<Charged>>,
    }
}

#[derive(Debug)]
struct Charged {
    direction: Direction,
    gate: Gate,
    call: Call,
    /// Whether nothing more passes.
    has_ended: bool,
    /// Whether nothing more comes.
    is_over: bool,
}

impl<B> MessageBody<B> {
    pub(super) fn plain(body: B) -> Self {
        Self {
            body,
            charged: None,
        }
    }

    pub(super) fn charged(body: B, direction: Direction, meter: Option<Meter>, call: Call) -> Self {
        Self {
            body,
            charged: Some(Box::new(Charged {
                direction,
                gate: Gate::new(direction, meter),
                call,
                has_ended: false,
                is_over: false,
            })),
        }
    }
}

type Passes = Option<Result<Frame<Bytes>, BoxError>>;

impl Charged {
    /// What passes, if anything does before more has come.
    fn poll_pass(&mut self, cx: &mut Context<'_>) -> Poll<Option<Passes>> {
        if self.has_ended {
            return Poll::Ready(Some(None));
        }
        // The caller has sent too much: what the service says to that does not matter, but for the end of a sentence.
        if self.direction == Direction::Sent
            && self.gate.is_between_messages()
            && let Some(trailers) = self.call.trailers(cx)
        {
            return Poll::Ready(Some(self.end_with(trailers)));
        }
        match ready!(self.gate.poll_pass(cx)) {
            Ok(Passing::Bytes(bytes)) => Poll::Ready(Some(Some(Ok(Frame::data(bytes))))),
            Ok(Passing::Nothing) => Poll::Ready(None),
            Err(excess) => {
                let status = self.call.refuse(&excess);
                let trailers = self.call.trailers(cx).unwrap_or_default();
                Poll::Ready(Some(match self.direction {
                    Direction::Sent => self.end_with(trailers),
                    Direction::Received => {
                        self.has_ended = true;
                        Some(Err(status.into()))
                    }
                }))
            }
        }
    }

    fn end_with(&mut self, trailers: HeaderMap) -> Passes {
        self.has_ended = true;
        Some(Ok(Frame::trailers(trailers)))
    }

    /// What comes after the last message.
    fn end(&mut self, last: Passes, cx: &Context<'_>) -> Passes {
        if self.direction == Direction::Sent
            && let Some(trailers) = self.call.trailers(cx)
        {
            return self.end_with(trailers);
        }
        last
    }
}

impl<B> Body for MessageBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Passes> {
        let mut this = self.project();
        let Some(charged) = this.charged else {
            let frame = ready!(this.body.poll_frame(cx));
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        };
        loop {
            if let Some(passes) = ready!(charged.poll_pass(cx)) {
                return Poll::Ready(passes);
            }
            if charged.is_over {
                return Poll::Ready(charged.end(None, cx));
            }
            let last = match ready!(this.body.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        charged.gate.come(data);
                        continue;
                    }
                    Err(trailers) => Some(Ok(trailers)),
                },
                Some(Err(error)) => Some(Err(error.into())),
                None => {
                    charged.is_over = true;
                    if let Some(prefix) = charged.gate.end() {
                        return Poll::Ready(Some(Ok(Frame::data(prefix))));
                    }
                    None
                }
            };
            return Poll::Ready(charged.end(last, cx));
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.charged {
            None => self.body.is_end_stream(),
            Some(charged) => {
                charged.has_ended || (charged.gate.is_empty() && self.body.is_end_stream())
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.charged {
            None => self.body.size_hint(),
            // It may end early.
            Some(_) => SizeHint::default(),
        }
    }
}

impl<B> ResponseBody for MessageBody<B>
where
    B: ResponseBody + Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    fn from_bytes(bytes: Bytes) -> Self {
        Self::plain(B::from_bytes(bytes))
    }

    fn watched(self, watch: BodyWatch) -> Self {
        Self {
            body: self.body.watched(watch),
            charged: self.charged,
        }
    }
}

impl<B> fmt::Debug for MessageBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageBody")
            .field("charged", &self.charged)
            .finish_non_exhaustive()
    }
}
