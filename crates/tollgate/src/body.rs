//! Bodies that an answer of ours can be made of.

mod watch;

use bytes::Bytes;

pub use self::watch::{BodyWatch, Watched};

/// A response body that can be made from bytes.
///
/// The layer answers refused requests itself, in whatever body the service has: so it never has to put the body of an
/// allowed response into a box. Implement it for a body of your own in one line.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot carry the answer to a refused request",
    note = "the response body of the limited service must implement `tollgate::ResponseBody`; axum's, tonic's (feature \
            `tonic`) and those of http-body-util do"
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
