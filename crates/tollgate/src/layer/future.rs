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
#[cfg(feature = "tonic")]
use super::deadline::Deadline;
use super::service::After;
use crate::ResponseBody;
use crate::ledger::Ledger;
use crate::limiter::{Plan, Resolving};

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
        // The request passed. One of two states, because a third would take every request several instructions more to tell.
        Calling { #[pin] call: S::Future, after: After },
        // Somebody has been asked, or the request was refused. What waits is in a box: it is large, and whoever does not wait
        // should not carry it around.
        Aside { waiting: Option<Box<Waiting<S, B>>>, response: Option<S::Response> },
    }
}

/// What waits for an answer: the request, and the service that was found ready for it.
pub(super) struct Waiting<S, B> {
    pub(super) step: Step,
    pub(super) config: Arc<Config>,
    pub(super) ready: S,
    pub(super) request: Request<B>,
    /// The caller's.
    #[cfg(feature = "tonic")]
    pub(super) deadline: Option<Deadline>,
}

/// Whose answer is waited for.
pub(super) enum Step {
    /// That of whoever knows who the request is from, and in which tier that is.
    Resolving(Resolving),
    /// The backend's.
    Deciding(Decide, Plan),
}

/// What comes of waiting.
enum Outcome<R> {
    Passed(After),
    Refused(Response<R>),
}

impl<S, B> Waiting<S, B> {
    fn poll<R: ResponseBody>(&mut self, cx: &mut Context<'_>) -> Poll<Outcome<R>> {
        let step = self.poll_step(cx);
        #[cfg(feature = "tonic")]
        if let (Poll::Pending, Some(deadline)) = (&step, &mut self.deadline) {
            ready!(deadline.poll(cx));
            return Poll::Ready(Outcome::Refused(self.config.too_late(&self.request)));
        }
        step
    }

    fn poll_step<R: ResponseBody>(&mut self, cx: &mut Context<'_>) -> Poll<Outcome<R>> {
        let config = &self.config;
        let limiter = &config.limiter;
        loop {
            match &mut self.step {
                Step::Resolving(resolving) => {
                    let plan = match ready!(resolving.poll(cx, &limiter.view(&self.request))) {
                        Ok(plan) => plan,
                        Err(turned) => {
                            let ledger = Ledger::default();
                            let response = config.refuse(&self.request, turned.reason(), &ledger);
                            return Poll::Ready(Outcome::Refused(response));
                        }
                    };
                    if plan.is_empty() {
                        let after = config.admit(&mut self.request, || Ledger::EMPTY);
                        return Poll::Ready(Outcome::Passed(after));
                    }
                    let decide = limiter.decide(&plan);
                    self.step = Step::Deciding(decide, plan);
                }
                Step::Deciding(decide, plan) => {
                    let decided = ready!(Pin::new(decide).poll(cx));
                    let judged = config.judge(&mut self.request, plan, decided);
                    return Poll::Ready(match judged {
                        Ok(after) => Outcome::Passed(after),
                        Err(response) => Outcome::Refused(response),
                    });
                }
            }
        }
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

    pub(super) fn calling(call: S::Future, after: After) -> Self {
        Self {
            state: State::Calling { call, after },
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
                Projected::Calling { call, after } => {
                    if after.is_nothing() {
                        return call.poll(cx);
                    }
                    return poll_completing(call, after, cx);
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

/// A function of its own, so that the response is completed where the caller wants it, and not moved there.
#[inline]
fn poll_completing<R: ResponseBody, E>(
    call: Pin<&mut impl Future<Output = Result<Response<R>, E>>>,
    after: &mut After,
    cx: &mut Context<'_>,
) -> Poll<Result<Response<R>, E>> {
    let mut polled = call.poll(cx);
    if let Poll::Ready(Ok(response)) = &mut polled {
        after.complete(response);
    }
    polled
}

impl<S, B, R> State<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: ResponseBody,
{
    /// Goes on to one of the other states. Not a part of what every request goes through: few wait.
    #[inline(never)]
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
            Outcome::Passed(after) => Self::Calling {
                call: waiting.ready.call(waiting.request),
                after,
            },
            Outcome::Refused(response) => Self::Aside {
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
