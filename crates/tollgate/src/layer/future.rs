//! The response of a limited service, on its way.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tollgate_core::Decide;
use tower_service::Service;

use super::Config;
use super::service::After;
use crate::ResponseBody;
use crate::limiter::Plan;

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
        // The backend has been asked. In a box: what waits is large, and whoever does not wait should not carry it around.
        Deciding { waiting: Option<Box<Waiting<S, B>>> },
        // The request passed.
        Calling { #[pin] call: S::Future, after: After },
        // The request was refused.
        Refused { response: Option<S::Response> },
    }
}

/// What waits for a decision: the request, and the service that was found ready for it.
struct Waiting<S, B> {
    decide: Decide,
    config: Arc<Config>,
    plan: Plan,
    ready: S,
    request: Request<B>,
}

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(super) fn deciding(
        decide: Decide,
        config: Arc<Config>,
        plan: Plan,
        ready: S,
        request: Request<B>,
    ) -> Self {
        let waiting = Some(Box::new(Waiting {
            decide,
            config,
            plan,
            ready,
            request,
        }));
        Self {
            state: State::Deciding { waiting },
        }
    }

    pub(super) fn calling(call: S::Future, after: After) -> Self {
        Self {
            state: State::Calling { call, after },
        }
    }

    pub(super) fn refused(response: S::Response) -> Self {
        Self {
            state: State::Refused {
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
                Projected::Deciding { waiting } => {
                    let decided = match waiting {
                        Some(waiting) => ready!(Pin::new(&mut waiting.decide).poll(cx)),
                        // Polled again after a panic further in.
                        None => return Poll::Pending,
                    };
                    let Some(mut waiting) = waiting.take() else {
                        return Poll::Pending;
                    };
                    let judged = waiting
                        .config
                        .judge(&mut waiting.request, &waiting.plan, decided);
                    state.set(match judged {
                        Ok(after) => State::Calling {
                            call: waiting.ready.call(waiting.request),
                            after,
                        },
                        Err(response) => State::Refused {
                            response: Some(response),
                        },
                    });
                }
                Projected::Calling { call, after } => {
                    let mut polled = call.poll(cx);
                    if let Poll::Ready(Ok(response)) = &mut polled {
                        after.finish(response.status(), response.headers_mut());
                    }
                    return polled;
                }
                Projected::Refused { response } => {
                    // Empty only if polled after its end.
                    return response
                        .take()
                        .map_or(Poll::Pending, |response| Poll::Ready(Ok(response)));
                }
            }
        }
    }
}

impl<S, B> fmt::Debug for ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Deciding { .. } => "ResponseFuture(deciding)",
            State::Calling { .. } => "ResponseFuture(calling)",
            State::Refused { .. } => "ResponseFuture(refused)",
        })
    }
}
