//! The response of a limited service, on its way.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::conclusion::Completion;
#[cfg(feature = "tonic")]
use super::deadline::Deadline;
use crate::ResponseBody;
use crate::limiter::Pending;
use crate::settings::Config;

pin_project! {
    /// The response of a [`RateLimitService`](super::RateLimitService).
    ///
    /// Dropping it leaves nothing behind: a decision that has not been sent to the backend is withdrawn, one that was sent
    /// is given back when it arrives.
    #[must_use = "a future does nothing unless it is awaited"]
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, B>,
    }
}

pin_project! {
    #[project = Projected]
    enum State<S, B>
    where
        S: Service<Request<B>>,
    {
        // The request passed.
        Calling { #[pin] call: S::Future, completion: Option<Completion> },
        // The request waits, or was refused. What waits is in a box: it is large, and few requests wait.
        Aside { waiting: Option<Box<Waiting<S, B>>>, response: Option<S::Response> },
    }
}

/// A request that waits for an answer, and the service that was found ready for it.
pub(super) struct Waiting<S, B> {
    pub(super) pending: Pending,
    pub(super) config: Arc<Config>,
    pub(super) ready: S,
    pub(super) request: Request<B>,
    /// The caller's.
    #[cfg(feature = "tonic")]
    pub(super) deadline: Option<Deadline>,
}

impl<S, B> Waiting<S, B> {
    /// Either what is to be done once there is a response, or the answer to a refused request.
    fn poll<R: ResponseBody>(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Completion>, Response<R>>> {
        let limiter = &self.config.limiter;
        let view = limiter.view(&self.request);
        if let Poll::Ready(ruling) = self.pending.poll(cx, limiter, Some(&view)) {
            return Poll::Ready(self.config.conclude(&mut self.request, ruling));
        }
        #[cfg(feature = "tonic")]
        if let Some(deadline) = &mut self.deadline {
            ready!(deadline.poll(cx));
            return Poll::Ready(Err(self.config.too_late(&self.request)));
        }
        Poll::Pending
    }
}

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(super) fn waiting(waiting: Waiting<S, B>) -> Self {
        Self {
            state: State::Aside {
                waiting: Some(Box::new(waiting)),
                response: None,
            },
        }
    }

    pub(super) fn calling(call: S::Future, completion: Option<Completion>) -> Self {
        Self {
            state: State::Calling { call, completion },
        }
    }

    pub(super) fn refused(response: S::Response) -> Self {
        Self {
            state: State::Aside {
                waiting: None,
                response: Some(response),
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
        let mut state = self.project().state;
        loop {
            match state.as_mut().project() {
                Projected::Calling { call, completion } => {
                    let mut response = ready!(call.poll(cx));
                    if let (Ok(response), Some(completion)) = (&mut response, completion) {
                        completion.complete(response);
                    }
                    return Poll::Ready(response);
                }
                Projected::Aside { waiting, response } => match waiting {
                    Some(_) => ready!(state.as_mut().poll_waiting(cx)),
                    // Empty only if polled after its end.
                    None => {
                        let response = response.take();
                        return response
                            .map_or(Poll::Pending, |response| Poll::Ready(Ok(response)));
                    }
                },
            }
        }
    }
}

impl<S, B, R> State<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: ResponseBody,
{
    /// Goes on to one of the other states.
    fn poll_waiting(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Projected::Aside { waiting, .. } = self.as_mut().project() else {
            return Poll::Ready(());
        };
        let outcome = match waiting {
            Some(waiting) => ready!(waiting.poll(cx)),
            None => return Poll::Ready(()),
        };
        let Some(mut waiting) = waiting.take() else {
            return Poll::Ready(());
        };
        self.set(match outcome {
            Ok(completion) => Self::Calling {
                call: waiting.ready.call(waiting.request),
                completion,
            },
            Err(response) => Self::Aside {
                waiting: None,
                response: Some(response),
            },
        });
        Poll::Ready(())
    }
}

impl<S, B> fmt::Debug for ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Calling { .. } => "ResponseFuture(calling)",
            State::Aside { waiting: None, .. } => "ResponseFuture(refused)",
            State::Aside { .. } => "ResponseFuture(waiting)",
        })
    }
}
