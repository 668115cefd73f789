//! A request body of which a part may have been read already.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// The request body behind a [`BufferBodyLayer`](crate::BufferBodyLayer): the part that has been read, and then the rest.
///
/// A service within a `BufferBodyLayer` has this type of bodies:
///
/// ```
/// use bytes::Bytes;
/// use http::{Request, Response};
/// use http_body_util::{BodyExt, Full};
/// use tollgate::{BufferBodyLayer, BufferedBody};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let length = service_fn(async |request: Request<BufferedBody<Full<Bytes>>>| {
///     request.into_body().collect().await.map(|body| Response::new(body.to_bytes().len()))
/// });
/// let site = BufferBodyLayer::new(16 * 1024).layer(length);
/// assert_eq!(*site.oneshot(Request::new(Full::from("user=alice"))).await.unwrap().body(), 10);
/// # }
/// ```
pub struct BufferedBody<B: Body> {
    read: BodyStart<B::Error>,
    rest: B,
}

/// The part of a body that has been read.
pub(super) struct BodyStart<E> {
    frames: VecDeque<Frame<Bytes>>,
    error: Option<E>,
    bytes: usize,
    /// Not too long so far, and not failed.
    is_wanted: bool,
}

impl<E> Default for BodyStart<E> {
    fn default() -> Self {
        Self {
            frames: VecDeque::new(),
            error: None,
            bytes: 0,
            is_wanted: true,
        }
    }
}

impl<E> BodyStart<E> {
    pub(super) fn push(&mut self, frame: Result<Frame<Bytes>, E>, limit: usize) {
        match frame {
            Ok(frame) => {
                self.bytes += frame.data_ref().map_or(0, Bytes::len);
                // Frames without data are bounded as well.
                let too_many = self.bytes > limit || self.frames.len() > limit;
                self.is_wanted = !too_many;
                self.frames.push_back(frame);
            }
            Err(error) => {
                self.error = Some(error);
                self.is_wanted = false;
            }
        }
    }

    /// Reads no further, and keeps nothing for keys.
    pub(super) fn give_up(&mut self) {
        self.is_wanted = false;
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    pub(super) fn has_failed(&self) -> bool {
        self.error.is_some()
    }

    /// All data in one piece.
    pub(super) fn joined(&self) -> Bytes {
        let mut data = self.frames.iter().filter_map(Frame::data_ref);
        match (data.next(), data.next()) {
            (None, _) => Bytes::new(),
            (Some(only), None) => only.clone(),
            (Some(first), Some(second)) => {
                let mut joined = Vec::with_capacity(self.bytes);
                for part in [first, second].into_iter().chain(data) {
                    joined.extend_from_slice(part);
                }
                joined.into()
            }
        }
    }
}

impl<B: Body> BufferedBody<B> {
    pub(super) fn unread(rest: B) -> Self {
        Self::new(BodyStart::default(), rest)
    }

    pub(super) fn new(read: BodyStart<B::Error>, rest: B) -> Self {
        Self { read, rest }
    }
}

impl<B> Body for BufferedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if let Some(frame) = self.read.frames.pop_front() {
            self.read.bytes -= frame.data_ref().map_or(0, Bytes::len);
            return Poll::Ready(Some(Ok(frame)));
        }
        if let Some(error) = self.read.error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        Pin::new(&mut self.rest).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.read.frames.is_empty() && self.read.error.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let read = u64::try_from(self.read.bytes).unwrap_or(u64::MAX);
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(read));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(read));
        }
        hint
    }
}

impl<B: Body> fmt::Debug for BufferedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferedBody")
            .field("read", &self.read.bytes)
            .finish_non_exhaustive()
    }
}
