//! The state that the two directions of a call share: the refusal of a running call.

use std::sync::{Arc, PoisonError};
use std::task::{Context, Waker};

use bytes::Bytes;
use http::{HeaderMap, Response};
use tollgate_http::RefusalReason;
use tollgate_http::transport::Config;
use tollgate_limiter::transport::Report;
use tonic::Status;

use super::meter::Excess;
use crate::call::{refusal_status, refuse_call};
use crate::sync::{Mutex, MutexGuard};

/// A call whose messages are charged.
#[derive(Clone, Debug)]
pub(super) struct Call(Arc<CallParts>);

#[derive(Debug)]
struct CallParts {
    config: Arc<Config>,
    pending: Mutex<PendingAnswer>,
}

#[derive(Debug, Default)]
struct PendingAnswer {
    /// The answer to a call that is over its quota.
    refusal: Option<Response<Bytes>>,
    /// The waker of the task that answers: first the future of the response, then its body.
    answering: Option<Waker>,
}

impl Call {
    pub(super) fn new(config: &Arc<Config>) -> Self {
        Self(Arc::new(CallParts {
            config: Arc::clone(config),
            pending: Mutex::default(),
        }))
    }

    /// Refuses the call, unless that was done already, and wakes the task that answers.
    pub(super) fn refuse(&self, excess: &Excess) -> Status {
        let config = &self.0.config;
        let refusal = match excess {
            Excess::Quota(ledger) => {
                refuse_call(config, RefusalReason::QuotaExceeded, ledger.report())
            }
            Excess::Undecided => refuse_call(config, RefusalReason::Undecided, Report::default()),
            Excess::Refused(refusal) => (**refusal).clone(),
        };
        let status = refusal_status(refusal.headers());
        let mut pending = self.pending();
        pending.refusal.get_or_insert(refusal);
        if let Some(answering) = pending.answering.take() {
            drop(pending);
            answering.wake();
        }
        status
    }

    /// The answer, if the call was refused. Otherwise the asking task is woken when it is.
    pub(super) fn refusal(&self, cx: &Context<'_>) -> Option<Response<Bytes>> {
        let mut pending = self.pending();
        if pending.refusal.is_none() {
            match &mut pending.answering {
                Some(waker) => waker.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
        }
        pending.refusal.clone()
    }

    /// The answer as trailers, for a stream that has begun.
    pub(super) fn trailers(&self, cx: &Context<'_>) -> Option<HeaderMap> {
        let refusal = self.refusal(cx)?;
        let ours = refusal.headers().iter();
        // The others are not for trailers.
        let ours = ours.filter(|(name, _)| name.as_str().starts_with("grpc-"));
        Some(
            ours.map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        )
    }

    fn pending(&self) -> MutexGuard<'_, PendingAnswer> {
        self.0
            .pending
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
