//! One request on its way, with its caller and its deadline.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tollgate_core::{BackendError, Charge, Decision, FailureKind};

use crate::stats::Counters;
use crate::sync::Instant;
use crate::wire::{Outcome, OwnedCharge, Request, Work};

/// The place for credits of decisions that no caller received. A job knows it instead of the connections that carry credits.
pub(crate) trait CreditSink: fmt::Debug + Send + Sync {
    /// Sends a credit, without waiting for its end.
    fn refund(self: Arc<Self>, credit: Request);
}

/// The route of a job in a cluster. Jobs of one route may share a call. Elsewhere there is one route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Route {
    pub(crate) slot: u16,
    /// True if the slot is migrating to the node, which must be told that we know (ASKING).
    pub(crate) asking: bool,
    /// True if the job travels alone: while a slot migrates, the keys of one call may be in two places.
    pub(crate) alone: bool,
}

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) request: Arc<Request>,
    pub(crate) route: Route,
    /// The number of times that a node has redirected it.
    pub(crate) sent_on: u32,
    /// No caller waits for credits and debits.
    waiter: Option<oneshot::Sender<Delivery>>,
    /// The deadline. A job without a caller is not tried again after it.
    pub(crate) deadline: Instant,
    /// The counter of its failure, if there is no caller to tell.
    counters: Option<Arc<Counters>>,
    answered: bool,
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
        };
        (job, answer)
    }

    /// The time for which a job without a caller is tried. A node that went away is back or replaced by then.
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
        }
    }

    /// Says whether its caller has gone away: an unsent job then need not be sent.
    pub(crate) fn is_withdrawn(&self) -> bool {
        self.waiter.as_ref().is_some_and(oneshot::Sender::is_closed)
    }

    /// Says whether a deadline matters to it, because a caller waits and has no answer.
    pub(crate) fn is_pending(&self) -> bool {
        self.waiter.is_some()
    }

    /// Says whether it has been answered, so that no work is left for it.
    pub(crate) fn is_over(&self) -> bool {
        self.answered || self.is_withdrawn()
    }

    /// Answers. A decision for a caller that is gone is given back.
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

    /// Tells the caller that there is no decision, as far as is known. The job keeps its request, in case the answer comes
    /// after all.
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

/// A delivery is an outcome on its way to the waiting task. Dropped unread, wherever it was by then, it gives back the charges
/// that it says were taken.
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
        let charges = request.work.charges().unwrap_or_default();
        let charges: Vec<_> = charges.iter().map(OwnedCharge::borrow).collect();
        for (_, credit) in credits(&decision, &charges, &request.names) {
            Arc::clone(&undo).refund(credit);
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

/// The credits that undo a decision about these charges with these names, each with the position of its charge.
pub(crate) fn credits<'a>(
    decision: &'a Decision,
    charges: &'a [Charge<'a>],
    names: &'a [Vec<u8>],
) -> impl Iterator<Item = (usize, Request)> + 'a {
    let taken = decision.verdicts().iter().zip(charges).enumerate();
    // A receipt for each budget that was charged, in this order.
    let positions = taken
        .filter(|(_, (verdict, charge))| verdict.taken() > 0 && !charge.quota.is_once())
        .map(|(position, _)| position);
    let receipts = decision.receipts(charges);
    positions.zip(receipts).map(|(position, receipt)| {
        let n = receipt.cost();
        let id = receipt.id_to_close(n).and_then(|id| {
            let is_id = |charge: &Charge<'_>| charge.scope == id.scope() && charge.key == id.key();
            names.get(charges.iter().position(is_id)?).cloned()
        });
        let credit = Request::credit(receipt, n, names[position].clone(), id);
        (position, credit)
    })
}
