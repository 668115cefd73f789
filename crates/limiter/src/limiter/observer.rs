//! The one point that every decision passes, however it came about.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tollgate_core::{Decision, Key, Mode, Quota, Receipt, Verdict};
use tracing::Level;
use tracing::level_filters::LevelFilter;

use super::decision_log::{DebtLog, DenialLog};
use super::event::{Cause, Event, Origin, Transport};
use super::marks;
#[cfg(feature = "metrics")]
use super::meters::Meters;
use super::offenders::Tracker;
use super::plan::{Entries, Payer};
use super::tally::Tally;
use crate::policy::{Label, Limit};
use crate::report::PolicyVerdict;
use crate::{Policy, RequestView};

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

    /// The way by which a request came. No header is read unless an observer hears of it.
    #[inline]
    pub(super) fn transport_of(&self, request: &RequestView<'_>) -> Transport {
        if self.observer.is_some() {
            Transport::of(request)
        } else {
            Transport::Http
        }
    }

    /// States the way by which a request came, for an observer.
    #[inline(always)]
    pub(super) fn state_transport(&self, payer: &mut Payer<'_>, request: &RequestView<'_>) {
        if self.observer.is_some() {
            payer.demand.transport = Transport::of(request);
        }
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
                self.tell_each(entries, decision, origin, |_| true, true);
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
            self.tell_each(entries, decision, origin, is_part, is_counted);
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
        is_counted: bool,
    ) {
        // Most requests: the only quota has no id.
        if let (Some((payer, limit)), verdicts @ [verdict]) = (entries.sole(), decision.verdicts())
        {
            if is_part(&limit.quota) {
                let result = is_counted.then(|| Tally::of(payer, verdicts, origin).word());
                self.tell_quota(payer, limit, verdict, origin, result);
            }
            return;
        }
        for (payer, verdicts, is_replay) in entries.decided(decision) {
            let origin = origin.of(is_replay);
            let mut result = is_counted.then(|| Tally::of(payer, verdicts, origin).word());
            for (limit, verdict) in payer.limits().iter().zip(verdicts) {
                // A ban that keeps no caller out decides nothing.
                let is_told = !limit.quota.is_ban() || verdict.is_denied();
                if is_told && is_part(&limit.quota) {
                    self.tell_quota(payer, limit, verdict, origin, result.take());
                }
            }
        }
    }

    #[inline]
    fn tell_quota(
        &self,
        payer: Payer<'_>,
        limit: &Limit,
        verdict: &Verdict,
        origin: Origin,
        result: Option<&'static str>,
    ) {
        self.tell(&Event {
            policy: limit.label.policy(),
            quota: Some(limit.label.quota()),
            class: limit.label.class(),
            key: Some(payer.key),
            verdict: Some(verdict),
            is_enforced: payer.mode() == Mode::Enforce,
            origin,
            transport: payer.demand.transport,
            result,
            rule: Some(&limit.quota),
        });
    }

    /// A request that left before anything was decided about it.
    #[cold]
    pub(super) fn left_undecided(&self, entries: Entries<'_>) {
        self.undecided(entries, Cause::Left.into(), |_| true);
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
            for payer in entries.iter().filter(|payer| are_meant(payer.policy)) {
                let transport = payer.demand.transport;
                self.untouched(payer.policy, Some(payer.key), origin, transport);
            }
        }
    }

    /// A policy that has a say without its quotas.
    pub(super) fn untouched(
        &self,
        policy: &Policy,
        key: Option<&Key>,
        origin: impl Into<Origin>,
        transport: Transport,
    ) {
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
                transport,
                result: Tally::of_cause(origin.cause).map(Tally::word),
                rule: None,
            });
        }
    }

    /// A request of a class that is refused under pressure.
    pub(super) fn shed(&self, class: &str, is_enforced: bool, transport: Transport) {
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
                transport,
                result: Some(Tally::Shed.word()),
                rule: None,
            });
        }
    }

    /// A charge that the application corrects by its receipt, under this policy if that is known.
    pub(super) fn corrected_by_hand(
        &self,
        receipt: &Receipt,
        policy: impl FnOnce(&str) -> Option<Arc<Policy>>,
        cause: Cause,
    ) {
        if self.are_told() {
            let name = receipt.scope().policy_alone();
            let policy = policy(name);
            let label = policy
                .as_ref()
                .and_then(|policy| policy.label_of(receipt.scope()));
            self.tell(&Event {
                policy: name,
                quota: label.map(Label::quota),
                class: None,
                key: Some(receipt.key()),
                verdict: None,
                is_enforced: policy.as_ref().is_none_or(|policy| !policy.shadow),
                origin: cause.into(),
                transport: Transport::Application,
                result: None,
                rule: None,
            });
        }
    }

    /// A charge that was corrected.
    pub(super) fn corrected(
        &self,
        verdict: &PolicyVerdict,
        key: &Key,
        cause: Cause,
        transport: Transport,
    ) {
        if self.are_told() {
            self.tell(&Event {
                policy: verdict.policy(),
                quota: Some(verdict.quota()),
                class: verdict.class(),
                key: Some(key),
                verdict: Some(verdict.verdict()),
                is_enforced: verdict.is_enforced(),
                origin: cause.into(),
                transport,
                result: None,
                rule: None,
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
