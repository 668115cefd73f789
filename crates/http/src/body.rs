//! Bodies that can carry an answer of ours.

mod any;
mod watch;

use bytes::Bytes;

pub use self::any::{AnyBody, AnyBodyFuture, AnyBodyLayer, AnyBodyService};
pub use self::watch::{BodyWatch, WatchedBody};

/// A response body that can be made from bytes.
///
/// The layer answers refused requests itself, in the body type of the service, so that it never boxes the body of an allowed
/// response. Bodies of axum, tonic (feature `tonic`) and http-body-util implement the trait, and so do `String` and a box of a
/// body. An implementation for a body of your own takes one line.
///
/// A body that another layer has wrapped, to trace or compress it, does not implement the trait: only that layer can make such a
/// body. The same holds for received bodies and bodies of files. An [`AnyBodyLayer`] between the limiter and the service turns
/// any body into one that does. A `Router` needs no such layer: between any two layers it has axum's body.
///
/// ```
/// use std::convert::Infallible;
/// use std::pin::Pin;
/// use std::task::{Context, Poll};
/// use bytes::Bytes;
/// use http_body::{Body, Frame};
/// use tollgate::{BodyWatch, ResponseBody};
///
/// /// A body in one piece.
/// struct OnePiece(Option<Bytes>);
///
/// # impl Body for OnePiece {
/// #     type Data = Bytes;
/// #     type Error = Infallible;
/// #     fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
/// #         Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
/// #     }
/// # }
/// impl ResponseBody for OnePiece {
///     fn from_bytes(bytes: Bytes) -> Self {
///         Self(Some(bytes))
///     }
///
///     // For policies that charge by the bytes that were sent.
///     fn watched(self, mut watch: BodyWatch) -> Self {
///         watch.sent(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64));
///         self
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot carry the answer to a refused request",
    label = "add `tollgate::AnyBodyLayer` between the limiter and this service",
    note = "the response body of the limited service must implement `tollgate::ResponseBody`; axum's, tonic's (feature \
            `tonic`), those of http-body-util and `String` do",
    note = "any other does under `tollgate::AnyBodyLayer`: `ServiceBuilder::new().layer(limiter).layer(AnyBodyLayer).service(..)`"
)]
pub trait ResponseBody: http_body::Body {
    /// Makes a body of these bytes, which may be empty.
    fn from_bytes(bytes: Bytes) -> Self;

    /// Makes the body report to `watch` how much of it is sent, and its end. Called only if a policy charges by the bytes that were
    /// sent, or if something is [held](tollgate_limiter::Concurrent) until the response is over.
    ///
    /// The default counts a body of known size as sent whole, and leaves the charge for a body of unknown size as it is. Either is
    /// over for it as it leaves, so that what is held is given back then. A body that can hold another one wraps itself in a
    /// [`WatchedBody`], and one that is sent bit by bit must, if it is to hold.
    #[must_use]
    fn watched(self, watch: BodyWatch) -> Self
    where
        Self: Sized,
    {
        sent_at_once(&self, watch);
        self
    }
}

/// Reports a body that cannot report itself as it leaves.
fn sent_at_once(body: &impl http_body::Body, mut watch: BodyWatch) {
    match body.size_hint().exact() {
        Some(size) => watch.sent(size),
        None => watch.look_away(),
    }
}

/// Bytes that are not UTF-8 in an answer of the user's own are replaced. Tollgate's own answers are UTF-8.
impl ResponseBody for String {
    fn from_bytes(bytes: Bytes) -> Self {
        Self::from_utf8_lossy(&bytes).into_owned()
    }
}

impl<B: ResponseBody + Unpin> ResponseBody for Box<B> {
    fn from_bytes(bytes: Bytes) -> Self {
        Self::new(B::from_bytes(bytes))
    }

    fn watched(self, watch: BodyWatch) -> Self {
        Self::new((*self).watched(watch))
    }
}

impl ResponseBody for http_body_util::Full<Bytes> {
    fn from_bytes(bytes: Bytes) -> Self {
        Self::new(bytes)
    }
}

impl<E: 'static> ResponseBody for http_body_util::combinators::BoxBody<Bytes, E> {
    fn from_bytes(bytes: Bytes) -> Self {
        use http_body_util::BodyExt;

        Self::new(http_body_util::Full::new(bytes).map_err(|never| match never {}))
    }

    fn watched(self, watch: BodyWatch) -> Self {
        Self::new(WatchedBody::new(self, watch))
    }
}

impl<E: 'static> ResponseBody for http_body_util::combinators::UnsyncBoxBody<Bytes, E> {
    fn from_bytes(bytes: Bytes) -> Self {
        use http_body_util::BodyExt;

        Self::new(http_body_util::Full::new(bytes).map_err(|never| match never {}))
    }

    fn watched(self, watch: BodyWatch) -> Self {
        Self::new(WatchedBody::new(self, watch))
    }
}

impl<L, R> ResponseBody for http_body_util::Either<L, R>
where
    L: ResponseBody,
    R: ResponseBody<Data = L::Data>,
    L::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    R::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn from_bytes(bytes: Bytes) -> Self {
        Self::Left(L::from_bytes(bytes))
    }

    fn watched(self, watch: BodyWatch) -> Self {
        match self {
            Self::Left(body) => Self::Left(body.watched(watch)),
            Self::Right(body) => Self::Right(body.watched(watch)),
        }
    }
}

#[cfg(feature = "axum")]
impl ResponseBody for axum::body::Body {
    fn from_bytes(bytes: Bytes) -> Self {
        // An empty body needs no box.
        if bytes.is_empty() {
            Self::empty()
        } else {
            Self::from(bytes)
        }
    }

    fn watched(self, watch: BodyWatch) -> Self {
        Self::new(WatchedBody::new(self, watch))
    }
}

#[cfg(feature = "tonic")]
impl ResponseBody for tonic::body::Body {
    fn from_bytes(bytes: Bytes) -> Self {
        if bytes.is_empty() {
            Self::empty()
        } else {
            Self::new(http_body_util::Full::new(bytes))
        }
    }

    fn watched(self, watch: BodyWatch) -> Self {
        Self::new(WatchedBody::new(self, watch))
    }
}
