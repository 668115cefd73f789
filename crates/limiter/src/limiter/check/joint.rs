//! Several checks as one decision.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tollgate_core::{BackendError, MAX_CHARGES, Receipt, Verdict};

use super::outcome::{Outcome, left, longest_wait};
use super::{Check, CheckError, Patience};
use crate::limiter::entry::Entrant;
use crate::limiter::planning::Question;
use crate::limiter::{Admission, Judgement, Limiter, MOST_LOG_ENTRIES, PendingAdmission, Ruling};
use crate::policy::Rank;
use crate::report::Report;
use crate::{Block, Key, Policy};

/// Several [checks](Check) as one decision, to be awaited: see [`Limiter::check_all`]. Dropped before its end it gives back what
/// was taken.
///
/// ```
/// use tollgate::{JointCheck, Limiter};
///
/// fn call<'a>(limiter: &'a Limiter, account: &str, user: &str) -> JointCheck<'a> {
///     limiter.check_all([limiter.check("account", account), limiter.check("user", user).cost(2)])
/// }
/// ```
#[must_use = "nothing is decided unless it is awaited"]
pub struct JointCheck<'a> {
    limiter: &'a Limiter,
    parts: Vec<Part>,
    step: Step,
}

/// One of the checks, as the outcome has to know it.
#[derive(Debug)]
struct Part {
    policy: Arc<Policy>,
    key: Key,
}

enum Step {
    Wrong(CheckError),
    Asked {
        questions: Vec<Question>,
        /// The most important class of the checks, if there are any.
        importance: Option<Rank>,
        is_probe: bool,
    },
    Pending(Box<PendingAdmission>),
    /// The answer was given.
    Done,
}

impl<'a> JointCheck<'a> {
    pub(in crate::limiter) fn new(
        limiter: &'a Limiter,
        checks: impl IntoIterator<Item = Check<'a>>,
    ) -> Self {
        let checks: Vec<_> = checks.into_iter().collect();
        let importance = checks.iter().map(|check| check.importance).min();
        match questions(limiter, checks) {
            Err(error) => Self {
                limiter,
                parts: Vec::new(),
                step: Step::Wrong(error),
            },
            Ok(questions) => Self {
                limiter,
                parts: questions.iter().map(Part::of).collect(),
                step: Step::Asked {
                    importance,
                    is_probe: questions.iter().any(|question| question.demand.probe),
                    questions,
                },
            },
        }
    }
}

/// The questions of these checks, if they can be one decision.
fn questions(limiter: &Limiter, checks: Vec<Check<'_>>) -> Result<Vec<Question>, CheckError> {
    let probes = checks.iter().filter(|check| check.probe).count();
    let are_mixed = probes > 0 && probes < checks.len();
    let (mut charges, mut entries) = (0, 0);
    let mut questions: Vec<Question> = Vec::with_capacity(checks.len());
    for check in checks {
        let is_of_another = !std::ptr::eq(&raw const *check.limiter.0, &raw const *limiter.0);
        let grant = check.grant;
        let question = check.question()?;
        let policy = question.policy.name();
        let policy = || policy.to_owned();
        if is_of_another {
            return Err(CheckError::OtherLimiter { policy: policy() });
        }
        if let Some(grant) = grant {
            return Err(CheckError::UpTo {
                policy: policy(),
                most: grant.most,
                reason: "several checks are all or nothing; ask for it alone".into(),
            });
        }
        if are_mixed {
            return Err(CheckError::ProbeAmong);
        }
        let is_same = |other: &Question| {
            other.policy.name() == question.policy.name() && other.key == question.key
        };
        if questions.iter().any(is_same) {
            return Err(CheckError::Repeated { policy: policy() });
        }
        charges += question.policy.most_limits() + usize::from(question.wish.is_some());
        entries += question.policy.most_log_entries();
        questions.push(question);
    }
    if charges > MAX_CHARGES {
        return Err(CheckError::TooManyCharges { charges });
    }
    if entries > MOST_LOG_ENTRIES {
        return Err(CheckError::TooManyLogEntries {
            entries,
            most: MOST_LOG_ENTRIES,
        });
    }
    Ok(questions)
}

impl Future for JointCheck<'_> {
    type Output = Result<JointOutcome, CheckError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let limiter = this.limiter;
        loop {
            match std::mem::replace(&mut this.step, Step::Done) {
                Step::Wrong(error) => return Poll::Ready(Err(error)),
                Step::Asked {
                    questions,
                    importance,
                    is_probe,
                } => {
                    let entrant = importance.map(|class| Entrant::Work { class, is_probe });
                    match limiter.admit_questions(questions, entrant, Patience::None, |ruling| {
                        JointOutcome::of(&this.parts, ruling)
                    }) {
                        Admission::Ruled(checked) => return Poll::Ready(checked),
                        Admission::Pending(pending) => this.step = Step::Pending(pending),
                    }
                }
                Step::Pending(mut pending) => {
                    let checked = pending.poll(cx, limiter, None, |ruling| {
                        JointOutcome::of(&this.parts, ruling)
                    });
                    if checked.is_pending() {
                        this.step = Step::Pending(pending);
                    }
                    return checked;
                }
                // Polled after its end.
                Step::Done => return Poll::Pending,
            }
        }
    }
}

impl fmt::Debug for JointCheck<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = f.debug_list();
        list.entries(self.parts.iter().map(|part| part.policy.name()));
        list.finish()
    }
}

/// The answer to several checks at once, and the guard of what they hold. Checks are counted from 0, in the order in which they
/// were given.
///
/// ```
/// use tollgate::{Limiter, Policy, Quota};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let account = Policy::new("account", Quota::per_day(100)).on_demand();
/// let user = Policy::new("user", Quota::per_day(2)).on_demand();
/// let limiter = Limiter::builder().policies([account, user]).build()?;
/// let call = || limiter.check_all([limiter.check("account", "acme"), limiter.check("user", "alice").cost(2)]);
///
/// assert!(call().await?.is_allowed());
/// let refused = call().await?;
/// assert!(!refused.is_allowed() && refused.retry_after().is_some());
/// // The account has room, and pays nothing for what the user may not do.
/// assert_eq!((refused.refuses(0), refused.refuses(1)), (false, true));
/// assert_eq!(refused.remaining(0), 99);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct JointOutcome {
    outcome: Outcome,
    parts: Vec<CheckAnswer>,
}

/// The decision on one of the checks.
#[derive(Debug)]
struct CheckAnswer {
    key: Key,
    verdicts: Range<usize>,
    is_enforced: bool,
}

impl Part {
    fn of(question: &Question) -> Self {
        Self {
            policy: Arc::clone(&question.policy),
            key: question.key.clone().compact(),
        }
    }

    /// The place of its verdicts: none, if the identity is exempt or its tier unlimited.
    fn verdicts(&self, decided: Option<Judgement<'_>>) -> Range<usize> {
        let mut begin = 0;
        let payers = decided
            .into_iter()
            .flat_map(|decided| decided.entries.payers());
        for (policy, key, limits) in payers {
            let end = begin + limits.len();
            // A looked-up quota belongs to a policy of its own, with the same name.
            if policy.name() == self.policy.name() && *key == self.key {
                return begin..end;
            }
            begin = end;
        }
        0..0
    }
}

impl JointOutcome {
    fn of(parts: &[Part], ruling: Ruling<'_>) -> Result<Self, CheckError> {
        let decided = match &ruling {
            Ruling::Admitted(decided) | Ruling::Denied(decided) => Some(*decided),
            _ => None,
        };
        let parts_answered = parts.iter().map(|part| CheckAnswer {
            key: part.key.clone(),
            verdicts: part.verdicts(decided),
            is_enforced: !part.policy.shadow,
        });
        let parts_answered = parts_answered.collect();
        let outcome = Outcome::of(ruling, || {
            let asked = parts.iter().map(|part| &part.policy);
            let asked = asked.filter(|policy| !policy.has_own_quotas_alone());
            let names: Vec<_> = asked.map(|policy| policy.name()).collect();
            names.join(", ")
        })?;
        Ok(Self {
            outcome,
            parts: parts_answered,
        })
    }

    /// True if the work may go on: each check is allowed. Then all of them are charged, and otherwise none is.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        match &self.outcome {
            Outcome::Decided { .. } => (0..self.parts.len()).all(|check| !self.refuses(check)),
            Outcome::Undecided(..) | Outcome::Unlimited => true,
            Outcome::Blocked(_) | Outcome::Shed(_) => false,
        }
    }

    /// True if this check is among the reasons of the refusal: a quota of its policy, which is not on trial, has no room. If
    /// nothing was decided because an identity is [blocked](Self::blocked) or the work is [shed](Self::is_shed), each check is.
    /// False for a check that there is not.
    ///
    /// ```
    /// use tollgate::JointOutcome;
    ///
    /// /// The checks without room, for the log.
    /// fn culprits(outcome: &JointOutcome, checks: usize) -> Vec<usize> {
    ///     (0..checks).filter(|check| outcome.refuses(*check)).collect()
    /// }
    /// ```
    #[must_use]
    pub fn refuses(&self, check: usize) -> bool {
        let Some(part) = self.parts.get(check) else {
            return false;
        };
        match self.outcome {
            Outcome::Decided { .. } => {
                part.is_enforced && self.verdicts(check).iter().any(Verdict::is_denied)
            }
            Outcome::Undecided(..) | Outcome::Unlimited => false,
            Outcome::Blocked(_) | Outcome::Shed(_) => true,
        }
    }

    /// The verdicts on one of the checks, as [`CheckOutcome::verdicts`](crate::CheckOutcome::verdicts) has them. They say what
    /// there was for this check, whatever became of the others. Empty for a check that there is not.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{JointOutcome, Verdict};
    ///
    /// /// The time until all quotas of one of the checks are full again.
    /// fn reset(outcome: &JointOutcome, check: usize) -> Option<Duration> {
    ///     outcome.verdicts(check).iter().map(Verdict::reset_after).max()
    /// }
    /// ```
    #[must_use]
    pub fn verdicts(&self, check: usize) -> &[Verdict] {
        match (&self.outcome, self.parts.get(check)) {
            (Outcome::Decided { verdicts, .. }, Some(part)) => {
                verdicts.get(part.verdicts.clone()).unwrap_or_default()
            }
            _ => &[],
        }
    }

    /// The largest cost that one of the checks could have right now: see
    /// [`CheckOutcome::remaining`](crate::CheckOutcome::remaining). 0 for a check that there is not.
    ///
    /// ```
    /// use tollgate::JointOutcome;
    ///
    /// /// The check with the least left, of so many.
    /// fn tightest(outcome: &JointOutcome, checks: usize) -> Option<usize> {
    ///     (0..checks).min_by_key(|check| outcome.remaining(*check))
    /// }
    /// ```
    #[must_use]
    pub fn remaining(&self, check: usize) -> u64 {
        match (&self.outcome, self.parts.get(check)) {
            (Outcome::Unlimited, Some(_)) => u64::MAX,
            (Outcome::Decided { ledger, .. }, Some(part)) => {
                let verdicts = ledger.report().verdicts();
                let verdicts = verdicts.get(part.verdicts.clone());
                verdicts.and_then(left).unwrap_or(u64::MAX)
            }
            _ => 0,
        }
    }

    /// The time until all of the checks would pass together, if no other request arrives: the longest of their waits. `None` as for
    /// [one check](crate::CheckOutcome::retry_after).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::JointOutcome;
    ///
    /// /// The seconds that a client is told.
    /// fn seconds(outcome: &JointOutcome) -> Option<u64> {
    ///     outcome.retry_after().map(|wait| (wait + Duration::from_millis(999)).as_secs())
    /// }
    /// ```
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match &self.outcome {
            Outcome::Decided { .. } => {
                let checks = (0..self.parts.len()).filter(|check| self.refuses(*check));
                longest_wait(checks.flat_map(|check| self.verdicts(check)))
            }
            Outcome::Shed(wait) => Some(*wait),
            _ => None,
        }
    }

    /// The error because of which nothing was decided: the backend failed, and the policies let everything pass then.
    ///
    /// ```
    /// use tollgate::JointOutcome;
    ///
    /// /// For a gateway that has a failure rule of its own.
    /// fn is_known(outcome: &JointOutcome) -> bool {
    ///     outcome.undecided().is_none()
    /// }
    /// ```
    #[must_use]
    pub fn undecided(&self) -> Option<&BackendError> {
        self.outcome.undecided()
    }

    /// The way to refuse the work, if the identity of one of the checks is on a block list or in a tier without any allowance.
    ///
    /// ```
    /// use tollgate::{Block, JointOutcome};
    ///
    /// /// The status of a refusal.
    /// fn status(outcome: &JointOutcome) -> u16 {
    ///     match outcome.blocked() {
    ///         Some(Block::Forbidden) => 403,
    ///         _ => 429,
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn blocked(&self) -> Option<Block> {
        self.outcome.blocked()
    }

    /// True if nothing was asked, because the process is under pressure and [sheds](crate::LimiterBuilder::shed) the most important
    /// class among the checks.
    ///
    /// ```
    /// use tollgate::JointOutcome;
    ///
    /// /// Says whether a refusal is the caller's own doing.
    /// fn is_deserved(outcome: &JointOutcome) -> bool {
    ///     !outcome.is_allowed() && !outcome.is_shed()
    /// }
    /// ```
    #[must_use]
    pub fn is_shed(&self) -> bool {
        self.outcome.is_shed()
    }

    /// The verdicts on all of the checks with the names of their quotas.
    #[doc(hidden)]
    #[must_use]
    pub fn report(&self) -> Report<'_> {
        match &self.outcome {
            Outcome::Decided { ledger, .. } => ledger.report(),
            _ => Report::default(),
        }
    }

    /// The verdicts on one of the checks with the names of their quotas.
    #[doc(hidden)]
    #[must_use]
    pub fn report_of(&self, check: usize) -> Report<'_> {
        let verdicts = self.parts.get(check).map(|part| part.verdicts.clone());
        let verdicts = verdicts.and_then(|place| self.report().verdicts().get(place));
        Report::of(verdicts.unwrap_or_default())
    }

    /// Receipts of `n`, by which [`Limiter::debit`] takes from the budgets of one of the checks what was spent without having been
    /// asked for. None for budgets of this process, which decide while the backend fails.
    #[doc(hidden)]
    pub fn receipts_of_spent(&self, check: usize, n: u64) -> impl Iterator<Item = Receipt> {
        let key = self.parts.get(check).map(|part| &part.key);
        let verdicts = self.report_of(check).verdicts().iter();
        let quotas = verdicts.filter(|one| !one.is_ban());
        quotas.filter_map(move |one| one.receipt_of_spent(key?, n))
    }

    /// The receipts of the charges in the order of the checks, and then those of their ids: see
    /// [`CheckOutcome::into_receipts`](crate::CheckOutcome::into_receipts). Credit those of ids first, so that no retry passes by a
    /// charge that was given back.
    ///
    /// ```
    /// use tollgate::{JointOutcome, Limiter};
    ///
    /// /// Gives everything back: the work was not done.
    /// fn cancel(limiter: &Limiter, outcome: JointOutcome) {
    ///     for receipt in outcome.into_receipts().into_iter().rev() {
    ///         limiter.refund(receipt, u64::MAX);
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn into_receipts(self) -> Vec<Receipt> {
        self.outcome.into_receipts()
    }
}
