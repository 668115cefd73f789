//! The settings of a layer for its answers.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use tollgate_limiter::transport::{Dialect, Report};
use tollgate_limiter::{RequestView, Share};

use super::expose::{expose, names};
use super::fields::{has_fields, state, write_fields};
use super::grpc::GrpcAnswers;
use super::problem::ProblemJson;
use super::retry_after::{retry_after, told_seconds};
use super::texts::{NO_STORE, texts};
use super::{Jitter, RateLimitHeaders, Refusal, RefusalReason, Respond};

/// The form of the answers of one layer.
#[derive(Clone)]
pub struct Answers {
    /// `None` stands for [`ProblemJson`].
    respond: Option<Arc<dyn Respond>>,
    headers: Option<RateLimitHeaders>,
    /// True if the fields are the default ones.
    has_usual_headers: bool,
    jitter: Option<Jitter>,
    grpc: GrpcAnswers,
    /// The challenge for callers without an identity.
    challenge: Option<HeaderValue>,
    exposes: bool,
    /// The names of the headers that are exposed to pages in browsers, if any are.
    exposed: Option<Arc<[&'static str]>>,
}

/// The jitter for callers that are refused under pressure, if the layer has none: without it all would come back at one moment.
const SHED: Jitter = Jitter::share(Share::WHOLE);

/// True if a response of this status shows the state of budgets. A redirected client should not hold back because of a budget
/// here.
#[inline]
pub(crate) fn has_fields_on(code: StatusCode) -> bool {
    !code.is_redirection() || code == StatusCode::NOT_MODIFIED
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            respond: None,
            headers: Some(RateLimitHeaders::default()),
            has_usual_headers: true,
            jitter: None,
            grpc: GrpcAnswers::new(),
            challenge: None,
            exposes: false,
            exposed: None,
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
        self.has_usual_headers = self.headers.as_ref() == Some(&RateLimitHeaders::default());
        let forms = self
            .headers
            .as_ref()
            .map_or(&[][..], RateLimitHeaders::forms);
        self.exposed = self.exposes.then(|| names(forms).into());
    }

    /// True if any response shows the state of budgets.
    #[inline]
    pub(crate) fn have_headers(&self) -> bool {
        self.headers.is_some()
    }

    /// True if the response to this request shows the state of budgets.
    #[inline]
    pub(crate) fn write_on<B>(&self, request: &Request<B>) -> bool {
        let Some(headers) = &self.headers else {
            return false;
        };
        headers.over_grpc
            || !may_be_grpc(request)
            || Dialect::of(&RequestView::of(request)).is_none()
    }

    /// Writes the state of budgets on a response.
    #[inline]
    pub fn write(&self, headers: &mut HeaderMap, report: Report<'_>) {
        if let Some(chosen) = &self.headers
            && write_fields(headers, report, chosen)
        {
            self.expose_on(headers);
        }
    }

    /// The whole answer to a refused request, in the protocol that the caller speaks.
    pub fn refuse(
        &self,
        reason: RefusalReason<'_>,
        report: Report<'_>,
        request: RequestView<'_>,
        writes: bool,
    ) -> Response<Bytes> {
        if writes && let Some(response) = self.usual(report, &request) {
            return response;
        }
        let jitter = match reason {
            RefusalReason::Shed(_) => self.jitter.or(Some(SHED)),
            _ => self.jitter,
        };
        let jitter = jitter.map(Jitter::draw);
        let refusal = Refusal::new(reason, report, request, jitter)
            .asking_for_credentials(self.challenge.is_some());
        if let Some(dialect) = Dialect::of(&request) {
            let asks = self.challenge.is_some() || self.grpc.asks_for_credentials();
            let refusal = refusal.asking_for_credentials(asks);
            return self.complete(self.grpc.answer(dialect, &refusal), &refusal, writes);
        }
        let response = match &self.respond {
            Some(respond) => respond.respond(&refusal),
            None => ProblemJson.respond(&refusal),
        };
        self.complete(response, &refusal, writes)
    }

    /// Adds the headers of every refusal, unless they are there.
    fn complete(
        &self,
        mut response: Response<Bytes>,
        refusal: &Refusal<'_>,
        writes: bool,
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
        // An answer of the user's that tells the budgets itself gets no fields of ours.
        if writes && !self.says_so_already(headers) {
            self.write(headers, refusal.report());
        }
        self.expose_on(headers);
        response
    }

    /// The answer for one exceeded quota, if all settings are the defaults.
    fn usual(&self, report: Report<'_>, request: &RequestView<'_>) -> Option<Response<Bytes>> {
        if self.respond.is_some() || self.exposed.is_some() || !self.has_usual_headers {
            return None;
        }
        let sole = report.sole()?;
        let wait = sole.verdict().retry_after()?;
        if Dialect::of(request).is_some() {
            return None;
        }
        let told = self
            .jitter
            .map_or(wait, |jitter| jitter.draw().lengthen(wait));
        let seconds = told_seconds(told);
        let texts = texts(sole.label());
        let mut response = texts.refusal.clone();
        // A map keeps the order in which it was filled, and this one was filled with these two first.
        let mut numbers = response.headers_mut().values_mut();
        if let (Some(fields), Some(wait)) = (numbers.next(), numbers.next()) {
            *fields = state(texts, sole, Some(seconds));
            *wait = retry_after(seconds);
        }
        Some(response)
    }

    fn says_so_already(&self, headers: &HeaderMap) -> bool {
        if self.respond.is_none() {
            return false;
        }
        let forms = self
            .headers
            .as_ref()
            .map_or(&[][..], RateLimitHeaders::forms);
        forms.iter().any(|form| has_fields(headers, *form))
    }

    #[inline]
    fn expose_on(&self, headers: &mut HeaderMap) {
        if let Some(names) = &self.exposed {
            expose(headers, names);
        }
    }
}

/// True if the content type has to be read. Most requests are a GET over HTTP/1 and no gRPC calls: gRPC needs HTTP/2, and
/// gRPC-Web is a POST.
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
