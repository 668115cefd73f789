//! Limiting without a request: `limiter.check("send-mail", user).await`.

use std::error::Error;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tollgate_core::{BackendError, Decide, Decision, Receipt, Verdict};

use super::{Fallback, Limiter, Plan};
use crate::{Key, Policy};

/// One question to a [`Limiter`], to be awaited: see [`Limiter::check`].
///
/// ```
/// # use tollgate::{Limiter, Policy, Quota};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::from(Policy::new("tokens", Quota::per_minute(10_000)));
///
/// let asked = limiter.check("tokens", "alice").cost(12_000).probe().await?;
/// assert!(!asked.is_allowed() && asked.retry_after().is_none(), "more than a full budget holds");
///
/// let taken = limiter.check("tokens", "alice").cost(9_000).await?;
/// assert_eq!(taken.remaining(), 1_000);
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a check does nothing unless it is awaited"]
pub struct Check<'a> {
    limiter: &'a Limiter,
    policy: Result<&'a Arc<Policy>, CheckError>,
    key: Key,
    cost: Option<u64>,
    probe: bool,
}

impl<'a> Check<'a> {
    pub(super) fn new(limiter: &'a Limiter, policy: &str, key: Key) -> Self {
        let unknown = || CheckError::UnknownPolicy {
            policy: policy.into(),
        };
        let policy = limiter.policy(policy).ok_or_else(unknown);
        Self {
            limiter,
            policy,
            key,
            cost: None,
            probe: false,
        }
    }

    /// Asks for this cost rather than the policy's own. 0 always passes and reports the truth.
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = Some(cost);
        self
    }

    /// Only asks whether it would pass. Nothing is taken.
    pub fn probe(mut self) -> Self {
        self.probe = true;
        self
    }
}

impl<'a> IntoFuture for Check<'a> {
    type Output = Result<Checked, CheckError>;
    type IntoFuture = CheckFuture<'a>;

    fn into_future(self) -> CheckFuture<'a> {
        let asked = self.policy.map(|policy| {
            let cost = self.cost.unwrap_or(policy.cost);
            (Plan::of_one(policy, self.key, cost, self.probe), None)
        });
        CheckFuture {
            limiter: self.limiter,
            asked: Some(asked),
        }
    }
}

/// The future of a [`Check`].
#[must_use = "a check does nothing unless it is awaited"]
pub struct CheckFuture<'a> {
    limiter: &'a Limiter,
    /// Empty once it has been answered.
    asked: Option<Result<(Plan, Option<Decide>), CheckError>>,
}

impl Future for CheckFuture<'_> {
    type Output = Result<Checked, CheckError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let limiter = self.limiter;
        let answer = match &mut self.asked {
            // Asked when it is first polled: a check that nobody awaits spends nothing.
            Some(Ok((plan, decide))) => {
                let decide = decide.get_or_insert_with(|| limiter.decide(plan));
                Some(ready!(Pin::new(decide).poll(cx)))
            }
            _ => None,
        };
        let result = match (self.asked.take(), answer) {
            (Some(Ok((plan, _))), Some(answer)) => {
                Checked::of(&plan, self.limiter.rule(&plan, answer))
            }
            (Some(Err(error)), _) => Err(error),
            // Polled after its end.
            _ => return Poll::Pending,
        };
        Poll::Ready(result)
    }
}

impl fmt::Debug for CheckFuture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckFuture").finish_non_exhaustive()
    }
}

/// The answer to a [`Check`].
#[derive(Debug)]
pub struct Checked {
    outcome: Outcome,
    enforced: bool,
    receipts: Vec<Receipt>,
}

#[derive(Debug)]
enum Outcome {
    Decided(Decision),
    Undecided(BackendError),
}

impl Checked {
    fn of(plan: &Plan, ruled: Result<Decision, Fallback>) -> Result<Self, CheckError> {
        let (outcome, receipts) = match ruled {
            Ok(decision) => {
                let receipts = plan.with_charges(|charges| decision.receipts(charges).collect());
                (Outcome::Decided(decision), receipts)
            }
            // Receipts are the backend's; what a local budget took is not to be credited there.
            Err(Fallback::Decide(local)) => (Outcome::Decided(local.1), Vec::new()),
            Err(Fallback::Pass(error)) => (Outcome::Undecided(error), Vec::new()),
            Err(Fallback::Refuse(error)) => return Err(CheckError::Unavailable(error)),
        };
        let enforced = plan.payers().all(|(policy, _)| !policy.shadow);
        Ok(Self {
            outcome,
            enforced,
            receipts,
        })
    }

    /// Whether to go on: every quota of the policy had room (a [probe](Check::probe): has), or the policy is on trial, or
    /// the backend failed and the policy says [`OnFailure::Allow`](crate::OnFailure::Allow).
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        !self.enforced
            || match &self.outcome {
                // What is only asked is never refused as a whole, so its verdicts are looked at as well.
                Outcome::Decided(decision) => {
                    decision.is_admitted() && !decision.verdicts().iter().any(Verdict::is_denied)
                }
                Outcome::Undecided(_) => true,
            }
    }

    /// If it was denied, how long until it would be allowed if nothing else arrives. `None` if it never would, or is
    /// [allowed](Self::is_allowed) now. What a policy on trial would have said is in the [verdicts](Self::verdicts).
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match &self.outcome {
            Outcome::Decided(decision) if self.enforced => decision.retry_after(),
            _ => None,
        }
    }

    /// The largest cost that would be allowed right now: the least that is left in any of the policy's quotas. 0 if
    /// nothing was decided.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.verdicts()
            .iter()
            .map(Verdict::remaining)
            .min()
            .unwrap_or(0)
    }

    /// One verdict for each quota of the policy, in their order. Empty if the backend failed and nothing was decided.
    #[must_use]
    pub fn verdicts(&self) -> &[Verdict] {
        match &self.outcome {
            Outcome::Decided(decision) => decision.verdicts(),
            Outcome::Undecided(_) => &[],
        }
    }

    /// Why nothing was decided, if so: the backend failed, and the policy lets everything pass then.
    #[must_use]
    pub fn undecided(&self) -> Option<&BackendError> {
        match &self.outcome {
            Outcome::Decided(_) => None,
            Outcome::Undecided(error) => Some(error),
        }
    }

    /// What was taken, to be given back or added to: see [`Limiter::credit`] and [`Limiter::debit`].
    #[must_use]
    pub fn into_receipts(self) -> Vec<Receipt> {
        self.receipts
    }
}

/// Why a [`Check`] has no answer. A denial is not among the reasons: it is an answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum CheckError {
    /// The limiter has no policy of this name.
    UnknownPolicy {
        /// The name.
        policy: String,
    },
    /// The backend failed, and the policy says that everything is refused then.
    Unavailable(BackendError),
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPolicy { policy } => {
                write!(f, "policy {policy:?}: there is none of this name")
            }
            Self::Unavailable(_) => f.write_str("the limiter cannot decide"),
        }
    }
}

impl Error for CheckError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::UnknownPolicy { .. } => None,
            Self::Unavailable(error) => Some(error),
        }
    }
}
