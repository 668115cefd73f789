//! Metrics of a limiter, for whatever recorder the application installs.
//!
//! Decisions are counted as they are made, by handles that lie with the names of the policy's quotas. Everything that is a state or
//! a count already, such as the figures of the backend, is told when a page of metrics is asked for. The facade hands out handles
//! of the recorder of that moment, which do nothing if there is none yet; so handles are kept for each recorder, and looked up by
//! its address.

use std::cell::Cell;
use std::fmt;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, IntoF64, Key as MetricKey, KeyName, Label as MetricLabel, Level,
    Metadata, Recorder, SharedString, Unit,
};
use tollgate_core::{Backend, Decision, Figure, Mode, Outcome, Verdict};

use super::event::{Cause, Origin};
use super::plan::{Entries, Payer};
use super::tally::{RESULTS, Tally};
use crate::Policy;
use crate::policy::{Label, Limit};

/// A metric: its name by the rules of Prometheus, and its meaning.
#[derive(Debug)]
struct Metric {
    name: &'static str,
    unit: Unit,
    help: &'static str,
}

const fn metric(name: &'static str, unit: Unit, help: &'static str) -> Metric {
    Metric { name, unit, help }
}

const DECISIONS: Metric = metric(
    "rate_limiting_decisions_total",
    Unit::Count,
    "Decisions by policy, result and kind (enforced, or on trial).",
);
const USED: Metric = metric(
    "rate_limiting_budget_used_ratio",
    Unit::Count,
    "Share of the fullest budget of the policy that was used after a decision, from 0 to 1.",
);
const DURATION: Metric = metric(
    "rate_limiting_decision_duration_seconds",
    Unit::Seconds,
    "Time from the question to the backend until its answer, for answers that do not come at once.",
);
const FAILURES: Metric = metric(
    "rate_limiting_backend_failures_total",
    Unit::Count,
    "Decisions that the backend failed to make.",
);
const FAILING: Metric = metric(
    "rate_limiting_backend_failing",
    Unit::Count,
    "1 while the latest decisions were not made by the backend.",
);
const WAITING: Metric = metric(
    "rate_limiting_waiting_requests",
    Unit::Count,
    "Requests that wait for their turn or for a place.",
);
const SHEDDING: Metric = metric(
    "rate_limiting_shedding",
    Unit::Count,
    "1 while a class of requests is refused because of pressure.",
);
const VERSION: Metric = metric(
    "rate_limiting_config_version",
    Unit::Count,
    "Number of times that the policies were replaced.",
);
const REPLACEMENTS: Metric = metric(
    "rate_limiting_config_replacements_total",
    Unit::Count,
    "Attempts to replace the policies by result: applied or refused.",
);
const LAST_REPLACEMENT: Metric = metric(
    "rate_limiting_config_last_replacement_successful",
    Unit::Count,
    "0 if the latest attempt to replace the policies was refused.",
);
const SWITCHED: Metric = metric(
    "rate_limiting_switched_policies",
    Unit::Count,
    "Policies that an operator has switched to another state than on.",
);

/// The metric of a figure of the backend.
fn metric_of(figure: Figure) -> Option<Metric> {
    let (name, unit, help) = match figure {
        Figure::Calls => (
            "rate_limiting_backend_calls_total",
            Unit::Count,
            "Calls to the backend's servers.",
        ),
        Figure::Requests => (
            "rate_limiting_backend_requests_total",
            Unit::Count,
            "Decisions, credits, debits and resets in these calls.",
        ),
        Figure::BytesOut => (
            "rate_limiting_backend_sent_bytes_total",
            Unit::Bytes,
            "Bytes of these calls.",
        ),
        Figure::BytesIn => (
            "rate_limiting_backend_received_bytes_total",
            Unit::Bytes,
            "Bytes of the answers.",
        ),
        Figure::LostGiveBacks => (
            "rate_limiting_lost_give_backs_total",
            Unit::Count,
            "Credits that failed, so that their charges may have stayed.",
        ),
        Figure::Held => (
            "rate_limiting_held_units",
            Unit::Count,
            "Units that this process holds of limits on how many at once.",
        ),
        Figure::LostLeases => (
            "rate_limiting_lost_leases_total",
            Unit::Count,
            "Keys of which the server no longer knew that this process holds something.",
        ),
        Figure::Reclaimed => (
            "rate_limiting_reclaimed_units_total",
            Unit::Count,
            "Units of other processes that were freed because their leases had run out.",
        ),
        Figure::KnownDenials => (
            "rate_limiting_known_denials_total",
            Unit::Count,
            "Decisions that no server was asked for, because their denial was known.",
        ),
        Figure::LeasedDecisions => (
            "rate_limiting_leased_decisions_total",
            Unit::Count,
            "Decisions that this process made by itself, from blocks that it had leased.",
        ),
        Figure::ServersAway => (
            "rate_limiting_servers_away",
            Unit::Count,
            "Servers without a connection that answers: the breaker is open, and their callers fail at once.",
        ),
        Figure::Keys => (
            "rate_limiting_keys",
            Unit::Count,
            "Keys that are remembered in this process.",
        ),
        Figure::Evicted => (
            "rate_limiting_evicted_keys_total",
            Unit::Count,
            "Keys that were forgotten although their budget was not full.",
        ),
        _ => return None,
    };
    Some(metric(name, unit, help))
}

impl Metric {
    fn key(&self, labels: Vec<MetricLabel>) -> MetricKey {
        MetricKey::from_parts(self.name, labels)
    }

    fn name(&self) -> KeyName {
        KeyName::from_const_str(self.name)
    }

    fn help(&self) -> SharedString {
        SharedString::const_str(self.help)
    }

    fn counter(&self, recorder: &dyn Recorder, labels: Vec<MetricLabel>) -> Counter {
        recorder.describe_counter(self.name(), Some(self.unit), self.help());
        recorder.register_counter(&self.key(labels), &METADATA)
    }

    fn gauge(&self, recorder: &dyn Recorder, labels: Vec<MetricLabel>) -> Gauge {
        recorder.describe_gauge(self.name(), Some(self.unit), self.help());
        recorder.register_gauge(&self.key(labels), &METADATA)
    }

    fn histogram(&self, recorder: &dyn Recorder, labels: Vec<MetricLabel>) -> Histogram {
        recorder.describe_histogram(self.name(), Some(self.unit), self.help());
        recorder.register_histogram(&self.key(labels), &METADATA)
    }
}

static METADATA: Metadata<'_> = Metadata::new("tollgate", Level::INFO, Some(module_path!()));

/// A value for each recorder. A process has two: none at first, and the one that it installs.
struct PerRecorder<T>(OnceLock<Box<Recording<T>>>);

struct Recording<T> {
    recorder: usize,
    value: T,
    next: PerRecorder<T>,
}

impl<T> Default for PerRecorder<T> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

/// The address of a recorder, which is never followed.
#[inline]
fn address(recorder: &dyn Recorder) -> usize {
    ptr::from_ref(recorder).cast::<()>().addr()
}

impl<T> PerRecorder<T> {
    #[inline]
    fn get(&self, recorder: &dyn Recorder, make: impl Fn() -> T) -> &T {
        let address = address(recorder);
        let mut at = self;
        loop {
            let kept = at.0.get_or_init(|| {
                Box::new(Recording {
                    recorder: address,
                    value: make(),
                    next: Self::default(),
                })
            });
            if kept.recorder == address {
                return &kept.value;
            }
            at = &kept.next;
        }
    }
}

/// True if a request depended on a decision.
#[derive(Clone, Copy, Debug)]
enum Weight {
    Enforced,
    Trial,
}

const KINDS: [&str; 2] = ["enforced", "trial"];

impl Weight {
    #[inline]
    fn of(is_enforced: bool) -> Self {
        if is_enforced {
            Self::Enforced
        } else {
            Self::Trial
        }
    }
}

/// The metrics of one policy, which lie with the names of each of its quotas.
#[derive(Default)]
struct PolicyMeter(PerRecorder<PolicyHandles>);

/// Each series is made when its first decision comes: a policy has a few of these results.
#[derive(Default)]
struct PolicyHandles {
    decisions: [[OnceLock<Counter>; RESULTS.len()]; KINDS.len()],
    used: [OnceLock<Histogram>; KINDS.len()],
}

impl PolicyMeter {
    #[inline]
    fn of(label: &Label) -> &Self {
        label.tally().get(Self::default)
    }

    #[inline]
    fn count(&self, recorder: &dyn Recorder, policy: &str, weight: Weight, tally: Tally) {
        let handles = self.0.get(recorder, PolicyHandles::default);
        handles.count(recorder, policy, weight, tally);
    }
}

impl PolicyHandles {
    #[inline]
    fn count(&self, recorder: &dyn Recorder, policy: &str, weight: Weight, tally: Tally) {
        let counter = &self.decisions[weight as usize][tally as usize];
        let counter = match counter.get() {
            Some(counter) => counter,
            None => counter.get_or_init(|| decisions_of(recorder, policy, weight, tally)),
        };
        counter.increment(1);
    }

    #[inline]
    fn fill(&self, recorder: &dyn Recorder, policy: &str, weight: Weight, used: UsedShare) {
        let histogram = &self.used[weight as usize];
        let histogram = match histogram.get() {
            Some(histogram) => histogram,
            None => histogram.get_or_init(|| used_of(recorder, policy, weight)),
        };
        histogram.record(used);
    }
}

#[cold]
fn decisions_of(recorder: &dyn Recorder, policy: &str, weight: Weight, tally: Tally) -> Counter {
    let mut labels = labels_of(policy, weight);
    labels.push(MetricLabel::from_static_parts("result", tally.word()));
    DECISIONS.counter(recorder, labels)
}

#[cold]
fn used_of(recorder: &dyn Recorder, policy: &str, weight: Weight) -> Histogram {
    USED.histogram(recorder, labels_of(policy, weight))
}

fn labels_of(policy: &str, weight: Weight) -> Vec<MetricLabel> {
    vec![
        MetricLabel::new("policy", policy.to_owned()),
        MetricLabel::from_static_parts("kind", KINDS[weight as usize]),
    ]
}

/// The share of a budget that is used: a fraction, of which a float is made if a histogram takes one.
#[derive(Clone, Copy, Debug)]
struct UsedShare {
    used: u64,
    limit: u64,
}

impl UsedShare {
    #[inline]
    fn of(verdict: &Verdict) -> Self {
        let (limit, left) = (verdict.limit(), verdict.remaining());
        let used = limit.saturating_sub(left);
        Self { used, limit }
    }

    /// The fuller one of two budgets.
    fn max(self, other: Self) -> Self {
        let product = |one: u64, other: u64| u128::from(one) * u128::from(other);
        if product(self.used, other.limit) < product(other.used, self.limit) {
            other
        } else {
            self
        }
    }
}

impl IntoF64 for UsedShare {
    #[allow(
        clippy::float_arithmetic,
        reason = "histograms take floats; no decision is made by one"
    )]
    fn into_f64(self) -> f64 {
        // Budgets are below 2^53, so that both are exact.
        self.used as f64 / self.limit.max(1) as f64
    }
}

/// The metrics of one limiter.
#[derive(Default)]
pub(super) struct Meters {
    applied: AtomicU64,
    refused: AtomicU64,
    last_refused: AtomicBool,
    /// The address of a recorder that records nothing; 0 if none is known.
    silent: AtomicUsize,
    told: PerRecorder<PageHandles>,
}

impl Meters {
    /// True if a recorder hears of decisions. It is asked before each, so that metrics cost little until one is installed.
    pub(super) fn are_heard(&self) -> bool {
        let silent = self.silent.load(Ordering::Relaxed);
        metrics::with_recorder(|recorder| address(recorder) != silent)
    }

    /// Calls `f` with the recorder, unless that records nothing.
    #[inline]
    fn with_recorder(&self, f: impl FnOnce(&dyn Recorder)) {
        metrics::with_recorder(|recorder| {
            if address(recorder) != self.silent.load(Ordering::Relaxed) {
                f(recorder);
            }
        });
    }

    /// A decision about all quotas of a plan.
    #[inline]
    pub(super) fn decided(&self, entries: Entries<'_>, decision: &Decision, origin: Origin) {
        self.with_recorder(|recorder| {
            if let (Some((payer, limit)), [verdict], 0) =
                (entries.sole(), decision.verdicts(), origin.waited_us)
            {
                return tell_sole(recorder, payer, limit, verdict, origin.cause);
            }
            for (payer, own, is_replay) in entries.decided(decision) {
                tell(recorder, payer, own, origin.of(is_replay));
            }
        });
    }

    /// A policy that has a say without its quotas.
    #[cold]
    pub(super) fn untouched(&self, policy: &Policy, cause: Cause) {
        let Some(tally) = Tally::of_cause(cause) else {
            return;
        };
        let (name, weight) = (policy.name(), Weight::of(!policy.shadow));
        self.with_recorder(|recorder| match policy.limits.first() {
            Some(limit) => PolicyMeter::of(&limit.label).count(recorder, name, weight, tally),
            None => decisions_of(recorder, name, weight, tally).increment(1),
        });
    }

    /// A request that is refused under pressure, before any policy was asked.
    pub(super) fn shed(&self, is_enforced: bool) {
        let weight = Weight::of(is_enforced);
        self.with_recorder(|recorder| {
            let shed = &self.told(recorder).shed;
            shed.count(recorder, "", weight, Tally::Shed);
        });
    }

    /// The backend has answered after this time.
    pub(super) fn answered(&self, after: Duration) {
        self.with_recorder(|recorder| self.told(recorder).duration.record(after));
    }

    /// An attempt to replace the policies.
    pub(super) fn replaced(&self, is_applied: bool) {
        let count = if is_applied {
            &self.applied
        } else {
            &self.refused
        };
        count.fetch_add(1, Ordering::Relaxed);
        self.last_refused.store(!is_applied, Ordering::Relaxed);
    }

    fn told(&self, recorder: &dyn Recorder) -> &PageHandles {
        self.told.get(recorder, || {
            let told = PageHandles::new(recorder);
            if told.are_silent() {
                self.silent.store(address(recorder), Ordering::Relaxed);
            }
            told
        })
    }

    /// Makes the handles of these policies.
    pub(super) fn expect<'a>(&self, policies: impl Iterator<Item = &'a Policy>) {
        metrics::with_recorder(|recorder| {
            self.told(recorder);
            for policy in policies {
                let (name, weight) = (policy.name(), Weight::of(!policy.shadow));
                for limit in &policy.limits[..] {
                    let meter = PolicyMeter::of(&limit.label);
                    let handles = meter.0.get(recorder, PolicyHandles::default);
                    for tally in [Tally::Allowed, Tally::Denied] {
                        handles.decisions[weight as usize][tally as usize]
                            .get_or_init(|| decisions_of(recorder, name, weight, tally));
                    }
                    handles.used[weight as usize].get_or_init(|| used_of(recorder, name, weight));
                }
            }
        });
    }
}

#[inline(always)]
fn tell_sole(
    recorder: &dyn Recorder,
    payer: Payer<'_>,
    limit: &Limit,
    verdict: &Verdict,
    cause: Cause,
) {
    let tally = match cause {
        Cause::Backend | Cause::Known | Cause::Leased => Tally::of_verdict(verdict, false),
        _ => Tally::of_cause(cause).unwrap_or(Tally::of_verdict(verdict, false).by(cause)),
    };
    let (name, weight) = (
        limit.label.policy(),
        Weight::of(payer.mode() == Mode::Enforce),
    );
    let meter = PolicyMeter::of(&limit.label);
    let handles = meter.0.get(recorder, PolicyHandles::default);
    handles.count(recorder, name, weight, tally);
    if tally != Tally::Left {
        handles.fill(recorder, name, weight, UsedShare::of(verdict));
    }
}

fn tell(recorder: &dyn Recorder, payer: Payer<'_>, verdicts: &[Verdict], origin: Origin) {
    let Some(first) = payer.limits().first() else {
        return;
    };
    let tally = Tally::of(payer, verdicts, origin);
    let mut fullest = None;
    for (limit, verdict) in payer.limits().iter().zip(verdicts) {
        if !limit.quota.is_ban() && verdict.outcome() != Outcome::Unknown {
            let used = UsedShare::of(verdict);
            fullest = Some(fullest.map_or(used, |fullest: UsedShare| fullest.max(used)));
        }
    }
    let (name, weight) = (
        first.label.policy(),
        Weight::of(payer.mode() == Mode::Enforce),
    );
    let meter = PolicyMeter::of(&first.label);
    let handles = meter.0.get(recorder, PolicyHandles::default);
    handles.count(recorder, name, weight, tally);
    if let (Some(fullest), true) = (fullest, tally != Tally::Left) {
        handles.fill(recorder, name, weight, fullest);
    }
}

/// The handles of everything that is told with a page, and the counts that were told already.
struct PageHandles {
    shed: PolicyMeter,
    duration: Histogram,
    failing: Gauge,
    waiting: Gauge,
    shedding: Gauge,
    version: Gauge,
    last_replacement: Gauge,
    switched: [Gauge; 2],
    failures: GrowingCount,
    applied: GrowingCount,
    refused: GrowingCount,
}

/// A counter that follows a count of ours. Several limiters of one process add up.
struct GrowingCount {
    counter: Counter,
    told: AtomicU64,
}

impl GrowingCount {
    fn new(counter: Counter) -> Self {
        Self {
            counter,
            told: AtomicU64::new(0),
        }
    }

    fn reaches(&self, count: u64) {
        let told = self.told.fetch_max(count, Ordering::Relaxed);
        self.counter.increment(count.saturating_sub(told));
    }
}

impl PageHandles {
    /// True if the handles do nothing, as those without a recorder do: they do not ask for the value that is added.
    fn are_silent(&self) -> bool {
        struct Nothing<'a>(&'a Cell<bool>);

        impl IntoF64 for Nothing<'_> {
            fn into_f64(self) -> f64 {
                self.0.set(true);
                0.0
            }
        }

        let is_asked = Cell::new(false);
        self.waiting.increment(Nothing(&is_asked));
        !is_asked.get()
    }

    fn new(recorder: &dyn Recorder) -> Self {
        let replacements = |result| {
            let labels = vec![MetricLabel::from_static_parts("result", result)];
            GrowingCount::new(REPLACEMENTS.counter(recorder, labels))
        };
        let switched = |switch| {
            let labels = vec![MetricLabel::from_static_parts("switch", switch)];
            SWITCHED.gauge(recorder, labels)
        };
        Self {
            switched: ["shadow", "off"].map(switched),
            shed: PolicyMeter::default(),
            duration: DURATION.histogram(recorder, Vec::new()),
            failing: FAILING.gauge(recorder, Vec::new()),
            waiting: WAITING.gauge(recorder, Vec::new()),
            shedding: SHEDDING.gauge(recorder, Vec::new()),
            version: VERSION.gauge(recorder, Vec::new()),
            last_replacement: LAST_REPLACEMENT.gauge(recorder, Vec::new()),
            failures: GrowingCount::new(FAILURES.counter(recorder, Vec::new())),
            applied: replacements("applied"),
            refused: replacements("refused"),
        }
    }
}

/// The present states of a limiter, for its gauges.
pub(super) struct Present<'a> {
    pub(super) failures: u64,
    pub(super) is_failing: bool,
    pub(super) waiting: usize,
    pub(super) is_shedding: bool,
    /// The policies that are switched to each state but on.
    pub(super) switched: [usize; 2],
    pub(super) backend: &'a dyn Backend,
}

impl Meters {
    /// Tells the recorder the present states and counts.
    #[allow(
        clippy::cast_precision_loss,
        reason = "gauges take floats, and these numbers are far below 2^53"
    )]
    pub(super) fn publish(&self, present: &Present<'_>) {
        let flag = |is: bool| if is { 1.0 } else { 0.0 };
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        metrics::with_recorder(|recorder| {
            let told = self.told(recorder);
            told.failures.reaches(present.failures);
            told.failing.set(flag(present.is_failing));
            told.waiting.set(present.waiting as f64);
            told.shedding.set(flag(present.is_shedding));
            for (gauge, policies) in told.switched.iter().zip(present.switched) {
                gauge.set(policies as f64);
            }
            let applied = read(&self.applied);
            told.version.set(applied as f64);
            told.applied.reaches(applied);
            told.refused.reaches(read(&self.refused));
            let is_refused = self.last_refused.load(Ordering::Relaxed);
            told.last_replacement.set(flag(!is_refused));
            present.backend.admin().figures(&mut |figure, value| {
                let Some(metric) = metric_of(figure) else {
                    return;
                };
                // The backend counts, and this repeats it: two limiters on one backend count once.
                if figure.is_count() {
                    metric.counter(recorder, Vec::new()).absolute(value);
                } else {
                    metric.gauge(recorder, Vec::new()).set(value as f64);
                }
            });
        });
    }
}

impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meters")
    }
}
