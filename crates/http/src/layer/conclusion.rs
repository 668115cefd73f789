//! The consequence of a ruling: the request goes on, with work left for its response, or it is answered.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{Extensions, Method, Request, Response, StatusCode};
use tollgate_limiter::transport::{Judgement, Ledger, Report, Ruling};
use tollgate_limiter::{RequestView, ResponseView};

#[cfg(feature = "tonic")]
use crate::answer::too_late;
use crate::answer::{RefusalReason, has_fields_on};
use crate::body::BodyWatch;
use crate::settings::Config;
use crate::status::ResponseEnd;
use crate::{RateLimitStatus, ResponseBody};

/// The work that is left for the response to a request that passed. If it is dropped before there is a response, it ends the
/// request: that was cancelled, or its service failed or panicked.
#[derive(Debug)]
pub(super) struct Completion {
    end: ResponseEnd,
    /// True if the response shows the state of budgets.
    writes: bool,
    /// True if the response may change the cost of the request.
    settles: bool,
    /// True if a response that is a success opens a connection, as a WebSocket's over HTTP/2 does.
    connects: bool,
}

impl Completion {
    /// The service failed, so that there is no response.
    pub(super) fn fail(work: &mut Option<Self>) {
        if let Some(Self { end, .. }) = work {
            end.may_strike = false;
        }
        *work = None;
    }

    // The work is taken over only where it goes on: nearly always it is done here, and dropped where it lies.
    #[inline]
    pub(super) fn complete<R: ResponseBody>(work: &mut Option<Self>, response: &mut Response<R>) {
        let Some(Self {
            end,
            writes,
            settles,
            connects,
        }) = work
        else {
            return;
        };
        end.may_strike = false;
        let status = &end.status;
        // The answer of a limit further in says nothing of the caller.
        let is_by_bytes = !status.takes_back(response)
            && *settles
            && status.settle_by_response(&ResponseView::of(response));
        if *writes
            && has_fields_on(response.status())
            && let Some(config) = status.config()
        {
            status.look(|report| config.answers.write(response.headers_mut(), report));
        }
        let holds = status.holds();
        let code = response.status();
        if holds && (code == StatusCode::SWITCHING_PROTOCOLS || (*connects && code.is_success())) {
            warn_without_hold(status);
        }
        if (holds || is_by_bytes)
            && let Some(Self { end, .. }) = work.take()
        {
            watch(response, end, is_by_bytes);
        }
    }
}

/// Tells the operator once that a connection goes on without a hold.
#[cold]
fn warn_without_hold(status: &RateLimitStatus) {
    static WARNED: AtomicBool = AtomicBool::new(false);

    if !status.ledger().is_kept() && !WARNED.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            "a connection was upgraded, or opened by `CONNECT`, and what its request holds is given back now: let the handler take \
             a `Hold` and keep it for as long as the connection lasts"
        );
    }
}

/// Settles by the bytes of the body, if a policy says so, and gives back what is held when it is over.
#[cold]
fn watch<R: ResponseBody>(response: &mut Response<R>, end: ResponseEnd, is_by_bytes: bool) {
    // A body that has ended already needs no box.
    if !is_by_bytes && response.body().is_end_stream() {
        return drop(end);
    }
    let watch = BodyWatch::new(move |sent| {
        if is_by_bytes {
            end.status.settle_by_bytes(sent);
        }
        drop(end);
    });
    let body = mem::replace(response.body_mut(), R::from_bytes(Bytes::new()));
    *response.body_mut() = body.watched(watch);
}

/// A request that passes, with the handle that it carries or leaves behind.
#[derive(Debug)]
pub struct Passage {
    /// `None` if neither the response nor a handler is told of anything.
    status: Option<RateLimitStatus>,
    /// True if the request carries the handle.
    carries: bool,
    writes: bool,
    /// True if the response may change the cost of the request, or its end gives back what is held.
    settles: bool,
}

impl Passage {
    const NOTHING: Self = Self {
        status: None,
        carries: false,
        writes: false,
        settles: false,
    };

    /// Puts the handle into a request whose response is not looked at, and under whose policies nothing is held.
    pub fn enter<B>(self, request: &mut Request<B>) {
        let nothing_follows = Self {
            settles: false,
            ..self
        };
        drop(nothing_follows.into_completion(request));
    }

    /// Puts the handle into the request. Returns the work that is left for its response.
    #[inline]
    pub(super) fn into_completion<B>(self, request: &mut Request<B>) -> Option<Completion> {
        let Self {
            status,
            carries,
            writes,
            settles,
        } = self;
        let Some(status) = status else {
            // Layers further out have to know that the request went on.
            if let Some(outer) = request.extensions_mut().get_mut::<RateLimitStatus>() {
                outer.enter(Ledger::default());
                outer.pass();
            }
            return None;
        };
        let connects = request.method() == Method::CONNECT;
        if !carries {
            return Some(Completion {
                end: ResponseEnd::of(status, settles),
                writes,
                settles,
                connects,
            });
        }
        // Also if nothing is known yet that is left to do: a limit further in may hold something.
        let completion = Completion {
            end: ResponseEnd::of(status.clone(), settles),
            writes,
            settles,
            connects,
        };
        request.extensions_mut().insert(status);
        Some(completion)
    }
}

impl Config {
    /// Lets a request pass, or writes the answer to a refused one into `answer`. Responses are large, and are written where they
    /// stay.
    #[inline(always)]
    pub fn conclude<B, R: ResponseBody>(
        self: &Arc<Self>,
        request: &Request<B>,
        ruling: &Ruling<'_>,
        answer: &mut Option<Response<R>>,
    ) -> Option<Passage> {
        if self.is_silent() && matches!(ruling, Ruling::Admitted(_)) {
            return Some(Passage::NOTHING);
        }
        self.conclude_aloud(request, ruling, answer)
    }

    /// True if a layer of the same limiter further out has let the request in. It leaves its handle in the request.
    #[cold]
    #[must_use]
    pub fn has_let_in(&self, request: &Extensions) -> bool {
        let outer = request.get::<RateLimitStatus>();
        let mut layers = outer.into_iter().flat_map(RateLimitStatus::configs);
        layers.any(|layer| layer.limiter.is_same(&self.limiter))
    }

    /// True if neither a passing request nor its response is told of anything.
    #[inline(always)]
    fn is_silent(&self) -> bool {
        !self.status && !self.answers.have_headers() && !self.limiter.follows_responses()
    }

    fn conclude_aloud<B, R: ResponseBody>(
        self: &Arc<Self>,
        request: &Request<B>,
        ruling: &Ruling<'_>,
        answer: &mut Option<Response<R>>,
    ) -> Option<Passage> {
        let (reason, decided) = match ruling {
            Ruling::Admitted(decided) => return Some(self.let_in(request, Some(*decided))),
            // Limits further in may still want the handle.
            Ruling::Uncharged => return Some(self.let_in(request, None)),
            Ruling::Undecided(error, assumed) => {
                tracing::debug!(%error, "passed undecided");
                return Some(self.let_in(request, *assumed));
            }
            Ruling::Denied(decided) => (RefusalReason::QuotaExceeded, Some(*decided)),
            Ruling::Refused(refused) => (RefusalReason::of(refused), None),
        };
        *answer = Some(self.refuse(request, reason, decided));
        None
    }

    fn let_in<B>(
        self: &Arc<Self>,
        request: &Request<B>,
        decided: Option<Judgement<'_>>,
    ) -> Passage {
        let own = self.answers.write_on(request);
        let settles = if self.status {
            // A handler may name other policies.
            self.limiter.follows_responses()
        } else {
            self.limiter.follows_responses() && decided.is_some_and(Judgement::follows_response)
        };
        if !self.status && !own && !settles {
            return Passage::NOTHING;
        }
        match request.extensions().get::<RateLimitStatus>() {
            None => Passage {
                status: Some(RateLimitStatus::outermost(
                    self,
                    own,
                    decided.map_or_else(Ledger::default, Judgement::ledger),
                )),
                // What limits further in refuse must not count as a response of the service.
                carries: self.status || decided.is_some_and(Judgement::judges_response),
                writes: own,
                settles,
            },
            Some(outer) => self.let_further_in(outer, own, settles, decided),
        }
    }

    #[inline(never)]
    fn let_further_in(
        self: &Arc<Self>,
        outer: &RateLimitStatus,
        own: bool,
        settles: bool,
        decided: Option<Judgement<'_>>,
    ) -> Passage {
        let ledger = decided.map_or_else(Ledger::default, Judgement::ledger);
        Passage {
            status: Some(outer.further_in(self, own, ledger)),
            carries: true,
            // One of several layers writes, for all that are further in.
            writes: own && !outer.is_written(),
            settles,
        }
    }

    /// The answer to a call that has begun. It is too late for headers with the state of budgets.
    #[must_use]
    pub fn refuse_begun(
        &self,
        reason: RefusalReason<'_>,
        report: Report<'_>,
        call: RequestView<'_>,
    ) -> Response<Bytes> {
        self.answers.refuse(reason, report, call, false)
    }

    /// The answer to a refused request.
    pub fn refuse<B, R: ResponseBody>(
        &self,
        request: &Request<B>,
        reason: RefusalReason<'_>,
        decided: Option<Judgement<'_>>,
    ) -> Response<R> {
        let view = self.limiter.view(request);
        let outer = request.extensions().get::<RateLimitStatus>();
        let writes =
            self.answers.write_on(request) && !outer.is_some_and(RateLimitStatus::is_written);
        let verdicts = decided.map(Judgement::verdicts).unwrap_or_default();
        let report = Report::of(&verdicts);
        let mut response = self.answers.refuse(reason, report, view, writes);
        if let Some(outer) = outer {
            // A refused request costs nothing: layers further out refund their charges.
            let mark = outer.refuse(decided.map(Judgement::ledger).unwrap_or_default());
            response.extensions_mut().insert(mark);
        } else if self.limiter.follows_responses() {
            // A policy on trial may hold something for the request, which is over now.
            drop(decided.map(Judgement::ledger));
        }
        response.map(R::from_bytes)
    }

    /// The answer to a call whose deadline has passed.
    #[cfg(feature = "tonic")]
    pub fn too_late<B, R: ResponseBody>(&self, request: &Request<B>) -> Response<R> {
        let mut response = too_late(&self.limiter.view(request));
        if let Some(outer) = request.extensions().get::<RateLimitStatus>() {
            let mark = outer.refuse(Ledger::default());
            response.extensions_mut().insert(mark);
        }
        response.map(R::from_bytes)
    }
}
