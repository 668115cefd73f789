//! The response of a limited service, on its way.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tollgate_limiter::transport::PendingAdmission;
use tower_service::Service;

use super::conclusion::Completion;
#[cfg(feature = "tonic")]
use super::deadline::Deadline;
use crate::ResponseBody;
use crate::settings::Config;

pin_project! {
    /// The response of a [`RateLimitService`](super::RateLimitService).
    ///
    /// Dropping it before the inner service is called spends nothing: a decision that was not sent to the backend is withdrawn, and one
    /// that was sent is credited when it arrives. Later the charge stays, and counts as a strike where the policy has
    /// [`strike_if`](tollgate_limiter::Policy::strike_if).
    ///
    /// A service that wraps a `RateLimitService` has this future:
    ///
    /// ```
    /// use http::{Request, Response};
    /// use tollgate::{RateLimitService, ResponseFuture};
    /// use tower::Service;
    ///
    /// fn serve<S>(inner: &mut RateLimitService<S>, request: Request<()>) -> ResponseFuture<S, ()>
    /// where
    ///     S: Service<Request<()>, Response = Response<String>> + Clone,
    /// {
    ///     inner.call(request)
    /// }
    /// ```
    #[must_use = "a future does nothing unless it is awaited"]
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        stage: Stage<S, B>,
    }
}

pin_project! {
    #[project = Projected]
    enum Stage<S, B>
    where
        S: Service<Request<B>>,
    {
        // The request passed.
        Calling { #[pin] call: S::Future, completion: Option<Completion> },
        // The request waits, or was refused. The stage of a waiting request is in a box: it is large, and few requests wait.
        Aside { waiting: Option<Box<WaitingRequest<S, B>>>, response: Option<S::Response> },
    }
}

/// A request that waits for an answer, and the service that was found ready for it.
pub(super) struct WaitingRequest<S, B> {
    pub(super) pending: Box<PendingAdmission>,
    pub(super) config: Arc<Config>,
    pub(super) ready: S,
    pub(super) request: Request<B>,
    /// The caller's.
    #[cfg(feature = "tonic")]
    pub(super) deadline: Option<Deadline>,
}

impl<S, B> WaitingRequest<S, B> {
    /// The work that is left for the response, or the answer to a refused request.
    fn poll<R: ResponseBody>(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Completion>, Option<Response<R>>>> {
        let limiter = &self.config.limiter;
        let view = limiter.view(&self.request);
        let mut answer = None;
        let ruled = self.pending.poll(cx, limiter, Some(&view), |ruling| {
            self.config.conclude(&self.request, &ruling, &mut answer)
        });
        if let Poll::Ready(passage) = ruled {
            return Poll::Ready(match passage {
                Some(passage) => Ok(passage.into_completion(&mut self.request)),
                None => Err(answer),
            });
        }
        #[cfg(feature = "tonic")]
        if let Some(deadline) = &mut self.deadline {
            ready!(deadline.poll(cx));
            return Poll::Ready(Err(Some(self.config.too_late(&self.request))));
        }
        Poll::Pending
    }
}

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(super) fn waiting(waiting: WaitingRequest<S, B>) -> Self {
        Self {
            stage: Stage::Aside {
                waiting: Some(Box::new(waiting)),
                response: None,
            },
        }
    }

    pub(super) fn calling(call: S::Future, completion: Option<Completion>) -> Self {
        Self {
            stage: Stage::Calling { call, completion },
        }
    }

    pub(super) fn refused(answer: Option<S::Response>) -> Self {
        Self {
            stage: Stage::Aside {
                waiting: None,
                response: answer,
            },
        }
    }
}

impl<S, B, R> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: ResponseBody,
{
    type Output = Result<Response<R>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut stage = self.project().stage;
        match stage.as_mut().project() {
            Projected::Calling { call, completion } => poll_call(call, completion, cx),
            Projected::Aside { .. } => stage.poll_aside(cx),
        }
    }
}

/// The response of the service, after the work that was left for it.
#[inline]
fn poll_call<F, R, E>(
    call: Pin<&mut F>,
    completion: &mut Option<Completion>,
    cx: &mut Context<'_>,
) -> Poll<Result<Response<R>, E>>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: ResponseBody,
{
    if completion.is_none() {
        return call.poll(cx);
    }
    let mut polled = call.poll(cx);
    // Matched where it lies: responses are large.
    match &mut polled {
        Poll::Ready(Ok(response)) => Completion::complete(completion, response),
        Poll::Ready(Err(_)) => Completion::fail(completion),
        Poll::Pending => {}
    }
    polled
}

impl<S, B, R> Stage<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: ResponseBody,
{
    /// The answer to a refused request, or the outcome of a waiting one.
    #[inline(never)]
    fn poll_aside(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<R>, S::Error>> {
        let Projected::Aside { waiting, response } = self.as_mut().project() else {
            return Poll::Pending;
        };
        if let Some(response) = response.take() {
            return Poll::Ready(Ok(response));
        }
        let outcome = match waiting {
            Some(waiting) => ready!(waiting.poll(cx)),
            // Polled after its end.
            None => return Poll::Pending,
        };
        let Some(mut waiting) = waiting.take() else {
            return Poll::Pending;
        };
        let completion = match outcome {
            Ok(completion) => completion,
            Err(answer) => return answer.map_or(Poll::Pending, |answer| Poll::Ready(Ok(answer))),
        };
        let call = waiting.ready.call(waiting.request);
        self.set(Self::Calling { call, completion });
        match self.project() {
            Projected::Calling { call, completion } => poll_call(call, completion, cx),
            Projected::Aside { .. } => Poll::Pending,
        }
    }
}

impl<S, B> fmt::Debug for ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.stage {
            Stage::Calling { .. } => "ResponseFuture(calling)",
            Stage::Aside { waiting: None, .. } => "ResponseFuture(refused)",
            Stage::Aside { .. } => "ResponseFuture(waiting)",
        })
    }
}
