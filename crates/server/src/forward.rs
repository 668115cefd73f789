//! Forward auth: a gateway asks over HTTP about each request before it passes it on, and goes on if the answer is 2xx.
//!
//! The question has the fields of the original request, and states its method, target and host in fields of its own. It is made
//! into that request again and goes through the layer of the library, so that policies, keys and answers are those of a service.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::extract::{ConnectInfo, State};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use tollgate::{PeerAddr, RateLimitLayer, RateLimitService};
use tower::{Layer, ServiceExt};

use crate::counts::Tally;
use crate::listener::Asker;
use crate::live::Live;
use crate::original::{Flaw, ForwardAuth};

/// The status that the caller is to get, for a gateway that passes on no other than 401 and 403.
const LIMIT_STATUS: HeaderName = HeaderName::from_static("x-limit-status");

/// A router that answers every question.
pub(crate) fn router(live: Arc<Live>) -> Router {
    let limited = RateLimitLayer::new(&live.limiter).layer(Passed);
    let state = Answerer { live, limited };
    Router::new().fallback(answer).with_state(state)
}

#[derive(Clone)]
struct Answerer {
    live: Arc<Live>,
    limited: RateLimitService<Passed>,
}

/// The service behind the layer: a request that reaches it may pass.
#[derive(Clone, Copy, Debug)]
struct Passed;

impl tower::Service<Request<()>> for Passed {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        let mut answer = Response::new(Full::default());
        *answer.status_mut() = StatusCode::NO_CONTENT;
        answer.extensions_mut().insert(Self);
        std::future::ready(Ok(answer))
    }
}

async fn answer(
    State(auth): State<Answerer>,
    ConnectInfo(Asker(gateway)): ConnectInfo<Asker>,
    question: axum::extract::Request,
) -> Response<Full<Bytes>> {
    let counts = &auth.live.counts;
    let gateways = auth.live.gateways.load_full();
    let Some(stated) = &gateways.forward_auth else {
        return told("the configuration has no [forward_auth]");
    };
    let mut request = match stated.original(question.into_parts().0) {
        Ok(request) => request,
        Err(Flaw::Unstated(reason)) => {
            if counts.add(Tally::Invalid) {
                tracing::warn!(
                    reason,
                    "a gateway asks about a request that it does not state"
                );
            }
            return told(&reason);
        }
        Err(Flaw::Ambiguous(reason)) => {
            counts.add(Tally::Refused);
            return stated.understood(told(&reason));
        }
    };
    request.extensions_mut().insert(PeerAddr(gateway));
    let Ok(answer) = auth.limited.oneshot(request).await;
    if answer.extensions().get::<Passed>().is_some() {
        counts.add(Tally::Passed);
        return answer;
    }
    let status = answer.status();
    let is_undecided =
        status == StatusCode::SERVICE_UNAVAILABLE && !auth.live.limiter.is_shedding();
    counts.add(if is_undecided {
        Tally::Undecided
    } else {
        Tally::Refused
    });
    stated.understood(answer)
}

impl ForwardAuth {
    /// A refusal in the form that the gateway understands.
    fn understood(&self, mut refusal: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
        if !self.passes_status_on() {
            let status = refusal.status().as_str().parse();
            let headers = refusal.headers_mut();
            headers.insert(LIMIT_STATUS, status.unwrap_or(FORBIDDEN));
            *refusal.status_mut() = StatusCode::FORBIDDEN;
        }
        refusal
    }
}

const FORBIDDEN: HeaderValue = HeaderValue::from_static("403");

/// The answer to a question that makes no sense. No gateway lets a request pass by it.
fn told(reason: &str) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::from(format!("{reason}\n")));
    *answer.status_mut() = StatusCode::BAD_REQUEST;
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, text);
    answer
}
