//! The limited service.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tollgate_core::{BackendError, Decision};
use tower_service::Service;

use super::{Config, ResponseFuture};
use crate::answer::{Refusal, RefusalReason, answer};
use crate::limiter::{Fallback, Plan};
use crate::report::Report;
use crate::{RateLimitStatus, ResponseBody};

/// A service whose requests are limited: what [`RateLimitLayer`](crate::RateLimitLayer) makes.
#[derive(Clone, Debug)]
pub struct RateLimitService<S> {
    inner: S,
    config: Arc<Config>,
}

/// What is still to be written on the response to a request that passed.
#[derive(Debug)]
pub(super) enum After {
    /// Nothing.
    Nothing,
    /// The fields of this report.
    Fields(Report),
    /// The fields of what took part until then.
    FieldsOf(RateLimitStatus),
}

impl<S> RateLimitService<S> {
    pub(super) fn new(inner: S, config: Arc<Config>) -> Self {
        Self { inner, config }
    }
}

impl<S, B, R> Service<Request<B>> for RateLimitService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    R: ResponseBody,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> ResponseFuture<S, B> {
        let limiter = &self.config.limiter;
        let plan = match limiter.plan(&limiter.view(&request)) {
            Ok(plan) if plan.is_empty() => {
                return ResponseFuture::calling(self.inner.call(request), After::Nothing);
            }
            Ok(plan) => plan,
            Err(turned) => {
                let reason = turned.reason();
                let response = self.config.refuse(&request, reason, &Report::default());
                self.give_readiness_back();
                return ResponseFuture::refused(response);
            }
        };
        match limiter.decide(&plan).try_now() {
            Ok(decided) => match self.config.judge(&mut request, &plan, decided) {
                Ok(after) => ResponseFuture::calling(self.inner.call(request), after),
                Err(response) => {
                    self.give_readiness_back();
                    ResponseFuture::refused(response)
                }
            },
            Err(decide) => {
                // The clone has not been asked whether it is ready, so it is the one that stays behind.
                let clone = self.inner.clone();
                let ready = mem::replace(&mut self.inner, clone);
                let config = Arc::clone(&self.config);
                ResponseFuture::deciding(decide, config, plan, ready, request)
            }
        }
    }
}

impl<S: Clone> RateLimitService<S> {
    /// The inner service was found ready and will not be called. What readiness holds, such as the permit of a concurrency
    /// limit, must not be kept until the next request on this connection, which may never come.
    fn give_readiness_back(&mut self) {
        self.inner = self.inner.clone();
    }
}

impl Config {
    /// Either what is to be written on the response, or the answer to a refused request.
    pub(super) fn judge<B, R: ResponseBody>(
        &self,
        request: &mut Request<B>,
        plan: &Plan,
        decided: Result<Decision, BackendError>,
    ) -> Result<After, Response<R>> {
        match self.limiter.rule(plan, decided) {
            Ok(decision) => self.conclude(request, plan, &decision),
            Err(Fallback::Decide(local)) => self.conclude(request, &local.0, &local.1),
            Err(Fallback::Pass(error)) => {
                tracing::debug!(%error, "passed undecided");
                Ok(self.after(request, Report::default()))
            }
            Err(Fallback::Refuse(error)) => {
                tracing::debug!(%error, "refused undecided");
                Err(self.refuse(request, RefusalReason::Undecided, &Report::default()))
            }
        }
    }

    fn conclude<B, R: ResponseBody>(
        &self,
        request: &mut Request<B>,
        plan: &Plan,
        decision: &Decision,
    ) -> Result<After, Response<R>> {
        if !decision.is_admitted() {
            let report = self.limiter.report(plan, decision);
            return Err(self.refuse(request, RefusalReason::QuotaExceeded, &report));
        }
        if !self.fields && !self.status {
            return Ok(After::Nothing);
        }
        Ok(self.after(request, self.limiter.report(plan, decision)))
    }

    fn after<B>(&self, request: &mut Request<B>, report: Report) -> After {
        match (self.status, self.fields) {
            (true, fields) => {
                let status = RateLimitStatus::new(report);
                request.extensions_mut().insert(status.clone());
                if fields {
                    After::FieldsOf(status)
                } else {
                    After::Nothing
                }
            }
            (false, true) => After::Fields(report),
            (false, false) => After::Nothing,
        }
    }

    fn refuse<B, R: ResponseBody>(
        &self,
        request: &Request<B>,
        reason: RefusalReason<'_>,
        report: &Report,
    ) -> Response<R> {
        let refusal = Refusal::new(reason, report, self.limiter.view(request));
        answer(&*self.respond, &refusal, self.fields).map(R::from_bytes)
    }
}
