//! Charges for the messages of one direction of a call.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use tokio::time::{Sleep, sleep};
use tollgate_core::{BackendError, Decision, Key, LateAnswer, Mode, Verdict};
use tollgate_limiter::transport::{Fallback, Ledger, Limit, LocalPayers, Plan};
use tollgate_limiter::{Limiter, Messages, Policy};

use super::account::Account;
use super::amount::Amount;

/// Charges messages, one after the other, under all policies of a plan together.
///
/// A backend that answers at once is asked for each message, so that nothing is ever taken ahead. A backend that waits is
/// asked for blocks, which grow as long as they are used up. The rest of the last block is credited at the end.
pub(super) struct Meter {
    limiter: Limiter,
    plan: Plan<'static>,
    /// In the order of the plan.
    accounts: Vec<Account>,
    /// True if the backend has been seen to wait.
    waits: bool,
    step: Step,
    /// The last refusal since the stream had caught up: the reason why messages wait, whatever the meter does at the moment.
    held_back_by: Option<Ledger>,
}

enum Step {
    Ready,
    Deciding(LateAnswer<Decision>),
    /// The backend is not asked again before its refusal can have changed.
    Holding(Pin<Box<Sleep>>),
}

/// The reason why a stream ends.
#[derive(Debug)]
pub(super) enum Excess {
    /// It is over a quota whose policy says so, or that it can never meet.
    Quota(Ledger),
    /// The backend failed, and a policy refuses then.
    Undecided,
    /// It was refused before it began, if it is a call.
    Refused(Box<Response<Bytes>>),
}

/// The outcome of an answer.
enum MeterRuling {
    Paid,
    /// Less would have passed, or is asked for to see whether it would.
    AskAgain,
    Hold(Duration, Ledger),
    Excess(Excess),
}

/// A block that comes so soon is waited for. A stream at its limit would gain nothing by asking for less in between, and would
/// ask more often.
const SOON: Duration = Duration::from_millis(50);

impl Meter {
    /// `None` if no policy has a say.
    pub(super) fn new(limiter: &Limiter, plan: Plan<'static>) -> Option<Self> {
        if plan.is_empty() {
            return None;
        }
        let accounts = plan
            .entries()
            .payers()
            .zip(plan.costs())
            .filter_map(|((policy, _, limits), cost)| Account::new(policy, limits, cost));
        Some(Self {
            accounts: accounts.collect(),
            limiter: limiter.clone(),
            plan,
            waits: false,
            step: Step::Ready,
            held_back_by: None,
        })
    }

    /// The most bytes that can be paid for at once, if bytes are charged.
    pub(super) fn most_bytes(&self) -> Option<u64> {
        self.accounts.iter().filter_map(Account::most_bytes).min()
    }

    /// Pays for `amount`. The caller repeats the call with the same amount until it is ready.
    pub(super) fn poll_pay(
        &mut self,
        amount: Amount,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Excess>> {
        loop {
            let answer = match &mut self.step {
                Step::Ready => {
                    for account in &mut self.accounts {
                        account.ask(amount, self.waits);
                    }
                    if self.accounts.iter().all(Account::has_enough) {
                        break;
                    }
                    self.plan.ask(self.accounts.iter().map(Account::asked));
                    match self.limiter.decide(self.plan.entries()).try_now() {
                        Ok(answer) => answer,
                        Err(decide) => {
                            self.waits = true;
                            self.step = Step::Deciding(decide);
                            continue;
                        }
                    }
                }
                Step::Deciding(decide) => ready!(Pin::new(decide).poll(cx)),
                Step::Holding(wait) => {
                    ready!(wait.as_mut().poll(cx));
                    self.step = Step::Ready;
                    continue;
                }
            };
            self.step = Step::Ready;
            match self.rule(answer) {
                MeterRuling::Paid => break,
                MeterRuling::AskAgain => {}
                MeterRuling::Hold(wait, why) => {
                    self.step = Step::Holding(Box::pin(sleep(wait)));
                    self.held_back_by = Some(why);
                }
                MeterRuling::Excess(excess) => return Poll::Ready(Err(excess)),
            }
        }
        for account in &mut self.accounts {
            account.spend();
        }
        Poll::Ready(Ok(()))
    }

    /// No message of the stream waits any longer.
    pub(super) fn catch_up(&mut self) {
        self.held_back_by = None;
    }

    /// The reason why an unpaid amount cannot wait any longer.
    pub(super) fn give_up(&mut self) -> Excess {
        self.step = Step::Ready;
        (self.held_back_by.take()).map_or(Excess::Undecided, Excess::Quota)
    }

    fn rule(&mut self, answer: Result<Decision, BackendError>) -> MeterRuling {
        match self.limiter.judge(0, self.plan.entries(), answer) {
            Ok(decision) if decision.is_admitted() => {
                let payers = payers(&self.plan, &decision);
                for (account, (_, key, limits, verdicts)) in self.accounts.iter_mut().zip(payers) {
                    account.take(key, limits, verdicts, decision.at());
                }
                MeterRuling::Paid
            }
            Ok(decision) => self.refused(&decision),
            Err(Fallback::Decide(part)) => {
                if part.decision.is_admitted() {
                    self.take_on_trust()
                } else if self.asked_ahead() {
                    self.content_with(0)
                } else {
                    self.excess(&part.plan, &part.decision, part.local)
                }
            }
            Err(Fallback::Pass(_)) => self.take_on_trust(),
            Err(Fallback::Refuse(_)) => MeterRuling::Excess(Excess::Undecided),
        }
    }

    fn refused(&mut self, decision: &Decision) -> MeterRuling {
        if !self.asked_ahead() {
            return self.excess(&self.plan, decision, LocalPayers::NONE);
        }
        let ledger = self
            .limiter
            .ledger(self.plan.entries(), decision, LocalPayers::NONE);
        let ends = self.accounts.iter().any(Account::ends);
        if let Some(wait) = ledger.report().retry_after()
            && wait <= SOON
            && !ends
        {
            return MeterRuling::Hold(wait, ledger);
        }
        let payers = payers(&self.plan, decision);
        let accounts = self.accounts.iter().zip(payers);
        let enough = accounts.map(|(account, (.., verdicts))| account.could_do_with(verdicts));
        let Some(enough) = enough.collect::<Option<Vec<_>>>() else {
            // A caller that is told to wait is told the time for this message, and not for a block.
            return self.content_with(0);
        };
        for (account, most) in self.accounts.iter_mut().zip(enough) {
            account.content_with(most);
        }
        MeterRuling::AskAgain
    }

    /// The outcome of a refusal of no more than was needed.
    fn excess(&self, plan: &Plan<'static>, decision: &Decision, local: LocalPayers) -> MeterRuling {
        let refuses = |verdicts: &[Verdict]| verdicts.iter().any(Verdict::is_denied);
        let ends = payers(plan, decision).any(|(policy, .., verdicts)| {
            let ends = policy.messages().is_some_and(Messages::excess_ends);
            policy.mode() == Mode::Enforce && ends && refuses(verdicts)
        });
        let ledger = self.limiter.ledger(plan.entries(), decision, local);
        match ledger.report().retry_after() {
            Some(wait) if !ends => MeterRuling::Hold(wait, ledger),
            _ => MeterRuling::Excess(Excess::Quota(ledger)),
        }
    }

    fn asked_ahead(&self) -> bool {
        self.accounts.iter().any(Account::asked_ahead)
    }

    fn content_with(&mut self, most: u64) -> MeterRuling {
        for account in &mut self.accounts {
            account.content_with(most);
        }
        MeterRuling::AskAgain
    }

    fn take_on_trust(&mut self) -> MeterRuling {
        for account in &mut self.accounts {
            account.take_on_trust();
        }
        MeterRuling::Paid
    }
}

/// Credits the units that are left, whether the stream has ended or the caller has gone.
impl Drop for Meter {
    fn drop(&mut self) {
        for account in &mut self.accounts {
            account.close(&self.limiter);
        }
    }
}

/// The policies of a plan, with their verdicts.
fn payers<'a>(
    plan: &'a Plan<'static>,
    decision: &'a Decision,
) -> impl Iterator<Item = (&'a Policy, &'a Key, &'a [Limit], &'a [Verdict])> {
    let mut rest = decision.verdicts();
    plan.entries().payers().map(move |(policy, key, limits)| {
        let (verdicts, others) = rest.split_at(limits.len().min(rest.len()));
        rest = others;
        (policy, key, limits, verdicts)
    })
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter")
            .field("accounts", &self.accounts)
            .field(
                "step",
                &match self.step {
                    Step::Ready => "ready",
                    Step::Deciding(_) => "deciding",
                    Step::Holding(..) => "holding",
                },
            )
            .finish_non_exhaustive()
    }
}
