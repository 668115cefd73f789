//! `tollgate explain`: says which policies cover a request and whose budgets it spends, as the layer itself finds out.

mod json;
mod request;
mod text;

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Collected, Full};
use tollgate::key::KeyMissing;
use tollgate::{Backend, Cause, Event, Key, MemoryBackend, Policy, RateLimitLayer};
use tollgate_limiter::transport::Unmet;
use tower_layer::Layer;
use tower_service::Service;

use crate::arguments::ExplainArguments;
use crate::failure::Failure;
use crate::limits::Limits;
use crate::recorder::{Question, Record, Recorder, lock};
use crate::redis::runtime;

/// The answer to a request, and how it came about.
struct Explanation {
    method: Method,
    limits: Limits,
    policies: Vec<Account>,
    record: Record,
    /// Nothing, if the request would wait for its turn.
    answer: Option<Response<Bytes>>,
}

/// The fate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Passes,
    Refused,
    Waits,
}

impl Explanation {
    fn outcome(&self) -> Outcome {
        match &self.answer {
            None => Outcome::Waits,
            // The layer answered itself. gRPC's refusals have a status of success.
            Some(answer)
                if !answer.status().is_success()
                    || answer.headers().contains_key("grpc-status")
                    || !answer.body().is_empty() =>
            {
                Outcome::Refused
            }
            Some(_) => Outcome::Passes,
        }
    }
}

/// The part of one policy.
struct Account {
    policy: Arc<Policy>,
    unmet: Option<Unmet>,
    missing: Option<KeyMissing>,
    untouched: Option<Untouched>,
}

/// A decision without a question to the backend.
#[derive(Clone, Debug)]
struct Untouched {
    policy: String,
    key: Option<Key>,
    cause: Cause,
}

pub(crate) fn run(asked: &ExplainArguments) -> Result<String, Failure> {
    let request = request::of(asked)?;
    let (runtime, inner, only_probes): (_, Arc<dyn Backend>, _) = if asked.redis.are_given() {
        let (runtime, backend) = asked.redis.connect()?;
        (runtime, Arc::new(backend), true)
    } else {
        (runtime()?, Arc::new(MemoryBackend::new()), false)
    };
    let record = Arc::new(Mutex::new(Record::default()));
    let recorder = Recorder {
        inner,
        only_probes,
        record: Arc::clone(&record),
    };
    let untouched = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&untouched);
    let hear = move |event: &Event<'_>| {
        // A request that would wait is not waited for, and leaves.
        if event.verdict().is_none() && event.cause() != Cause::Left {
            let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
            heard.push(Untouched {
                policy: event.policy().to_owned(),
                key: event.key().cloned(),
                cause: event.cause(),
            });
        }
    };
    let limits = Limits::read(
        &asked.limits,
        |_| {},
        |builder| builder.backend(recorder).observe(hear),
    );
    let limits = limits.map_err(Failure::invalid)?;
    let limiter = limits.limiter();
    let view = limiter.view(&request);
    let accounts = limiter.unmet(&view).into_iter().map(|(policy, unmet)| {
        let missing = limiter.missing_key(&policy, &view);
        Account {
            policy,
            unmet,
            missing,
            untouched: None,
        }
    });
    let mut policies: Vec<_> = accounts.collect();

    let method = request.method().clone();
    let layer = RateLimitLayer::new(limiter);
    let answer = runtime.block_on(answer(layer.layer(Served), request.map(drop), &record));

    let heard = untouched.lock().unwrap_or_else(PoisonError::into_inner);
    for account in &mut policies {
        let mut heard = heard.iter();
        let of_policy = heard.find(|heard| heard.policy == account.policy.name());
        account.untouched = of_policy.cloned();
    }
    let mut record = std::mem::take(&mut *lock(&record));
    if let Some(failure) = record.failure.take() {
        return Err(failure);
    }
    let explanation = Explanation {
        method,
        limits,
        policies,
        record,
        answer,
    };
    Ok(match asked.json {
        true => json::report(asked, &explanation),
        false => text::report(asked, &explanation),
    })
}

/// The answer of the layer. A request that would wait for its turn is not waited for.
async fn answer(
    mut layered: impl Service<Request<()>, Response = Response<Full<Bytes>>, Error = Infallible>,
    request: Request<()>,
    record: &Mutex<Record>,
) -> Option<Response<Bytes>> {
    let mut called = std::pin::pin!(layered.call(request));
    let response = loop {
        match tokio::time::timeout(Duration::from_millis(20), &mut called).await {
            Ok(Ok(response)) => break response,
            Ok(Err(never)) => match never {},
            Err(_still_waiting) => {
                if lock(record).questions.iter().any(Question::waits) {
                    return None;
                }
            }
        }
    };
    let (head, body) = response.into_parts();
    let body = body.collect().await;
    let body = body.map_or_else(|never| match never {}, Collected::to_bytes);
    Some(Response::from_parts(head, body))
}

/// The service behind the layer.
#[derive(Clone, Debug)]
struct Served;

impl Service<Request<()>> for Served {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: Request<()>) -> Self::Future {
        ready(Ok(Response::new(Full::default())))
    }
}
