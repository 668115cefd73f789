//! A saga over the slots of a cluster: a request whose keys live in several of them, so that no script sees them all.
//!
//! The slots are charged one by one, and given back if a later one denies or fails, or if the caller goes away. Afterwards the
//! saga asks again for the figures of the returned budgets, so that the caller is told about them as if the request had not
//! come. That is not exact if one request names one budget in several modes: a shadow was decided beside charges that were
//! given back later, and enforced charges of a request that is already denied are probes like others.

use std::sync::Arc;

use tollgate_core::{BackendError, Charge, Decision, Mode, Receipt, Timestamp, Verdict};

use crate::cluster::Cluster;
use crate::job::gone;
use crate::name::Name;
use crate::slot;
use crate::sync::Instant;
use crate::wire::{OwnedCharge, Request, Work};

/// Says whether a request needs more than one slot.
pub(crate) fn is_needed(request: &Request) -> bool {
    let mut slots = request.names.iter().map(|name| slot::of(name));
    let first = slots.next();
    slots.any(|slot| Some(slot) != first)
}

/// Decides over all slots, within one deadline.
pub(crate) async fn decide(
    cluster: Arc<Cluster>,
    request: Request,
) -> Result<Decision, BackendError> {
    let Work::Decide(charges) = &request.work else {
        return Err(gone());
    };
    let saga = Saga {
        charges: charges.iter().map(OwnedCharge::borrow).collect(),
        request: &request,
        deadline: Instant::now() + cluster.limits.deadline,
        cluster: &cluster,
    };
    let mut taken = Compensation {
        receipts: Vec::new(),
        cluster: Arc::clone(&cluster),
    };
    let unknown = |charge: &Charge<'_>| Verdict::unknown(charge.quota.capacity());
    let mut verdicts: Vec<_> = (saga.charges.iter())
        .map(|charge| (Timestamp::default(), unknown(charge)))
        .collect();
    let parts = saga.parts();
    let mut denied_by = None;
    for (number, part) in parts.iter().enumerate() {
        let decision = match saga.ask(part, denied_by.is_some()).await {
            Ok(decision) => decision,
            // It stays a denial, whatever else could not be found out.
            Err(_unknown) if denied_by.is_some() => continue,
            Err(error) => return Err(error),
        };
        saga.note(part, &decision, &mut verdicts, &mut taken);
        if denied_by.is_none() && !decision.is_admitted() {
            denied_by = Some(number);
        }
    }

    if let Some(denied_by) = denied_by {
        taken.give_back_enforced().await;
        for part in parts.iter().take(denied_by) {
            let probed: Vec<_> = (part.iter().copied())
                .filter(|&index| saga.charges[index].mode == Mode::Enforce)
                .collect();
            let asked = saga.ask(&probed, true).await.ok();
            for (place, &index) in probed.iter().enumerate() {
                let verdict = asked
                    .as_ref()
                    .and_then(|decision| Some((decision.at(), *decision.verdicts().get(place)?)));
                let (at, _) = verdicts[index];
                verdicts[index] = verdict.unwrap_or((at, unknown(&saga.charges[index])));
            }
        }
    }
    taken.keep();
    Ok(Decision::apart(denied_by.is_none(), verdicts))
}

/// A saga: the request, and its deadline.
struct Saga<'a> {
    charges: Vec<Charge<'a>>,
    request: &'a Request,
    deadline: Instant,
    cluster: &'a Arc<Cluster>,
}

impl Saga<'_> {
    /// Positions of charges, grouped by slot, in their order.
    fn parts(&self) -> Vec<Vec<usize>> {
        let mut parts: Vec<(u16, Vec<usize>)> = Vec::new();
        for (index, name) in self.request.names.iter().enumerate() {
            let slot = slot::of(name);
            match parts.iter_mut().find(|(of, _)| *of == slot) {
                Some((_, part)) => part.push(index),
                None => parts.push((slot, vec![index])),
            }
        }
        parts.into_iter().map(|(_slot, part)| part).collect()
    }

    /// Asks for some charges. Once the request is denied, no further enforced charge is taken.
    async fn ask(&self, part: &[usize], denied: bool) -> Result<Decision, BackendError> {
        let charges: Vec<_> = part
            .iter()
            .map(|&index| {
                let charge = &self.charges[index];
                let mode = match charge.mode {
                    Mode::Enforce if denied => Mode::Probe,
                    mode => mode,
                };
                Charge { mode, ..*charge }
            })
            .collect();
        let request = Request {
            work: Work::decide(&charges),
            names: part
                .iter()
                .map(|&index| self.request.names[index].clone())
                .collect(),
            owed: None,
        };
        let said = self.cluster.ask(request, self.deadline).await?;
        said.ok_or_else(gone)
    }

    fn note(
        &self,
        part: &[usize],
        decision: &Decision,
        verdicts: &mut [(Timestamp, Verdict)],
        taken: &mut Compensation,
    ) {
        let charges: Vec<_> = part.iter().map(|&index| self.charges[index]).collect();
        let mut receipts = decision.receipts(&charges);
        for (&index, verdict) in part.iter().zip(decision.verdicts()) {
            verdicts[index] = (decision.at(), *verdict);
            if verdict.taken() > 0
                && let Some(receipt) = receipts.next()
            {
                let name = self.request.names[index].clone();
                taken
                    .receipts
                    .push((self.charges[index].mode, name, receipt));
            }
        }
    }
}

/// A compensation gives back the charges of the saga, unless they are kept.
struct Compensation {
    receipts: Vec<(Mode, Name, Receipt)>,
    cluster: Arc<Cluster>,
}

impl Compensation {
    fn keep(mut self) {
        self.receipts.clear();
    }

    /// Gives back the enforced charges, and returns when that is done. Shadows stay: they are taken on their own.
    async fn give_back_enforced(&mut self) {
        let (enforced, others) = std::mem::take(&mut self.receipts)
            .into_iter()
            .partition(|(mode, ..)| *mode == Mode::Enforce);
        self.receipts = others;
        // A task of its own, which goes on when the caller goes away.
        let _ended = self.spawn(enforced).await;
    }

    fn spawn(&self, receipts: Vec<(Mode, Name, Receipt)>) -> tokio::task::JoinHandle<()> {
        let cluster = Arc::clone(&self.cluster);
        self.cluster.runtime.spawn(async move {
            let deadline = Instant::now() + cluster.limits.deadline;
            let credits: Vec<_> = receipts
                .into_iter()
                .map(|(_, name, receipt)| {
                    let n = receipt.cost();
                    let request = Request::credit(receipt, n, name);
                    let request = cluster.holder.owes(request);
                    // All at once: a slow one must not delay the others.
                    cluster.runtime.spawn(cluster.ask(request, deadline))
                })
                .collect();
            for credit in credits {
                if !matches!(credit.await, Ok(Ok(_))) {
                    cluster.counters.lost();
                }
            }
        })
    }
}

impl Drop for Compensation {
    fn drop(&mut self) {
        let receipts = std::mem::take(&mut self.receipts);
        if !receipts.is_empty() {
            let _detached = self.spawn(receipts);
        }
    }
}
