//! The answer to a check, and the guard of what it holds.

use std::time::Duration;

use tollgate_core::{BackendError, Receipt, RetryAfter, Verdict};

use super::CheckError;
use crate::limiter::plan::Wish;
use crate::limiter::planning::Question;
use crate::limiter::{Judgement, Ledger, Rejection, Ruling};
use crate::{Block, Policy, PolicyVerdict};

/// The answer to a [`Check`](crate::Check), and the guard of what it holds: under a [`Concurrent`](crate::Concurrent) limit keep
/// it for as long as the work lasts. Dropping it gives back the places that it holds.
///
/// ```
/// use tollgate::{Concurrent, Limiter, Policy};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::from(Policy::new("export", Concurrent::at_most(1)));
///
/// let export = limiter.check("export", "alice").await?;
/// assert!(!limiter.check("export", "alice").await?.is_allowed(), "one at once");
/// drop(export);
/// assert!(limiter.check("export", "alice").await?.is_allowed());
/// # Ok(()) }
/// ```
///
/// ```
/// use tollgate::{Limiter, Policy, Quota};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::from(Policy::new("mail", [Quota::per_hour(2), Quota::per_day(20)]));
///
/// let checked = limiter.check("mail", "alice").await?;
/// assert!(checked.is_allowed());
/// // One is left in this hour, and 19 in this day.
/// assert_eq!(checked.remaining(), 1);
/// assert_eq!(checked.verdicts().len(), 2);
/// assert!(checked.undecided().is_none() && checked.blocked().is_none());
/// assert_eq!(checked.into_receipts().len(), 2);
///
/// limiter.check("mail", "alice").await?;
/// let refused = limiter.check("mail", "alice").await?;
/// assert!(!refused.is_allowed() && refused.retry_after().is_some());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct CheckOutcome {
    outcome: Outcome,
    enforced: bool,
    asked: AskedAmount,
}

/// The amount that a check asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AskedAmount {
    /// The cost, or the most that may be granted.
    most: u64,
    /// True if less may be granted.
    is_grant: bool,
}

/// The outcome of a check, or of several checks that are one decision.
#[derive(Debug)]
pub(super) enum Outcome {
    Decided {
        verdicts: Vec<Verdict>,
        ledger: Ledger,
    },
    /// The ledger gives back what is held all the same when it is dropped.
    Undecided(BackendError, Ledger),
    Unlimited,
    Blocked(Block),
    Shed(Duration),
}

impl CheckOutcome {
    pub(super) fn of(
        policy: &Policy,
        asked: AskedAmount,
        ruling: Ruling<'_>,
    ) -> Result<Self, CheckError> {
        let outcome = Outcome::of(ruling, || policy.name().into())?;
        // A policy on trial refuses nothing; the limiter under pressure does.
        let enforced = !policy.shadow || matches!(outcome, Outcome::Shed(_));
        Ok(Self {
            outcome,
            enforced,
            asked,
        })
    }

    /// True if the work may go on: every quota of the policy had room (for a [probe](crate::Check::probe): has), the policy is on
    /// trial, the identity is exempt, its tier is unlimited, or the backend failed and the policy says
    /// [`OnFailure::Allow`](crate::OnFailure::Allow).
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        !self.enforced
            || match &self.outcome {
                // A probe is never refused as a whole, so its verdicts are looked at.
                Outcome::Decided { verdicts, .. } => !verdicts.iter().any(Verdict::is_denied),
                Outcome::Undecided(..) | Outcome::Unlimited => true,
                Outcome::Blocked(_) | Outcome::Shed(_) => false,
            }
    }

    /// The time until a denied check would pass, if no other request arrives. `None` if it is [allowed](Self::is_allowed) now, if
    /// others hold what it needs, so that the time is unknown, or if it can never pass, like a [blocked](Self::blocked) one. For
    /// one that is [shed](Self::is_shed) it is what the operator states, without jitter. The
    /// [verdicts](Self::verdicts) say what a policy on trial would have decided.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match &self.outcome {
            // This holds for a probe too: all verdicts are the policy's own.
            Outcome::Decided { verdicts, .. } if self.enforced => longest_wait(verdicts),
            Outcome::Shed(wait) => Some(*wait),
            _ => None,
        }
    }

    /// The largest cost that would be allowed right now: the least that is left in any of the policy's quotas. It is 0 if nothing
    /// was decided, and `u64::MAX` for an identity that is exempt or in a tier without limits.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        if let Outcome::Unlimited = self.outcome {
            return u64::MAX;
        }
        let Outcome::Decided { ledger, .. } = &self.outcome else {
            return 0;
        };
        left(ledger.report().verdicts()).unwrap_or(0)
    }

    /// The units that the work may spend: the cost of the check, or for one that asks for [as much as there
    /// is](crate::Check::up_to) the amount that was granted. 0 if it is denied. For a [probe](crate::Check::probe) it is what
    /// would be granted now.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::from(Policy::new("tokens", Quota::per_minute(500)));
    ///
    /// let asked = limiter.check("tokens", "alice").up_to(800).probe().await?;
    /// assert_eq!(asked.granted(), 500);
    /// let taken = limiter.check("tokens", "alice").up_to(800).await?;
    /// assert_eq!((taken.granted(), taken.remaining()), (500, 0));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn granted(&self) -> u64 {
        if !self.is_allowed() {
            return 0;
        }
        let (Outcome::Decided { ledger, .. }, true, true) =
            (&self.outcome, self.enforced, self.asked.is_grant)
        else {
            return self.asked.most;
        };
        let verdicts = ledger.report().verdicts().iter();
        let counts = verdicts.filter(|one| !one.is_ban());
        let amounts = counts.map(|one| match one.verdict().taken() {
            // A probe.
            0 => one.verdict().remaining(),
            taken => taken,
        });
        amounts
            .min()
            .unwrap_or(self.asked.most)
            .min(self.asked.most)
    }

    /// The time for which it waited for its turn or for a place: see [`Limiter::acquire`](crate::Limiter::acquire).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::from(Quota::per_second(10));
    /// let caller = limiter.client_key("203.0.113.7".parse()?);
    /// // A check decides at once.
    /// assert_eq!(limiter.check("default", caller).await?.waited(), Duration::ZERO);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn waited(&self) -> Duration {
        match &self.outcome {
            Outcome::Decided { ledger, .. } => ledger.waited(),
            _ => Duration::ZERO,
        }
    }

    /// One verdict for each quota of the policy, in their order, as the [class](crate::Check::class) sees it, and then that of its
    /// [ban](crate::Policy::ban). Empty if nothing was decided: the backend failed, or the
    /// policy's lists or tiers leave nothing to be decided, or the check was [shed](Self::is_shed).
    #[must_use]
    pub fn verdicts(&self) -> &[Verdict] {
        match &self.outcome {
            Outcome::Decided { verdicts, .. } => verdicts,
            _ => &[],
        }
    }

    /// The error because of which nothing was decided: the backend failed, and the policy lets everything pass then.
    #[must_use]
    pub fn undecided(&self) -> Option<&BackendError> {
        self.outcome.undecided()
    }

    /// The way to refuse the identity, if it is on a block list of the policy or a [limit of 0](crate::Quotas::none) refuses it.
    #[must_use]
    pub fn blocked(&self) -> Option<Block> {
        self.outcome.blocked()
    }

    /// True if nothing was asked, because the process is under pressure and [sheds](crate::LimiterBuilder::shed) the class of the
    /// check.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, PressureGauge, Quota, key};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let queue = PressureGauge::new();
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("mail", Quota::per_hour(10)))
    ///     .classes(["critical", "normal"], key::Header::new("x-class"))
    ///     .shed(&queue, [("normal", 0.9)])
    ///     .build()?;
    /// queue.set(0.95);
    ///
    /// let refused = limiter.check("mail", "alice").await?;
    /// assert!(refused.is_shed() && !refused.is_allowed());
    /// let receipt = limiter.check("mail", "alice").class("critical").await?;
    /// assert!(receipt.is_allowed());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_shed(&self) -> bool {
        self.outcome.is_shed()
    }

    /// The receipts of the charges, for later credits and debits: see [`Limiter::refund`](crate::Limiter::refund) and
    /// [`Limiter::debit`](crate::Limiter::debit). The receipt of a [`Concurrent`](crate::Concurrent) limit must be credited when
    /// the work is done, since this guard is then gone.
    #[must_use]
    pub fn into_receipts(self) -> Vec<Receipt> {
        self.outcome.into_receipts()
    }
}

impl AskedAmount {
    pub(super) fn of(question: &Question) -> Self {
        Self {
            most: question.demand.cost,
            is_grant: matches!(question.wish.as_deref(), Some(Wish::UpTo { .. })),
        }
    }
}

impl Outcome {
    /// The outcome of a ruling. `unknown` names what is asked for tiers and quotas, if these are not known.
    pub(super) fn of(
        ruling: Ruling<'_>,
        unknown: impl FnOnce() -> String,
    ) -> Result<Self, CheckError> {
        Ok(match ruling {
            Ruling::Uncharged => Self::Unlimited,
            Ruling::Admitted(decided) | Ruling::Denied(decided) => Self::decided(decided.ledger()),
            Ruling::Undecided(error, assumed) => {
                let ledger = assumed.map(Judgement::ledger).unwrap_or_default();
                Self::Undecided(error, ledger)
            }
            Ruling::Refused(Rejection::Blocked(how)) => Self::Blocked(how),
            Ruling::Refused(Rejection::Shed(wait)) => Self::Shed(wait),
            Ruling::Refused(Rejection::Unavailable(error)) => {
                return Err(CheckError::Unavailable(error));
            }
            Ruling::Refused(Rejection::TierUnknown | Rejection::Unidentified(_)) => {
                return Err(CheckError::TierUnknown { policy: unknown() });
            }
        })
    }

    pub(super) fn undecided(&self) -> Option<&BackendError> {
        match self {
            Self::Undecided(error, _) => Some(error),
            _ => None,
        }
    }

    pub(super) fn blocked(&self) -> Option<Block> {
        match self {
            Self::Blocked(how) => Some(*how),
            _ => None,
        }
    }

    pub(super) fn is_shed(&self) -> bool {
        matches!(self, Self::Shed(_))
    }

    pub(super) fn into_receipts(self) -> Vec<Receipt> {
        match self {
            Self::Decided { ledger, .. } | Self::Undecided(_, ledger) => ledger.into_receipts(),
            _ => Vec::new(),
        }
    }

    fn decided(ledger: Ledger) -> Self {
        let verdicts = ledger.report().verdicts().iter();
        Self::Decided {
            verdicts: verdicts.map(|one| *one.verdict()).collect(),
            ledger,
        }
    }
}

/// The least that is left, if there are any verdicts of quotas.
pub(super) fn left(verdicts: &[PolicyVerdict]) -> Option<u64> {
    // A banned caller gets nothing.
    let left = verdicts
        .iter()
        .filter_map(|one| match (one.is_ban(), one.verdict().is_denied()) {
            (true, true) => Some(0),
            (true, false) => None,
            (false, _) => Some(one.verdict().remaining()),
        });
    left.min()
}

/// The longest wait among the refused quotas, if all of them pass at some time that is known.
pub(super) fn longest_wait<'a>(
    verdicts: impl IntoIterator<Item = &'a Verdict>,
) -> Option<Duration> {
    let waits = verdicts
        .into_iter()
        .filter_map(|verdict| match verdict.outcome() {
            tollgate_core::Outcome::Deny(wait) => Some(wait),
            _ => None,
        });
    match waits.max()? {
        RetryAfter::Micros(us) => Some(Duration::from_micros(us)),
        RetryAfter::Unknown | RetryAfter::Never => None,
    }
}
