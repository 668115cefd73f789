//! A decision, as observers hear of it.

use std::time::Duration;

use tollgate_core::{Decision, Key, Quota, Verdict};

use crate::RequestView;
use crate::request::Dialect;

/// A decision about one quota, or about all quotas of one policy.
///
/// ```
/// use tollgate::{Cause, Event};
///
/// /// The labels of a metric. Never the key: identities are secrets, and there are too many.
/// fn labels(event: &Event<'_>) -> (String, &'static str, &'static str) {
///     let result = match event.cause() {
///         Cause::Backend | Cause::Known | Cause::Leased | Cause::Local => match event.verdict() {
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
    pub(super) policy: &'a str,
    pub(super) quota: Option<&'a str>,
    pub(super) class: Option<&'a str>,
    pub(super) key: Option<&'a Key>,
    pub(super) verdict: Option<&'a Verdict>,
    pub(super) is_enforced: bool,
    pub(super) origin: Origin,
    pub(super) transport: Transport,
    /// The result of the whole decision about the policy, with the first of the events that tell it.
    pub(super) result: Option<&'static str>,
    /// The quota, if it was asked.
    pub(super) rule: Option<&'a Quota>,
}

/// The way in which a decision came about, and the time for which its request had waited.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) cause: Cause,
    /// In microseconds. No wait is longer than an hour.
    pub(super) waited_us: u32,
}

impl Origin {
    /// The origin of the verdicts of a policy, whose id may be that of an earlier admission.
    pub(super) fn of(self, is_replay: bool) -> Self {
        match self.cause {
            Cause::Backend if is_replay => Self {
                cause: Cause::Replayed,
                ..self
            },
            _ => self,
        }
    }

    /// True if the request has waited for a place, and may have under this quota.
    pub(super) fn has_waited_for(self, quota: &Quota) -> bool {
        self.waited_us > 0 && quota.is_held() && quota.waits()
    }
}

impl Cause {
    /// The cause of what the backend decided.
    #[inline(always)]
    pub(super) fn of(decision: &Decision) -> Self {
        if decision.is_known() {
            if decision.is_admitted() {
                Self::Leased
            } else {
                Self::Known
            }
        } else {
            Self::Backend
        }
    }
}

impl From<Cause> for Origin {
    fn from(cause: Cause) -> Self {
        Self {
            cause,
            waited_us: 0,
        }
    }
}

impl Cause {
    /// The origin of a decision about a request that has waited.
    pub(super) const fn after(self, waited_us: u32) -> Origin {
        Origin {
            cause: self,
            waited_us,
        }
    }
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
    /// The backend knew that it could only deny, and did not ask its server: see the [verdict](Event::verdict), and
    /// [`Decision::is_known`](crate::Decision::is_known).
    Known,
    /// A block decided that this process had [leased](crate::Lease): see the [verdict](Event::verdict).
    Leased,
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
    /// The policy covers the request, and an operator has [switched](crate::Limiter::switch) it off. Nothing is charged.
    Off,
    /// The request has no identity, and the policy refuses it.
    Unidentified,
    /// The request has no identity, and the policy lets it pass uncharged: see [`OnMissing::Pass`](crate::OnMissing::Pass).
    PassedUnidentified,
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
    /// The request left before it was let in or refused. If it had a turn, it gave that back, and the [verdict](Event::verdict)
    /// says how long it was to [wait](Verdict::wait). There is no verdict if it stood in line for a place, or if the backend was
    /// being asked: nothing stays charged.
    Left,
    /// The request has the [id](crate::Policy::once_by) of one that was admitted: it passes, and this policy takes nothing from
    /// its budgets. The [verdict](Event::verdict) says how full they are.
    Replayed,
    /// The policy is on trial, and another one refused the request before any quota was asked: by a list, for want of an
    /// identity, or because a tier is not known. Nothing was charged. The policy will not be asked about such requests either when
    /// it is on trial no more, and so its verdicts so far are those that it will give.
    Unasked,
    /// A held charge was given back. The [verdict](Event::verdict) says how much is left then, as far as this request knows.
    Released,
    /// The application gave units back by a receipt: see [`Limiter::refund`](crate::Limiter::refund). There is no verdict, since
    /// the backend does not answer.
    Credited,
    /// The application took more units by a receipt: see [`Limiter::debit`](crate::Limiter::debit). There is no verdict, since the
    /// backend does not answer.
    Debited,
}

/// The way by which a request came to the limiter.
///
/// ```
/// use tollgate::{Event, Transport};
///
/// /// A label of a metric.
/// fn transport(event: &Event<'_>) -> &'static str {
///     match event.transport() {
///         Transport::Http => "http",
///         Transport::Grpc => "grpc",
///         _ => "application",
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Transport {
    /// HTTP, and not gRPC.
    Http,
    /// gRPC, or gRPC-Web: a call, or a message of one.
    Grpc,
    /// None: the application asked by itself, by a [check](crate::Limiter::check), or corrected a charge by its receipt.
    #[default]
    Application,
}

impl Transport {
    /// The transport of a request, by [`Dialect::of`].
    #[cold]
    pub(super) fn of(request: &RequestView<'_>) -> Self {
        match Dialect::of(request) {
            Some(_) => Self::Grpc,
            None => Self::Http,
        }
    }
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
        self.origin.cause
    }

    /// The quota, if it was asked.
    #[doc(hidden)]
    #[must_use]
    pub fn rule(&self) -> Option<&'a Quota> {
        self.rule
    }

    /// The result of the decision about the whole policy, in the words of the metric `rate_limiting_decisions_total`: `allowed`,
    /// `denied`, `banned` and so on. One event of each decision has it, however many quotas the policy has, so that an observer
    /// which counts results counts decisions. `None` for the other events, and for charges that are corrected.
    ///
    /// ```
    /// use std::collections::HashMap;
    /// use std::sync::{Arc, Mutex};
    /// use tollgate::{Event, Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let results = Arc::new(Mutex::new(HashMap::new()));
    /// let count = Arc::clone(&results);
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("mail", [Quota::per_hour(1), Quota::per_day(5)]))
    ///     .observe(move |event: &Event<'_>| {
    ///         if let (Some(result), Ok(mut counts)) = (event.result(), count.lock()) {
    ///             *counts.entry(result).or_insert(0) += 1;
    ///         }
    ///     })
    ///     .build()?;
    /// for _ in 0..3 {
    ///     limiter.check("mail", "alice").await?;
    /// }
    ///
    /// let expected = HashMap::from([("allowed", 1), ("denied", 2)]);
    /// assert_eq!(results.lock().ok().as_deref(), Some(&expected));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn result(&self) -> Option<&'static str> {
        self.result
    }

    /// The way by which the request came to the limiter: the content type tells a call of gRPC's from another request.
    ///
    /// ```
    /// use tollgate::{Event, Transport};
    ///
    /// /// True if a request was refused or let pass, and not a piece of work of the application's.
    /// fn is_request(event: &Event<'_>) -> bool {
    ///     event.transport() != Transport::Application
    /// }
    /// ```
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// The time for which the request had waited when this was decided: for a place under a limit on how many at once, or for
    /// the turn after which it asked for one. A turn is decided before the request waits for it: [`Verdict::wait`] says for how
    /// long.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Event;
    ///
    /// /// The time that this decision costs the request.
    /// fn delay(event: &Event<'_>) -> Duration {
    ///     event.waited() + event.verdict().map_or(Duration::ZERO, |verdict| verdict.wait())
    /// }
    /// ```
    #[must_use]
    pub fn waited(&self) -> Duration {
        Duration::from_micros(self.origin.waited_us.into())
    }
}
