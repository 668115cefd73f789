//! The service whose calls' messages are charged.

use std::mem;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tollgate_http::ResponseBody;
use tollgate_http::transport::Deadline;
use tollgate_limiter::transport::{Plan, Planning, Rejection};
use tonic::server::NamedService;
use tower_service::Service;

use super::body::{BoxError, MessageBody};
use super::future::{MessageLimitFuture, PendingCall};
use super::opening::{Settings, open};

/// The service that a [`MessageLimitLayer`](super::MessageLimitLayer) makes. It charges the messages of calls.
///
/// ```
/// use tollgate::{MessageLimitLayer, MessageLimitService, Quota};
/// use tower::Layer;
///
/// struct Chat;
///
/// fn server() -> MessageLimitService<Chat> {
///     MessageLimitLayer::new(Quota::per_second(20)).layer(Chat)
/// }
/// ```
#[derive(Clone, Debug)]
pub struct MessageLimitService<S> {
    inner: S,
    settings: Settings,
}

impl<S> MessageLimitService<S> {
    pub(super) fn new(inner: S, settings: Settings) -> Self {
        Self { inner, settings }
    }
}

impl<S, B, R> Service<Request<B>> for MessageLimitService<S>
where
    S: Service<Request<MessageBody<B>>, Response = Response<R>> + Clone,
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
    R: ResponseBody + Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    type Response = Response<MessageBody<R>>;
    type Error = S::Error;
    type Future = MessageLimitFuture<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> MessageLimitFuture<S, B> {
        let limiter = &self.settings.config.limiter;
        if !limiter.has_messages() {
            let call = self.inner.call(request.map(MessageBody::plain));
            return MessageLimitFuture::calling(call, None);
        }
        let is_let_in =
            limiter.is_shedding() && self.settings.config.has_let_in(request.extensions());
        match limiter.plan_messages(&limiter.view(&request), is_let_in) {
            Ok(Planning::Now(plan)) => self.go_on(request, Ok(plan)),
            Ok(Planning::Later(planning)) => {
                // The clone has not been asked whether it is ready, so it is the one that stays behind.
                let clone = self.inner.clone();
                let ready = mem::replace(&mut self.inner, clone);
                MessageLimitFuture::resolving(PendingCall {
                    planning,
                    settings: self.settings.clone(),
                    ready,
                    deadline: Deadline::of(&limiter.view(&request)),
                    request,
                })
            }
            Err(refused) => self.go_on(request, Err(refused)),
        }
    }
}

impl<S> MessageLimitService<S> {
    fn go_on<B, R>(
        &mut self,
        request: Request<B>,
        planned: Result<Plan<'static>, Rejection>,
    ) -> MessageLimitFuture<S, B>
    where
        S: Service<Request<MessageBody<B>>, Response = Response<R>> + Clone,
        R: ResponseBody,
    {
        match open(&self.settings, request, planned) {
            Ok((request, answering)) => {
                MessageLimitFuture::calling(self.inner.call(request), answering)
            }
            Err(response) => self.refused(response),
        }
    }

    fn refused<B, R>(&mut self, response: Response<R>) -> MessageLimitFuture<S, B>
    where
        S: Service<Request<MessageBody<B>>, Response = Response<R>> + Clone,
    {
        // Readiness may hold a permit, which must not be kept until the next request on this connection, which may never come.
        self.inner = self.inner.clone();
        MessageLimitFuture::refused(response)
    }
}

/// The layer keeps the name of the inner service, so that it can be served like it.
impl<S: NamedService> NamedService for MessageLimitService<S> {
    const NAME: &'static str = S::NAME;
}
