//! Limiting without a request: `limiter.check("send-mail", user).await`.

mod error;
mod joint;
mod outcome;

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::{Capability, MAX_NAME_LEN};

pub use self::error::CheckError;
pub use self::joint::{JointCheck, JointOutcome};
use self::outcome::AskedAmount;
pub use self::outcome::CheckOutcome;
use super::entry::Entrant;
use super::event::Transport;
use super::plan::{Demand, Wish};
use super::planning::{self, Question};
use super::{Admission, Limiter, PendingAdmission, Ruling};
use crate::policy::Rank;
use crate::{ConfigError, Key, Policy, Quotas};

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
        let found = policy.and_then(|policy| Ok((limiter.identity(&policy, &key)?, policy)));
        let (key, policy) = match found {
            Ok((key, policy)) => (key, Ok(policy)),
            Err(error) => (key, Err(error)),
        };
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
    /// let limiter = Limiter::from(Policy::new("mail", [Quota::per_hour(100), Quota::per_day(250)]));
    ///
    /// // A worker that sends mails in batches: 80, and then the rest of the hour.
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
    /// let limiter = Limiter::from(Policy::new("mail", Quota::per_day(100)));
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
    /// let limiter = Limiter::from(Policy::new("orders", Quota::per_day(10)).once(Once::default()));
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

    /// This check, or an error if `up_to` does not fit its policy, its backend or its other settings.
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

    /// Decides by these quotas in place of the policy's own, of its tiers and of those that are asked for: a gateway states the
    /// limit of a request with it. All other rules of the policy hold.
    ///
    /// The states are those of the policy, as for [`QuotaLookup`](crate::QuotaLookup): another limit of the same algorithm gives no
    /// fresh budget, and another algorithm or window has a budget of its own.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::from(Policy::new("mail", Quota::per_day(10)));
    /// assert_eq!(limiter.check("mail", "alice").await?.remaining(), 9);
    /// // Her contract says a hundred a day.
    /// assert_eq!(limiter.check("mail", "alice").quotas("100/day").cost(50).await?.remaining(), 40);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// When it is awaited: if the policy could not have such quotas. More than four, places and waits cannot be stated.
    pub fn quotas(mut self, quotas: impl Into<Quotas>) -> Self {
        self.policy = self.policy.and_then(|policy| {
            let stated = policy.stating(quotas.into());
            stated.map_err(|error| CheckError::Quotas {
                policy: policy.name().into(),
                reason: match error {
                    ConfigError::QuotaLookup { reason, .. } => reason,
                    ConfigError::Quota { text, reason, .. } => format!("{text:?}: {reason}"),
                    other => other.to_string(),
                },
            })
        });
        self
    }

    /// Only asks whether it would pass. Nothing is taken.
    pub fn probe(mut self) -> Self {
        self.probe = true;
        self
    }

    fn question(self) -> Result<Question, CheckError> {
        let policy = self.policy?;
        let most = self.grant.map(|grant| grant.most);
        let cost = most.or(self.cost).or(policy.cost.fixed()).unwrap_or(1);
        let grant = || {
            let Grant { at_least, .. } = self.grant?;
            Some(Box::new(Wish::UpTo { at_least }))
        };
        Ok(Question {
            demand: Demand {
                seat: 0,
                class: self.class,
                cost,
                probe: self.probe,
                transport: Transport::Application,
            },
            wish: self.id.map_or_else(grant, |id| {
                let id = Policy::id_of(&self.key, &id, cost);
                Some(Box::new(Wish::Once { id }))
            }),
            policy,
            key: self.key,
        })
    }
}

impl<'a> IntoFuture for Check<'a> {
    type Output = Result<CheckOutcome, CheckError>;
    type IntoFuture = CheckFuture<'a>;

    fn into_future(self) -> CheckFuture<'a> {
        let this = self.with_fit_grant();
        let (limiter, importance, patience) = (this.limiter, this.importance, this.patience);
        let (step, asked) = match this.question() {
            Err(error) => (Step::Unknown(error), AskedAmount::default()),
            Ok(question) => {
                let asked = AskedAmount::of(&question);
                let step = Step::Asked {
                    question,
                    importance,
                    patience,
                };
                (step, asked)
            }
        };
        CheckFuture {
            limiter,
            step,
            asked,
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
/// let quota = Quota::per_second(1).burst(2).wait_up_to(Duration::from_secs(2));
/// let limiter = Limiter::from(Policy::new("mail", quota));
///
/// let first = limiter.acquire("mail", "alice").cost(2).await?;
/// assert_eq!(first.waited(), Duration::ZERO);
/// let second = limiter.acquire("mail", "alice").await?;
/// assert!(second.is_allowed() && second.waited() <= Duration::from_secs(1));
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

/// The future of a [`Check`] or an [`Acquire`].
///
/// # Cancel safety
///
/// Dropped before its end it gives back what was taken: see [`Limiter::acquire`].
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
    asked: AskedAmount,
}

enum Step {
    /// The limiter has no such policy, or the policy no such key.
    Unknown(CheckError),
    /// The decision begins when the future is polled: a check that is never awaited spends nothing.
    Asked {
        question: Question,
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
                    question,
                    importance,
                    patience,
                } => {
                    let policy = Arc::clone(&question.policy);
                    let entrant = Entrant::Work {
                        class: importance,
                        is_probe: question.demand.probe,
                    };
                    match limiter.admit_questions([question], Some(entrant), patience, |ruling| {
                        CheckOutcome::of(&policy, asked, ruling)
                    }) {
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
    /// The way of checks. No questions have nothing that could be refused, and so no entrant.
    fn admit_questions<T>(
        &self,
        questions: impl IntoIterator<Item = Question>,
        entrant: Option<Entrant<'_, '_>>,
        patience: Patience,
        conclude: impl FnOnce(Ruling<'_>) -> T,
    ) -> Admission<T> {
        if let Some(refused) = entrant.and_then(|entrant| self.shed(entrant)) {
            return Admission::Ruled(conclude(Ruling::Refused(refused)));
        }
        let planned = planning::plan_questions(questions, &self.0.observers);
        let deadline = || match patience {
            Patience::None => Some(Instant::now()),
            Patience::Unlimited => None,
            Patience::UpTo(wait) => Instant::now().checked_add(wait),
        };
        self.go_on(planned, deadline, conclude)
    }
}

impl fmt::Debug for CheckFuture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckFuture").finish_non_exhaustive()
    }
}
