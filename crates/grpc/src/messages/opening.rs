//! The beginning of a call: the check whether it is one, and the gates for its messages and its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use tollgate_http::transport::{Config, closed};
use tollgate_http::{GrpcCode, RefusalReason, ResponseBody};
use tollgate_limiter::transport::{Dialect, Plan, Rejection, Report};
use tollgate_limiter::{Limiter, Messages};

use super::body::MessageBody;
use super::body_kind::{BodyKind, is_encoded};
use super::call::Call;
use super::meter::Meter;
use super::received_body::ReceivedBody;
use super::sent_body::SentBody;
use crate::call::refuse_call;

/// The settings that the services of one layer share.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) config: Arc<Config>,
    /// The bytes that are read ahead of each stream that is held back.
    pub(super) read_ahead: usize,
    /// True if the operator was told that the layer is in the wrong place.
    pub(super) warned_of_misplacing: Arc<AtomicBool>,
}

/// A request that goes on to the service. Nothing is to be done with the answer if no policy charges messages.
pub(super) type OpenCall<B> = (Request<MessageBody<B>>, Option<Box<AnswerPlan>>);

/// The work that is left for the answer to a call.
#[derive(Debug)]
pub(super) struct AnswerPlan {
    pub(super) call: Call,
    sent: Option<Meter>,
    /// True if it is known to be a call. If not, the answer tells.
    is_certain: bool,
    /// The answer to give instead, if it was a call.
    refusal: Option<Box<Response<Bytes>>>,
}

impl AnswerPlan {
    pub(super) fn answer<R>(self, response: Response<R>) -> Response<MessageBody<R>>
    where
        R: ResponseBody,
    {
        // A server of gRPC says so in every answer, or no client would read it.
        if !self.is_certain && BodyKind::of(response.headers()) == BodyKind::Other {
            return response.map(MessageBody::plain);
        }
        if let Some(refusal) = self.refusal {
            return refusal.map(R::from_bytes).map(MessageBody::plain);
        }
        response.map(|body| MessageBody::sent(body, SentBody::new(self.sent, self.call)))
    }
}

/// Puts a gate before what the caller sends, or refuses the call.
///
/// A request is a call by its content type, or by a path that a policy for messages names. Under a policy without a path it shows
/// on the way: a body is messages as long as a gRPC decoder would go on, and an answer is gRPC's by its content type.
pub(super) fn open<B, R: ResponseBody>(
    settings: &Settings,
    request: Request<B>,
    planned: Result<Plan<'static>, Rejection>,
) -> Result<OpenCall<B>, Response<R>> {
    let config = &settings.config;
    let limiter = &config.limiter;
    let view = limiter.view(&request);
    let says = BodyKind::of(view.headers());
    if planned.as_ref().is_ok_and(Plan::is_empty) {
        return Ok((request.map(MessageBody::plain), None));
    }
    let is_certain = says != BodyKind::Other || limiter.names_messages_of(&view);
    // A method without a message to read runs before anything shows that it is one.
    if let Err(refused) = &planned
        && (is_certain || Limiter::may_be_call(&view))
    {
        let reason = RefusalReason::of(refused);
        return Err(config.refuse(&request, reason, None));
    }
    if let BodyKind::Web(dialect) = says {
        let response = closed(dialect, GrpcCode::Internal, settings.misplaced(TRANSLATED));
        return Err(response.map(R::from_bytes));
    }
    if is_certain && is_encoded(view.headers()) {
        let response = closed(
            Dialect::Native,
            GrpcCode::Internal,
            settings.misplaced(ENCODED),
        );
        return Err(response.map(R::from_bytes));
    }
    let call = Call::new(config);
    let read_ahead = settings.read_ahead;
    let (received, sent, refusal) = match planned {
        Err(refused) => {
            let reason = RefusalReason::of(&refused);
            let refusal = Box::new(refuse_call(config, reason, Report::default()));
            let received = ReceivedBody::tentative(Err(refusal.clone()), call.clone(), read_ahead);
            (Some(received), None, Some(refusal))
        }
        Ok(plan) => {
            let meter = |are_asked: fn(Messages) -> bool| {
                let plan = plan
                    .entries()
                    .only(|policy| policy.messages().is_some_and(are_asked));
                Meter::new(limiter, plan)
            };
            let received = meter(Messages::are_received).map(|meter| {
                if is_certain {
                    ReceivedBody::new(meter, call.clone(), read_ahead)
                } else {
                    ReceivedBody::tentative(Ok(meter), call.clone(), read_ahead)
                }
            });
            (received, meter(Messages::are_sent), None)
        }
    };
    let request = match received {
        None => request.map(MessageBody::plain),
        Some(received) => request.map(|body| MessageBody::received(body, received)),
    };
    let answering = AnswerPlan {
        call,
        sent,
        is_certain,
        refusal,
    };
    Ok((request, Some(Box::new(answering))))
}

impl Settings {
    /// Tells the operator once, because callers could cause the warning without end.
    #[cold]
    fn misplaced(&self, why: &'static str) -> &'static str {
        if !self.warned_of_misplacing.swap(true, Ordering::Relaxed) {
            tracing::error!("{why}");
        }
        why
    }
}

/// Frames of grpc-web may be base64, and end otherwise. Passing them uncharged would be a way around the limit.
const TRANSLATED: &str = "messages of grpc-web cannot be charged: MessageLimitLayer goes inside of the layer that translates it";

/// A layer further in might decompress such bodies. Passing them uncharged would be a way around the limit as well.
const ENCODED: &str = "messages of a body that is encoded as a whole cannot be charged: MessageLimitLayer goes inside of the \
                       layer that decodes it";
