//! A layer that reads the beginning of request bodies, for keys that stand in them.

mod body;
mod future;

use std::mem;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use crate::RequestView;

pub use self::body::BufferedBody;
pub use self::future::BufferFuture;

/// Reads request bodies up to a limit before they go on, so that policies further in can use
/// [`FormField`](crate::key::FormField) and, with the feature `json`, `JsonField`. It goes outside of a
/// [`RateLimitLayer`](crate::RateLimitLayer), which itself never reads a body.
///
/// ```
/// # #[cfg(feature = "axum")] {
/// use axum::{Router, routing::post};
/// use tollgate::key::FormField;
/// use tollgate::{BufferBodyLayer, Policy, Quota, RateLimitLayer};
///
/// let login = Policy::new("login", Quota::per_minute(5)).route("/login").key(FormField::new("user"));
/// let app: Router = Router::new()
///     .route("/login", post(|body: String| async { body }))
///     .layer(RateLimitLayer::new(login))
///     // Outside the limiter, so that it has read when the limiter looks.
///     .layer(BufferBodyLayer::new(16 * 1024));
/// # }
/// ```
///
/// # What it reads, and what not
///
/// * Only bodies that say they are JSON or a form. Others go on unread, and so does everything about a request but its body.
/// * A body goes on as it came: the same bytes, trailers and errors, the same length if one was stated.
/// * A body longer than the limit goes on whole, but is not kept: the field is then [ambiguous](crate::key::KeyMissing::ambiguous),
///   since the handler may find it, and no policy lets the request pass for it. So it is in a body that ends in an error, and in one
///   that goes on unread, unless it is empty.
/// * Nobody is waited for longer than the inner service would wait. Put a timeout outside against callers that send slowly.
#[derive(Clone, Copy, Debug)]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct BufferBodyLayer {
    limit: usize,
}

impl BufferBodyLayer {
    /// Reads bodies of up to `limit` bytes. Each request that is waiting may hold as much.
    pub fn new(limit: usize) -> Self {
        Self { limit }
    }
}

impl<S> Layer<S> for BufferBodyLayer {
    type Service = BufferBodyService<S>;

    fn layer(&self, inner: S) -> BufferBodyService<S> {
        BufferBodyService {
            inner,
            limit: self.limit,
        }
    }
}

/// A service whose request bodies have been read: what a [`BufferBodyLayer`] makes.
#[derive(Clone, Debug)]
pub struct BufferBodyService<S> {
    inner: S,
    limit: usize,
}

impl<S, B> Service<Request<B>> for BufferBodyService<S>
where
    S: Service<Request<BufferedBody<B>>> + Clone,
    B: Body<Data = Bytes> + Unpin,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BufferFuture<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> BufferFuture<S, B> {
        if let Some(seen) = SeenBody::at_once(&request) {
            let mut request = request.map(BufferedBody::unread);
            request.extensions_mut().insert(seen);
            return BufferFuture::calling(self.inner.call(request));
        }
        // The clone has not been asked whether it is ready, so it is the one that stays behind.
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        BufferFuture::reading(ready, request, self.limit)
    }
}

/// What is known of the body of a request, in its extensions.
#[derive(Clone, Debug)]
pub(crate) enum SeenBody {
    /// All of it.
    Whole(Bytes),
    /// Why it has not been read.
    Unread(&'static str),
}

impl SeenBody {
    const OF_ANOTHER_KIND: &str = "the body is neither a form nor JSON by its content type";
    const TOO_LONG: &str = "the body is longer than is read";
    const FAILED: &str = "the body ended in an error";
    const NO_LAYER: &str = "there is no BufferBodyLayer that reads the body";

    /// The whole body, or why it is not known.
    pub(crate) fn of<'a>(request: &RequestView<'a>) -> Result<&'a [u8], &'static str> {
        match request.extensions().get() {
            Some(Self::Whole(body)) => Ok(body),
            Some(Self::Unread(why)) => Err(why),
            None => Err(Self::NO_LAYER),
        }
    }

    /// If nothing has to be read for it.
    fn at_once<B: Body>(request: &Request<B>) -> Option<Self> {
        let body = request.body();
        if body.is_end_stream() || body.size_hint().exact() == Some(0) {
            Some(Self::Whole(Bytes::new()))
        } else if ContentType::of(request.headers()).is_none() {
            Some(Self::Unread(Self::OF_ANOTHER_KIND))
        } else {
            None
        }
    }
}

/// What a body says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentType {
    Form,
    Json,
}

impl ContentType {
    /// Nothing, if it is neither, or if there are several statements.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut lines = headers.get_all(CONTENT_TYPE).iter();
        let (Some(only), None) = (lines.next().map(HeaderValue::to_str), lines.next()) else {
            return None;
        };
        let essence = only.ok()?.split(';').next()?.trim().to_ascii_lowercase();
        match essence.as_str() {
            "application/x-www-form-urlencoded" => Some(Self::Form),
            "application/json" => Some(Self::Json),
            other if other.starts_with("application/") && other.ends_with("+json") => {
                Some(Self::Json)
            }
            _ => None,
        }
    }
}
