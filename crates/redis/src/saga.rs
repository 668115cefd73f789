//! A saga over the slots of a cluster: a request whose keys live in several of them, so that no script sees them all.
//!
//! The slots are charged one by one, and given back if a later one denies, or if the caller goes away. If one fails, the others
//! decide, and the decision says what is unknown. After a denial the saga asks again for the figures of the returned budgets, so
//! that the caller is told about them as if the request had not come. The figures are not exact if one request names one budget in
//! several modes: a shadow was decided beside charges that were given back later, and enforced charges of a request that is already
//! denied are probes like others.
//!
//! Slots with bans come first, so that a banned caller is charged nothing in the others. If several slots have bans, the saga
//! asks for these before it charges anything. If a ban is in force in one of them, no slot takes anything and no denial is a
//! strike. If none is in force, every slot that denies hears it: once the request is denied, a slot whose probe says that it would
//! deny as well is asked a second time.
//!
//! An id stands in the slot of its caller, and so beside the charges of its policy, which are given back with it. An id in a slot
//! without charges of its policy has nothing to spare, and is not asked: its request is charged.

use std::sync::Arc;

use tollgate_core::{BackendError, Call, Charge, Decision, Mode, Receipt, Timestamp, Verdict};

use crate::cluster::Cluster;
use crate::job::{credits, gone};
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
    let Some(charges) = request.work.charges() else {
        return Err(gone());
    };
    let saga = Saga::of(&request, charges, &cluster);
    let mut taken = Compensation::over(&cluster);
    let mut verdicts = saga.unknown();
    let mut parts = saga.parts();
    let is_banned = saga.find_bans(&mut parts).await;
    let (mut is_denied, mut is_decided) = (false, false);
    let mut failure = None;
    for part in &parts {
        let asked = if is_denied && part.guard != Guard::InForce {
            saga.probe(&part.charges).await
        } else {
            saga.ask(&part.charges).await
        };
        let decision = match asked {
            Ok(decision) => decision,
            // The other slots decide all the same: nobody gets around their limits by an identity whose slot is away.
            Err(error) => {
                failure.get_or_insert(error);
                continue;
            }
        };
        is_decided = true;
        saga.note(&part.charges, &decision, &mut verdicts, &mut taken);
        if is_denied && !is_banned && saga.would_strike(part, &decision) {
            let enforced = saga.enforced(part);
            if let Ok(decision) = saga.ask(&enforced).await {
                saga.note(&enforced, &decision, &mut verdicts, &mut taken);
            }
        }
        is_denied |= !decision.is_admitted();
    }

    if is_denied {
        taken.give_back_enforced().await;
        for part in &parts {
            let returned: Vec<_> = (saga.enforced(part).into_iter())
                .filter(|&index| verdicts[index].1.taken() > 0)
                .collect();
            if returned.is_empty() {
                continue;
            }
            let probed = saga.enforced(part);
            let asked = saga.probe(&probed).await.ok();
            for (place, &index) in probed.iter().enumerate() {
                let verdict = asked
                    .as_ref()
                    .and_then(|decision| Some((decision.at(), *decision.verdicts().get(place)?)));
                let (at, _) = verdicts[index];
                let quota = saga.charges[index].quota;
                verdicts[index] = verdict.unwrap_or((at, Verdict::unknown(quota.capacity())));
            }
        }
        for (charge, (_, verdict)) in saga.charges.iter().zip(&mut verdicts) {
            if charge.mode == Mode::Enforce {
                *verdict = verdict.as_enforced();
            }
        }
    }
    if !is_decided && let Some(failure) = failure {
        return Err(failure);
    }
    taken.keep();
    Ok(Decision::apart(!is_denied, verdicts).failing(failure))
}

/// Grants as much as there is over all slots, within one deadline. It takes from one slot after the other, from each at most as
/// much as from those before, and gives back at the end what it has taken beyond that. In between others may be denied.
pub(crate) async fn grant(
    cluster: Arc<Cluster>,
    request: Request,
    at_least: u64,
) -> Result<Decision, BackendError> {
    let Some(charges) = request.work.charges() else {
        return Err(gone());
    };
    let saga = Saga::of(&request, charges, &cluster);
    let mut taken = Compensation::over(&cluster);
    let mut verdicts = saga.unknown();
    let mut parts = saga.parts();
    let grants = |index: &usize| !saga.charges[*index].quota.is_ban();
    let of_mode = |index: &usize, mode| grants(index) && saga.charges[*index].mode == mode;
    let leading = [Mode::Enforce, Mode::Shadow, Mode::Probe].into_iter();
    let leading = { leading }.find(|mode| (0..charges.len()).any(|index| of_mode(&index, *mode)));
    let leads = |index: &usize| leading.is_some_and(|mode| of_mode(index, mode));
    // The others follow the amount, and have no part in it.
    parts.sort_by_key(|part| !part.charges.iter().any(leads));
    let mut amount = saga
        .charges
        .iter()
        .map(|charge| charge.cost)
        .max()
        .unwrap_or(0);
    let mut denied_by = None;
    for part in &parts {
        let up_to = |charge: &Charge<'_>| match charge.quota.is_ban() {
            true => charge.cost,
            false => amount,
        };
        let least = part.charges.iter().any(leads).then_some(at_least);
        let asked = saga.ask_for(&part.charges, |mode| mode, up_to, least);
        let decision = asked.await?;
        saga.note(&part.charges, &decision, &mut verdicts, &mut taken);
        if !decision.is_admitted() {
            denied_by = Some(part.slot);
            break;
        }
        for index in part.charges.iter().filter(|index| leads(index)) {
            let (_, verdict) = verdicts[*index];
            // A probe takes nothing, and neither does a charge on trial that is denied.
            let granted = match verdict.taken() {
                0 => verdict.remaining().max(at_least),
                taken => taken,
            };
            amount = amount.min(granted);
        }
    }

    if denied_by.is_none() {
        taken.give_back_beyond(amount).await;
        for (index, (_, verdict)) in verdicts.iter_mut().enumerate() {
            if grants(&index) && verdict.taken() > amount {
                *verdict = verdict.corrected_to(amount);
            }
        }
    } else {
        taken.give_back_enforced().await;
        for part in parts.iter().filter(|part| Some(part.slot) != denied_by) {
            let probed = saga.enforced(part);
            let asked = saga.ask_for(&probed, |_| Mode::Probe, |_| at_least, None);
            let asked = asked.await.ok();
            for (place, &index) in probed.iter().enumerate() {
                let verdict = { asked.as_ref() }
                    .and_then(|decision| Some((decision.at(), *decision.verdicts().get(place)?)));
                let unknown = Verdict::unknown(saga.charges[index].quota.capacity());
                verdicts[index] = verdict.unwrap_or((verdicts[index].0, unknown));
            }
        }
        for (charge, (_, verdict)) in saga.charges.iter().zip(&mut verdicts) {
            if charge.mode == Mode::Enforce {
                *verdict = verdict.as_enforced();
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

/// The charges of one slot, by their positions in the request.
struct Part {
    slot: u16,
    charges: Vec<usize>,
    guard: Guard,
}

/// The enforced bans of a slot, in the order in which slots are asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Guard {
    /// One of them is in force.
    InForce,
    /// None of them is known to be in force.
    Quiet,
    /// There are none.
    None,
}

impl<'a> Saga<'a> {
    fn of(request: &'a Request, charges: &'a [OwnedCharge], cluster: &'a Arc<Cluster>) -> Self {
        Self {
            charges: charges.iter().map(OwnedCharge::borrow).collect(),
            request,
            deadline: Instant::now() + cluster.limits.deadline,
            cluster,
        }
    }

    /// The verdicts before anything was asked.
    fn unknown(&self) -> Vec<(Timestamp, Verdict)> {
        let capacities = self.charges.iter().map(|charge| charge.quota.capacity());
        let unknown = capacities.map(Verdict::unknown);
        unknown
            .map(|verdict| (Timestamp::default(), verdict))
            .collect()
    }

    /// The charges, grouped by slot.
    fn parts(&self) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        for (index, name) in self.request.names.iter().enumerate() {
            let slot = slot::of(name);
            match parts.iter_mut().find(|part| part.slot == slot) {
                Some(part) => part.charges.push(index),
                None => parts.push(Part {
                    slot,
                    charges: vec![index],
                    guard: Guard::None,
                }),
            }
        }
        parts.retain(|part| {
            let mut charges = part.charges.iter().map(|&index| &self.charges[index]);
            charges.any(|charge| !charge.quota.is_once())
        });
        parts
    }

    /// Puts the slots with bans first, and says whether one is known to be in force. A sole slot with bans finds that out itself.
    async fn find_bans(&self, parts: &mut [Part]) -> bool {
        let bans = |part: &Part| -> Vec<_> {
            let enforced = self.enforced(part).into_iter();
            enforced
                .filter(|&index| self.charges[index].quota.is_ban())
                .collect()
        };
        for part in parts.iter_mut().filter(|part| !bans(part).is_empty()) {
            part.guard = Guard::Quiet;
        }
        parts.sort_by_key(|part| part.guard);
        let guarded = parts.partition_point(|part| part.guard != Guard::None);
        if guarded < 2 {
            return false;
        }
        for part in parts.iter_mut().take(guarded) {
            // A slot that fails is asked again, and fails again.
            if let Ok(decision) = self.probe(&bans(part)).await
                && decision.verdicts().iter().any(Verdict::is_denied)
            {
                part.guard = Guard::InForce;
            }
        }
        parts.sort_by_key(|part| part.guard);
        parts.iter().any(|part| part.guard == Guard::InForce)
    }

    /// The enforced charges of a slot.
    fn enforced(&self, part: &Part) -> Vec<usize> {
        let charges = part.charges.iter().copied();
        charges
            .filter(|&index| self.charges[index].mode == Mode::Enforce)
            .collect()
    }

    /// Says whether an answer to a probe has a denial that would be a strike.
    fn would_strike(&self, part: &Part, probed: &Decision) -> bool {
        let enforced = || {
            let charges = part.charges.iter().map(|&index| &self.charges[index]);
            let judged = charges.zip(probed.verdicts());
            judged.filter(|(charge, _)| charge.mode == Mode::Enforce)
        };
        enforced().any(|(ban, _)| {
            enforced().any(|(charge, verdict)| verdict.is_denied() && ban.guards(charge))
        })
    }

    /// Asks for some charges.
    async fn ask(&self, charges: &[usize]) -> Result<Decision, BackendError> {
        self.ask_for(charges, |mode| mode, |charge| charge.cost, None)
            .await
    }

    /// Asks for some charges of a request that is denied, so that no further enforced one is taken.
    async fn probe(&self, charges: &[usize]) -> Result<Decision, BackendError> {
        let probed = |mode| match mode {
            Mode::Enforce => Mode::Probe,
            mode => mode,
        };
        self.ask_for(charges, probed, |charge| charge.cost, None)
            .await
    }

    /// Asks for some charges in these modes and at these costs; for as much as there is, if at least so much is to be granted.
    async fn ask_for(
        &self,
        part: &[usize],
        as_mode: impl Fn(Mode) -> Mode,
        cost: impl Fn(&Charge<'_>) -> u64,
        at_least: Option<u64>,
    ) -> Result<Decision, BackendError> {
        let charges: Vec<_> = part
            .iter()
            .map(|&index| {
                let charge = &self.charges[index];
                Charge {
                    mode: as_mode(charge.mode),
                    cost: cost(charge),
                    ..*charge
                }
            })
            .collect();
        let request = Request {
            work: Work::decide(Call {
                charges: &charges,
                at_least,
            }),
            names: part
                .iter()
                .map(|&index| self.request.names[index].clone())
                .collect(),
            owed: None,
            known: None,
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
        let names: Vec<_> = (part.iter())
            .map(|&index| self.request.names[index].clone())
            .collect();
        for (&index, verdict) in part.iter().zip(decision.verdicts()) {
            verdicts[index] = (decision.at(), *verdict);
        }
        let credits = credits(decision, &charges, &names);
        taken
            .credits
            .extend(credits.map(|(position, credit)| (charges[position].mode, credit)));
    }
}

/// A compensation gives back the charges of the saga, unless they are kept.
struct Compensation {
    /// Of the whole charges.
    credits: Vec<(Mode, Request)>,
    /// The amount that is left of each, once the surplus is on its way back.
    left: u64,
    cluster: Arc<Cluster>,
}

impl Compensation {
    fn over(cluster: &Arc<Cluster>) -> Self {
        Self {
            credits: Vec::new(),
            left: u64::MAX,
            cluster: Arc::clone(cluster),
        }
    }

    /// Gives back what was taken beyond this amount, and returns when that is done.
    async fn give_back_beyond(&mut self, amount: u64) {
        self.left = amount;
        let surplus = self.credits.iter().filter_map(|(_, credit)| {
            let (receipt, n) = charged(credit).filter(|(receipt, _)| !receipt.quota().is_ban())?;
            let n = n.checked_sub(amount).filter(|n| *n > 0)?;
            Some(Request::credit(
                receipt.copy(),
                n,
                credit.names[0].clone(),
                None,
            ))
        });
        let _ended = self.send(surplus.collect()).await;
    }

    fn keep(mut self) {
        self.credits.clear();
    }

    /// Gives back the enforced charges, and returns when that is done. Shadows stay: they are taken on their own.
    async fn give_back_enforced(&mut self) {
        let (enforced, others) = std::mem::take(&mut self.credits)
            .into_iter()
            .partition(|(mode, _)| *mode == Mode::Enforce);
        self.credits = others;
        // A task of its own, which goes on when the caller goes away.
        let _ended = self.spawn(enforced).await;
    }

    fn spawn(&self, credits: Vec<(Mode, Request)>) -> tokio::task::JoinHandle<()> {
        let of_rest = |(_, credit): (_, Request)| match charged(&credit) {
            Some((receipt, n)) if n > self.left => {
                Request::credit(receipt.copy(), self.left, credit.names[0].clone(), None)
            }
            _ => credit,
        };
        self.send(credits.into_iter().map(of_rest).collect())
    }

    /// Sends credits, in a task of its own.
    fn send(&self, credits: Vec<Request>) -> tokio::task::JoinHandle<()> {
        let cluster = Arc::clone(&self.cluster);
        self.cluster.runtime.spawn(async move {
            let deadline = Instant::now() + cluster.limits.deadline;
            let credits: Vec<_> = (credits.into_iter())
                .map(|request| {
                    let request = cluster.known.owes(cluster.holder.owes(request));
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
        let credits = std::mem::take(&mut self.credits);
        if !credits.is_empty() {
            let _detached = self.spawn(credits);
        }
    }
}

/// The receipt and the amount of a credit.
fn charged(credit: &Request) -> Option<(&Receipt, u64)> {
    match &credit.work {
        Work::Credit(receipt, n) => Some((receipt, *n)),
        _ => None,
    }
}
