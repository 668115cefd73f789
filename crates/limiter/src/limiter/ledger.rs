//! The charges of a request so far, with the means to undo them.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{Decision, Receipt, ReceiptId, Timestamp, Verdict};

use super::event::Transport;
use super::fallback::LocalPayers;
use super::plan::{Entries, Payer};
use super::settler::Settler;
use crate::policy::{Label, Limit, Outcome};
use crate::report::{PolicyVerdict, Report};
use crate::{Key, ResponseView};

/// The verdicts on a request with the keys that paid, in the order of the decisions. Nearly always there is one.
#[derive(Debug, Default)]
pub struct Ledger {
    verdicts: Verdicts,
    /// In the order of the verdicts.
    payments: SmallVec<[Payment; 1]>,
    /// True if the request holds something until it is over.
    holds: bool,
    /// The number of responses that were begun within that of the outermost layer.
    responses: u32,
    /// The number of those that keep what is held after the response is over.
    keepers: u32,
    /// The time for which the request waited, here and further in.
    waited_us: u32,
    /// The number of limits further in that let the request pass, also if it was called several times.
    passed: u16,
    /// The way by which the request came.
    transport: Transport,
}

/// Nearly always one.
pub type Verdicts = SmallVec<[PolicyVerdict; 1]>;

/// The key that paid for consecutive verdicts, which belong to one policy.
#[derive(Debug)]
struct Payment {
    /// Their number, of which a call has few. A byte, so that an id costs ledgers no room.
    verdicts: u8,
    /// The rule by which the response sets the cost, if there is one.
    outcome: Option<Outcome>,
    key: Key,
    settler: Arc<Settler>,
    /// The response for which it was charged: see [`Ledger::begin_response`].
    response: u32,
    /// True if a debit has raised the charge. No receipt credits a debit, so the charge is not lowered again.
    raised: bool,
    /// True if a budget of this process decided.
    is_local: bool,
    /// True if the response is over for which it was charged.
    is_over: bool,
    /// The request's id, if this was its first admission.
    id: Option<Arc<ReceiptId>>,
}

/// The verdicts by themselves, for a request of which nothing is remembered.
#[inline]
pub(super) fn verdicts_on(
    entries: Entries<'_>,
    decision: &Decision,
    local: LocalPayers,
) -> Verdicts {
    if let (Some((payer, limit)), [verdict]) = (entries.sole(), decision.verdicts()) {
        let at = time_for_receipt(limit, local.has(0), || decision.at());
        return SmallVec::from_buf([verdict_on(payer, limit, verdict, at)]);
    }
    several_verdicts_on(entries, decision, local)
}

#[inline(never)]
fn several_verdicts_on(entries: Entries<'_>, decision: &Decision, local: LocalPayers) -> Verdicts {
    let verdicts = decision.verdicts().iter().enumerate();
    let limits = entries.iter().enumerate().flat_map(|(place, payer)| {
        let limits = payer.limits().iter();
        limits.map(move |limit| (payer, limit, local.has(place)))
    });
    let named = limits
        .zip(verdicts)
        .map(|((payer, limit, is_local), (position, verdict))| {
            let at = time_for_receipt(limit, is_local, || decision.verdict_at(position));
            verdict_on(payer, limit, verdict, at)
        });
    named.collect()
}

#[inline]
fn verdict_on(
    payer: Payer<'_>,
    limit: &Limit,
    verdict: &Verdict,
    at: Option<Timestamp>,
) -> PolicyVerdict {
    PolicyVerdict::new(Arc::clone(&limit.label), payer.mode(), *verdict, at)
        .hinting(payer.policy.retry_hint_ms)
}

/// The time of a charge. A budget of this process gives a receipt for held units only, because its states are not the backend's.
/// Held units must be given back to it.
#[inline]
fn time_for_receipt(
    limit: &Limit,
    is_local: bool,
    at: impl FnOnce() -> Timestamp,
) -> Option<Timestamp> {
    (!is_local || limit.quota.is_held()).then(at)
}

impl Payment {
    #[inline]
    fn of(settler: &Arc<Settler>, payer: Payer<'_>, verdicts: usize, is_local: bool) -> Self {
        Self {
            verdicts: u8::try_from(verdicts).unwrap_or(u8::MAX),
            outcome: payer.policy.outcome.clone(),
            key: payer.key.clone(),
            settler: Arc::clone(settler),
            response: 0,
            raised: false,
            is_local,
            is_over: false,
            id: None,
        }
    }

    /// The receipt of a charge, with the id that must not be replayed once it is given back.
    fn receipt(&self, verdict: &PolicyVerdict) -> Option<Receipt> {
        let receipt = verdict.receipt(&self.key)?;
        Some(match &self.id {
            Some(id) if !verdict.is_held() => receipt.with_id(Arc::clone(id)),
            _ => receipt,
        })
    }

    /// Gives back what the verdict says is held.
    fn release(&self, verdict: &mut PolicyVerdict, transport: Transport) {
        if !verdict.is_held() {
            return;
        }
        let taken = verdict.verdict().taken();
        if let Some(receipt) = self.receipt(verdict) {
            self.settler.release(receipt, taken, self.is_local);
            verdict.correct_to(0);
            self.settler.released(verdict, &self.key, transport);
        }
    }

    fn correct(&mut self, verdict: &mut PolicyVerdict, cost: u64, transport: Transport) {
        let taken = verdict.verdict().taken();
        let Some(receipt) = self.receipt(verdict) else {
            return;
        };
        if self.raised && cost < taken {
            return;
        }
        self.raised |= cost > taken;
        if cost < taken {
            self.settler.give_back(receipt, taken - cost);
        } else if cost > taken {
            self.settler.take(&receipt, cost - taken);
        }
        verdict.correct_to(cost);
        self.settler.settled(verdict, &self.key, transport);
    }
}

impl Ledger {
    /// The decision about the charges of a plan, by the backend of this limiter. For the `local` policies a budget of this process
    /// decided, which gives no receipts.
    // Written where it stays: a call would move it twice.
    #[inline(always)]
    pub(super) fn of(
        settler: &Arc<Settler>,
        entries: Entries<'_>,
        decision: &Decision,
        local: LocalPayers,
    ) -> Self {
        if let (Some((payer, limit)), [verdict]) = (entries.sole(), decision.verdicts()) {
            let is_local = local.has(0);
            let at = time_for_receipt(limit, is_local, || decision.at());
            return Self {
                verdicts: SmallVec::from_buf([verdict_on(payer, limit, verdict, at)]),
                payments: SmallVec::from_buf([Payment::of(settler, payer, 1, is_local)]),
                holds: limit.quota.is_held(),
                responses: 0,
                keepers: 0,
                waited_us: 0,
                passed: 0,
                transport: payer.demand.transport,
            };
        }
        Self::of_several(settler, entries, decision, local)
    }

    #[inline(never)]
    fn of_several(
        settler: &Arc<Settler>,
        entries: Entries<'_>,
        decision: &Decision,
        local: LocalPayers,
    ) -> Self {
        let verdicts = several_verdicts_on(entries, decision, local);
        let mut payments: SmallVec<[Payment; 1]> = entries
            .iter()
            .enumerate()
            .map(|(place, payer)| {
                Payment::of(settler, payer, payer.limits().len(), local.has(place))
            })
            .collect();
        if decision.verdicts().len() > verdicts.len() {
            // The ids stand behind the quotas.
            let mut ids = decision.verdicts()[verdicts.len()..].iter();
            for (payment, payer) in payments.iter_mut().zip(entries.iter()) {
                if let Some(charge) = payer.id()
                    && ids.next().is_some_and(|verdict| verdict.taken() > 0)
                    && !payment.is_local
                {
                    payment.id = Some(Arc::new(ReceiptId::of(&charge)));
                }
            }
        }
        Self {
            holds: verdicts.iter().any(PolicyVerdict::is_held),
            verdicts,
            payments,
            responses: 0,
            keepers: 0,
            waited_us: 0,
            passed: 0,
            transport: entries.transport(),
        }
    }

    /// This decision after a wait.
    #[inline(always)]
    pub(super) fn after(mut self, waited_us: u32) -> Self {
        self.waited_us = waited_us;
        self
    }

    /// The time for which the request waited.
    #[must_use]
    pub fn waited(&self) -> Duration {
        Duration::from_micros(self.waited_us.into())
    }

    /// All verdicts.
    #[inline]
    pub fn report(&self) -> Report<'_> {
        Report::of(&self.verdicts)
    }

    /// The verdicts for a response and for those within it.
    #[inline]
    pub fn report_from(&self, response: u32) -> Report<'_> {
        if response == 0 {
            return self.report();
        }
        let earlier = |one: &&Payment| one.response < response;
        let further_out = self.payments.iter().take_while(earlier);
        let skipped: usize = further_out.map(|one| usize::from(one.verdicts)).sum();
        Report::of(self.verdicts.get(skipped..).unwrap_or_default())
    }

    /// The receipts of the charges, held ones included: their owner gives back. Units held under a budget of this process are
    /// given back now, without a receipt.
    pub(crate) fn into_receipts(mut self) -> Vec<Receipt> {
        let transport = self.transport;
        let mut receipts = Vec::new();
        self.each(|payment, verdict| {
            if payment.is_local {
                payment.release(verdict, transport);
            } else {
                receipts.extend(payment.receipt(verdict));
            }
        });
        self.holds = false;
        receipts
    }

    /// True if the request holds something until it is over.
    #[inline]
    pub fn holds(&self) -> bool {
        self.holds
    }

    /// True if a handler keeps what is held after the response is over.
    pub fn is_kept(&self) -> bool {
        self.keepers > 0
    }

    /// Keeps what is held until [`end_hold`](Self::end_hold), whatever becomes of the response.
    pub fn begin_hold(&mut self) {
        self.keepers = self.keepers.saturating_add(1);
    }

    /// Gives back what is held for responses that are over, if this was the last hold.
    pub fn end_hold(&mut self) {
        self.keepers = self.keepers.saturating_sub(1);
        self.release_if_over();
    }

    /// The number of a response that an inner layer makes for the request. It is not a number of the layer: a service between two
    /// layers may call the inner one several times, one after the other or at once, and each call has a response of its own. The
    /// response of the outermost layer has the number 0.
    pub fn begin_response(&mut self) -> u32 {
        self.responses = self.responses.saturating_add(1);
        self.responses
    }

    /// A response is over: what is held for it is given back, unless there is a hold.
    pub fn end_response(&mut self, response: u32) {
        let payments = self.payments.iter_mut();
        for payment in payments.filter(|payment| payment.response == response) {
            payment.is_over = true;
        }
        self.release_if_over();
    }

    fn release_if_over(&mut self) {
        let transport = self.transport;
        if self.holds && self.keepers == 0 {
            self.each(|payment, verdict| {
                if payment.is_over {
                    payment.release(verdict, transport);
                }
            });
        }
    }

    /// Adds the decision of a limit further in that let the request pass, for this response. Returns the number of those so far.
    pub fn enter(&mut self, inner: Self, response: u32) -> u16 {
        self.append(inner, response);
        self.passed = self.passed.saturating_add(1);
        self.passed
    }

    fn append(&mut self, mut inner: Self, response: u32) {
        if self.payments.is_empty() {
            self.transport = inner.transport;
        }
        self.holds |= mem::take(&mut inner.holds);
        self.waited_us = self.waited_us.saturating_add(inner.waited_us);
        self.verdicts.extend(mem::take(&mut inner.verdicts));
        let payments = mem::take(&mut inner.payments).into_iter();
        self.payments.extend(payments.map(|payment| Payment {
            response,
            ..payment
        }));
    }

    /// Adds the decision of a limit further in that refuses the request. What was charged stays charged until the refusal
    /// [leaves](Self::undo): a service in between may answer in its place, or ask again.
    pub fn refuse(&mut self, mut refusal: Self, response: u32) {
        // A policy in shadow mode may have taken something for the request.
        refusal.release();
        self.append(refusal, response);
    }

    /// Refunds every charge for this response, because it is the refusal of a limit further in, and a refused request costs nothing.
    /// `entered` is what [`enter`](Self::enter) returned for its layer, and `behind` the number of limits between the two that let
    /// the request pass. Returns false if others did: then a handler has run. Permits are held until the response is over.
    pub fn undo(&mut self, response: u32, entered: u16, behind: u16) -> bool {
        if self.passed.saturating_sub(entered) != behind {
            return false;
        }
        self.correct(&mut |payment, _| (payment.response == response).then_some(0));
        self.passed = entered.saturating_sub(1);
        true
    }

    /// Gives back what is held, because no service is called for it.
    pub fn release(&mut self) {
        if mem::take(&mut self.holds) {
            let transport = self.transport;
            self.each(|payment, verdict| payment.release(verdict, transport));
        }
    }

    /// Corrects the charges of a policy to the real cost. Returns true if the policy took part.
    pub fn settle(&mut self, policy: &str, cost: u64) -> bool {
        let mut settled: SmallVec<[Arc<Label>; 4]> = SmallVec::new();
        self.correct(&mut |_, verdict| {
            if verdict.policy() != policy {
                return None;
            }
            // Charged by the layer, and by the handler once more: together they cost what is said.
            let label = verdict.label();
            if settled.iter().any(|one| Arc::ptr_eq(one, label)) {
                return Some(0);
            }
            settled.push(Arc::clone(label));
            Some(cost)
        });
        !settled.is_empty()
    }

    /// Corrects the charges of a request by its response. Returns true if some depend on its body.
    pub fn settle_by_response(&mut self, response: u32, view: &ResponseView<'_>) -> bool {
        let mut depends_on_body = false;
        for payment in &self.payments {
            if let Some(Outcome::Strike(rule)) = payment.outcome_of(response)
                && let Some(ban) = rule.struck(view)
                && !payment.key.is_incomplete()
            {
                let settler = &payment.settler;
                settler.strike(ban, &payment.key, payment.is_local);
            }
        }
        self.correct(
            &mut |payment, _| match payment.outcome_of(response)?.cost()? {
                Outcome::CountIf(counts) => (!counts(view)).then_some(0),
                Outcome::Cost(cost) => cost(view),
                Outcome::Sent(_) => {
                    depends_on_body = true;
                    None
                }
                Outcome::Strike(_) => None,
            },
        );
        depends_on_body
    }

    /// Adds the strikes of a response that will not be: its caller went away before it could be judged.
    pub fn strike_abandoned(&mut self, response: u32) {
        for payment in &self.payments {
            if let Some(Outcome::Strike(rule)) = payment.outcome_of(response)
                && !payment.key.is_incomplete()
            {
                let settler = &payment.settler;
                settler.strike(rule.ban(), &payment.key, payment.is_local);
            }
        }
    }

    /// Corrects the charges for a response by the bytes of its body.
    pub fn settle_by_bytes(&mut self, response: u32, sent: u64) {
        self.correct(
            &mut |payment, _| match payment.outcome_of(response)?.cost()? {
                // The service has run, also for `HEAD` and for a caller that has gone before the first byte.
                Outcome::Sent(cost) => Some(cost(sent).max(1)),
                _ => None,
            },
        );
    }

    /// Credits or debits each charge to the cost that `cost` gives. A charge that was not taken stays as it is, and so does one
    /// that is held: its weight is that with which it began.
    fn correct(&mut self, cost: &mut Cost<'_>) {
        let transport = self.transport;
        let mut verdicts = self.verdicts.iter_mut();
        for payment in &mut self.payments {
            for verdict in verdicts.by_ref().take(payment.verdicts.into()) {
                if let Some(cost) = cost(payment, verdict)
                    && !verdict.is_held()
                {
                    payment.correct(verdict, cost, transport);
                }
            }
        }
    }

    /// Each verdict with its payment.
    fn each(&mut self, mut visit: impl FnMut(&Payment, &mut PolicyVerdict)) {
        let mut verdicts = self.verdicts.iter_mut();
        for payment in &self.payments {
            for verdict in verdicts.by_ref().take(payment.verdicts.into()) {
                visit(payment, verdict);
            }
        }
    }
}

/// Gives back what is held still, so that nothing is held for ever, whatever becomes of a request.
impl Drop for Ledger {
    #[inline]
    fn drop(&mut self) {
        if self.holds {
            self.release();
        }
    }
}

impl Payment {
    /// The rule by which this response sets the cost, if there is one.
    fn outcome_of(&self, response: u32) -> Option<&Outcome> {
        let is_its_own = self.response == response;
        self.outcome.as_ref().filter(|_| is_its_own)
    }
}

/// The right amount of a charge, if it differs from the present one.
type Cost<'a> = dyn FnMut(&Payment, &PolicyVerdict) -> Option<u64> + 'a;
