//! One request on its way: who waits for it, and until when.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tollgate_core::{BackendError, Charge, Decision, FailureKind};

use crate::stats::Counters;
use crate::sync::Instant;
use crate::wire::{Outcome, Request, Work};

/// The place to which credits go for decisions that reached nobody. A job is answered with one, and so does not know the connections
/// that carry them.
pub(crate) trait CreditSink: fmt::Debug + Send + Sync {
    /// Sends a credit, without waiting for its end.
    fn credit(self: Arc<Self>, credit: Request);
}

/// Where in a cluster a job belongs. Jobs of one route may share a call; elsewhere there is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Route {
    pub(crate) slot: u16,
    /// Whether the slot is on its way to the node, which must be told that we know.
    pub(crate) asking: bool,
    /// Whether it goes by itself: while a slot moves, the keys of one call may be in two places.
    pub(crate) alone: bool,
}

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) request: Arc<Request>,
    pub(crate) route: Route,
    /// How often a node has sent it on.
    pub(crate) sent_on: u32,
    /// Nobody waits for credits and debits.
    waiter: Option<oneshot::Sender<Delivery>>,
    /// Until when somebody waits. What nobody waits for is not tried again after it.
    pub(crate) deadline: Instant,
    /// Where it is counted if it fails and nobody is told.
    counters: Option<Arc<Counters>>,
    answered: bool,
    /// Where it stands among all that came to its queue.
    pub(crate) place: u64,
}

impl Job {
    pub(crate) fn awaited(
        request: impl Into<Arc<Request>>,
        deadline: Instant,
    ) -> (Self, oneshot::Receiver<Delivery>) {
        let (waiter, answer) = oneshot::channel();
        let job = Self {
            request: request.into(),
            route: Route::default(),
            sent_on: 0,
            waiter: Some(waiter),
            deadline,
            counters: None,
            answered: false,
            place: 0,
        };
        (job, answer)
    }

    /// What nobody waits for is tried for this long, since who went away will be back or replaced by then.
    pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

    pub(crate) fn unattended(request: Request, counters: &Arc<Counters>) -> Self {
        Self {
            request: Arc::new(request),
            route: Route::default(),
            sent_on: 0,
            waiter: None,
            deadline: Instant::now() + Self::PATIENCE,
            counters: Some(Arc::clone(counters)),
            answered: false,
            place: 0,
        }
    }

    /// Whether somebody waited and does no more: not yet sent, it need not be.
    pub(crate) fn is_withdrawn(&self) -> bool {
        self.waiter.as_ref().is_some_and(oneshot::Sender::is_closed)
    }

    /// Whether a deadline matters to it: somebody waits and has no answer.
    pub(crate) fn is_pending(&self) -> bool {
        self.waiter.is_some()
    }

    /// Whether it has been answered: nothing is to be done for it any more.
    pub(crate) fn is_over(&self) -> bool {
        self.answered || self.is_withdrawn()
    }

    /// Answers. What was decided for somebody who is gone is given back that way.
    pub(crate) fn answer(&mut self, outcome: Outcome, undo: Arc<dyn CreditSink>) {
        if outcome.is_err() {
            self.count_as_lost();
        }
        self.answered = true;
        let delivery = Delivery {
            outcome: Some(outcome),
            undo: Some((undo, Arc::clone(&self.request))),
        };
        match self.waiter.take() {
            Some(waiter) => drop(waiter.send(delivery)),
            None => drop(delivery),
        }
    }

    fn count_as_lost(&mut self) {
        if let (Some(counters), Work::Credit(..)) = (self.counters.take(), &self.request.work) {
            counters.lost();
        }
    }

    pub(crate) fn fail(&mut self, kind: FailureKind, detail: &str) {
        self.refuse(BackendError::new(kind, detail));
    }

    /// Says that nothing was decided, as far as anybody knows. The request stays, should the answer come after all.
    pub(crate) fn refuse(&mut self, error: BackendError) {
        self.count_as_lost();
        self.answered = true;
        let delivery = Delivery {
            outcome: Some(Err(error)),
            undo: None,
        };
        if let Some(waiter) = self.waiter.take() {
            drop(waiter.send(delivery));
        }
    }
}

/// A delivery is an outcome on its way to the task that waits. One that is dropped before it was read, wherever it was by then,
/// gives back what it says was taken.
#[derive(Debug)]
pub(crate) struct Delivery {
    outcome: Option<Outcome>,
    undo: Option<(Arc<dyn CreditSink>, Arc<Request>)>,
}

impl Delivery {
    pub(crate) fn read(mut self) -> Option<Outcome> {
        self.outcome.take()
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        let (Some(Ok(Some(decision))), Some((undo, request))) =
            (self.outcome.take(), self.undo.take())
        else {
            return;
        };
        for credit in credits(&decision, &request) {
            Arc::clone(&undo).credit(credit);
        }
    }
}

/// The outcome that came, or the news that none will.
pub(crate) fn outcome_of(delivery: Result<Delivery, oneshot::error::RecvError>) -> Outcome {
    let outcome = delivery.ok().and_then(Delivery::read);
    outcome.unwrap_or_else(|| Err(gone()))
}

pub(crate) fn gone() -> BackendError {
    BackendError::new(
        FailureKind::Unreachable,
        "the runtime of the backend has ended",
    )
}

/// What undoes a decision.
fn credits(decision: &Decision, request: &Request) -> Vec<Request> {
    let Work::Decide(charges) = &request.work else {
        return Vec::new();
    };
    let borrowed: Vec<Charge<'_>> = charges.iter().map(|charge| charge.borrow()).collect();
    let taken = request.names.iter().zip(decision.verdicts());
    // A receipt for each verdict that took something, in this order.
    let names = taken
        .filter(|(_, verdict)| verdict.taken() > 0)
        .map(|(name, _)| name);
    decision
        .receipts(&borrowed)
        .zip(names)
        .map(|(receipt, name)| {
            let n = receipt.cost();
            Request {
                work: Work::Credit(receipt, n),
                names: [name.clone()].into_iter().collect(),
            }
        })
        .collect()
}
