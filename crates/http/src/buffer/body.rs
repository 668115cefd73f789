//! A request body of which a part may have been read already.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
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

/// The part of a body that has been read, in one piece: a frame of one byte takes some hundred.
pub(super) struct BodyStart<E> {
    data: Bytes,
    trailers: Option<HeaderMap>,
    error: Option<E>,
}

impl<E> Default for BodyStart<E> {
    fn default() -> Self {
        Self {
            data: Bytes::new(),
            trailers: None,
            error: None,
        }
    }
}

/// A body that is being read.
pub(super) struct BodyReader<E> {
    data: BytesMut,
    start: BodyStart<E>,
    /// Frames without data are bounded as well.
    frames: usize,
    /// Not too long so far, and not failed.
    is_wanted: bool,
}

impl<E> Default for BodyReader<E> {
    fn default() -> Self {
        Self {
            data: BytesMut::new(),
            start: BodyStart::default(),
            frames: 0,
            is_wanted: true,
        }
    }
}

impl<E> BodyReader<E> {
    pub(super) fn push(&mut self, frame: Result<Frame<Bytes>, E>, limit: usize) {
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => self.data.extend_from_slice(&data),
            Ok(Err(frame)) => self.start.trailers = frame.into_trailers().ok(),
            Err(error) => {
                self.start.error = Some(error);
                self.is_wanted = false;
            }
        }
        self.frames += 1;
        // The last of as many frames as bytes may be the trailers.
        self.is_wanted &= self.data.len() <= limit && self.frames <= limit.saturating_add(1);
    }

    /// Reads no further, and keeps nothing for keys.
    pub(super) fn give_up(&mut self) {
        self.is_wanted = false;
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    pub(super) fn has_failed(&self) -> bool {
        self.start.error.is_some()
    }

    /// Ends reading, and returns all data that was read beside what goes on.
    pub(super) fn finish(self) -> (Bytes, BodyStart<E>) {
        let data = self.data.freeze();
        let start = BodyStart {
            data: data.clone(),
            ..self.start
        };
        (data, start)
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
        if !self.read.data.is_empty() {
            let data = mem::take(&mut self.read.data);
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if let Some(trailers) = self.read.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        if let Some(error) = self.read.error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        Pin::new(&mut self.rest).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        let BodyStart {
            data,
            trailers,
            error,
        } = &self.read;
        data.is_empty() && trailers.is_none() && error.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let read = u64::try_from(self.read.data.len()).unwrap_or(u64::MAX);
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
            .field("read", &self.read.data.len())
            .finish_non_exhaustive()
    }
}
