//! What was decided about a request, quota by quota: what handlers see and headers say.

use std::fmt;
use std::time::Duration;

use tollgate_core::{Charge, Decision, Mode, Outcome, Receipt, RetryAfter, Timestamp, Verdict};

use crate::Key;
use crate::few::Few;
use crate::policy::Labels;

/// The verdict of one quota of one policy on this request.
#[derive(Clone, Copy)]
pub struct PolicyVerdict {
    labels: &'static Labels,
    mode: Mode,
    verdict: Verdict,
}

impl PolicyVerdict {
    #[inline]
    pub(crate) fn new(labels: &'static Labels, mode: Mode, verdict: Verdict) -> Self {
        Self {
            labels,
            mode,
            verdict,
        }
    }

    /// The policy's name.
    #[must_use]
    pub fn policy(&self) -> &'static str {
        &self.labels.policy
    }

    /// The quota's name, as it stands in headers: the policy's, unless the policy has several.
    #[must_use]
    pub fn quota(&self) -> &'static str {
        &self.labels.quota
    }

    /// Whether the request depended on it; `false` for a policy on trial.
    #[must_use]
    pub fn is_enforced(&self) -> bool {
        self.mode == Mode::Enforce
    }

    /// What was decided.
    #[must_use]
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    pub(crate) fn labels(&self) -> &'static Labels {
        self.labels
    }

    /// The proof that `key` was charged at `at`, if it was.
    pub(crate) fn receipt(&self, key: &Key, at: Timestamp) -> Option<Receipt> {
        let charge = Charge {
            scope: self.labels.scope,
            quota: &self.labels.rule,
            key,
            cost: self.verdict.taken(),
            mode: self.mode,
        };
        Receipt::of(&charge, &self.verdict, at)
    }

    /// What it really cost is this.
    pub(crate) fn correct_to(&mut self, cost: u64) {
        self.verdict = self.verdict.corrected_to(cost);
    }

    /// Whether the request depended on it, and it was asked.
    #[inline]
    pub(crate) fn counts(&self) -> bool {
        self.is_enforced() && self.verdict.outcome() != Outcome::Unknown
    }

    /// Whether this is one of those for which the request was refused.
    pub(crate) fn refuses(&self) -> bool {
        self.is_enforced() && self.verdict.is_denied()
    }
}

impl fmt::Debug for PolicyVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyVerdict")
            .field("quota", &self.quota())
            .field("mode", &self.mode)
            .field("verdict", &self.verdict)
            .finish()
    }
}

/// All verdicts on one request. Nearly always one or two.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report(Few<PolicyVerdict>);

impl Report {
    /// No verdicts.
    pub(crate) const EMPTY: Self = Self(Few::NONE);

    #[inline]
    pub(crate) fn of_one(verdict: PolicyVerdict) -> Self {
        Self(Few::One(verdict))
    }

    pub(crate) fn new(
        labels: impl Iterator<Item = (&'static Labels, Mode)>,
        decision: &Decision,
    ) -> Self {
        let verdicts = labels.zip(decision.verdicts());
        Self(
            verdicts
                .map(|((labels, mode), verdict)| PolicyVerdict::new(labels, mode, *verdict))
                .collect(),
        )
    }

    /// Makes it this one verdict. Written where it stands, not made elsewhere and moved.
    #[inline]
    pub(crate) fn set(&mut self, labels: &'static Labels, mode: Mode, verdict: &Verdict) {
        match self.0.one_mut() {
            Some(one) => {
                one.labels = labels;
                one.mode = mode;
                one.verdict = *verdict;
            }
            None => self.0 = Few::One(PolicyVerdict::new(labels, mode, *verdict)),
        }
    }

    pub(crate) fn verdicts_mut(&mut self) -> &mut [PolicyVerdict] {
        self.0.as_mut_slice()
    }

    /// Adds what was decided further in about the same request.
    pub(crate) fn append(&mut self, inner: Self) {
        self.0.extend(inner.0);
    }

    pub(crate) fn verdicts(&self) -> &[PolicyVerdict] {
        self.0.as_slice()
    }

    /// Those that the request depended on and that were asked.
    pub(crate) fn enforced(&self) -> impl Iterator<Item = &PolicyVerdict> {
        self.verdicts().iter().filter(|one| one.counts())
    }

    /// The one that says most about the request, which is the one that headers speak of: of those that refuse it the one
    /// with the longest wait, one that never passes before all others; otherwise the one with the least share left.
    pub(crate) fn tightest(&self) -> Option<&PolicyVerdict> {
        self.enforced().reduce(|best, one| {
            if one.verdict.is_tighter_than(&best.verdict) {
                one
            } else {
                best
            }
        })
    }

    /// How long until the refused request would pass; `None` if it never would, or was not refused.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let refusals = self.verdicts().iter().filter(|one| one.refuses());
        let longest = refusals.filter_map(|one| match one.verdict.outcome() {
            Outcome::Deny(after) => Some(after),
            _ => None,
        });
        match longest.max() {
            Some(RetryAfter::Micros(us)) => Some(Duration::from_micros(us)),
            _ => None,
        }
    }
}
