//! What a layer was told to tell its callers.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, RETRY_AFTER};
use http::{HeaderMap, Method, Request, Response, StatusCode};

use super::expose::{expose, names};
use super::fields::{has_fields, state, write_chosen_fields};
use super::grpc::{is_grpc, trailers_only};
use super::prepared::NO_STORE;
use super::problem::ProblemJson;
use super::retry_after::{retry_after, told_seconds};
use super::{Jitter, RateLimitHeaders, Refusal, RefusalReason, Respond, write_usual_fields};
use crate::RequestView;
use crate::ledger::Ledger;

/// What the answers of one layer look like.
#[derive(Clone)]
pub(crate) struct Answers {
    /// Nothing: as [`ProblemJson`] does, out of what was prepared when the policies were built. This is the path that is
    /// attacked.
    respond: Option<Arc<dyn Respond>>,
    headers: Option<RateLimitHeaders>,
    jitter: Option<Jitter>,
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
        if code.is_redirection() && code != StatusCode::NOT_MODIFIED {
            Self::Nothing
        } else {
            self
        }
    }
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            respond: None,
            headers: Some(RateLimitHeaders::default()),
            jitter: None,
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
        // Every call of gRPC is a POST.
        if request.method() == Method::POST {
            self.writes_in_protocol(&RequestView::of(request))
        } else {
            self.writes
        }
    }

    fn writes_in_protocol(&self, request: &RequestView<'_>) -> Writes {
        match &self.headers {
            Some(headers) if !headers.over_grpc && is_grpc(request) => Writes::Nothing,
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
        let refusal = Refusal::new(reason, ledger, request, jitter);
        if is_grpc(&request) {
            return self.complete(trailers_only(&refusal), &refusal, writes);
        }
        let response = match &self.respond {
            Some(respond) => respond.respond(&refusal),
            None => match self.prepared_problem(&refusal, writes) {
                Some(complete) => return complete,
                None => ProblemJson.respond(&refusal),
            },
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
        let headers = response.headers_mut();
        headers.entry(CACHE_CONTROL).or_insert(NO_STORE);
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

    /// The answer if one quota refuses for now and no other took part, which is nearly always.
    fn prepared_problem(&self, refusal: &Refusal<'_>, writes: Writes) -> Option<Response<Bytes>> {
        let [sole] = refusal.ledger().report().verdicts() else {
            return None;
        };
        if writes == Writes::Chosen || self.exposed.is_some() {
            return None;
        }
        let wait = sole.verdict().retry_after().filter(|_| sole.refuses())?;
        let seconds = told_seconds(refusal.told(wait));
        let prepared = &sole.labels().refusal;
        let mut response = Response::new(Bytes::from_static(prepared.problem.as_bytes()));
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        let headers = response.headers_mut();
        let mut changing = if writes == Writes::Usual {
            let mut changing = prepared.with_fields.copy_to(headers);
            *changing.next()? = state(sole, Some(seconds));
            changing
        } else {
            prepared.without.copy_to(headers)
        };
        *changing.next()? = retry_after(seconds);
        Some(response)
    }
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
