//! The limiter of each process whose policy has a ban, with a service behind it that refuses some of its callers.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use tollgate::{CheckError, Limiter, RateLimitLayer};
use tollgate_redis::RedisBackend;
use tower::ServiceExt;

use crate::Result;
use crate::attempt::Outcome;
use crate::flaw::Flaw;
use crate::knock::Guarded;
use crate::observed::{ObservedBackend, SLOT, Slot};
use crate::operator::OperatorAct;
use crate::population::Population;

/// The way in which requests of callers that may be banned reach a service, and the desk of its operator.
#[derive(Debug)]
pub(crate) struct Gate {
    limiter: Limiter,
    service: Router,
    population: Population,
    flaw: Option<Flaw>,
}

impl Gate {
    pub(crate) fn of(
        backend: &RedisBackend,
        population: &Population,
        flaw: Option<Flaw>,
    ) -> Result<Self> {
        let limiter = Limiter::builder()
            .policy(Guarded::policy(population, flaw))
            .backend(ObservedBackend::of(backend, flaw))
            .build()?;
        let service = Router::new()
            .route("/", get(sign_in))
            .layer(RateLimitLayer::new(&limiter));
        Ok(Self {
            limiter,
            service,
            population: population.clone(),
            flaw,
        })
    }

    /// Knocks, and returns the backend's answer and the status of the service's.
    pub(crate) async fn knock(
        &self,
        caller: u32,
        is_important: bool,
        fails: bool,
    ) -> Result<(Outcome, u16)> {
        let mut request = Request::get("/").header(Guarded::CALLER, caller);
        if is_important {
            request = request.header(Guarded::CLASS, Guarded::IMPORTANT);
        }
        if fails {
            request = request.header(Guarded::FAILS, "1");
        }
        let request = request.body(Body::empty())?;
        let slot = Slot::default();
        let answer = self.service.clone().oneshot(request);
        let answer = SLOT.scope(Arc::clone(&slot), answer).await?;
        Ok((answer_in(&slot), answer.status().as_u16()))
    }

    /// Does what an operator does, and returns the backend's answer.
    pub(crate) async fn operate(&self, caller: u32, act: OperatorAct) -> Outcome {
        let key = self.population.key(caller);
        match act {
            OperatorAct::Ban { lasting_us } => {
                let lasting_us = match self.flaw {
                    Some(Flaw::BansForHalf) => lasting_us / 2,
                    _ => lasting_us,
                };
                let slot = Slot::default();
                let lasting = Duration::from_micros(lasting_us);
                let ban = self.limiter.ban(Guarded::POLICY, key, lasting);
                match SLOT.scope(Arc::clone(&slot), ban).await {
                    Ok(()) => answer_in(&slot),
                    Err(error) => failure(&error),
                }
            }
            OperatorAct::Unban if self.flaw == Some(Flaw::PardonsNobody) => Outcome::Reset,
            OperatorAct::Unban => match self.limiter.unban(Guarded::POLICY, key).await {
                Ok(()) => Outcome::Reset,
                Err(error) => failure(&error),
            },
        }
    }
}

/// The service refuses requests that say so.
async fn sign_in(headers: HeaderMap) -> StatusCode {
    if headers.contains_key(Guarded::FAILS) {
        StatusCode::UNAUTHORIZED
    } else {
        StatusCode::OK
    }
}

/// The backend's answer to the task.
fn answer_in(slot: &Slot) -> Outcome {
    let answer = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
    answer.map_or_else(
        || Outcome::Failed(Outcome::UNASKED.to_owned()),
        |(outcome, _)| outcome,
    )
}

fn failure(error: &CheckError) -> Outcome {
    match error {
        CheckError::Unavailable(error) => Outcome::of_error(error),
        _ => Outcome::Failed(error.to_string()),
    }
}
