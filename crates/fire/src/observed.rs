//! The backend of a limiter, with its answers recorded.

use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::Request;
use axum::http::HeaderValue;
use axum::middleware::Next;
use axum::response::Response;
use tollgate_core::{Admin, Answer, Backend, Call, Decision, Settlement};
use tollgate_redis::RedisBackend;

use crate::attempt::{Asking, Outcome};
use crate::flaw::Flaw;
use crate::terms::Terms;
use crate::wall::now_us;

/// The header in which the server tells its backend's decision, so that the checker has all numbers and not only those of the
/// answer.
pub(crate) const DECIDED: &str = "x-fire-decided";

/// The backend's last answer, and the times of the question and of the answer.
pub(crate) type Slot = Arc<Mutex<Option<(Outcome, Asking)>>>;

tokio::task_local! {
    /// The place where the backend's answers to the asking task are recorded.
    pub(crate) static SLOT: Slot;
}

/// The backend of a limiter, with its answers recorded: a limiter tells neither the time of a decision nor the reason of a
/// failure.
#[derive(Debug)]
pub(crate) struct ObservedBackend(RedisBackend, Option<Flaw>);

impl ObservedBackend {
    pub(crate) fn of(backend: &RedisBackend, flaw: Option<Flaw>) -> Self {
        Self(backend.clone(), flaw)
    }
}

impl Backend for ObservedBackend {
    /// Records the answer to a question that is asked now, for the task that asks it.
    fn decide(&self, call: Call<'_>) -> Answer<Decision> {
        let asked_us = now_us();
        let answer = self.0.decide(call);
        let Ok(slot) = SLOT.try_with(Arc::clone) else {
            return answer;
        };
        let terms = Terms::of_charges(call.charges);
        Answer::later(async move {
            let answer = answer.await;
            let asking = Asking {
                asked_us,
                answered_us: now_us(),
            };
            *slot.lock().unwrap_or_else(PoisonError::into_inner) =
                Some((Outcome::of(&answer).by(&terms), asking));
            answer
        })
    }

    fn settle(&self, settlement: Settlement<'_>) {
        let is_kept = self.1 == Some(Flaw::KeepsTurns);
        if !(is_kept && matches!(settlement, Settlement::Refund(..))) {
            self.0.settle(settlement);
        }
    }

    fn admin(&self) -> &dyn Admin {
        self.0.admin()
    }
}

/// Tells the backend's decision beside the server's answer.
pub(crate) async fn observe(request: Request, next: Next) -> Response {
    let slot = Slot::default();
    let mut response = SLOT.scope(Arc::clone(&slot), next.run(request)).await;
    let outcome = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
    let text = outcome.and_then(|outcome| serde_json::to_vec(&outcome).ok());
    if let Some(value) = text.and_then(|text| HeaderValue::try_from(text).ok()) {
        response.headers_mut().insert(DECIDED, value);
    }
    response
}
