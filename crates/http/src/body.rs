//! Bodies that an answer of ours can be made of.

mod any;
mod watch;

use bytes::Bytes;

pub use self::any::{AnyBody, AnyBodyFuture, AnyBodyLayer, AnyBodyService};
pub use self::watch::{BodyWatch, Watched};

/// A response body that can be made from bytes.
///
/// The layer answers refused requests itself, in whatever body the service has: so it never has to put the body of an
/// allowed response into a box. Bodies of axum, tonic (feature `tonic`) and http-body-util are such bodies, `String` is one,
/// and so is a box of one. Implement it for a body of your own in one line.
///
/// A body that another layer has wrapped, to trace or compress it, is none: only that layer can make one. Neither is one that was
/// received, or one of a file. An [`AnyBodyLayer`] between the limiter and the service makes one of any body. In a `Router` there is
/// nothing to be done: it makes the body axum's between any two layers.
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
    /// A body of these bytes; of none, if there are none.
    fn from_bytes(bytes: Bytes) -> Self;

    /// The same body, which tells `watch` what of it is sent. Asked for only where a policy charges by what was sent.
    ///
    /// Without this a body that states its size is taken to be sent as a whole, and what a body of unknown size costs stays
    /// as it was charged. A body that can hold another one puts itself into a [`Watched`].
    #[must_use]
    fn watched(self, mut watch: BodyWatch) -> Self
    where
        Self: Sized,
    {
        match self.size_hint().exact() {
            Some(size) => watch.sent(size),
            None => watch.look_away(),
        }
        self
    }
}

/// What is not UTF-8 in an answer of the user's own is replaced; what Tollgate answers is.
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
        Self::new(Watched::new(self, watch))
    }
}

impl<E: 'static> ResponseBody for http_body_util::combinators::UnsyncBoxBody<Bytes, E> {
    fn from_bytes(bytes: Bytes) -> Self {
        use http_body_util::BodyExt;

        Self::new(http_body_util::Full::new(bytes).map_err(|never| match never {}))
    }

    fn watched(self, watch: BodyWatch) -> Self {
        Self::new(Watched::new(self, watch))
    }
}

impl<L, R> ResponseBody for http_body_util::Either<L, R>
where
    L: ResponseBody,
    R: http_body::Body<Data = L::Data>,
    L::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    R::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn from_bytes(bytes: Bytes) -> Self {
        Self::Left(L::from_bytes(bytes))
    }
}

#[cfg(feature = "axum")]
impl ResponseBody for axum::body::Body {
    fn from_bytes(bytes: Bytes) -> Self {
        Self::from(bytes)
    }

    fn watched(self, watch: BodyWatch) -> Self {
        Self::new(Watched::new(self, watch))
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
        Self::new(Watched::new(self, watch))
    }
}
