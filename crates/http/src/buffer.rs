//! A layer that reads the beginning of request bodies, for keys that stand in them.

mod body;
mod future;

use std::mem;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, Request};
use http_body::Body;
use tollgate_limiter::transport::{ContentType, SeenBody};
use tower_layer::Layer;
use tower_service::Service;

pub use self::body::BufferedBody;
pub use self::future::BufferFuture;

/// Reads request bodies up to a limit before they go on, so that policies further in can use
/// [`FormField`](tollgate_limiter::key::FormField) and, with the feature `json`, `JsonField`. It goes outside of a
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
/// # The bodies that it reads
///
/// * It reads only bodies whose content type is JSON or a form. Others go on unread.
/// * It reads no compressed body: a field is [ambiguous](tollgate_limiter::key::KeyMissing::ambiguous) if the request states a
///   content coding other than `identity`. A layer that decompresses goes outside this one.
/// * A body goes on as it came: the same bytes, trailers and errors, the same length if one was stated.
/// * A body longer than the limit goes on whole, but is not kept. The field is then
///   [ambiguous](tollgate_limiter::key::KeyMissing::ambiguous), since the handler may find it, and no policy lets the request
///   pass for it. The field is also ambiguous if the body ends in an error, or goes on unread and is not empty.
/// * The layer waits for a body as long as the inner service would. A timeout outside helps against callers that send slowly.
/// * While it waits, it holds the inner service ready. Put a limit on all requests in flight, such as `ConcurrencyLimitLayer`, outside of it
///   and a timeout around both: within it, callers who send slowly would use up that limit.
#[derive(Clone, Copy, Debug)]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct BufferBodyLayer {
    limit: usize,
}

impl BufferBodyLayer {
    /// Reads bodies of up to `limit` bytes. Each request that is waiting may hold three times as much, however small its frames are.
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

/// The service that a [`BufferBodyLayer`] makes. It reads request bodies before the inner service sees them.
///
/// ```
/// use tollgate::{BufferBodyLayer, BufferBodyService};
/// use tower::Layer;
///
/// struct Login;
///
/// fn site() -> BufferBodyService<Login> {
///     BufferBodyLayer::new(16 * 1024).layer(Login)
/// }
/// ```
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
        if let Some(seen) = seen_at_once(&request) {
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

const OF_ANOTHER_KIND: &str = "the body is neither a form nor JSON by its content type";
const CODED: &str = "the body is compressed";

/// The knowledge about a body of which nothing has to be read.
fn seen_at_once<B: Body>(request: &Request<B>) -> Option<SeenBody> {
    let body = request.body();
    if body.is_end_stream() || body.size_hint().exact() == Some(0) {
        Some(SeenBody::Whole(Bytes::new()))
    } else if is_coded(request.headers()) {
        Some(SeenBody::Unread(CODED))
    } else if ContentType::of(request.headers()).is_none() {
        Some(SeenBody::Unread(OF_ANOTHER_KIND))
    } else {
        None
    }
}

/// True if a layer further in may decompress the body, so that the handler sees other fields than these bytes show.
fn is_coded(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(CONTENT_ENCODING).into_iter();
    lines.any(|line| {
        let mut codings = line.as_bytes().split(|byte| *byte == b',');
        codings.any(|coding| !coding.trim_ascii().eq_ignore_ascii_case(b"identity"))
    })
}
