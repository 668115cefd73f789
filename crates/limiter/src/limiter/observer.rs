//! The one point that every decision passes, however it came about.

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tollgate_core::{Algorithm, Decision, Key, Mode, Quota, Verdict};
use tracing::Level;
use tracing::level_filters::LevelFilter;

use super::event::{Cause, Event, Origin};
use super::marks;
#[cfg(feature = "metrics")]
use super::meters::Meters;
use super::offenders::Tracker;
use super::plan::Entries;
use crate::Policy;
use crate::policy::Limit;
use crate::report::PolicyVerdict;

/// Hears of every decision of a limiter: see [`LimiterBuilder::observe`](super::LimiterBuilder::observe).
///
/// The request waits for it, once for each quota or policy that took part, so it must be quick: hand what takes time to a bounded
/// channel, and drop what does not fit. No lock is held during the call, so that a slow observer holds up its own request and no
/// other. An observer that panics changes no decision: the panic ends with the call, and the log tells of the first.
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

/// Everything that hears of the decisions of one limiter: the operator's observer, and the log.
#[derive(Default)]
pub(super) struct Observers {
    /// True if anything may have to hear of each decision, whatever the log is set to.
    are_attended: bool,
    attendance: Attendance,
    observer: Option<Arc<dyn Observer>>,
    tracker: Option<Tracker>,
    #[cfg(feature = "metrics")]
    meters: Option<Meters>,
    denials: DenialLog,
    debts: DebtLog,
    warned_of_panic: AtomicBool,
}

/// The listeners to each decision, whatever the log is set to. The tracker of offenders hears of denials alone, and does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Attendance {
    #[default]
    None,
    /// Metrics, for which it counts if a recorder is installed.
    #[cfg(feature = "metrics")]
    Meters,
    Observer,
}

impl Observers {
    pub(super) fn new(observer: Option<Arc<dyn Observer>>) -> Self {
        Self {
            are_attended: observer.is_some(),
            attendance: match observer {
                Some(_) => Attendance::Observer,
                None => Attendance::None,
            },
            observer,
            ..Self::default()
        }
    }

    /// These, which count the callers that are denied most.
    pub(super) fn tracking(self, tracker: Option<Tracker>) -> Self {
        Self {
            are_attended: self.are_attended || tracker.is_some(),
            tracker,
            ..self
        }
    }

    pub(super) fn tracker(&self) -> Option<&Tracker> {
        self.tracker.as_ref()
    }

    /// These, with metrics.
    #[cfg(feature = "metrics")]
    pub(super) fn metered(self, meters: Option<Meters>) -> Self {
        let attendance = match (&meters, self.attendance) {
            (Some(_), Attendance::None) => Attendance::Meters,
            (_, attendance) => attendance,
        };
        Self {
            are_attended: self.are_attended || meters.is_some(),
            attendance,
            meters,
            ..self
        }
    }

    #[cfg(feature = "metrics")]
    pub(super) fn meters(&self) -> Option<&Meters> {
        self.meters.as_ref()
    }

    /// True if something may hear: an observer, metrics, the log, or a span that declares our fields.
    #[inline]
    fn listen(&self) -> bool {
        let are_attended = match self.attendance {
            Attendance::None => false,
            #[cfg(feature = "metrics")]
            Attendance::Meters => self.meters.as_ref().is_some_and(Meters::are_heard),
            Attendance::Observer => true,
        };
        are_attended || LevelFilter::current() != LevelFilter::OFF
    }

    /// True if events are told, and not only counted.
    #[inline]
    fn are_told(&self) -> bool {
        self.observer.is_some() || tracing::enabled!(Level::DEBUG)
    }

    /// An attempt to replace the policies by these; `None` if they were refused.
    pub(super) fn replaced(&self, policies: Option<&[Arc<Policy>]>) {
        #[cfg(feature = "metrics")]
        if let Some(meters) = &self.meters {
            meters.replaced(policies.is_some());
        }
        if let (Some(tracker), Some(policies)) = (&self.tracker, policies) {
            tracker.keep(|name| policies.iter().any(|policy| policy.name() == name));
        }
        self.expect(policies);
    }

    /// Policies that decide from now on.
    #[cfg_attr(
        not(feature = "metrics"),
        allow(
            clippy::unused_self,
            reason = "nothing is measured without the feature"
        )
    )]
    pub(super) fn expect(&self, policies: Option<&[Arc<Policy>]>) {
        #[cfg(feature = "metrics")]
        if let (Some(meters), Some(policies)) = (&self.meters, policies) {
            meters.expect(policies.iter().map(|policy| &**policy));
        }
        #[cfg(not(feature = "metrics"))]
        let _unheard = policies;
    }

    /// The time at which the backend was asked, if that is measured.
    #[inline]
    #[cfg_attr(
        not(feature = "metrics"),
        allow(
            clippy::unused_self,
            reason = "nothing is measured without the feature"
        )
    )]
    pub(super) fn asked(&self) -> Option<Instant> {
        #[cfg(feature = "metrics")]
        if self.meters.is_some() {
            return Some(Instant::now());
        }
        None
    }

    /// The backend has answered a question of that time.
    #[inline]
    #[cfg_attr(
        not(feature = "metrics"),
        allow(
            clippy::unused_self,
            reason = "nothing is measured without the feature"
        )
    )]
    pub(super) fn answered(&self, asked: Option<Instant>) {
        #[cfg(feature = "metrics")]
        if let (Some(meters), Some(asked)) = (&self.meters, asked) {
            meters.answered(asked.elapsed());
        }
        #[cfg(not(feature = "metrics"))]
        let _unmeasured = asked;
    }

    /// A decision about all quotas of a plan.
    #[inline]
    // In two versions, so that a request which has not waited costs nothing for it.
    pub(super) fn decided(
        &self,
        entries: Entries<'_>,
        decision: &Decision,
        origin: impl Into<Origin>,
    ) {
        if !decision.is_admitted() {
            self.refused(entries, decision, origin);
        } else if self.are_attended || LevelFilter::current() != LevelFilter::OFF {
            self.attend(entries, decision, origin);
        }
    }

    /// A denial: one look at a sole quota is enough for the log and for the offenders.
    #[cold]
    fn refused(&self, entries: Entries<'_>, decision: &Decision, origin: impl Into<Origin>) {
        if let (Some((payer, limit)), [verdict]) = (entries.sole(), decision.verdicts()) {
            self.debts.look_at(limit, verdict);
            if let (true, Some(tracker)) = (verdict.is_denied(), &self.tracker) {
                tracker.count(&limit.label, payer.key);
            }
        } else {
            self.debts.look(entries, decision);
            if let Some(tracker) = &self.tracker {
                tracker.decided(entries, decision);
            }
        }
        if self.listen() {
            self.attend(entries, decision, origin);
        }
    }

    #[cold]
    fn attend(&self, entries: Entries<'_>, decision: &Decision, origin: impl Into<Origin>) {
        let origin = origin.into();
        // A policy on trial may have denied what was let in.
        if let (true, Some(tracker)) = (decision.is_admitted(), &self.tracker) {
            tracker.decided(entries, decision);
        }
        if self.listen() {
            self.count(entries, decision, origin);
            if self.are_told() {
                self.tell_each(entries, decision, origin, |_| true);
            }
        }
    }

    /// A decision about the quotas for which `is_part` holds. The others are decided at another time.
    #[cold]
    pub(super) fn decided_in_part(
        &self,
        entries: Entries<'_>,
        decision: &Decision,
        origin: Origin,
        is_part: fn(&Quota) -> bool,
    ) {
        if !decision.is_admitted() {
            self.debts.look(entries, decision);
        }
        let are_heard = self.listen();
        if !are_heard && self.tracker.is_none() {
            return;
        }
        // A turn and then a place: a request that gets both counts when it gets its turn.
        let mut decided = entries.quotas().zip(decision.verdicts());
        let waits = decided
            .any(|((limit, ..), verdict)| is_part(&limit.quota) && !verdict.wait().is_zero());
        let is_counted = waits || !decision.is_admitted();
        if let (true, Some(tracker)) = (is_counted, &self.tracker) {
            tracker.decided(entries, decision);
        }
        if are_heard {
            self.tell_all(entries, decision, origin, is_part, is_counted);
        }
    }

    #[cold]
    fn tell_all(
        &self,
        entries: Entries<'_>,
        decision: &Decision,
        origin: Origin,
        is_part: fn(&Quota) -> bool,
        is_counted: bool,
    ) {
        if is_counted {
            self.count(entries, decision, origin);
        }
        if self.are_told() {
            self.tell_each(entries, decision, origin, is_part);
        }
    }

    /// Counts a decision, once for each policy and not for each quota.
    #[inline]
    #[cfg_attr(
        not(feature = "metrics"),
        allow(
            clippy::unused_self,
            reason = "nothing is measured without the feature"
        )
    )]
    fn count(&self, entries: Entries<'_>, decision: &Decision, origin: Origin) {
        #[cfg(feature = "metrics")]
        if let Some(meters) = &self.meters {
            meters.decided(entries, decision, origin);
        }
        if LevelFilter::current() != LevelFilter::OFF {
            marks::decided(entries, decision, origin);
        }
    }

    #[inline(never)]
    fn tell_each(
        &self,
        entries: Entries<'_>,
        decision: &Decision,
        origin: Origin,
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
                origin,
            });
        }
    }

    /// A request that left before its turn.
    pub(super) fn left(&self, entries: Entries<'_>, decision: &Decision) {
        if self.listen() {
            self.tell_all(
                entries,
                decision,
                Cause::Left.into(),
                |quota| !quota.is_held(),
                true,
            );
        }
    }

    /// The policies of a plan of which no quota could be asked, as far as `are_meant` holds for them.
    pub(super) fn undecided(
        &self,
        entries: Entries<'_>,
        origin: Origin,
        are_meant: impl Fn(&Policy) -> bool,
    ) {
        if self.listen() {
            for (policy, key, _) in entries.payers().filter(|(policy, ..)| are_meant(policy)) {
                self.untouched(policy, Some(key), origin);
            }
        }
    }

    /// A policy that has a say without its quotas.
    pub(super) fn untouched(&self, policy: &Policy, key: Option<&Key>, origin: impl Into<Origin>) {
        let origin = origin.into();
        #[cfg(feature = "metrics")]
        if let Some(meters) = &self.meters {
            meters.untouched(policy, origin.cause);
        }
        if LevelFilter::current() != LevelFilter::OFF {
            marks::untouched(policy.name(), !policy.shadow, origin.cause);
        }
        if self.are_told() {
            self.tell(&Event {
                policy: policy.name(),
                quota: None,
                class: None,
                key,
                verdict: None,
                is_enforced: !policy.shadow,
                origin,
            });
        }
    }

    /// A request of a class that is refused under pressure.
    pub(super) fn shed(&self, class: &str, is_enforced: bool) {
        #[cfg(feature = "metrics")]
        if let Some(meters) = &self.meters {
            meters.shed(is_enforced);
        }
        if LevelFilter::current() != LevelFilter::OFF {
            marks::untouched("", is_enforced, Cause::Shed);
        }
        if self.are_told() {
            self.tell(&Event {
                policy: "",
                quota: None,
                class: Some(class),
                key: None,
                verdict: None,
                is_enforced,
                origin: Cause::Shed.into(),
            });
        }
    }

    /// A charge that was corrected.
    pub(super) fn corrected(&self, verdict: &PolicyVerdict, key: &Key, cause: Cause) {
        if self.are_told() {
            self.tell(&Event {
                policy: verdict.policy(),
                quota: Some(verdict.quota()),
                class: verdict.class(),
                key: Some(key),
                verdict: Some(verdict.verdict()),
                is_enforced: verdict.is_enforced(),
                origin: cause.into(),
            });
        }
    }

    #[cold]
    fn tell(&self, event: &Event<'_>) {
        let is_correction = matches!(
            event.cause(),
            Cause::Settled | Cause::Released | Cause::Left
        );
        if !is_correction && event.verdict.is_some_and(Verdict::is_denied) {
            self.denials.write(event);
        }
        if let Some(observer) = &self.observer {
            // A request does not fail because its observer does.
            let told = catch_unwind(AssertUnwindSafe(|| observer.observe(event)));
            if told.is_err() {
                self.fell_silent();
            }
        }
    }
}

impl Observers {
    #[cold]
    fn fell_silent(&self) {
        if !self.warned_of_panic.swap(true, Ordering::Relaxed) {
            tracing::error!(
                "the observer panics; requests are decided all the same, and it is told of the next ones"
            );
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

/// The lines about denials in the log, at `DEBUG`. Their number in a second is bounded, for all and for each policy, so that an
/// attack does not fill a disk.
#[derive(Debug, Default)]
struct DenialLog {
    age: Age,
    /// The second in which the last line was due, and how many were due in it.
    second: AtomicU64,
    due: AtomicU64,
    /// The lines of each policy in this second.
    policies: Mutex<HashMap<Box<str>, u64>>,
}

const LINES_PER_SECOND: u64 = 1_000;

/// One policy under attack leaves room for the others.
const LINES_OF_A_POLICY: u64 = 100;

impl DenialLog {
    fn policies(&self) -> MutexGuard<'_, HashMap<Box<str>, u64>> {
        self.policies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a line of a policy, if this second has room for it.
    fn has_room(&self, policy: &str) -> bool {
        let mut policies = self.policies();
        if policies.values().sum::<u64>() >= LINES_PER_SECOND {
            return false;
        }
        match policies.get_mut(policy) {
            Some(lines) if *lines >= LINES_OF_A_POLICY => return false,
            Some(lines) => *lines += 1,
            None => drop(policies.insert(policy.into(), 1)),
        }
        true
    }

    fn write(&self, event: &Event<'_>) {
        let second = self.age.seconds();
        let mut left_out = 0;
        if self.second.swap(second, Ordering::Relaxed) != second {
            let due = self.due.swap(0, Ordering::Relaxed);
            let mut policies = self.policies();
            let written: u64 = policies.drain().map(|(_, lines)| lines).sum();
            left_out = due.saturating_sub(written);
        }
        self.due.fetch_add(1, Ordering::Relaxed);
        if !self.has_room(event.policy) {
            return;
        }
        let Some(verdict) = event.verdict else {
            return;
        };
        // The identity is left out: it may be a secret.
        tracing::debug!(
            policy = event.policy,
            quota = event.quota,
            class = event.class,
            limit = verdict.limit(),
            retry_after = ?verdict.retry_after(),
            enforced = event.is_enforced,
            cause = ?event.cause(),
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
