//! The one point that every decision passes, however it came about.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tollgate_core::{Algorithm, Decision, Key, Mode, Quota, Verdict};
use tracing::Level;

use super::plan::Entries;
use crate::Policy;
use crate::policy::Limit;
use crate::report::PolicyVerdict;

/// Hears of every decision of a limiter: see [`LimiterBuilder::observe`](super::LimiterBuilder::observe).
///
/// The request waits for it, once for each quota or policy that took part, so it must be quick. No lock is held during the call.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use tollgate::{Cause, Event, Observer};
///
/// /// Counts for the metrics page.
/// #[derive(Default)]
/// struct Counts {
///     denied: AtomicU64,
///     undecided: AtomicU64,
/// }
///
/// impl Observer for Counts {
///     fn observe(&self, event: &Event<'_>) {
///         match event.cause() {
///             Cause::PassedUndecided | Cause::RefusedUndecided => &self.undecided,
///             _ if event.verdict().is_some_and(|verdict| verdict.is_denied()) => &self.denied,
///             _ => return,
///         }
///         .fetch_add(1, Ordering::Relaxed);
///     }
/// }
/// ```
pub trait Observer: Send + Sync + 'static {
    /// A decision was made.
    fn observe(&self, event: &Event<'_>);
}

impl<F: Fn(&Event<'_>) + Send + Sync + 'static> Observer for F {
    fn observe(&self, event: &Event<'_>) {
        self(event);
    }
}

/// A decision about one quota, or about all quotas of one policy.
///
/// ```
/// use tollgate::{Cause, Event};
///
/// /// The labels of a metric. Never the key: identities are secrets, and there are too many.
/// fn labels(event: &Event<'_>) -> (String, &'static str, &'static str) {
///     let result = match event.cause() {
///         Cause::Backend | Cause::Local => match event.verdict() {
///             Some(verdict) if verdict.is_denied() => "denied",
///             _ => "allowed",
///         },
///         Cause::Exempt => "exempt",
///         _ => "other",
///     };
///     let mode = if event.is_enforced() { "enforced" } else { "trial" };
///     (format!("{}/{}", event.policy(), event.quota().unwrap_or("")), mode, result)
/// }
///
/// /// The counter of distinct callers may look at it.
/// fn length(event: &Event<'_>) -> usize {
///     event.key().map_or(0, |key| key.as_bytes().len())
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    policy: &'a str,
    quota: Option<&'a str>,
    class: Option<&'a str>,
    key: Option<&'a Key>,
    verdict: Option<&'a Verdict>,
    is_enforced: bool,
    cause: Cause,
}

/// The way in which a decision came about.
///
/// ```
/// use tollgate::Cause;
///
/// /// True if the request was decided without the backend because that failed.
/// fn is_outage(cause: Cause) -> bool {
///     matches!(cause, Cause::Local | Cause::PassedUndecided | Cause::RefusedUndecided)
/// }
///
/// assert!(is_outage(Cause::Local) && !is_outage(Cause::Blocked));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The backend decided: see the [verdict](Event::verdict).
    Backend,
    /// The backend failed, and a budget of this process decided: see the [verdict](Event::verdict).
    Local,
    /// The backend failed, and the request passes.
    PassedUndecided,
    /// The backend failed, and the request is refused.
    RefusedUndecided,
    /// The caller is on a block list, or its tier has a limit of 0.
    Blocked,
    /// The policy covers the request, and the operator has exempted it: by its kind, by a list, or by a tier without limits.
    Exempt,
    /// The request has no identity, and the policy refuses it.
    Unidentified,
    /// The caller's tier or quota is not known, and the policy refuses the request.
    TierUnknown,
    /// The process is under pressure, and the limiter [refuses](crate::LimiterBuilder::shed) requests of this
    /// [class](Event::class). No policy was asked, so that [`Event::policy`] is empty.
    Shed,
    /// The charge was corrected to the real cost: to 0 if something else refused the request. The [verdict](Event::verdict) says
    /// how full the budget is then.
    Settled,
    /// The request asked for a place under a limit on how many at once, and may not wait for one any longer, or cannot: others are
    /// before it, or its time is over. It is refused without another question to the backend; the [verdict](Event::verdict) of the
    /// full limit is a denial.
    NoPlace,
    /// A request left before its turn, and gave it back: the [verdict](Event::verdict) says how long it was to
    /// [wait](Verdict::wait).
    Left,
    /// A held charge was given back. The [verdict](Event::verdict) says how much is left then, as far as this request knows.
    Released,
}

impl<'a> Event<'a> {
    /// The policy's name; empty if a request was refused before any policy was asked.
    #[must_use]
    pub fn policy(&self) -> &'a str {
        self.policy
    }

    /// The quota's name, if the event is about one.
    #[must_use]
    pub fn quota(&self) -> Option<&'a str> {
        self.quota
    }

    /// The [class](crate::Policy::keep_for) of the request, if the event is about a quota and the request has a class of its
    /// policy. For a request that is [shed](Cause::Shed), the class of the [limiter](crate::LimiterBuilder::classes).
    ///
    /// ```
    /// use tollgate::Event;
    ///
    /// /// A label of a metric: the operator names the classes, so that there are few.
    /// fn class<'a>(event: &Event<'a>) -> &'a str {
    ///     event.class().unwrap_or("other")
    /// }
    /// ```
    #[must_use]
    pub fn class(&self) -> Option<&'a str> {
        self.class
    }

    /// The identity whose budget it is, if it was found. It may be a secret, such as an API key.
    #[must_use]
    pub fn key(&self) -> Option<&'a Key> {
        self.key
    }

    /// The verdict, if the quota was asked.
    #[must_use]
    pub fn verdict(&self) -> Option<&'a Verdict> {
        self.verdict
    }

    /// True if the request depended on the decision; false for a policy on trial and for a probe.
    #[must_use]
    pub fn is_enforced(&self) -> bool {
        self.is_enforced
    }

    /// The way in which the decision came about.
    #[must_use]
    pub fn cause(&self) -> Cause {
        self.cause
    }
}

/// Everything that hears of the decisions of one limiter: the operator's observer, and the log.
#[derive(Default)]
pub(super) struct Observers {
    observer: Option<Arc<dyn Observer>>,
    denials: DenialLog,
    debts: DebtLog,
}

impl Observers {
    pub(super) fn new(observer: Option<Arc<dyn Observer>>) -> Self {
        Self {
            observer,
            ..Self::default()
        }
    }

    #[inline]
    fn listen(&self) -> bool {
        self.observer.is_some() || tracing::enabled!(Level::DEBUG)
    }

    /// A decision about all quotas of a plan.
    #[inline]
    pub(super) fn decided(&self, entries: Entries<'_>, decision: &Decision, cause: Cause) {
        if !decision.is_admitted() {
            self.debts.look(entries, decision);
        }
        if self.listen() {
            self.tell_all(entries, decision, cause, |_| true);
        }
    }

    /// A decision about the quotas for which `is_part` holds. The others are decided at another time.
    #[cold]
    pub(super) fn decided_in_part(
        &self,
        entries: Entries<'_>,
        decision: &Decision,
        cause: Cause,
        is_part: fn(&Quota) -> bool,
    ) {
        if !decision.is_admitted() {
            self.debts.look(entries, decision);
        }
        if self.listen() {
            self.tell_all(entries, decision, cause, is_part);
        }
    }

    #[cold]
    fn tell_all(
        &self,
        entries: Entries<'_>,
        decision: &Decision,
        cause: Cause,
        is_part: fn(&Quota) -> bool,
    ) {
        let decided = entries.quotas().zip(decision.verdicts());
        for ((limit, key, mode), verdict) in
            decided.filter(|((limit, ..), _)| is_part(&limit.quota))
        {
            // A ban that keeps no caller out decides nothing.
            if limit.quota.is_ban() && !verdict.is_denied() {
                continue;
            }
            self.tell(&Event {
                policy: limit.label.policy(),
                quota: Some(limit.label.quota()),
                class: limit.label.class(),
                key: Some(key),
                verdict: Some(verdict),
                is_enforced: mode == Mode::Enforce,
                cause,
            });
        }
    }

    /// A request that left before its turn.
    pub(super) fn left(&self, entries: Entries<'_>, decision: &Decision) {
        if self.listen() {
            self.tell_all(entries, decision, Cause::Left, |quota| !quota.is_held());
        }
    }

    /// The policies of a plan of which no quota could be asked, as far as `are_meant` holds for them.
    pub(super) fn undecided(
        &self,
        entries: Entries<'_>,
        cause: Cause,
        are_meant: impl Fn(&Policy) -> bool,
    ) {
        if self.listen() {
            for (policy, key, _) in entries.payers().filter(|(policy, ..)| are_meant(policy)) {
                self.untouched(policy, Some(key), cause);
            }
        }
    }

    /// A policy that has a say without its quotas.
    pub(super) fn untouched(&self, policy: &Policy, key: Option<&Key>, cause: Cause) {
        if self.listen() {
            self.tell(&Event {
                policy: policy.name(),
                quota: None,
                class: None,
                key,
                verdict: None,
                is_enforced: !policy.shadow,
                cause,
            });
        }
    }

    /// A request of a class that is refused under pressure.
    pub(super) fn shed(&self, class: &str, is_enforced: bool) {
        if self.listen() {
            self.tell(&Event {
                policy: "",
                quota: None,
                class: Some(class),
                key: None,
                verdict: None,
                is_enforced,
                cause: Cause::Shed,
            });
        }
    }

    /// A charge that was corrected.
    pub(super) fn corrected(&self, verdict: &PolicyVerdict, key: &Key, cause: Cause) {
        if self.listen() {
            self.tell(&Event {
                policy: verdict.policy(),
                quota: Some(verdict.quota()),
                class: verdict.class(),
                key: Some(key),
                verdict: Some(verdict.verdict()),
                is_enforced: verdict.is_enforced(),
                cause,
            });
        }
    }

    #[cold]
    fn tell(&self, event: &Event<'_>) {
        let is_correction = matches!(event.cause, Cause::Settled | Cause::Released | Cause::Left);
        if !is_correction && event.verdict.is_some_and(Verdict::is_denied) {
            self.denials.write(event);
        }
        if let Some(observer) = &self.observer {
            observer.observe(event);
        }
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observers").finish_non_exhaustive()
    }
}

/// The age of a log.
#[derive(Debug)]
struct Age(Instant);

impl Default for Age {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Age {
    fn seconds(&self) -> u64 {
        self.0.elapsed().as_secs()
    }
}

/// The lines about denials in the log, at `DEBUG`. Their number in a second is bounded, so that an attack does not fill a disk.
#[derive(Debug, Default)]
struct DenialLog {
    age: Age,
    /// The second in which the last line was due, and how many were due in it.
    second: AtomicU64,
    due: AtomicU64,
}

const LINES_PER_SECOND: u64 = 100;

impl DenialLog {
    fn write(&self, event: &Event<'_>) {
        let second = self.age.seconds();
        let mut left_out = 0;
        if self.second.swap(second, Ordering::Relaxed) != second {
            let due = self.due.swap(0, Ordering::Relaxed);
            left_out = due.saturating_sub(LINES_PER_SECOND);
        }
        if self.due.fetch_add(1, Ordering::Relaxed) >= LINES_PER_SECOND {
            return;
        }
        let Some(verdict) = event.verdict else {
            return;
        };
        // Not the identity: it may be a secret.
        tracing::debug!(
            policy = event.policy,
            quota = event.quota,
            class = event.class,
            limit = verdict.limit(),
            retry_after = ?verdict.retry_after(),
            enforced = event.is_enforced,
            cause = ?event.cause,
            left_out,
            "denied"
        );
    }
}

/// The line about a refused caller whose budget owes more than its quota ever charges: an operator who has just deployed another
/// quota is to see why callers wait for longer than the new one says. At most one in a minute.
#[derive(Debug, Default)]
struct DebtLog {
    age: Age,
    /// The second before which no other line is due.
    due: AtomicU64,
}

const SECONDS_BETWEEN_DEBTS: u64 = 60;

impl DebtLog {
    #[cold]
    fn look(&self, entries: Entries<'_>, decision: &Decision) {
        if let (Some((_, limit)), [verdict]) = (entries.sole(), decision.verdicts()) {
            return self.look_at(limit, verdict);
        }
        for ((limit, _, _), verdict) in entries.quotas().zip(decision.verdicts()) {
            self.look_at(limit, verdict);
        }
    }

    fn look_at(&self, limit: &Limit, verdict: &Verdict) {
        if verdict.is_denied() && owes_more_than_a_budget(limit.label.whole(), verdict) {
            self.write(limit.label.policy(), limit.label.quota(), verdict);
        }
    }

    #[inline(never)]
    fn write(&self, policy: &str, quota: &str, verdict: &Verdict) {
        let (now, due) = (self.age.seconds(), self.due.load(Ordering::Relaxed));
        let next = now + SECONDS_BETWEEN_DEBTS;
        let is_ours = || {
            let swapped =
                (self.due).compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed);
            swapped.is_ok()
        };
        if now >= due && is_ours() {
            tracing::info!(
                policy,
                quota,
                retry_after = ?verdict.retry_after(),
                full_after = ?verdict.reset_after(),
                "a caller owes more than this quota charges: to another quota of the same name, as while a deploy changes it, or as a \
                 debt; it waits until that has drained"
            );
        }
    }
}

/// True if this budget is full again later than one that is spent now. A rest of a microsecond counts as a whole one.
fn owes_more_than_a_budget(quota: &Quota, verdict: &Verdict) -> bool {
    // Most denials: a full budget of the limit or more takes the period or longer.
    let is_usual = quota.capacity() >= quota.limit() && verdict.reset_after() <= quota.period();
    if is_usual || quota.algorithm() != Algorithm::Gcra {
        return false;
    }
    let owed_us = verdict.reset_after().as_micros().saturating_sub(1);
    let full = u128::from(quota.capacity()) * quota.period().as_micros();
    owed_us * u128::from(quota.limit()) >= full
}
