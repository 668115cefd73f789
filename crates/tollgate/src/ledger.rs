//! What a request was charged so far, and what it takes to undo that.

use std::ptr;

use smallvec::SmallVec;
use tollgate_core::{Decision, Mode, Timestamp, Verdict};

use crate::few::Few;
use crate::limiter::Plan;
use crate::policy::{Labels, Outcome};
use crate::report::{PolicyVerdict, Report};
use crate::{Key, Limiter, RateLimitStatus, ResponseView};

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
    account: Account,
    /// By the backend's clock. Nothing, if a budget of this process decided: what that took is not the backend's to give
    /// back, and in an outage nobody settles accounts.
    at: Option<Timestamp>,
    /// Whether it was raised after the fact. What a debit took no receipt gives back, so it is not lowered again.
    raised: bool,
}

/// Where it stands what is still charged.
#[derive(Clone, Debug)]
enum Account {
    /// Here. The response may change it.
    Here(Option<Outcome>),
    /// In the ledger of the layer further in that charged it and whose handle this is, and here a copy: in two places, it
    /// would be given back twice.
    With(RateLimitStatus),
}

impl Payment {
    /// What one verdict took.
    fn of_one(key: Key, at: Option<Timestamp>, outcome: Option<Outcome>) -> Self {
        Self {
            verdicts: 1,
            key,
            account: Account::Here(outcome),
            at,
            raised: false,
        }
    }

    /// Makes it what one verdict took. Written where it stands, not made elsewhere and moved.
    #[inline(always)]
    fn set(&mut self, key: &Key, at: Timestamp) {
        self.verdicts = 1;
        self.key.clone_from(key);
        // To drop what is not there takes a call.
        if !matches!(self.account, Account::Here(None)) {
            self.account = Account::Here(None);
        }
        self.at = Some(at);
        self.raised = false;
    }

    fn outcome(&self) -> Option<&Outcome> {
        match &self.account {
            Account::Here(outcome) => outcome.as_ref(),
            Account::With(_) => None,
        }
    }

    /// The handle of the layer further in that charged it, if not the layer whose ledger this is.
    fn of(&self) -> Option<&RateLimitStatus> {
        match &self.account {
            Account::Here(_) => None,
            Account::With(status) => Some(status),
        }
    }

    fn is_of(&self, status: &RateLimitStatus) -> bool {
        self.of().is_some_and(|of| of.is(status))
    }

    fn correct(&mut self, limiter: &Limiter, verdict: &mut PolicyVerdict, cost: u64) {
        let taken = verdict.verdict().taken();
        let receipt = self.at.and_then(|at| verdict.receipt(&self.key, at));
        let Some(receipt) = receipt else {
            return;
        };
        if self.raised && cost < taken {
            return;
        }
        self.raised |= cost > taken;
        if cost < taken {
            limiter.credit(receipt, taken - cost);
        } else if cost > taken {
            limiter.debit(&receipt, cost - taken);
        }
        verdict.correct_to(cost);
    }
}

impl Ledger {
    /// Nothing took part.
    pub(crate) const EMPTY: Self = Self {
        report: Report::EMPTY,
        payments: Few::NONE,
    };

    /// This one verdict, for which `key` paid at `at`.
    pub(crate) fn of_one(verdict: PolicyVerdict, key: Key, at: Timestamp) -> Self {
        Self {
            report: Report::of_one(verdict),
            payments: Few::One(Payment::of_one(key, Some(at), None)),
        }
    }

    /// Makes it this one verdict, for which `key` paid at `at`.
    // Every request that is told of comes here, and once.
    #[inline(always)]
    pub(crate) fn set(
        &mut self,
        labels: &'static Labels,
        mode: Mode,
        verdict: &Verdict,
        key: &Key,
        at: Timestamp,
    ) {
        self.report.set(labels, mode, verdict);
        match self.payments.one_mut() {
            Some(payment) => payment.set(key, at),
            None => self.payments = Few::One(Payment::of_one(key.clone(), Some(at), None)),
        }
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
                account: Account::Here(policy.outcome.clone()),
                at,
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

    /// Shows what a layer further in has charged. What becomes of the charges stays with that one.
    pub(crate) fn show(&mut self, inner: Self, of: &RateLimitStatus) {
        let mut shown = inner;
        for payment in shown.payments.as_mut_slice() {
            payment.account = Account::With(of.clone());
        }
        self.append(shown);
    }

    /// Takes over what has become of the charges of a layer further in.
    pub(crate) fn refresh(&mut self, of: &RateLimitStatus) {
        let theirs = of.ledger();
        let mut fresh = theirs.report.verdicts().iter();
        let mut shown = self.report.verdicts_mut().iter_mut();
        for payment in self.payments.as_slice() {
            for verdict in shown.by_ref().take(payment.verdicts) {
                if payment.is_of(of)
                    && let Some(fresh) = fresh.next()
                {
                    *verdict = *fresh;
                }
            }
        }
    }

    /// Gives everything back: somebody further in refuses the request, and a refused request costs nothing.
    pub(crate) fn give_back(&mut self, limiter: Option<&Limiter>) {
        self.correct(limiter, &mut |_, _| Some(0));
    }

    /// Makes the charges of a policy what the request really cost. Returns whether the policy took part.
    pub(crate) fn settle(&mut self, limiter: Option<&Limiter>, policy: &str, cost: u64) -> bool {
        let mut settled: SmallVec<[&'static Labels; 4]> = SmallVec::new();
        self.correct(limiter, &mut |_, verdict| {
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
        limiter: Option<&Limiter>,
        response: &ResponseView<'_>,
    ) -> bool {
        self.correct(limiter, &mut |outcome, _| match outcome? {
            Outcome::CountIf(counts) => (!counts(response)).then_some(0),
            Outcome::Cost(cost) => cost(response),
            Outcome::Sent(_) => None,
        });
        let depends = |payment: &Payment| matches!(payment.outcome(), Some(Outcome::Sent(_)));
        self.payments.as_slice().iter().any(depends)
    }

    /// Makes the charges what so many bytes of a body cost.
    pub(crate) fn settle_by_bytes(&mut self, limiter: Option<&Limiter>, sent: u64) {
        self.correct(limiter, &mut |outcome, _| match outcome? {
            Outcome::Sent(cost) => Some(cost(sent)),
            _ => None,
        });
    }

    /// Credits or debits each charge to what `cost` says it is, wherever it was made. What was not taken stays as it is.
    fn correct(&mut self, limiter: Option<&Limiter>, cost: &mut Cost<'_>) {
        self.correct_own(limiter, cost);
        for inner in self.others() {
            let limiter = inner.config().map(|config| &config.limiter);
            inner
                .ledger()
                .correct_own(limiter, &mut |_, verdict| cost(None, verdict));
            self.refresh(&inner);
        }
    }

    /// The handles of the layers further in.
    fn others(&self) -> SmallVec<[RateLimitStatus; 2]> {
        let mut others = SmallVec::new();
        for payment in self.payments.as_slice() {
            if let Some(of) = payment.of()
                && !others.iter().any(|other| of.is(other))
            {
                others.push(of.clone());
            }
        }
        others
    }

    /// The same for what the layer has charged whose ledger this is.
    fn correct_own(&mut self, limiter: Option<&Limiter>, cost: &mut Cost<'_>) {
        let mut verdicts = self.report.verdicts_mut().iter_mut();
        for payment in self.payments.as_mut_slice() {
            for verdict in verdicts.by_ref().take(payment.verdicts) {
                if let Some(limiter) = limiter
                    && payment.of().is_none()
                    && let Some(cost) = cost(payment.outcome(), verdict)
                {
                    payment.correct(limiter, verdict, cost);
                }
            }
        }
    }
}

/// What a charge should be, if it should be anything else than it is.
type Cost<'a> = dyn FnMut(Option<&Outcome>, &PolicyVerdict) -> Option<u64> + 'a;
