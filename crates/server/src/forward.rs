//! Forward auth: a gateway asks over HTTP about each request before it passes it on, and goes on if the answer is 2xx.
//!
//! The question has the fields of the original request, and states its method, target and host in fields of its own. It is made
//! into that request again and goes through the layer of the library, so that policies, keys and answers are those of a service.

use std::convert::Infallible;
use std::net::SocketAddr;
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
use crate::live::Live;

/// The status that the caller is to get, for a gateway that passes on no other than 401 and 403.
const LIMIT_STATUS: HeaderName = HeaderName::from_static("x-limit-status");

/// A router that answers every question.
pub(crate) fn router(live: Arc<Live>) -> Router {
    let limited = RateLimitLayer::new(&live.limiter).layer(Passed);
    let state = ForwardAuth { live, limited };
    Router::new().fallback(answer).with_state(state)
}

#[derive(Clone)]
struct ForwardAuth {
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
    State(auth): State<ForwardAuth>,
    ConnectInfo(gateway): ConnectInfo<SocketAddr>,
    question: axum::extract::Request,
) -> Response<Full<Bytes>> {
    let counts = &auth.live.counts;
    let Some(form) = auth.live.gateways.load().forward_auth else {
        return senseless("the configuration has no [forward_auth]");
    };
    let mut request = match form.original(question.into_parts().0) {
        Ok(request) => request,
        Err(reason) => {
            if counts.add(Tally::Invalid) {
                tracing::warn!(
                    reason,
                    "a gateway asks about a request that it does not state"
                );
            }
            return senseless(&reason);
        }
    };
    request.extensions_mut().insert(PeerAddr(gateway));
    let Ok(mut answer) = auth.limited.oneshot(request).await;
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
    if !form.passes_status_on() {
        answer
            .headers_mut()
            .insert(LIMIT_STATUS, status.as_str().parse().unwrap_or(FORBIDDEN));
        *answer.status_mut() = StatusCode::FORBIDDEN;
    }
    answer
}

const FORBIDDEN: HeaderValue = HeaderValue::from_static("403");

/// The answer to a question that makes no sense. No gateway lets a request pass by it.
fn senseless(reason: &str) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::from(format!("{reason}\n")));
    *answer.status_mut() = StatusCode::BAD_REQUEST;
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, text);
    answer
}
