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
/// * A body longer than the limit goes on whole, but is not kept: the field is then missing, and the policy's
///   [`OnMissing`](crate::OnMissing) says what that means. So does one that ends in an error.
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
        if ContentType::of(request.headers()).is_none() {
            return BufferFuture::calling(self.inner.call(request.map(BufferedBody::unread)));
        }
        // The clone has not been asked whether it is ready, so it is the one that stays behind.
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        BufferFuture::reading(ready, request, self.limit)
    }
}

/// The whole body of a request, in its extensions.
#[derive(Clone, Debug)]
pub(crate) struct WholeBody(pub(crate) Bytes);

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
