//! The backend of a limiter, with its answers recorded.

use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::Request;
use axum::http::HeaderValue;
use axum::middleware::Next;
use axum::response::Response;
use tollgate_core::{
    Answer, Backend, BanList, Capabilities, Charge, Decision, Figure, Key, Receipt, Scope,
};
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

    /// Records the answer to a question that is asked now, for the task that asks it.
    fn observed(
        &self,
        charges: &[Charge<'_>],
        ask: impl FnOnce(&RedisBackend) -> Answer<Decision>,
    ) -> Answer<Decision> {
        let asked_us = now_us();
        let answer = ask(&self.0);
        let Ok(slot) = SLOT.try_with(Arc::clone) else {
            return answer;
        };
        let terms = Terms::of_charges(charges);
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
}

impl Backend for ObservedBackend {
    fn decide(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
        self.observed(charges, |backend| backend.decide(charges))
    }

    fn decide_up_to(&self, charges: &[Charge<'_>], at_least: u64) -> Answer<Decision> {
        self.observed(charges, |backend| backend.decide_up_to(charges, at_least))
    }

    fn credit(&self, receipt: Receipt, n: u64) {
        if self.1 != Some(Flaw::KeepsTurns) {
            self.0.credit(receipt, n);
        }
    }

    fn debit(&self, receipt: &Receipt, n: u64) {
        self.0.debit(receipt, n);
    }

    fn reset(&self, scope: Scope, key: &Key) -> Answer<()> {
        self.0.reset(scope, key)
    }

    fn place(&self) -> Option<String> {
        self.0.place()
    }

    fn figures(&self, tell: &mut dyn FnMut(Figure, u64)) {
        self.0.figures(tell);
    }

    fn assume(&self, charge: &Charge<'_>) -> bool {
        self.0.assume(charge)
    }

    fn bans(&self, scope: Scope) -> Answer<BanList> {
        self.0.bans(scope)
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
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
