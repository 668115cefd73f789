//! What a request was charged so far, and what it takes to undo that.

use std::ptr;

use smallvec::SmallVec;
use tollgate_core::{Decision, Timestamp};

use crate::few::Few;
use crate::limiter::Plan;
use crate::policy::{Labels, Outcome};
use crate::report::{PolicyVerdict, Report};
use crate::{Key, Limiter, ResponseView};

/// The verdicts on a request, and who paid.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    report: Report,
    /// In the order of the verdicts.
    payments: Few<Payment>,
}

/// Who paid for some verdicts that follow each other, which are those of one policy.
#[derive(Clone, Debug)]
struct Payment {
    verdicts: usize,
    key: Key,
    /// Whose backend it was, if not that of the layer whose ledger this is.
    limiter: Option<Limiter>,
    /// By the backend's clock. Nothing, if a budget of this process decided: what that took is not the backend's to give
    /// back, and in an outage nobody settles accounts.
    at: Option<Timestamp>,
    outcome: Option<Outcome>,
    /// Whether it was raised after the fact. What a debit took no receipt gives back, so it is not lowered again.
    raised: bool,
}

impl Payment {
    /// What one verdict took.
    fn of_one(key: Key, at: Option<Timestamp>, outcome: Option<Outcome>) -> Self {
        Self {
            verdicts: 1,
            key,
            limiter: None,
            at,
            outcome,
            raised: false,
        }
    }

    /// Makes it what one verdict took. Written where it stands, not made elsewhere and moved.
    #[inline]
    fn set(&mut self, key: &Key, at: Timestamp) {
        self.verdicts = 1;
        self.key = key.clone();
        self.limiter = None;
        self.at = Some(at);
        self.outcome = None;
        self.raised = false;
    }
}

impl Ledger {
    /// This one verdict, for which `key` paid at `at`.
    pub(crate) fn of_one(verdict: PolicyVerdict, key: Key, at: Timestamp) -> Self {
        Self {
            report: Report::of_one(verdict),
            payments: Few::One(Payment::of_one(key, Some(at), None)),
        }
    }

    /// Makes it this one verdict, for which `key` paid at `at`.
    #[inline]
    pub(crate) fn set(&mut self, verdict: PolicyVerdict, key: &Key, at: Timestamp) {
        self.report.set(verdict);
        match self.payments.one_mut() {
            Some(payment) => payment.set(key, at),
            None => self.set_payment(key, at),
        }
    }

    #[inline(never)]
    fn set_payment(&mut self, key: &Key, at: Timestamp) {
        self.payments.clear();
        self.payments
            .push(Payment::of_one(key.clone(), Some(at), None));
    }

    /// Nothing was charged.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.report.clear();
        self.payments.clear();
    }

    /// What the backend decided.
    pub(crate) fn of(plan: &Plan, decision: &Decision) -> Self {
        Self::paid(plan, decision, |verdict| Some(decision.verdict_at(verdict)))
    }

    /// What a budget of this process decided.
    pub(crate) fn of_local(plan: &Plan, decision: &Decision) -> Self {
        Self::paid(plan, decision, |_verdict| None)
    }

    fn paid(plan: &Plan, decision: &Decision, at: impl Fn(usize) -> Option<Timestamp>) -> Self {
        if let Some((labels, mode, key, policy)) = plan.sole()
            && let [verdict] = decision.verdicts()
        {
            let payment = Payment::of_one(key.clone(), at(0), policy.outcome.clone());
            return Self {
                report: Report::of_one(PolicyVerdict::new(labels, mode, *verdict)),
                payments: Few::One(payment),
            };
        }
        let mut before = 0;
        let payments = plan.payers().map(|(policy, key, limits)| {
            // What one key pays for one policy is decided by one clock.
            let at = at(before);
            before += limits.len();
            Payment {
                verdicts: limits.len(),
                key: key.clone(),
                limiter: None,
                at,
                outcome: policy.outcome.clone(),
                raised: false,
            }
        });
        Self {
            report: Report::new(plan.labels(), decision),
            payments: payments.collect(),
        }
    }

    /// When this verdict of the ledger's was given, by the backend's clock.
    pub(crate) fn decided_at(&self, verdict: &PolicyVerdict) -> Option<Timestamp> {
        let verdicts = self.report.verdicts();
        let index = verdicts.iter().position(|one| ptr::eq(one, verdict))?;
        let mut before = 0;
        let payment = self.payments.as_slice().iter().find(|payment| {
            before += payment.verdicts;
            index < before
        });
        payment?.at
    }

    pub(crate) fn report(&self) -> &Report {
        &self.report
    }

    /// Adds what was decided further in about the same request.
    pub(crate) fn append(&mut self, inner: Self) {
        self.report.append(inner.report);
        self.payments.extend(inner.payments);
    }

    /// The same for another layer's ledger to hold as well. What the response makes of the charges stays with this one, or it
    /// would be settled twice.
    pub(crate) fn for_another_layer(&self, limiter: &Limiter) -> Self {
        let mut copy = self.clone();
        for payment in copy.payments.as_mut_slice() {
            payment.limiter.get_or_insert_with(|| limiter.clone());
            payment.outcome = None;
        }
        copy
    }

    /// Gives everything back: somebody further in refuses the request, and a refused request costs nothing.
    pub(crate) fn give_back(&mut self, limiter: &Limiter) {
        self.correct(limiter, |_, _| Some(0));
    }

    /// Makes the charges of a policy what the request really cost. Returns whether the policy took part.
    pub(crate) fn settle(&mut self, limiter: &Limiter, policy: &str, cost: u64) -> bool {
        let mut settled: SmallVec<[&'static Labels; 4]> = SmallVec::new();
        self.correct(limiter, |_, verdict| {
            if verdict.policy() != policy {
                return None;
            }
            // Charged by the layer, and by the handler once more: together they cost what is said.
            if settled
                .iter()
                .any(|quota| ptr::eq(*quota, verdict.labels()))
            {
                return Some(0);
            }
            settled.push(verdict.labels());
            Some(cost)
        });
        !settled.is_empty()
    }

    /// Makes the charges what the response says that they should be. Returns whether some depend on its body.
    pub(crate) fn settle_by_response(
        &mut self,
        limiter: &Limiter,
        response: &ResponseView<'_>,
    ) -> bool {
        self.correct(limiter, |outcome, _| match outcome? {
            Outcome::CountIf(counts) => (!counts(response)).then_some(0),
            Outcome::Cost(cost) => cost(response),
            Outcome::Sent(_) => None,
        });
        let depends = |payment: &Payment| matches!(payment.outcome, Some(Outcome::Sent(_)));
        self.payments.as_slice().iter().any(depends)
    }

    /// Makes the charges what so many bytes of a body cost.
    pub(crate) fn settle_by_bytes(&mut self, limiter: &Limiter, sent: u64) {
        self.correct(limiter, |outcome, _| match outcome? {
            Outcome::Sent(cost) => Some(cost(sent)),
            _ => None,
        });
    }

    /// Credits or debits each charge to what `cost` says it is. What was not taken stays as it is.
    fn correct(
        &mut self,
        limiter: &Limiter,
        mut cost: impl FnMut(Option<&Outcome>, &PolicyVerdict) -> Option<u64>,
    ) {
        let mut verdicts = self.report.verdicts_mut().iter_mut();
        for payment in self.payments.as_mut_slice() {
            let limiter = payment.limiter.as_ref().unwrap_or(limiter);
            for verdict in verdicts.by_ref().take(payment.verdicts) {
                let Some(cost) = cost(payment.outcome.as_ref(), verdict) else {
                    continue;
                };
                let taken = verdict.verdict().taken();
                let receipt = payment.at.and_then(|at| verdict.receipt(&payment.key, at));
                let Some(receipt) = receipt else {
                    continue;
                };
                if payment.raised && cost < taken {
                    continue;
                }
                payment.raised |= cost > taken;
                if cost < taken {
                    limiter.credit(receipt, taken - cost);
                } else if cost > taken {
                    limiter.debit(&receipt, cost - taken);
                }
                verdict.correct_to(cost);
            }
        }
    }
}
