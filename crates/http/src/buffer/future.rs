//! A request whose body is being read.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Request;
use http_body::Body;
use pin_project_lite::pin_project;
use tollgate_limiter::transport::SeenBody;
use tower_service::Service;

use super::BufferedBody;
use super::body::BodyReader;

const TOO_LONG: &str = "the body is longer than is read";
const FAILED: &str = "the body ended in an error";

pin_project! {
    /// The response of a [`BufferBodyService`](super::BufferBodyService).
    ///
    /// A service that wraps a `BufferBodyService` has this future:
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::Request;
    /// use http_body_util::Full;
    /// use tollgate::{BufferBodyService, BufferFuture, BufferedBody};
    /// use tower::Service;
    ///
    /// fn serve<S>(inner: &mut BufferBodyService<S>, request: Request<Full<Bytes>>) -> BufferFuture<S, Full<Bytes>>
    /// where
    ///     S: Service<Request<BufferedBody<Full<Bytes>>>> + Clone,
    /// {
    ///     inner.call(request)
    /// }
    /// ```
    #[must_use = "a future does nothing unless it is awaited"]
    pub struct BufferFuture<S, B>
    where
        S: Service<Request<BufferedBody<B>>>,
        B: Body,
    {
        #[pin]
        stage: Stage<S, B>,
    }
}

pin_project! {
    #[project = Projected]
    enum Stage<S, B>
    where
        S: Service<Request<BufferedBody<B>>>,
        B: Body,
    {
        // Empty once it has gone on.
        Reading { reading: Option<Reading<S, B>> },
        Calling { #[pin] call: S::Future },
    }
}

struct Reading<S, B: Body> {
    ready: S,
    request: Request<B>,
    read: BodyReader<B::Error>,
    limit: usize,
}

impl<S, B> BufferFuture<S, B>
where
    S: Service<Request<BufferedBody<B>>>,
    B: Body,
{
    pub(super) fn reading(ready: S, request: Request<B>, limit: usize) -> Self {
        let reading = Some(Reading {
            ready,
            request,
            read: BodyReader::default(),
            limit,
        });
        Self {
            stage: Stage::Reading { reading },
        }
    }

    pub(super) fn calling(call: S::Future) -> Self {
        Self {
            stage: Stage::Calling { call },
        }
    }
}

impl<S, B> Reading<S, B>
where
    S: Service<Request<BufferedBody<B>>>,
    B: Body<Data = Bytes> + Unpin,
{
    /// Reads until there is nothing left, or nothing that may be kept.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let body = self.request.body_mut();
        // A length that is stated is believed: such a body need not be read to be found too long.
        let announced = body.size_hint().lower();
        if usize::try_from(announced).map_or(true, |length| length > self.limit) {
            self.read.give_up();
        }
        while self.read.is_wanted() {
            match ready!(Pin::new(&mut *body).poll_frame(cx)) {
                Some(frame) => self.read.push(frame, self.limit),
                None => break,
            }
        }
        Poll::Ready(())
    }

    fn go_on(mut self) -> S::Future {
        let (is_whole, has_failed) = (self.read.is_wanted(), self.read.has_failed());
        let (data, read) = self.read.finish();
        let seen = match (is_whole, has_failed) {
            (true, _) => SeenBody::Whole(data),
            (false, true) => SeenBody::Unread(FAILED),
            (false, false) => SeenBody::Unread(TOO_LONG),
        };
        let (mut parts, body) = self.request.into_parts();
        parts.extensions.insert(seen);
        let body = BufferedBody::new(read, body);
        self.ready.call(Request::from_parts(parts, body))
    }
}

impl<S, B> Future for BufferFuture<S, B>
where
    S: Service<Request<BufferedBody<B>>>,
    B: Body<Data = Bytes> + Unpin,
{
    type Output = Result<S::Response, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut stage = self.project().stage;
        loop {
            match stage.as_mut().project() {
                Projected::Reading { reading } => {
                    if let Some(reading) = reading {
                        ready!(reading.poll(cx));
                    }
                    // Empty only if polled after a panic.
                    let Some(reading) = reading.take() else {
                        return Poll::Pending;
                    };
                    let call = reading.go_on();
                    stage.set(Stage::Calling { call });
                }
                Projected::Calling { call } => return call.poll(cx),
            }
        }
    }
}

impl<S, B> fmt::Debug for BufferFuture<S, B>
where
    S: Service<Request<BufferedBody<B>>>,
    B: Body,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.stage {
            Stage::Reading { .. } => "BufferFuture(reading)",
            Stage::Calling { .. } => "BufferFuture(calling)",
        })
    }
}
