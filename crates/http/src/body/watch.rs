//! Bodies that report how much of them was sent.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

/// Counts what is sent of a body, and tells when it has ended or was dropped.
///
/// A body that states how much of it is sent, and one that cannot:
///
/// ```
/// use tollgate::BodyWatch;
///
/// fn send(watch: &mut BodyWatch, chunk: &[u8]) {
///     watch.sent(chunk.len() as u64);
/// }
///
/// fn hand_over_to_the_kernel(watch: &mut BodyWatch) {
///     watch.look_away();
/// }
/// ```
pub struct BodyWatch {
    sent: u64,
    /// Empty once it was told.
    tell: Option<Box<dyn FnOnce(u64) + Send + Sync>>,
}

impl BodyWatch {
    pub(crate) fn new(tell: impl FnOnce(u64) + Send + Sync + 'static) -> Self {
        Self {
            sent: 0,
            tell: Some(Box::new(tell)),
        }
    }

    /// Counts bytes that were sent.
    pub fn sent(&mut self, bytes: u64) {
        self.sent = self.sent.saturating_add(bytes);
    }

    /// Stops counting, because the sent bytes cannot be seen. Nothing will be reported.
    pub fn look_away(&mut self) {
        self.tell = None;
    }

    fn tell(&mut self) {
        if let Some(tell) = self.tell.take() {
            tell(self.sent);
        }
    }
}

impl Drop for BodyWatch {
    fn drop(&mut self) {
        self.tell();
    }
}

impl fmt::Debug for BodyWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyWatch")
            .field("sent", &self.sent)
            .finish_non_exhaustive()
    }
}

pin_project! {
    /// A body that is watched: its frames, its stated size and its end are those of the body within.
    ///
    /// A body that can hold another one reports for it:
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http_body_util::BodyExt;
    /// use http_body_util::combinators::BoxBody;
    /// use tollgate::{BodyWatch, WatchedBody};
    ///
    /// fn watched(body: BoxBody<Bytes, std::io::Error>, watch: BodyWatch) -> BoxBody<Bytes, std::io::Error> {
    ///     WatchedBody::new(body, watch).boxed()
    /// }
    /// ```
    #[derive(Debug)]
    pub struct WatchedBody<B> {
        #[pin]
        body: B,
        watch: BodyWatch,
    }
}

impl<B> WatchedBody<B> {
    /// Watches a body.
    pub const fn new(body: B, watch: BodyWatch) -> Self {
        Self { body, watch }
    }
}

impl<B: Body> Body for WatchedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.project();
        let frame = ready!(this.body.poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    this.watch.sent(data.remaining() as u64);
                }
            }
            None | Some(Err(_)) => this.watch.tell(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
