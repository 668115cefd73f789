//! The limited service.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tollgate_limiter::transport::{Admission, PendingAdmission, PolicySet};
use tower_service::Service;

use super::ResponseFuture;
#[cfg(feature = "tonic")]
use super::deadline::Deadline;
use super::future::WaitingRequest;
use crate::ResponseBody;
use crate::settings::Config;

/// The service that a [`RateLimitLayer`](crate::RateLimitLayer) makes. Its requests are limited.
///
/// It is a `Service` if the response body of the inner service is a [`ResponseBody`]. Otherwise `.oneshot(..)` and `.call(..)`
/// fail with E0599 (unsatisfied trait bounds, or no such method), and rustc does not name the body: add an
/// [`AnyBodyLayer`](crate::AnyBodyLayer) between the two, as below.
///
/// ```compile_fail,E0599
/// # use bytes::Bytes;
/// # use http::{Request, Response};
/// # use http_body_util::{BodyExt, Empty};
/// # use tollgate::{Quota, RateLimitLayer};
/// # use tower::{Layer, ServiceExt, service_fn};
/// # let files = service_fn(|_: Request<()>| async {
/// #     Ok::<_, std::convert::Infallible>(Response::new(Empty::<Bytes>::new().map_frame(|frame| frame)))
/// # });
/// let limited = RateLimitLayer::new(Quota::per_second(10)).layer(files);
/// let answer = limited.oneshot(Request::new(()));
/// ```
///
/// ```
/// # use bytes::Bytes;
/// # use http::{Request, Response};
/// # use http_body_util::{BodyExt, Empty};
/// # use tollgate::{AnyBodyLayer, AnyBodyService, Quota, RateLimitLayer, RateLimitService};
/// # use tower::{Layer, ServiceExt, service_fn};
/// # let files = service_fn(|_: Request<()>| async {
/// #     Ok::<_, std::convert::Infallible>(Response::new(Empty::<Bytes>::new().map_frame(|frame| frame)))
/// # });
/// let limited: RateLimitService<AnyBodyService<_>> = RateLimitLayer::new(Quota::per_second(10)).layer(AnyBodyLayer.layer(files));
/// let answer = limited.oneshot(Request::new(()));
/// ```
#[derive(Clone, Debug)]
pub struct RateLimitService<S> {
    inner: S,
    config: Arc<Config>,
}

impl<S> RateLimitService<S> {
    pub(super) fn new(inner: S, config: Arc<Config>) -> Self {
        Self { inner, config }
    }
}

impl<S, B, R> Service<Request<B>> for RateLimitService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    R: ResponseBody,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> ResponseFuture<S, B> {
        let limiter = &self.config.limiter;
        let view = limiter.view(&request);
        let mut answer = None;
        let admission = limiter.admit(
            &view,
            PolicySet::Covering,
            || self.config.has_let_in(request.extensions()),
            |ruling| self.config.conclude(&request, &ruling, &mut answer),
        );
        match admission {
            Admission::Ruled(Some(passage)) => {
                let completion = passage.into_completion(&mut request);
                ResponseFuture::calling(self.inner.call(request), completion)
            }
            Admission::Ruled(None) => self.refused(answer),
            Admission::Pending(pending) => self.wait(pending, request),
        }
    }
}

impl<S> RateLimitService<S> {
    fn wait<B>(
        &mut self,
        pending: Box<PendingAdmission>,
        mut request: Request<B>,
    ) -> ResponseFuture<S, B>
    where
        S: Service<Request<B>> + Clone,
    {
        pending.leave_deadline(request.extensions_mut());
        // The clone has not been asked whether it is ready, so it is the one that stays behind.
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        ResponseFuture::waiting(WaitingRequest {
            pending,
            #[cfg(feature = "tonic")]
            deadline: Deadline::of(&self.config.limiter.view(&request)),
            config: Arc::clone(&self.config),
            ready,
            request,
        })
    }

    fn refused<B>(&mut self, answer: Option<S::Response>) -> ResponseFuture<S, B>
    where
        S: Service<Request<B>> + Clone,
    {
        // The inner service was found ready and will not be called. Readiness may hold a permit, such as that of a concurrency
        // limit. It must not be kept until the next request on this connection, which may never come.
        self.inner = self.inner.clone();
        ResponseFuture::refused(answer)
    }
}
