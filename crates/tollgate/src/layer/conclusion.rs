//! What follows from a ruling: the request goes on, with what is to be done once there is a response, or it is answered.

use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};

#[cfg(feature = "tonic")]
use crate::answer::too_late;
use crate::answer::{RefusalReason, has_fields_on};
use crate::body::BodyWatch;
use crate::limiter::{Decided, Ledger, Ruling};
use crate::settings::Config;
use crate::{RateLimitStatus, ResponseBody, ResponseView};

/// What is still to be done once there is a response to a request that passed.
#[derive(Debug)]
pub(super) struct Completion {
    status: RateLimitStatus,
    /// Whether the response says how budgets stand.
    writes: bool,
    /// Whether the response may change what the request cost.
    settles: bool,
}

impl Completion {
    pub(super) fn complete<R: ResponseBody>(&self, response: &mut Response<R>) {
        let status = &self.status;
        if self.settles && status.settle_by_response(&ResponseView::of(response)) {
            let settled = status.clone();
            let watch = BodyWatch::new(move |sent| settled.settle_by_bytes(sent));
            let body = mem::replace(response.body_mut(), R::from_bytes(Bytes::new()));
            *response.body_mut() = body.watched(watch);
        }
        if self.writes
            && has_fields_on(response.status())
            && let Some(config) = status.config()
        {
            status.read(|report| config.answers.write(response.headers_mut(), report));
        }
    }
}

impl Config {
    /// Either what is to be done once there is a response, or the answer to a refused request.
    #[inline]
    pub(super) fn conclude<B, R: ResponseBody>(
        self: &Arc<Self>,
        request: &mut Request<B>,
        ruling: Ruling,
    ) -> Result<Option<Completion>, Response<R>> {
        match ruling {
            // Limits further in may still want the handle.
            Ruling::Uncharged => Ok(self.let_in(request, None)),
            Ruling::Admitted(decided) => Ok(self.let_in(request, Some(decided))),
            Ruling::Undecided(error) => {
                tracing::debug!(%error, "passed undecided");
                Ok(self.let_in(request, None))
            }
            Ruling::Denied(decided) => {
                let ledger = decided.into_ledger(&self.limiter);
                Err(self.refuse(request, RefusalReason::QuotaExceeded, ledger))
            }
            Ruling::Refused(refused) => {
                let reason = RefusalReason::of(&refused);
                Err(self.refuse(request, reason, Ledger::default()))
            }
        }
    }

    #[inline]
    fn let_in<B>(
        self: &Arc<Self>,
        request: &mut Request<B>,
        decided: Option<Decided>,
    ) -> Option<Completion> {
        let own = self.answers.write_on(request);
        let settles = if self.status {
            // A handler may name other policies.
            self.limiter.has_outcomes()
        } else {
            decided.as_ref().is_some_and(Decided::has_outcomes)
        };
        if !self.status && !own && !settles {
            return None;
        }
        let outer = request.extensions().get::<RateLimitStatus>();
        // One of several layers writes, for all that are further in.
        let writes = own && !outer.is_some_and(RateLimitStatus::is_written);
        let ledger = decided.map(|decided| decided.into_ledger(&self.limiter));
        let status = RateLimitStatus::within(outer, self, own, ledger.unwrap_or_default());
        if !self.status && outer.is_none() {
            return Some(Completion {
                status,
                writes,
                settles,
            });
        }
        let completion = (writes || settles).then(|| Completion {
            status: status.clone(),
            writes,
            settles,
        });
        request.extensions_mut().insert(status);
        completion
    }

    /// The answer to a refused request.
    pub(super) fn refuse<B, R: ResponseBody>(
        &self,
        request: &Request<B>,
        reason: RefusalReason<'_>,
        ledger: Ledger,
    ) -> Response<R> {
        let view = self.limiter.view(request);
        let outer = request.extensions().get::<RateLimitStatus>();
        let writes =
            self.answers.write_on(request) && !outer.is_some_and(RateLimitStatus::is_written);
        let response = self.answers.refuse(reason, ledger.report(), view, writes);
        if let Some(outer) = outer {
            // A refused request costs nothing: what layers further out took for it comes back.
            outer.give_back();
            outer.enter(ledger);
        }
        response.map(R::from_bytes)
    }

    /// The answer to a call whose caller has waited for as long as it said that it would.
    #[cfg(feature = "tonic")]
    pub(crate) fn too_late<B, R: ResponseBody>(&self, request: &Request<B>) -> Response<R> {
        if let Some(outer) = request.extensions().get::<RateLimitStatus>() {
            outer.give_back();
        }
        too_late(&self.limiter.view(request)).map(R::from_bytes)
    }
}
