//! Turns any response body into one that can carry answers of ours.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::{BodyWatch, ResponseBody};

/// Lets a limiter stand around a service of any response body: one that another layer has wrapped, one that was received, one
/// of a file. It goes between the limiter and that service:
///
/// ```
/// use bytes::Bytes;
/// use http::{Request, Response};
/// use http_body_util::{Empty, BodyExt};
/// use tollgate::{AnyBodyLayer, Quota, RateLimitLayer};
/// use tower::ServiceBuilder;
///
/// let service = ServiceBuilder::new()
///     .layer(RateLimitLayer::new(Quota::per_second(10)))
///     .layer(AnyBodyLayer)
///     // tower-http's `ServeDir`, `TraceLayer` and `CompressionLayer`, hyper's client, whatever it is:
///     .service_fn(|_: Request<()>| async {
///         let body = Empty::<Bytes>::new().map_frame(|frame| frame);
///         Ok::<_, std::convert::Infallible>(Response::new(body))
///     });
/// # fn assert_service<S: tower::Service<Request<()>>>(_: S) {}
/// # assert_service(service);
/// ```
///
/// A `Router` of axum's and a tonic server do not need it: between two layers they have the body of axum or tonic, which the
/// limiter takes. The layer allocates no box and copies nothing.
#[derive(Clone, Copy, Debug, Default)]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct AnyBodyLayer;

impl<S> Layer<S> for AnyBodyLayer {
    type Service = AnyBodyService<S>;

    fn layer(&self, inner: S) -> AnyBodyService<S> {
        AnyBodyService { inner }
    }
}

/// The service that an [`AnyBodyLayer`] makes. A limiter may stand around it.
///
/// ```
/// use tollgate::{AnyBodyLayer, AnyBodyService};
/// use tower::Layer;
///
/// /// A service whose type is named, with the layer around it.
/// struct Files;
///
/// fn site() -> AnyBodyService<Files> {
///     AnyBodyLayer.layer(Files)
/// }
/// ```
#[derive(Clone, Debug)]
pub struct AnyBodyService<S> {
    inner: S,
}

impl<S, B, R> Service<Request<B>> for AnyBodyService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = Response<AnyBody<R>>;
    type Error = S::Error;
    type Future = AnyBodyFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> AnyBodyFuture<S::Future> {
        AnyBodyFuture {
            call: self.inner.call(request),
        }
    }
}

/// The layer keeps the name of the inner service, so that it can be served like it.
#[cfg(feature = "tonic")]
impl<S: tonic::server::NamedService> tonic::server::NamedService for AnyBodyService<S> {
    const NAME: &'static str = S::NAME;
}

pin_project! {
    /// The response of an [`AnyBodyService`].
    ///
    /// A service that wraps an `AnyBodyService` has this future:
    ///
    /// ```
    /// use tollgate::{AnyBodyFuture, AnyBodyService};
    /// use tower::Service;
    ///
    /// struct Outer<S>(AnyBodyService<S>);
    ///
    /// impl<S, R> Outer<S>
    /// where
    ///     S: Service<http::Request<()>, Response = http::Response<R>>,
    /// {
    ///     fn serve(&mut self, request: http::Request<()>) -> AnyBodyFuture<S::Future> {
    ///         self.0.call(request)
    ///     }
    /// }
    /// ```
    #[must_use = "a future does nothing unless it is awaited"]
    pub struct AnyBodyFuture<F> {
        #[pin]
        call: F,
    }
}

impl<F, R, E> Future for AnyBodyFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<AnyBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let response = ready!(self.project().call.poll(cx));
        Poll::Ready(response.map(|response| response.map(AnyBody::new)))
    }
}

impl<F> fmt::Debug for AnyBodyFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyBodyFuture")
    }
}

pin_project! {
    /// The response body under an [`AnyBodyLayer`]: the service's own, or an answer of ours. Its frames, its stated size and its
    /// end are those of the body within.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http_body_util::{BodyExt, Empty};
    /// use tollgate::{AnyBody, ResponseBody};
    ///
    /// // A mapped body, from which no answer can be made, and an answer of the same type.
    /// let mapped = Empty::<Bytes>::new().map_frame(|frame| frame);
    /// let bodies = [AnyBody::new(mapped), AnyBody::from_bytes(Bytes::from_static(b"slow down"))];
    /// ```
    #[derive(Debug)]
    pub struct AnyBody<B> {
        #[pin]
        body: AnyBodyKind<B>,
        // One for each limiter. There is hardly ever any.
        watches: Vec<BodyWatch>,
    }
}

pin_project! {
    #[project = Projected]
    #[derive(Debug)]
    enum AnyBodyKind<B> {
        Service { #[pin] body: B },
        // Empty once it was sent.
        Answer { bytes: Bytes },
    }
}

impl<B> AnyBody<B> {
    /// Takes any body.
    pub const fn new(body: B) -> Self {
        Self {
            body: AnyBodyKind::Service { body },
            watches: Vec::new(),
        }
    }
}

impl<B> Body for AnyBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        let frame = match this.body.project() {
            Projected::Service { body } => ready!(body.poll_frame(cx)),
            Projected::Answer { bytes } => {
                let bytes = std::mem::take(bytes);
                (!bytes.is_empty()).then(|| Ok(Frame::data(bytes.into())))
            }
        };
        match &frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    let sent = data.remaining() as u64;
                    this.watches.iter_mut().for_each(|watch| watch.sent(sent));
                }
            }
            // Watchers are told when their watch is dropped.
            None | Some(Err(_)) => this.watches.clear(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            AnyBodyKind::Service { body } => body.is_end_stream(),
            AnyBodyKind::Answer { bytes } => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            AnyBodyKind::Service { body } => body.size_hint(),
            AnyBodyKind::Answer { bytes } => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}

impl<B> ResponseBody for AnyBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    fn from_bytes(bytes: Bytes) -> Self {
        Self {
            body: AnyBodyKind::Answer { bytes },
            watches: Vec::new(),
        }
    }

    fn watched(mut self, watch: BodyWatch) -> Self {
        self.watches.push(watch);
        self
    }
}
