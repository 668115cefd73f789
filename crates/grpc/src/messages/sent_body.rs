//! The service's messages, one by one.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};

use super::body_item::{BodyItem, BoxError};
use super::call::Call;
use super::gate::{Direction, Gate, GateItem};
use super::meter::Meter;

/// The gate before the body of a response to a call whose messages are charged. While something is held back, the service is not
/// polled.
#[derive(Debug)]
pub(super) struct SentBody {
    gate: Gate,
    call: Call,
    /// True if nothing more passes.
    has_ended: bool,
    /// True if nothing more comes.
    is_over: bool,
}

impl SentBody {
    pub(super) fn new(meter: Option<Meter>, call: Call) -> Self {
        Self {
            gate: Gate::new(Direction::Sent, meter),
            call,
            has_ended: false,
            is_over: false,
        }
    }

    pub(super) fn poll_frame<B>(
        &mut self,
        mut body: Pin<&mut B>,
        cx: &mut Context<'_>,
    ) -> Poll<BodyItem>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        loop {
            if let Some(passes) = ready!(self.poll_pass(cx)) {
                return Poll::Ready(passes);
            }
            if self.is_over {
                return Poll::Ready(self.end(None, cx));
            }
            let last = match ready!(body.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        self.gate.come(data);
                        continue;
                    }
                    Err(trailers) => Some(Ok(trailers)),
                },
                Some(Err(error)) => Some(Err(error.into())),
                None => {
                    self.is_over = true;
                    if let Some(prefix) = self.gate.end() {
                        return Poll::Ready(Some(Ok(Frame::data(prefix))));
                    }
                    None
                }
            };
            return Poll::Ready(self.end(last, cx));
        }
    }

    pub(super) fn is_end_stream(&self, body: &impl Body) -> bool {
        self.has_ended || (self.gate.is_empty() && body.is_end_stream())
    }

    /// The bytes that pass before more have come, if any do.
    fn poll_pass(&mut self, cx: &mut Context<'_>) -> Poll<Option<BodyItem>> {
        if self.has_ended {
            return Poll::Ready(Some(None));
        }
        // The caller has sent too much. The rest of the service's answer is dropped, but a message that has begun is finished.
        if self.gate.is_between_messages()
            && let Some(trailers) = self.call.trailers(cx)
        {
            return Poll::Ready(Some(self.end_with(trailers)));
        }
        match ready!(self.gate.poll_pass(cx)) {
            Ok(GateItem::Bytes(bytes)) => Poll::Ready(Some(Some(Ok(Frame::data(bytes))))),
            Ok(GateItem::Nothing) => Poll::Ready(None),
            Err(excess) => {
                self.call.refuse(&excess);
                let trailers = self.call.trailers(cx).unwrap_or_default();
                Poll::Ready(Some(self.end_with(trailers)))
            }
        }
    }

    fn end_with(&mut self, trailers: HeaderMap) -> BodyItem {
        self.has_ended = true;
        Some(Ok(Frame::trailers(trailers)))
    }

    /// The end of the stream, behind the last message.
    fn end(&mut self, last: BodyItem, cx: &Context<'_>) -> BodyItem {
        match self.call.trailers(cx) {
            Some(trailers) => self.end_with(trailers),
            None => last,
        }
    }
}
