//! Limiting without a request: `limiter.check("send-mail", user).await`.

use std::error::Error;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::{BackendError, Capability, MAX_NAME_LEN, Receipt, RetryAfter, Verdict};

use super::plan::{Demand, Wish};
use super::planning;
use super::{Admission, Judgement, Ledger, Limiter, PendingAdmission, Rejection, Ruling};
use crate::policy::Rank;
use crate::{Block, Key, Policy, QuotaError};

/// One question to a [`Limiter`], to be awaited: see [`Limiter::check`].
///
/// ```
/// # use tollgate::{Limiter, Policy, Quota};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::from(Policy::new("tokens", Quota::per_minute(10_000)));
///
/// let asked = limiter.check("tokens", "alice").cost(12_000).probe().await?;
/// assert!(!asked.is_allowed() && asked.retry_after().is_none(), "more than a full budget holds");
///
/// let taken = limiter.check("tokens", "alice").cost(9_000).await?;
/// assert_eq!(taken.remaining(), 1_000);
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a check does nothing unless it is awaited"]
pub struct Check<'a> {
    limiter: &'a Limiter,
    policy: Result<Arc<Policy>, CheckError>,
    key: Key,
    class: Rank,
    /// The place among the limiter's own classes.
    importance: Rank,
    cost: Option<u64>,
    probe: bool,
    patience: Patience,
    grant: Option<Grant>,
    id: Option<Key>,
}

/// The amounts between which a check asks for as much as there is.
#[derive(Clone, Copy, Debug)]
struct Grant {
    most: u64,
    at_least: u64,
}

/// The longest time for which a check waits for its turn.
#[derive(Clone, Copy, Debug)]
enum Patience {
    /// Not at all.
    None,
    /// As long as the quotas let it.
    Unlimited,
    UpTo(Duration),
}

impl<'a> Check<'a> {
    pub(super) fn new(limiter: &'a Limiter, policy: &str, key: Key) -> Self {
        let unknown = || CheckError::UnknownPolicy {
            policy: policy.into(),
        };
        let policy = limiter.policy(policy).ok_or_else(unknown);
        let policy = policy.and_then(|policy| limiter.fits(&policy, &key).map(|()| policy));
        Self {
            limiter,
            class: policy.as_ref().map_or(0, |policy| policy.least_class()),
            importance: limiter.least_class(),
            policy,
            key,
            cost: None,
            probe: false,
            patience: Patience::None,
            grant: None,
            id: None,
        }
    }

    /// Asks for this cost rather than the policy's own, which is 1 if it depends on requests. 0 always passes and reports the
    /// truth.
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = Some(cost);
        self
    }

    /// Asks for as much as there is, up to `most`, in place of a cost: see [`CheckOutcome::granted`]. All quotas of the policy are
    /// charged the same amount, the largest that each of them has room for. If that is less than [`at_least`](Self::at_least), the
    /// check is denied and nothing is taken.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::from(Policy::new("mail", [Quota::per_minute(100), Quota::per_day(250)]));
    ///
    /// // A worker that sends mails in batches: 80, and then the rest of the minute.
    /// let batch = limiter.check("mail", "alice").up_to(80).await?;
    /// assert_eq!(batch.granted(), 80);
    /// let batch = limiter.check("mail", "alice").up_to(80).await?;
    /// assert_eq!(batch.granted(), 20);
    /// let batch = limiter.check("mail", "alice").up_to(80).await?;
    /// assert!(!batch.is_allowed() && batch.retry_after().is_some());
    /// # Ok(()) }
    /// ```
    ///
    /// Places of a [`Concurrent`](crate::Concurrent) limit are granted as units are, and held until the outcome is dropped. No
    /// class is granted what is [kept](Policy::keep_for) from it. A policy on trial grants all, and takes as much as there is.
    ///
    /// # Errors
    ///
    /// When it is awaited: if a quota of the policy lets requests wait for their turn, since a grant is decided at once; if
    /// [`cost`](Self::cost) is stated as well; if it is less than the least; or if the backend cannot grant.
    pub fn up_to(mut self, most: u64) -> Self {
        let at_least = self.grant.map_or(1, |grant| grant.at_least);
        self.grant = Some(Grant { most, at_least });
        self
    }

    /// The least that [`up_to`](Self::up_to) is to grant, which is 1 unless this is set. A denial says when the least would be
    /// granted.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::from(Policy::new("mail", Quota::per_minute(100)));
    /// limiter.check("mail", "alice").cost(85).await?;
    ///
    /// // A batch of fewer than twenty is not worth a connection.
    /// let batch = limiter.check("mail", "alice").up_to(80).at_least(20).await?;
    /// assert!(!batch.is_allowed());
    /// # Ok(()) }
    /// ```
    ///
    /// Without `up_to` it is an error when the check is awaited.
    pub fn at_least(mut self, least: u64) -> Self {
        let most = self.grant.map_or(0, |grant| grant.most);
        self.grant = Some(Grant {
            most,
            at_least: least,
        });
        self
    }

    /// Charges the check once, however often it is repeated with this id: see [`Policy::once_by`]. A retry is allowed as the first
    /// was, and takes nothing, so that it has no receipts. The receipts of the first end with that of the id: credited, it is
    /// forgotten, and so credit it before the others.
    ///
    /// ```
    /// use tollgate::{Limiter, Once, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::from(Policy::new("orders", Quota::per_minute(10)).once(Once::default()));
    /// let first = limiter.check("orders", "alice").id("order-7").await?;
    /// let retry = limiter.check("orders", "alice").id("order-7").await?;
    /// assert!(first.is_allowed() && retry.is_allowed());
    /// assert_eq!((first.remaining(), retry.remaining()), (9, 9));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// When it is awaited: if the policy has no terms for ids, see [`Policy::once`], or together with [`up_to`](Self::up_to).
    pub fn id(mut self, id: impl Into<Key>) -> Self {
        self.id = Some(id.into());
        self.policy = self.policy.and_then(|policy| match policy.once {
            Some(_) => Ok(policy),
            None => Err(CheckError::NeverOnce {
                policy: policy.name().into(),
            }),
        });
        self
    }

    /// This check, unless it asks for as much as there is where that cannot be.
    fn with_fit_grant(mut self) -> Self {
        let Some(Grant { most, at_least }) = self.grant else {
            return self;
        };
        self.policy = self.policy.and_then(|policy| {
            let offered = self.limiter.0.terms.offered;
            let reason = if self.id.is_some() {
                Some("it has an id as well, and a retry has no amount".to_owned())
            } else if self.cost.is_some() {
                Some("a cost is stated as well; leave one of the two out".to_owned())
            } else if at_least == 0 {
                Some("at least 0: a grant of nothing is a denial; ask for at least 1".to_owned())
            } else if most < at_least {
                Some(format!("at least {at_least}: that is more than the most"))
            } else if policy.waits() {
                let reason = "its quotas let requests wait, and a grant is decided at once";
                Some(format!("{reason}; use another policy, or `acquire`"))
            } else if !offered.has(Capability::UpTo) {
                Some(format!("the backend does not support {}", Capability::UpTo))
            } else {
                None
            };
            match reason {
                None => Ok(policy),
                Some(reason) => Err(CheckError::UpTo {
                    policy: policy.name().into(),
                    most,
                    reason,
                }),
            }
        });
        self
    }

    /// Asks as a request of this [class](Policy::keep_for) of the policy. A check without a class is among the least
    /// important. The name may also be that of a class of the [limiter](crate::LimiterBuilder::classes), by which it is let in
    /// under pressure: work that is not to be [shed](crate::LimiterBuilder::shed) says its class here. A class that neither has is
    /// an error.
    ///
    /// ```
    /// use tollgate::{CheckError, Limiter, Policy, Quota, Share, key};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mail = Policy::new("mail", Quota::per_hour(10)).class_by(key::Method).keep_for("receipt", Share::percent(30));
    /// let limiter = Limiter::builder().policy(mail).build()?;
    /// assert_eq!(limiter.check("mail", "alice").probe().await?.remaining(), 7);
    /// assert_eq!(limiter.check("mail", "alice").class("receipt").probe().await?.remaining(), 10);
    /// let unknown = limiter.check("mail", "alice").class("recipe").await;
    /// assert!(matches!(unknown, Err(CheckError::UnknownClass { .. })));
    /// # Ok(()) }
    /// ```
    pub fn class(mut self, class: &str) -> Self {
        self.policy = self.policy.and_then(|policy| {
            let of_policy = policy.class_named(class);
            let of_limiter = self.limiter.class_named(class);
            if of_policy.or(of_limiter).is_none() {
                return Err(CheckError::UnknownClass {
                    policy: policy.name().into(),
                    class: class.chars().take(MAX_NAME_LEN).collect(),
                });
            }
            self.class = of_policy.unwrap_or(self.class);
            self.importance = of_limiter.unwrap_or(self.importance);
            Ok(policy)
        });
        self
    }

    /// Only asks whether it would pass. Nothing is taken.
    pub fn probe(mut self) -> Self {
        self.probe = true;
        self
    }
}

impl<'a> IntoFuture for Check<'a> {
    type Output = Result<CheckOutcome, CheckError>;
    type IntoFuture = CheckFuture<'a>;

    fn into_future(self) -> CheckFuture<'a> {
        let this = self.with_fit_grant();
        let step = match this.policy {
            Err(error) => Step::Unknown(error),
            Ok(policy) => {
                let most = this.grant.map(|grant| grant.most);
                let cost = most.or(this.cost).or(policy.cost.fixed()).unwrap_or(1);
                let grant = || {
                    let Grant { at_least, .. } = this.grant?;
                    Some(Box::new(Wish::UpTo { at_least }))
                };
                Step::Asked {
                    demand: Demand {
                        seat: 0,
                        class: this.class,
                        cost,
                        probe: this.probe,
                    },
                    wish: this.id.map_or_else(grant, |id| {
                        let id = Policy::id_of(&this.key, &id, cost);
                        Some(Box::new(Wish::Once { id }))
                    }),
                    importance: this.importance,
                    policy,
                    key: this.key,
                    patience: this.patience,
                }
            }
        };
        CheckFuture {
            limiter: this.limiter,
            asked: match &step {
                Step::Asked { demand, wish, .. } => Asked::of(*demand, wish.as_deref()),
                _ => Asked::default(),
            },
            step,
        }
    }
}

/// A [`Check`] that waits for its turn, to be awaited: see [`Limiter::acquire`].
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Limiter, Policy, Quota};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let quota = Quota::per_second(100).burst(2).wait_up_to(Duration::from_secs(1));
/// let limiter = Limiter::from(Policy::new("mail", quota));
///
/// let first = limiter.acquire("mail", "alice").cost(2).await?;
/// assert_eq!(first.waited(), Duration::ZERO);
/// let second = limiter.acquire("mail", "alice").await?;
/// assert!(second.is_allowed() && second.waited() <= Duration::from_millis(10));
/// // The turn after that is further away than this caller waits.
/// let third = limiter.acquire("mail", "alice").up_to(Duration::ZERO).await?;
/// assert!(!third.is_allowed());
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "nothing is acquired unless it is awaited"]
pub struct Acquire<'a>(Check<'a>);

impl<'a> Acquire<'a> {
    pub(super) fn new(mut check: Check<'a>) -> Self {
        check.patience = Patience::Unlimited;
        check.policy = check.policy.and_then(|policy| {
            if policy.waits() {
                return Ok(policy);
            }
            Err(CheckError::NeverWaits {
                policy: policy.name().into(),
            })
        });
        Self(check)
    }

    /// Asks for this cost rather than the policy's own, which is 1 if it depends on requests.
    pub fn cost(self, cost: u64) -> Self {
        Self(self.0.cost(cost))
    }

    /// Asks as a request of this class of the policy: see [`Check::class`].
    ///
    /// ```
    /// use tollgate::{Acquire, Limiter};
    ///
    /// fn urgent(limiter: &Limiter) -> Acquire<'_> {
    ///     limiter.acquire("exports", "alice").class("urgent")
    /// }
    /// ```
    pub fn class(self, class: &str) -> Self {
        Self(self.0.class(class))
    }

    /// Waits at most this long. The wait that the quota allows is never made longer.
    pub fn up_to(mut self, wait: Duration) -> Self {
        self.0.patience = Patience::UpTo(wait);
        self
    }
}

impl<'a> IntoFuture for Acquire<'a> {
    type Output = Result<CheckOutcome, CheckError>;
    type IntoFuture = CheckFuture<'a>;

    fn into_future(self) -> CheckFuture<'a> {
        self.0.into_future()
    }
}

/// The future of a [`Check`] or an [`Acquire`]. Dropped before its end it gives back what was taken.
///
/// Code that needs the future's type, such as a struct that stores it, names it:
///
/// ```
/// use std::future::IntoFuture;
/// use tollgate::{CheckFuture, Limiter};
///
/// fn ask<'a>(limiter: &'a Limiter, user: &str) -> CheckFuture<'a> {
///     limiter.check("send-mail", user).into_future()
/// }
/// ```
#[must_use = "a check does nothing unless it is awaited"]
pub struct CheckFuture<'a> {
    limiter: &'a Limiter,
    step: Step,
    asked: Asked,
}

enum Step {
    /// The limiter has no such policy, or the policy no such key.
    Unknown(CheckError),
    /// Nothing is decided before the future is polled: a check that is never awaited spends nothing.
    Asked {
        policy: Arc<Policy>,
        key: Key,
        demand: Demand,
        wish: Option<Box<Wish>>,
        importance: Rank,
        patience: Patience,
    },
    Pending(Arc<Policy>, Box<PendingAdmission>),
    /// The answer was given.
    Done,
}

impl Future for CheckFuture<'_> {
    type Output = Result<CheckOutcome, CheckError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (limiter, asked) = (self.limiter, self.asked);
        loop {
            match std::mem::replace(&mut self.step, Step::Done) {
                Step::Unknown(error) => return Poll::Ready(Err(error)),
                Step::Asked {
                    policy,
                    key,
                    demand,
                    wish,
                    importance,
                    patience,
                } => {
                    if let Some(refused) = limiter.shed_class(importance, !demand.probe) {
                        let refused = Ruling::Refused(refused);
                        return Poll::Ready(CheckOutcome::of(&policy, asked, refused));
                    }
                    match limiter.admit_key(&policy, key, demand, wish, patience) {
                        Admission::Ruled(checked) => return Poll::Ready(checked),
                        Admission::Pending(pending) => self.step = Step::Pending(policy, pending),
                    }
                }
                Step::Pending(policy, mut pending) => {
                    let checked = pending.poll(cx, limiter, None, |ruling| {
                        CheckOutcome::of(&policy, asked, ruling)
                    });
                    if checked.is_pending() {
                        self.step = Step::Pending(policy, pending);
                    }
                    return checked;
                }
                // Polled after its end.
                Step::Done => return Poll::Pending,
            }
        }
    }
}

impl Limiter {
    fn admit_key(
        &self,
        policy: &Arc<Policy>,
        key: Key,
        demand: Demand,
        wish: Option<Box<Wish>>,
        patience: Patience,
    ) -> Admission<Result<CheckOutcome, CheckError>> {
        let asked = Asked::of(demand, wish.as_deref());
        let observers = &self.0.observers;
        let planned = planning::plan_for_key(policy, key, demand, wish, observers);
        let deadline = || match patience {
            Patience::None => Some(Instant::now()),
            Patience::Unlimited => None,
            Patience::UpTo(wait) => Instant::now().checked_add(wait),
        };
        self.go_on(planned, deadline, |ruling| {
            CheckOutcome::of(policy, asked, ruling)
        })
    }
}

impl fmt::Debug for CheckFuture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckFuture").finish_non_exhaustive()
    }
}

/// The answer to a [`Check`], and the guard of what it holds: under a [`Concurrent`](crate::Concurrent) limit keep it for as long
/// as the work lasts. When it is dropped, what is held is given back.
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
/// let limiter = Limiter::from(Policy::new("mail", [Quota::per_minute(2), Quota::per_day(20)]));
///
/// let checked = limiter.check("mail", "alice").await?;
/// assert!(checked.is_allowed());
/// // One is left in this minute, and 19 in this day.
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
    asked: Asked,
}

/// The amount that a check asks for.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    /// The cost, or the most that may be granted.
    most: u64,
    /// True if less may be granted.
    is_grant: bool,
}

#[derive(Debug)]
enum Outcome {
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
    fn of(policy: &Policy, asked: Asked, ruling: Ruling<'_>) -> Result<Self, CheckError> {
        let outcome = match ruling {
            Ruling::Uncharged => Outcome::Unlimited,
            Ruling::Admitted(decided) | Ruling::Denied(decided) => {
                Outcome::decided(decided.ledger())
            }
            Ruling::Undecided(error, assumed) => {
                let ledger = assumed.map(Judgement::ledger).unwrap_or_default();
                Outcome::Undecided(error, ledger)
            }
            Ruling::Refused(Rejection::Blocked(how)) => Outcome::Blocked(how),
            Ruling::Refused(Rejection::Shed(wait)) => Outcome::Shed(wait),
            Ruling::Refused(Rejection::Unavailable(error)) => {
                return Err(CheckError::Unavailable(error));
            }
            Ruling::Refused(Rejection::TierUnknown | Rejection::Unidentified(_)) => {
                return Err(CheckError::TierUnknown {
                    policy: policy.name().into(),
                });
            }
        };
        // A policy on trial refuses nothing; the limiter under pressure does.
        let enforced = !policy.shadow || matches!(outcome, Outcome::Shed(_));
        Ok(Self {
            outcome,
            enforced,
            asked,
        })
    }

    /// True if the work may go on: every quota of the policy had room (for a [probe](Check::probe): has), the policy is on trial,
    /// the identity is exempt, its tier is unlimited, or the backend failed and the policy says
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
            // Of a probe, too: all verdicts are the policy's own.
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
        let verdicts = ledger.report().verdicts().iter();
        // Nothing passes for those who are banned.
        let left = verdicts.filter_map(|one| match (one.is_ban(), one.verdict().is_denied()) {
            (true, true) => Some(0),
            (true, false) => None,
            (false, _) => Some(one.verdict().remaining()),
        });
        left.min().unwrap_or(0)
    }

    /// The units that the work may spend: the cost of the check, or for one that asks for [as much as there is](Check::up_to) the
    /// amount that was granted. 0 if it is denied. For a [probe](Check::probe) it is what would be granted now.
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

    /// The time for which it waited for its turn or for a place: see [`Limiter::acquire`].
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

    /// One verdict for each quota of the policy, in their order, as the [class](Check::class) sees it, and then that of its
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
        match &self.outcome {
            Outcome::Undecided(error, _) => Some(error),
            _ => None,
        }
    }

    /// The way to refuse the identity, if it is on a block list of the policy or a [limit of 0](crate::Quotas::none) refuses it.
    #[must_use]
    pub fn blocked(&self) -> Option<Block> {
        match self.outcome {
            Outcome::Blocked(how) => Some(how),
            _ => None,
        }
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
        matches!(self.outcome, Outcome::Shed(_))
    }

    /// The receipts of the charges, for later credits and debits: see [`Limiter::credit`] and [`Limiter::debit`]. The receipt of
    /// a [`Concurrent`](crate::Concurrent) limit must be credited when the work is done, since this guard is then gone.
    #[must_use]
    pub fn into_receipts(self) -> Vec<Receipt> {
        match self.outcome {
            Outcome::Decided { ledger, .. } | Outcome::Undecided(_, ledger) => {
                ledger.into_receipts()
            }
            _ => Vec::new(),
        }
    }
}

impl Asked {
    fn of(demand: Demand, wish: Option<&Wish>) -> Self {
        Self {
            most: demand.cost,
            is_grant: matches!(wish, Some(Wish::UpTo { .. })),
        }
    }
}

impl Outcome {
    fn decided(ledger: Ledger) -> Self {
        let verdicts = ledger.report().verdicts().iter();
        Self::Decided {
            verdicts: verdicts.map(|one| *one.verdict()).collect(),
            ledger,
        }
    }
}

/// The reason why a [`Check`] has no answer. A denial is an answer, and not among the reasons.
///
/// ```
/// use tollgate::{CheckError, Limiter, Quota};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let limiter = Limiter::from(Quota::per_second(10));
/// match limiter.check("send-mail", "alice").await {
///     Ok(checked) => println!("allowed: {}", checked.is_allowed()),
///     Err(CheckError::UnknownPolicy { policy }) => println!("no policy {policy}"),
///     Err(error) => println!("{error}"),
/// }
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum CheckError {
    /// The limiter has no policy of this name.
    UnknownPolicy {
        /// The name.
        policy: String,
    },
    /// The policy has no class of this name.
    UnknownClass {
        /// The policy's name.
        policy: String,
        /// The class, shortened if its name is long.
        class: String,
    },
    /// No request under the policy ever has this kind of identity: text, where the policy's key is an address. The keys of
    /// closures may be anything.
    WrongKey {
        /// The policy's name.
        policy: String,
        /// The kind of the policy's key, and the value to pass. The identity itself is not named.
        reason: String,
    },
    /// No quota of the policy lets a request wait, and [`acquire`](Limiter::acquire) waits.
    NeverWaits {
        /// The policy's name.
        policy: String,
    },
    /// The check asks for [as much as there is](Check::up_to), and that cannot be.
    UpTo {
        /// The policy's name.
        policy: String,
        /// The most that it asks for.
        most: u64,
        /// The reason.
        reason: String,
    },
    /// The policy has no terms for ids, and the check has an [id](Check::id).
    NeverOnce {
        /// The policy's name.
        policy: String,
    },
    /// The policy has no ban.
    NeverBans {
        /// The policy's name.
        policy: String,
    },
    /// The length of the ban cannot be.
    BanLength(QuotaError),
    /// The backend failed, and the policy refuses requests then.
    Unavailable(BackendError),
    /// The tier or quota of the identity could not be found out, and the policy refuses requests then: see
    /// [`OnUnknown::Deny`](crate::OnUnknown::Deny).
    TierUnknown {
        /// The policy's name.
        policy: String,
    },
}

/// The longest wait among the refused quotas, if all of them pass at some time that is known.
fn longest_wait(verdicts: &[Verdict]) -> Option<Duration> {
    let waits = verdicts
        .iter()
        .filter_map(|verdict| match verdict.outcome() {
            tollgate_core::Outcome::Deny(wait) => Some(wait),
            _ => None,
        });
    match waits.max()? {
        RetryAfter::Micros(us) => Some(Duration::from_micros(us)),
        RetryAfter::Unknown | RetryAfter::Never => None,
    }
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPolicy { policy } => {
                write!(f, "policy {policy:?}: there is no policy of this name")
            }
            Self::UnknownClass { policy, class } => write!(
                f,
                "policy {policy:?}: class {class:?}: there is no class of this name"
            ),
            Self::WrongKey { policy, reason } => write!(f, "policy {policy:?}: {reason}"),
            Self::NeverWaits { policy } => write!(
                f,
                "policy {policy:?}: none of its quotas lets a request wait: use `check`, or add `.wait_up_to(..)` to one"
            ),
            Self::UpTo {
                policy,
                most,
                reason,
            } => write!(f, "policy {policy:?}: up to {most}: {reason}"),
            Self::NeverOnce { policy } => write!(
                f,
                "policy {policy:?}: it charges no id once: add `.once(..)` or `.once_by(..)`"
            ),
            Self::NeverBans { policy } => {
                write!(f, "policy {policy:?}: it has no ban: add `.ban(..)`")
            }
            Self::BanLength(error) => write!(f, "the length of the ban: {error}"),
            Self::Unavailable(_) => f.write_str("the limiter cannot decide"),
            Self::TierUnknown { policy } => {
                write!(
                    f,
                    "policy {policy:?}: the tier or quota of the identity is not known"
                )
            }
        }
    }
}

impl Error for CheckError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::UnknownPolicy { .. }
            | Self::UnknownClass { .. }
            | Self::WrongKey { .. }
            | Self::NeverWaits { .. }
            | Self::UpTo { .. }
            | Self::NeverOnce { .. }
            | Self::NeverBans { .. }
            | Self::BanLength(_)
            | Self::TierUnknown { .. } => None,
            Self::Unavailable(error) => Some(error),
        }
    }
}
