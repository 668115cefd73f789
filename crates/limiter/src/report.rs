//! The decisions about a request, quota by quota, for handlers and headers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Charge, Mode, Outcome, Receipt, RetryAfter, Timestamp, Verdict};

use crate::Key;
use crate::policy::{Block, Label};

/// The verdict of one quota of one policy on this request.
///
/// A handler, or an answer of your own, reads which policy is how full:
///
/// ```
/// use tollgate::PolicyVerdict;
///
/// fn line(of: &PolicyVerdict) -> String {
///     let verdict = of.verdict();
///     let trial = if of.is_enforced() { "" } else { ", on trial" };
///     format!("{} ({}): {} of {} left{trial}", of.policy(), of.quota(), verdict.remaining(), verdict.limit())
/// }
/// ```
#[derive(Clone)]
pub struct PolicyVerdict {
    label: Arc<Label>,
    mode: Mode,
    /// The wait that the operator suggests to callers whose real wait is unknown, in milliseconds; 0 if none.
    retry_hint_ms: u32,
    verdict: Verdict,
    /// The time by the backend's clock. `None` if a budget of this process decided: the backend has nothing to credit.
    at: Option<Timestamp>,
}

impl PolicyVerdict {
    /// The verdict of the quota of this name, decided at this time by the backend's clock.
    #[doc(hidden)]
    pub fn new(label: Arc<Label>, mode: Mode, verdict: Verdict, at: Option<Timestamp>) -> Self {
        Self {
            label,
            mode,
            retry_hint_ms: 0,
            verdict,
            at,
        }
    }

    /// This verdict, with a wait in milliseconds that callers are told if the real wait is unknown.
    #[inline]
    pub(crate) fn hinting(self, retry_hint_ms: u32) -> Self {
        Self {
            retry_hint_ms,
            ..self
        }
    }

    /// The policy's name.
    #[must_use]
    pub fn policy(&self) -> &str {
        self.label.policy()
    }

    /// The quota's name, as it stands in headers: the policy's, unless the policy has several.
    #[must_use]
    pub fn quota(&self) -> &str {
        self.label.quota()
    }

    /// True if the request depended on it; false for a policy on trial.
    #[must_use]
    pub fn is_enforced(&self) -> bool {
        self.mode == Mode::Enforce
    }

    /// The decision.
    #[must_use]
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// The limit that callers are told: the policy's, also where a share of it is [kept](crate::Policy::keep_for) from the class of
    /// this request. The [verdict](Self::verdict) has what is not kept from it.
    ///
    /// ```
    /// use tollgate::PolicyVerdict;
    ///
    /// fn line(of: &PolicyVerdict) -> String {
    ///     format!("{} of {} left, class {}", of.verdict().remaining(), of.limit(), of.class().unwrap_or("none"))
    /// }
    /// ```
    #[must_use]
    pub fn limit(&self) -> u64 {
        let seen = self.verdict.limit();
        // A budget of this process may be a part of the quota, and says so.
        if seen == self.label.rule().capacity() {
            self.label.whole().capacity()
        } else {
            seen
        }
    }

    /// The [class](crate::Policy::keep_for) of the request under this policy, if it has one of its classes.
    ///
    /// ```
    /// use tollgate::PolicyVerdict;
    ///
    /// fn is_batch(of: &PolicyVerdict) -> bool {
    ///     of.class() == Some("batch")
    /// }
    /// ```
    #[must_use]
    pub fn class(&self) -> Option<&str> {
        self.label.class()
    }

    /// The names of the quota and its policy.
    #[doc(hidden)]
    #[must_use]
    pub fn label(&self) -> &Arc<Label> {
        &self.label
    }

    /// The time of the decision, by the backend's clock.
    #[doc(hidden)]
    pub fn at(&self) -> Option<Timestamp> {
        self.at
    }

    /// The receipt for the charge to `key`, if there was one.
    #[doc(hidden)]
    pub fn receipt(&self, key: &Key) -> Option<Receipt> {
        let charge = Charge {
            scope: self.label.scope(),
            quota: self.label.rule(),
            key,
            cost: self.verdict.taken(),
            mode: self.mode,
        };
        Receipt::of(&charge, &self.verdict, self.at?)
    }

    /// A receipt of `n` that was spent without having been asked for, if the backend has the budget.
    #[doc(hidden)]
    pub fn receipt_of_spent(&self, key: &Key, n: u64) -> Option<Receipt> {
        let charge = Charge {
            scope: self.label.scope(),
            quota: self.label.rule(),
            key,
            cost: n,
            mode: self.mode,
        };
        Receipt::of(&charge, &Verdict::allowed(&charge, n, 0), self.at?)
    }

    /// True if the charge is held until it is given back: see [`Concurrent`](crate::Concurrent).
    ///
    /// ```
    /// use tollgate::PolicyVerdict;
    ///
    /// fn line(of: &PolicyVerdict) -> String {
    ///     let left = of.verdict().remaining();
    ///     if of.is_held() { format!("{left} more at once") } else { format!("{left} left") }
    /// }
    /// ```
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.label.rule().is_held()
    }

    /// True if this is the verdict of a [`Ban`](crate::Ban), which is not a quota: its limit is a number of strikes, and nothing is
    /// taken of it.
    ///
    /// ```
    /// use tollgate::PolicyVerdict;
    ///
    /// fn line(of: &PolicyVerdict) -> String {
    ///     let left = of.verdict().remaining();
    ///     if of.is_ban() { format!("{left} strikes until a ban") } else { format!("{left} left") }
    /// }
    /// ```
    #[must_use]
    pub fn is_ban(&self) -> bool {
        self.label.ban().is_some()
    }

    /// Corrects the verdict to the real cost.
    pub(crate) fn correct_to(&mut self, cost: u64) {
        self.verdict = self.verdict.corrected_to(cost);
    }

    /// True if the request depended on the quota, and it was asked. A ban is not a quota.
    #[inline]
    pub(crate) fn counts(&self) -> bool {
        self.is_enforced() && self.verdict.outcome() != Outcome::Unknown && !self.is_ban()
    }

    /// True if the request was refused because of this verdict.
    #[doc(hidden)]
    pub fn refuses(&self) -> bool {
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

/// The verdicts on one request. Nearly always one or two.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report<'a>(&'a [PolicyVerdict]);

impl<'a> Report<'a> {
    /// A report of these verdicts.
    #[must_use]
    pub fn of(verdicts: &'a [PolicyVerdict]) -> Self {
        Self(verdicts)
    }

    /// All verdicts, in the order of the charges.
    #[must_use]
    pub fn verdicts(self) -> &'a [PolicyVerdict] {
        self.0
    }

    /// The only verdict, if the request depended on it.
    #[inline]
    pub fn sole(self) -> Option<&'a PolicyVerdict> {
        match self.0 {
            [sole] if sole.counts() => Some(sole),
            _ => None,
        }
    }

    /// The verdicts that the request depended on and that were asked.
    pub fn enforced(self) -> impl Iterator<Item = &'a PolicyVerdict> {
        self.0.iter().filter(|one| one.counts())
    }

    /// The verdict that says most about the request, which is the one that headers speak of: of those that refuse it the one
    /// with the longest wait, one that never passes before all others; otherwise the one with the least share left.
    pub fn tightest(self) -> Option<&'a PolicyVerdict> {
        self.enforced().reduce(|best, one| {
            if one.verdict.is_tighter_than(&best.verdict) {
                one
            } else {
                best
            }
        })
    }

    /// The time until the refused request would pass; `None` if it never would, if the time is unknown, or if it was not refused.
    pub fn retry_after(self) -> Option<Duration> {
        match self.longest_wait()? {
            RetryAfter::Micros(us) => Some(Duration::from_micros(us)),
            RetryAfter::Unknown | RetryAfter::Never => None,
        }
    }

    /// The time that the refused caller is told to wait. If the time of its passing is unknown, it is the longest hint of
    /// the policies that refuse it, or the longest wait of their quotas if that is longer; `None` if no policy has a hint.
    pub fn told_wait(self) -> Option<Duration> {
        if self.longest_wait()? != RetryAfter::Unknown {
            return self.retry_after();
        }
        let hints = self.refusals().filter(|one| one.is_held());
        let hint = hints
            .map(|one| one.retry_hint_ms)
            .max()
            .filter(|ms| *ms > 0)?;
        let known = self.refusals().filter_map(|one| one.verdict.retry_after());
        let hint = Duration::from_millis(hint.into());
        Some(known.fold(hint, Duration::max))
    }

    /// The answer to a caller that a ban keeps out; `None` if none does.
    pub fn banned(self) -> Option<Block> {
        self.refusals().find_map(|one| one.label.ban())
    }

    /// True if the request was refused and never passes, because it costs more than a full budget holds.
    pub fn never_passes(self) -> bool {
        self.longest_wait() == Some(RetryAfter::Never)
    }

    fn longest_wait(self) -> Option<RetryAfter> {
        let waits = self
            .refusals()
            .filter_map(|one| match one.verdict.outcome() {
                Outcome::Deny(after) => Some(after),
                _ => None,
            });
        waits.max()
    }

    fn refusals(self) -> impl Iterator<Item = &'a PolicyVerdict> {
        self.0.iter().filter(|one| one.refuses())
    }
}
