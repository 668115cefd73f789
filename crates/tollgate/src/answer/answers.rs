//! What a layer was told to tell its callers.

use std::sync::Arc;
use std::{convert, fmt};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};

use super::expose::{expose, names};
use super::fields::{has_fields, write_chosen_fields};
use super::grpc::{Dialect, GrpcAnswers};
use super::jitter::Drawn;
use super::prepared::NO_STORE;
use super::prepared_quota::PreparedQuota;
use super::problem::ProblemJson;
use super::retry_after::{retry_after, told_seconds};
use super::{Jitter, RateLimitHeaders, Refusal, RefusalReason, Respond, write_usual_fields};
use crate::ledger::Ledger;
use crate::{PolicyVerdict, RequestView, ResponseBody};

/// What the answers of one layer look like.
#[derive(Clone)]
pub(crate) struct Answers {
    /// Nothing: as [`ProblemJson`] does, out of what is prepared once for each quota. This is the path that is attacked.
    respond: Option<Arc<dyn Respond>>,
    headers: Option<RateLimitHeaders>,
    jitter: Option<Jitter>,
    grpc: GrpcAnswers,
    /// What callers are asked for who do not say who they are.
    challenge: Option<HeaderValue>,
    exposes: bool,
    /// The names of what is exposed to pages in browsers, if anything is.
    exposed: Option<Arc<[&'static str]>>,
    /// What follows from all that, so that a request has one thing to look at.
    writes: Writes,
}

/// What is to be written on a response about the budgets that paid for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Writes {
    #[default]
    Nothing,
    /// The RateLimit fields as they come, which are prepared.
    Usual,
    /// What was chosen instead.
    Chosen,
}

impl Writes {
    /// The same on a response of this status. A client that is sent elsewhere should not hold back because of what is left
    /// here.
    #[inline]
    pub(crate) fn on(self, code: StatusCode) -> Self {
        if code.is_redirection() {
            return self.on_redirection(code);
        }
        self
    }

    #[cold]
    fn on_redirection(self, code: StatusCode) -> Self {
        if code == StatusCode::NOT_MODIFIED {
            self
        } else {
            Self::Nothing
        }
    }
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            respond: None,
            headers: Some(RateLimitHeaders::default()),
            jitter: None,
            grpc: GrpcAnswers::new(),
            challenge: None,
            exposes: false,
            exposed: None,
            writes: Writes::Usual,
        }
    }
}

impl Answers {
    pub(crate) fn respond(&mut self, respond: impl Respond) {
        self.respond = Some(Arc::new(respond));
    }

    pub(crate) fn headers(&mut self, headers: Option<RateLimitHeaders>) {
        self.headers = headers;
        self.prepare();
    }

    pub(crate) fn jitter(&mut self, jitter: Jitter) {
        self.jitter = Some(jitter);
    }

    pub(crate) fn grpc(&mut self, grpc: GrpcAnswers) {
        self.grpc = grpc;
    }

    pub(crate) fn challenge(&mut self, challenge: HeaderValue) {
        self.challenge = Some(challenge);
    }

    pub(crate) fn expose(&mut self) {
        self.exposes = true;
        self.prepare();
    }

    fn prepare(&mut self) {
        let forms = self
            .headers
            .as_ref()
            .map_or(&[][..], RateLimitHeaders::forms);
        self.exposed = self.exposes.then(|| names(forms).into());
        self.writes = match &self.headers {
            None => Writes::Nothing,
            Some(headers) if *headers == RateLimitHeaders::default() && !self.exposes => {
                Writes::Usual
            }
            Some(_) => Writes::Chosen,
        };
    }

    /// What is written, whoever asks.
    #[inline]
    pub(crate) fn writes(&self) -> Writes {
        self.writes
    }

    /// What is written on the response to this request.
    #[inline]
    pub(crate) fn writes_for<B>(&self, request: &Request<B>) -> Writes {
        if may_be_grpc(request) {
            self.writes_in_protocol(&RequestView::of(request))
        } else {
            self.writes
        }
    }

    fn writes_in_protocol(&self, request: &RequestView<'_>) -> Writes {
        match &self.headers {
            Some(headers) if !headers.over_grpc && Dialect::of(request).is_some() => {
                Writes::Nothing
            }
            _ => self.writes,
        }
    }

    /// Writes what was chosen on a response.
    #[inline(never)]
    pub(crate) fn write(&self, headers: &mut HeaderMap, ledger: &Ledger) {
        if let Some(chosen) = &self.headers
            && write_chosen_fields(headers, ledger, chosen)
        {
            self.expose_on(headers);
        }
    }

    /// The whole answer to a refused request, in the protocol that the caller speaks.
    pub(crate) fn refuse(
        &self,
        reason: RefusalReason<'_>,
        ledger: &Ledger,
        request: RequestView<'_>,
        writes: Writes,
    ) -> Response<Bytes> {
        let jitter = self.jitter.map(Jitter::draw);
        let refusal = Refusal::new(reason, ledger, request, jitter)
            .asking_for_credentials(self.challenge.is_some());
        if let Some(dialect) = Dialect::of(&request) {
            let asks = self.challenge.is_some() || self.grpc.asks_for_credentials();
            let refusal = refusal.asking_for_credentials(asks);
            return self.complete(self.grpc.answer(dialect, &refusal), &refusal, writes);
        }
        if let [sole] = ledger.report().verdicts()
            && let Some(complete) = self.prepared(sole, jitter, writes, convert::identity)
        {
            return complete;
        }
        let response = match &self.respond {
            Some(respond) => respond.respond(&refusal),
            None => ProblemJson.respond(&refusal),
        };
        self.complete(response, &refusal, writes)
    }

    /// Adds what every refusal says, where it is not said already.
    fn complete(
        &self,
        mut response: Response<Bytes>,
        refusal: &Refusal<'_>,
        writes: Writes,
    ) -> Response<Bytes> {
        let redirects = response.status().is_redirection();
        let is_challenge = response.status() == StatusCode::UNAUTHORIZED;
        let headers = response.headers_mut();
        headers.entry(CACHE_CONTROL).or_insert(NO_STORE);
        if let Some(challenge) = &self.challenge
            && is_challenge
        {
            headers
                .entry(WWW_AUTHENTICATE)
                .or_insert_with(|| challenge.clone());
        }
        if redirects {
            return response;
        }
        if let Some(wait) = refusal.retry_after() {
            headers
                .entry(RETRY_AFTER)
                .or_insert_with(|| retry_after(told_seconds(wait)));
        }
        match writes {
            Writes::Nothing => {}
            // What the user's answer says of the budgets is all that is said.
            _ if self.says_so_already(headers) => {}
            Writes::Usual => write_usual_fields(headers, refusal.ledger().report()),
            Writes::Chosen => self.write(headers, refusal.ledger()),
        }
        self.expose_on(headers);
        response
    }

    fn says_so_already(&self, headers: &HeaderMap) -> bool {
        let forms = self
            .headers
            .as_ref()
            .map_or(&[][..], RateLimitHeaders::forms);
        forms.iter().any(|form| has_fields(headers, *form))
    }

    fn expose_on(&self, headers: &mut HeaderMap) {
        if let Some(names) = &self.exposed {
            expose(headers, names);
        }
    }

    /// The answer to a request that one quota refuses, and in which no other took part, unless there is more to it than
    /// there nearly always is.
    #[inline]
    pub(crate) fn deny<B, R: ResponseBody>(
        &self,
        sole: &PolicyVerdict,
        request: &Request<B>,
    ) -> Option<Response<R>> {
        if may_be_grpc(request) {
            return None;
        }
        let jitter = self.jitter.map(Jitter::draw);
        self.prepared(sole, jitter, self.writes, R::from_bytes)
    }

    /// What was prepared for a refusal by one quota for now, if that is what refusals look like.
    #[inline]
    fn prepared<R>(
        &self,
        sole: &PolicyVerdict,
        jitter: Option<Drawn>,
        writes: Writes,
        body: fn(Bytes) -> R,
    ) -> Option<Response<R>> {
        if self.respond.is_some() || self.exposed.is_some() || writes == Writes::Chosen {
            return None;
        }
        let wait = sole.verdict().retry_after().filter(|_| sole.refuses())?;
        let seconds = told_seconds(jitter.map_or(wait, |drawn| drawn.lengthen(wait)));
        let prepared = &PreparedQuota::of(sole.labels()).refusal;
        Some(prepared.response(sole, seconds, writes == Writes::Usual, body))
    }
}

/// Whether the content type has to be looked at. Most requests are a GET in HTTP/1, in which nobody calls a method: gRPC needs
/// HTTP/2, and gRPC-Web is a POST.
#[inline]
fn may_be_grpc<B>(request: &Request<B>) -> bool {
    request.method() != Method::GET || request.version() >= Version::HTTP_2
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers")
            .field("headers", &self.headers)
            .field("jitter", &self.jitter)
            .field("exposes", &self.exposes)
            .finish_non_exhaustive()
    }
}
