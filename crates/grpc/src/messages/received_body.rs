//! The caller's messages, one by one.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};

use super::body_item::{BodyItem, BoxError};
use super::call::Call;
use super::gate::{Direction, Gate, GateItem};
use super::meter::{Excess, Meter};
use super::read_ahead::ReadAhead;

/// The gate before the body of a request whose messages are charged.
#[derive(Debug)]
pub(super) struct ReceivedBody {
    gate: Gate,
    ahead: ReadAhead,
    call: Call,
    rest: Rest,
}

/// The data that is still to come from the caller.
#[derive(Debug)]
enum Rest {
    Open,
    /// This only, behind the data.
    Last(BodyItem),
    /// Nothing, or nothing that matters.
    Over,
}

impl ReceivedBody {
    pub(super) fn new(meter: Meter, call: Call, read_ahead: usize) -> Self {
        let gate = Gate::new(Direction::Received, Some(meter));
        Self::behind(gate, call, read_ahead)
    }

    /// Makes a gate for a request that may not be a call. If it is one, its messages are charged or end it.
    pub(super) fn tentative(
        charged: Result<Meter, Box<Response<Bytes>>>,
        call: Call,
        read_ahead: usize,
    ) -> Self {
        let gate = Gate::tentative(Direction::Received, charged);
        Self::behind(gate, call, read_ahead)
    }

    fn behind(gate: Gate, call: Call, read_ahead: usize) -> Self {
        Self {
            gate,
            ahead: ReadAhead::of(read_ahead),
            call,
            rest: Rest::Open,
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
            if let Rest::Over = self.rest {
                return Poll::Ready(None);
            }
            match self.gate.poll_pass(cx) {
                Poll::Ready(Ok(GateItem::Bytes(bytes))) => {
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                Poll::Ready(Ok(GateItem::Nothing)) => {}
                Poll::Ready(Err(excess)) => return Poll::Ready(self.refuse(&excess)),
                Poll::Pending => return self.read_ahead(body, cx),
            }
            let next = match self.ahead.pop() {
                None => {
                    self.gate.catch_up();
                    ready!(self.poll_data(body.as_mut(), cx))
                }
                ahead => ahead,
            };
            match next {
                Some(data) => self.gate.come(data),
                None => return Poll::Ready(self.end()),
            }
        }
    }

    pub(super) fn is_end_stream(&self, body: &impl Body) -> bool {
        let has_come = match &self.rest {
            Rest::Open => body.is_end_stream(),
            Rest::Last(last) => last.is_none(),
            Rest::Over => return true,
        };
        has_come && self.ahead.is_empty() && self.gate.is_empty()
    }

    pub(super) fn size_hint(&self, body: &impl Body) -> SizeHint {
        // A call may end early. The body of another request comes with the size that was stated.
        if self.gate.is_certain() {
            return SizeHint::default();
        }
        let held = (self.gate.held() + self.ahead.bytes()) as u64;
        let rest = body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(held));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(held));
        }
        hint
    }

    /// The next data, or nothing if all of it has come.
    fn poll_data<B>(&mut self, body: Pin<&mut B>, cx: &mut Context<'_>) -> Poll<Option<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let Rest::Open = self.rest else {
            return Poll::Ready(None);
        };
        let last = match ready!(body.poll_frame(cx)) {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => return Poll::Ready(Some(data)),
                Err(trailers) => Some(Ok(trailers)),
            },
            Some(Err(error)) => Some(Err(error.into())),
            None => None,
        };
        self.rest = Rest::Last(last);
        Poll::Ready(None)
    }

    /// Reads ahead while nothing may pass. h2 counts unread small frames, and closes the connection over them, with all other
    /// calls on it.
    fn read_ahead<B>(&mut self, mut body: Pin<&mut B>, cx: &mut Context<'_>) -> Poll<BodyItem>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        while !self.ahead.is_full() {
            match self.poll_data(body.as_mut(), cx) {
                Poll::Ready(Some(data)) => self.ahead.push(data),
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
        // The body is not read from here on, which slows the sender down.
        if self.ahead.can_be_slowed_down() {
            return Poll::Pending;
        }
        tracing::debug!("ended a stream that is held back, because of its many small messages");
        let excess = self.gate.give_up();
        Poll::Ready(self.refuse(&excess))
    }

    fn end(&mut self) -> BodyItem {
        if let Some(prefix) = self.gate.end() {
            return Some(Ok(Frame::data(prefix)));
        }
        match mem::replace(&mut self.rest, Rest::Over) {
            Rest::Last(last) => last,
            Rest::Open | Rest::Over => None,
        }
    }

    fn refuse(&mut self, excess: &Excess) -> BodyItem {
        self.rest = Rest::Over;
        self.ahead = ReadAhead::of(0);
        Some(Err(self.call.refuse(excess).into()))
    }
}
