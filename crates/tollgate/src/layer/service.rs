//! The limited service.

use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use tollgate_core::{BackendError, Decide, Decision, Timestamp};
use tower_service::Service;

#[cfg(feature = "tonic")]
use super::deadline::Deadline;
use super::future::{Step, Waiting};
use super::{Config, ResponseFuture};
#[cfg(feature = "tonic")]
use crate::answer::too_late;
use crate::answer::{RefusalReason, Writes, write_usual_fields};
use crate::body::BodyWatch;
use crate::ledger::Ledger;
use crate::limiter::{Judged, Met, Plan, Planned, Turned};
#[cfg(feature = "axum")]
use crate::status::Nearest;
use crate::{Key, PolicyVerdict, RateLimitStatus, ResponseBody, ResponseView};

/// A service whose requests are limited: what [`RateLimitLayer`](crate::RateLimitLayer) makes.
#[derive(Clone, Debug)]
pub struct RateLimitService<S> {
    inner: S,
    config: Arc<Config>,
}

/// What is still to be done once there is a response to a request that passed.
#[derive(Debug)]
pub(super) struct After {
    /// None, if there is nothing to be done.
    status: RateLimitStatus,
    writes: Writes,
    /// Whether the response may change what the request cost.
    outcomes: bool,
}

impl After {
    const NOTHING: Self = Self {
        status: RateLimitStatus::NONE,
        writes: Writes::Nothing,
        outcomes: false,
    };

    #[inline]
    pub(super) fn is_nothing(&self) -> bool {
        self.status.is_none()
    }

    #[inline]
    pub(super) fn complete<R: ResponseBody>(&mut self, response: &mut Response<R>) {
        if self.outcomes {
            self.settle(response);
        }
        self.write(response.status(), response.headers_mut());
    }

    /// Lets the response say what the request cost.
    #[inline(never)]
    fn settle<R: ResponseBody>(&self, response: &mut Response<R>) {
        let status = &self.status;
        if status.settle_by_response(&ResponseView::of(response)) {
            let status = status.clone();
            let watch = BodyWatch::new(move |sent| status.settle_by_bytes(sent));
            let body = mem::replace(response.body_mut(), R::from_bytes(Bytes::new()));
            *response.body_mut() = body.watched(watch);
        }
    }

    #[inline]
    fn write(&mut self, code: StatusCode, headers: &mut HeaderMap) {
        let writes = self.writes.on(code);
        self.status.read(|ledger, config| match (writes, config) {
            (Writes::Usual, _) => write_usual_fields(headers, ledger.report()),
            (Writes::Chosen, Some(config)) => config.answers.write(headers, ledger),
            _ => {}
        });
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
        // A key is large: it is made where it stays.
        let (sole, key);
        match config.limiter.meet_by_peer(&request) {
            Some((met, SocketAddr::V4(peer))) => {
                sole = met;
                key = Key::from(*peer.ip());
            }
            Some((met, SocketAddr::V6(peer))) => {
                sole = met;
                key = config.limiter.key_of_ipv6(*peer.ip());
            }
            None => match config.limiter.meet(&config.limiter.view(&request)) {
                Met::Sole(met, payer) => {
                    sole = met;
                    key = payer;
                }
                Met::Nothing => return self.call_uncharged(request),
                Met::Planned(planned) => return self.call_planned(planned, request),
            },
        }
        let answer = sole.decide(&key);
        // Most requests are decided here, and what was decided is looked at where it lies.
        let Some((decision, verdict)) = answer.peek_sole() else {
            let plan = sole.plan(key);
            return self.go_on(answer, plan, request);
        };
        config.limiter.backend_answered();
        if !decision.is_admitted() {
            let response = self
                .config
                .deny(&request, sole.named(verdict), key, decision.at());
            return self.refused(response);
        }
        let after = if config.is_silent {
            After::NOTHING
        } else {
            let status = sole.status(&self.config, verdict, &key, decision.at());
            config.after(&mut request, status)
        };
        #[expect(
            clippy::mem_forget,
            reason = "there is nothing in it to be dropped, and nobody has to look for that"
        )]
        mem::forget(answer);
        ResponseFuture::calling(self.inner.call(request), after)
    }
}

impl<S> RateLimitService<S> {
    #[inline(never)]
    fn call_uncharged<B, R>(&mut self, mut request: Request<B>) -> ResponseFuture<S, B>
    where
        S: Service<Request<B>, Response = Response<R>> + Clone,
        R: ResponseBody,
    {
        // Policies further in may still want the handle.
        let after = self.config.admit(&mut request, || Ledger::EMPTY);
        ResponseFuture::calling(self.inner.call(request), after)
    }

    #[inline(never)]
    fn call_planned<B, R>(
        &mut self,
        planned: Result<Planned, Turned>,
        mut request: Request<B>,
    ) -> ResponseFuture<S, B>
    where
        S: Service<Request<B>, Response = Response<R>> + Clone,
        R: ResponseBody,
    {
        let limiter = &self.config.limiter;
        match planned {
            Ok(Planned::Now(plan)) if plan.is_empty() => self.call_uncharged(request),
            Ok(Planned::Now(plan)) => {
                let answer = limiter.decide(&plan);
                match answer.peek() {
                    Some(Ok(decision)) if decision.is_admitted() => {
                        limiter.backend_answered();
                        let ledger = || Ledger::of(&plan, decision);
                        let after = self.config.admit(&mut request, ledger);
                        ResponseFuture::calling(self.inner.call(request), after)
                    }
                    _ => self.go_on(answer, plan, request),
                }
            }
            Ok(Planned::Later(resolving)) => self.wait(Step::Resolving(resolving), request),
            Err(turned) => {
                let reason = turned.reason();
                let response = self.config.refuse(&request, reason, &Ledger::default());
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
            Err(decide) => self.wait(Step::Deciding(decide, plan), request),
        }
    }

    fn wait<B>(&mut self, step: Step, request: Request<B>) -> ResponseFuture<S, B>
    where
        S: Service<Request<B>> + Clone,
    {
        // The clone has not been asked whether it is ready, so it is the one that stays behind.
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        ResponseFuture::waiting(Waiting {
            step,
            #[cfg(feature = "tonic")]
            deadline: Deadline::of(&self.config.limiter.view(&request)),
            config: Arc::clone(&self.config),
            ready,
            request,
        })
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
        self: &Arc<Self>,
        request: &mut Request<B>,
        plan: &Plan,
        decided: Result<Decision, BackendError>,
    ) -> Result<After, Response<R>> {
        match self.limiter.judge(plan, decided) {
            Judged::Admitted(ledger) => Ok(self.admit(request, || ledger)),
            Judged::Denied(ledger) => {
                Err(self.refuse(request, RefusalReason::QuotaExceeded, &ledger))
            }
            Judged::Undecided => Ok(self.admit(request, || Ledger::EMPTY)),
            Judged::Unavailable => {
                Err(self.refuse(request, RefusalReason::Undecided, &Ledger::default()))
            }
        }
    }

    pub(super) fn admit<B>(
        self: &Arc<Self>,
        request: &mut Request<B>,
        ledger: impl FnOnce() -> Ledger,
    ) -> After {
        if self.is_silent {
            return After::NOTHING;
        }
        self.after(request, RateLimitStatus::new(self, ledger()))
    }

    #[inline(always)]
    fn after<B>(&self, request: &mut Request<B>, status: RateLimitStatus) -> After {
        if !self.status {
            return self.completing(request, status);
        }
        let after = if self.completes {
            self.completing(request, status.clone())
        } else {
            After::NOTHING
        };
        match request.extensions_mut().insert(status) {
            None => after,
            Some(outer) => self.after_another(request, &outer),
        }
    }

    #[inline(always)]
    fn completing<B>(&self, request: &Request<B>, status: RateLimitStatus) -> After {
        After {
            status,
            writes: self.answers.writes_for(request),
            outcomes: self.limiter.has_outcomes(),
        }
    }

    /// A layer further out has put its own handle into the request. There is one for all.
    #[cold]
    fn after_another<B>(&self, request: &mut Request<B>, outer: &RateLimitStatus) -> After {
        let writes = self.writes_within(request, outer);
        let Some(status) = request.extensions_mut().insert(outer.clone()) else {
            return After::NOTHING;
        };
        status.show_in(outer);
        #[cfg(feature = "axum")]
        request.extensions_mut().insert(Nearest(status.clone()));
        After {
            status,
            writes,
            outcomes: self.limiter.has_outcomes(),
        }
    }

    /// What is left to write within a layer that has put its own handle into the request: one of the two writes, for both.
    fn writes_within<B>(&self, request: &Request<B>, outer: &RateLimitStatus) -> Writes {
        match outer
            .config()
            .map(|outer| outer.answers.writes_for(request))
        {
            None | Some(Writes::Nothing) => self.answers.writes_for(request),
            Some(_) => Writes::Nothing,
        }
    }

    /// The answer to a call whose caller has waited for as long as it said that it would.
    #[cfg(feature = "tonic")]
    pub(crate) fn too_late<B, R: ResponseBody>(&self, request: &Request<B>) -> Response<R> {
        if let Some(outer) = request.extensions().get::<RateLimitStatus>() {
            outer.give_back();
        }
        too_late(&self.limiter.view(request)).map(R::from_bytes)
    }

    /// The answer to a request that one quota refuses, of which no other was asked.
    #[inline]
    fn deny<B, R: ResponseBody>(
        self: &Arc<Self>,
        request: &Request<B>,
        verdict: PolicyVerdict,
        key: Key,
        at: Timestamp,
    ) -> Response<R> {
        let is_outermost = request.extensions().get::<RateLimitStatus>().is_none();
        if is_outermost && let Some(response) = self.answers.deny(&verdict, request) {
            return response;
        }
        let ledger = Ledger::of_one(verdict, key, at);
        self.refuse(request, RefusalReason::QuotaExceeded, &ledger)
    }

    /// The answer to a refused request.
    pub(super) fn refuse<B, R: ResponseBody>(
        self: &Arc<Self>,
        request: &Request<B>,
        reason: RefusalReason<'_>,
        ledger: &Ledger,
    ) -> Response<R> {
        let view = self.limiter.view(request);
        let response = match request.extensions().get::<RateLimitStatus>() {
            None => {
                let writes = self.answers.writes_for(request);
                self.answers.refuse(reason, ledger, view, writes)
            }
            Some(outer) => {
                // A refused request costs nothing: what layers further out took for it comes back.
                outer.give_back();
                let writes = self.writes_within(request, outer);
                let response = self.answers.refuse(reason, ledger, view, writes);
                RateLimitStatus::new(self, ledger.clone()).show_in(outer);
                response
            }
        };
        response.map(R::from_bytes)
    }
}
