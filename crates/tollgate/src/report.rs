//! What was decided about a request, quota by quota: what handlers see and headers say.

use std::fmt;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{Decision, Mode, Outcome, RetryAfter, Verdict};

use crate::policy::Labels;

/// The verdict of one quota of one policy on this request.
#[derive(Clone, Copy)]
pub struct PolicyVerdict {
    labels: &'static Labels,
    mode: Mode,
    verdict: Verdict,
}

impl PolicyVerdict {
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
pub(crate) struct Report(SmallVec<[PolicyVerdict; 1]>);

impl Report {
    pub(crate) fn new(
        mut labels: impl Iterator<Item = (&'static Labels, Mode)>,
        decision: &Decision,
    ) -> Self {
        // Nearly every request meets one quota: no loop for it.
        if let [verdict] = decision.verdicts()
            && let Some((labels, mode)) = labels.next()
        {
            let one = PolicyVerdict {
                labels,
                mode,
                verdict: *verdict,
            };
            return Self(SmallVec::from_buf([one]));
        }
        let verdicts = labels.zip(decision.verdicts());
        Self(
            verdicts
                .map(|((labels, mode), verdict)| PolicyVerdict {
                    labels,
                    mode,
                    verdict: *verdict,
                })
                .collect(),
        )
    }

    pub(crate) fn verdicts(&self) -> &[PolicyVerdict] {
        &self.0
    }

    /// Those that the request depended on and that were asked.
    pub(crate) fn enforced(&self) -> impl Iterator<Item = &PolicyVerdict> {
        let asked = |one: &PolicyVerdict| one.verdict.outcome() != Outcome::Unknown;
        self.0
            .iter()
            .filter(move |one| one.is_enforced() && asked(one))
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
        let refusals = self.0.iter().filter(|one| one.refuses());
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
