//! The limited service.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderMap, Request, Response};
use tollgate_core::{BackendError, Decide, Decision};
use tower_service::Service;

use super::{Config, ResponseFuture};
use crate::answer::{Refusal, RefusalReason, write_fields};
use crate::limiter::{Fallback, Plan};
use crate::report::Report;
use crate::{RateLimitStatus, ResponseBody};

/// A service whose requests are limited: what [`RateLimitLayer`](crate::RateLimitLayer) makes.
#[derive(Clone, Debug)]
pub struct RateLimitService<S> {
    inner: S,
    config: Arc<Config>,
}

/// What is still to be done once there is a response to a request that passed.
#[derive(Debug, Default)]
pub(super) struct After {
    status: Option<RateLimitStatus>,
    fields: bool,
}

impl After {
    #[inline]
    pub(super) fn finish(&mut self, headers: &mut HeaderMap) {
        if let Some(status) = self.status.take() {
            let fields = self.fields;
            status.finish(|report| {
                if fields {
                    write_fields(headers, report);
                }
            });
        }
    }
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

    #[inline]
    fn call(&mut self, mut request: Request<B>) -> ResponseFuture<S, B> {
        let config = &*self.config;
        let Some(sole) = config.limiter.sole() else {
            return self.call_with_plan(request);
        };
        let Some(key) = sole.key(&config.limiter.view(&request)) else {
            return self.call_with_plan(request);
        };
        let answer = sole.decide(&key);
        // Most requests are decided here, and all that they need is looked at where it lies.
        let Some(Ok(decision)) = answer.peek() else {
            let plan = sole.plan(key);
            return self.go_on(answer, plan, request);
        };
        config.limiter.backend_answered();
        if !decision.is_admitted() {
            let report = sole.report(decision);
            let response = config.refuse(&request, RefusalReason::QuotaExceeded, &report);
            return self.refused(response);
        }
        let after = config.admit(&mut request, || sole.report(decision));
        ResponseFuture::calling(self.inner.call(request), after)
    }
}

impl<S> RateLimitService<S> {
    #[inline(never)]
    fn call_with_plan<B, R>(&mut self, request: Request<B>) -> ResponseFuture<S, B>
    where
        S: Service<Request<B>, Response = Response<R>> + Clone,
        R: ResponseBody,
    {
        let limiter = &self.config.limiter;
        match limiter.plan(&limiter.view(&request)) {
            Ok(plan) if plan.is_empty() => {
                ResponseFuture::calling(self.inner.call(request), After::default())
            }
            Ok(plan) => {
                let answer = limiter.decide(&plan);
                self.go_on(answer, plan, request)
            }
            Err(turned) => {
                let reason = turned.reason();
                let response = self.config.refuse(&request, reason, &Report::default());
                self.refused(response)
            }
        }
    }

    #[inline(never)]
    fn go_on<B, R>(
        &mut self,
        answer: Decide,
        plan: Plan,
        mut request: Request<B>,
    ) -> ResponseFuture<S, B>
    where
        S: Service<Request<B>, Response = Response<R>> + Clone,
        R: ResponseBody,
    {
        match answer.try_now() {
            Ok(decided) => match self.config.judge(&mut request, &plan, decided) {
                Ok(after) => ResponseFuture::calling(self.inner.call(request), after),
                Err(response) => self.refused(response),
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

    fn refused<B>(&mut self, response: S::Response) -> ResponseFuture<S, B>
    where
        S: Service<Request<B>> + Clone,
    {
        // The inner service was found ready and will not be called. What readiness holds, such as the permit of a concurrency
        // limit, must not be kept until the next request on this connection, which may never come.
        self.inner = self.inner.clone();
        ResponseFuture::refused(response)
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
        if decision.is_admitted() {
            return Ok(self.admit(request, || self.limiter.report(plan, decision)));
        }
        let report = self.limiter.report(plan, decision);
        Err(self.refuse(request, RefusalReason::QuotaExceeded, &report))
    }

    #[inline]
    fn admit<B>(&self, request: &mut Request<B>, report: impl FnOnce() -> Report) -> After {
        if !self.fields && !self.status {
            return After::default();
        }
        self.after(request, report())
    }

    #[inline]
    fn after<B>(&self, request: &mut Request<B>, report: Report) -> After {
        let fields = self.fields;
        let status = RateLimitStatus::new(report, fields);
        if self.status
            && let Some(outer) = request.extensions_mut().insert(status.clone())
        {
            return Self::after_another(request, status, outer, fields);
        }
        After {
            status: Some(status),
            fields,
        }
    }

    /// A layer further out has put its own status into the request. There is one for all.
    #[cold]
    fn after_another<B>(
        request: &mut Request<B>,
        status: RateLimitStatus,
        outer: RateLimitStatus,
        fields: bool,
    ) -> After {
        let written_by_outer = outer.add(status.report());
        request.extensions_mut().insert(outer);
        After {
            status: Some(status),
            fields: fields && !written_by_outer,
        }
    }

    fn refuse<B, R: ResponseBody>(
        &self,
        request: &Request<B>,
        reason: RefusalReason<'_>,
        report: &Report,
    ) -> Response<R> {
        let refusal = Refusal::new(reason, report, self.limiter.view(request));
        self.responder
            .answer(&refusal, self.fields)
            .map(R::from_bytes)
    }
}
