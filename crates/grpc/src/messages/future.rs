//! The response to a call whose messages are charged, on its way.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tollgate_http::ResponseBody;
use tollgate_http::transport::Deadline;
use tollgate_limiter::transport::{PendingPlan, Plan, Rejection};
use tower_service::Service;

use super::body::{BoxError, MessageBody};
use super::opening::{AnswerPlan, Settings, open};

pin_project! {
    /// The response of a [`MessageLimitService`](super::MessageLimitService).
    ///
    /// A service that wraps a `MessageLimitService` has this future:
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::{Request, Response};
    /// use http_body_util::Full;
    /// use tollgate::{MessageBody, MessageLimitFuture, MessageLimitService};
    /// use tower::Service;
    ///
    /// type Body = Full<Bytes>;
    ///
    /// fn serve<S>(inner: &mut MessageLimitService<S>, request: Request<Body>) -> MessageLimitFuture<S, Body>
    /// where
    ///     S: Service<Request<MessageBody<Body>>, Response = Response<Body>> + Clone,
    /// {
    ///     inner.call(request)
    /// }
    /// ```
    #[must_use = "a future does nothing unless it is awaited"]
    pub struct MessageLimitFuture<S, B>
    where
        S: Service<Request<MessageBody<B>>>,
    {
        #[pin]
        stage: Stage<S, B>,
    }
}

pin_project! {
    #[project = Projected]
    enum Stage<S, B>
    where
        S: Service<Request<MessageBody<B>>>,
    {
        // The key has been asked for. In a box, because few calls need it.
        Resolving { resolving: Option<Box<PendingCall<S, B>>> },
        Calling { #[pin] call: S::Future, answering: Option<Box<AnswerPlan>> },
        Refused { response: Option<S::Response> },
    }
}

/// The policies that charge the messages, or the reason why the call is refused.
type PlanResult = Result<Plan<'static>, Rejection>;

/// A call whose key is not known yet, and the service that was ready for it.
pub(super) struct PendingCall<S, B> {
    pub(super) planning: PendingPlan,
    pub(super) settings: Settings,
    pub(super) ready: S,
    pub(super) request: Request<B>,
    /// The caller's.
    pub(super) deadline: Option<Deadline>,
}

impl<S, B> PendingCall<S, B> {
    /// The plan, or the answer to a caller whose deadline has passed.
    fn poll<R: ResponseBody>(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<PlanResult, Response<R>>> {
        let config = &self.settings.config;
        let view = config.limiter.view(&self.request);
        let limiter = &config.limiter;
        if let Poll::Ready(planned) = limiter.poll_plan(&mut self.planning, cx, Some(&view)) {
            return Poll::Ready(Ok(planned));
        }
        let Some(deadline) = &mut self.deadline else {
            return Poll::Pending;
        };
        ready!(deadline.poll(cx));
        Poll::Ready(Err(config.too_late(&self.request)))
    }
}

impl<S, B> MessageLimitFuture<S, B>
where
    S: Service<Request<MessageBody<B>>>,
{
    pub(super) fn resolving(resolving: PendingCall<S, B>) -> Self {
        Self {
            stage: Stage::Resolving {
                resolving: Some(Box::new(resolving)),
            },
        }
    }

    pub(super) fn calling(call: S::Future, answering: Option<Box<AnswerPlan>>) -> Self {
        Self {
            stage: Stage::Calling { call, answering },
        }
    }

    pub(super) fn refused(response: S::Response) -> Self {
        Self {
            stage: Stage::Refused {
                response: Some(response),
            },
        }
    }
}

impl<S, B, R> Future for MessageLimitFuture<S, B>
where
    S: Service<Request<MessageBody<B>>, Response = Response<R>>,
    R: ResponseBody + Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    type Output = Result<Response<MessageBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut stage = self.project().stage;
        loop {
            match stage.as_mut().project() {
                Projected::Resolving { resolving } => {
                    let planned = match resolving {
                        Some(resolving) => ready!(resolving.poll(cx)),
                        // Polled again after a panic further in.
                        None => return Poll::Pending,
                    };
                    let Some(resolved) = resolving.take() else {
                        return Poll::Pending;
                    };
                    let PendingCall {
                        settings,
                        mut ready,
                        request,
                        ..
                    } = *resolved;
                    let opened = planned.and_then(|planned| open(&settings, request, planned));
                    stage.set(match opened {
                        Ok((request, answering)) => Stage::Calling {
                            call: ready.call(request),
                            answering,
                        },
                        Err(response) => Stage::Refused {
                            response: Some(response),
                        },
                    });
                }
                Projected::Calling { call, answering } => {
                    // A caller that has sent too much is told so, whatever the service answers.
                    if let Some(answering) = answering
                        && let Some(refusal) = answering.call.refusal(cx)
                    {
                        let refusal = refusal.map(R::from_bytes).map(MessageBody::plain);
                        return Poll::Ready(Ok(refusal));
                    }
                    let response = ready!(call.poll(cx))?;
                    return Poll::Ready(Ok(match answering.take() {
                        None => response.map(MessageBody::plain),
                        Some(answering) => answering.answer(response),
                    }));
                }
                Projected::Refused { response } => {
                    // Empty only if polled after its end.
                    let response = response.take();
                    return response.map_or(Poll::Pending, |response| {
                        Poll::Ready(Ok(response.map(MessageBody::plain)))
                    });
                }
            }
        }
    }
}

impl<S, B> fmt::Debug for MessageLimitFuture<S, B>
where
    S: Service<Request<MessageBody<B>>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.stage {
            Stage::Resolving { .. } => "MessageLimitFuture(resolving)",
            Stage::Calling { .. } => "MessageLimitFuture(calling)",
            Stage::Refused { .. } => "MessageLimitFuture(refused)",
        })
    }
}
