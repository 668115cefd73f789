//! The service whose calls' messages are charged.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tonic::server::NamedService;
use tower_service::Service;

use super::body::{BoxError, MessageBody};
use super::call::Call;
use super::future::{MessageLimitFuture, Resolving};
use super::meter::Meter;
use super::received::Received;
use crate::answer::{Dialect, GrpcCode, closed};
use crate::layer::Config;
use crate::layer::deadline::Deadline;
use crate::ledger::Ledger;
use crate::limiter::{Plan, Planned};
use crate::{Messages, ResponseBody};

/// A service whose calls' messages are charged: what a [`MessageLimitLayer`](super::MessageLimitLayer) makes.
#[derive(Clone, Debug)]
pub struct MessageLimitService<S> {
    inner: S,
    settings: Settings,
}

/// What the services of one layer share.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) config: Arc<Config>,
    /// So many bytes of each stream that is held back.
    pub(super) read_ahead: usize,
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
        if !limiter.has_messages() || Dialect::of(&limiter.view(&request)).is_none() {
            let call = self.inner.call(request.map(MessageBody::plain));
            return MessageLimitFuture::calling(call, None);
        }
        match limiter.plan_messages(&limiter.view(&request)) {
            Ok(Planned::Now(plan)) => match open(&self.settings, request, &plan) {
                Ok((request, answering)) => {
                    MessageLimitFuture::calling(self.inner.call(request), answering)
                }
                Err(response) => self.refused(response),
            },
            Ok(Planned::Later(planning)) => {
                // The clone has not been asked whether it is ready, so it is the one that stays behind.
                let clone = self.inner.clone();
                let ready = mem::replace(&mut self.inner, clone);
                MessageLimitFuture::resolving(Resolving {
                    planning,
                    settings: self.settings.clone(),
                    ready,
                    deadline: Deadline::of(&limiter.view(&request)),
                    request,
                })
            }
            Err(turned) => {
                let nothing = Ledger::default();
                let config = &self.settings.config;
                let refused = config.refuse(&request, turned.reason(), &nothing);
                self.refused(refused)
            }
        }
    }
}

impl<S> MessageLimitService<S> {
    fn refused<B, R>(&mut self, response: Response<R>) -> MessageLimitFuture<S, B>
    where
        S: Service<Request<MessageBody<B>>, Response = Response<R>> + Clone,
    {
        // What readiness holds must not be kept until the next request on this connection, which may never come.
        self.inner = self.inner.clone();
        MessageLimitFuture::refused(response)
    }
}

/// A call that goes on to the service. Nothing is to be done with the answer if no policy charges the call's messages.
pub(super) type Opened<B> = (Request<MessageBody<B>>, Option<Box<Answering>>);

/// What is to be done with the answer to a call.
#[derive(Debug)]
pub(super) struct Answering {
    pub(super) call: Call,
    pub(super) sent: Option<Meter>,
}

/// Puts a gate before what the caller sends, or refuses the call.
pub(super) fn open<B, R: ResponseBody>(
    settings: &Settings,
    request: Request<B>,
    plan: &Plan,
) -> Result<Opened<B>, Response<R>> {
    let Settings { config, read_ahead } = settings;
    let limiter = &config.limiter;
    if plan.is_empty() {
        return Ok((request.map(MessageBody::plain), None));
    }
    match Dialect::of(&limiter.view(&request)) {
        Some(Dialect::Native) | None => {}
        Some(dialect) => {
            tracing::error!("{MISPLACED}");
            let response = closed(dialect, GrpcCode::Internal, MISPLACED);
            return Err(response.map(R::from_bytes));
        }
    }
    let meter = |are_asked: fn(Messages) -> bool| {
        let plan = plan.only(|policy| policy.messages.is_some_and(are_asked));
        Meter::new(limiter, plan)
    };
    let answering = Answering {
        call: Call::new(config),
        sent: meter(Messages::are_sent),
    };
    let request = match meter(Messages::are_received) {
        None => request.map(MessageBody::plain),
        Some(meter) => request.map(|body| {
            let call = answering.call.clone();
            MessageBody::received(body, Received::new(meter, call, *read_ahead))
        }),
    };
    Ok((request, Some(Box::new(answering))))
}

/// Frames of grpc-web may be base64, and end otherwise. Passing them uncharged would be a way around the limit.
const MISPLACED: &str = "messages of grpc-web cannot be charged: MessageLimitLayer goes inside of the layer that translates it";

/// It answers to the name of the service within, and so can be served like it.
impl<S: NamedService> NamedService for MessageLimitService<S> {
    const NAME: &'static str = S::NAME;
}
