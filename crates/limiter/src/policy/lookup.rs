//! Quotas that a database states, one identity at a time.

use std::collections::HashSet;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::answer_cache::{
    AnswerCache, AnswerFuture, DEADLINE, Entitlement, FoundEntitlement, Lookup, UnknownEntitlement,
    Words,
};
use super::tiers::log_entries;
use super::{Limit, OnUnknown, Policy, Quotas};
use crate::{ConfigError, Key, Quota, RequestView, Scope};

/// The most quotas of one answer, unless the policy has more of its own.
const MOST_QUOTAS: usize = 4;
/// The most entries of sliding logs that the quotas of one answer have, unless the policy's own have more.
const MOST_LOG_ENTRIES: usize = 1_024;
/// The most scopes of one policy's name, each a quota's position with an algorithm and a length of windows. A scope is kept for the
/// life of the process, so that answers which name ever other windows would fill its memory.
const MOST_SCOPES: usize = 64;

/// The quota of each identity, which a function states after having asked a database or another service: "customer 4711 has 250 a
/// minute". [`Policy::quota_by_async`] gives it to a policy.
///
/// * **An answer** is a [`Quota`], several, a text of them, or anything else that is an [`Allowance`]. `Ok(None)` says that nothing
///   is stated for the identity: it has the policy's own quotas.
/// * **Answers are remembered** for `remember_for`, of at most ten thousand identities in each limiter: at most 2,300 bytes for an
///   identity that has one quota, rendered headers among them, and nothing beyond that, however many different quotas are stated
///   over time. Then the next request is served by the old answer, while a task asks again. Questions, deadline and failures are as
///   those of [`Tiers::by_async`](crate::Tiers::by_async): the requests that wait for one identity ask once, at most 1,024
///   identities are asked for at a time, and a dead database is asked a few times a second.
/// * **An invalid answer** counts as a failure for its identity alone: the old answer holds, or else what
///   [`on_unknown`](Self::on_unknown) says, and the identity is not asked for during the next second. The log has a warning that
///   says why, at most one a minute. These answers count as failures:
///   * a text that is not a quota, and a name that none of the policy's own quotas has;
///   * a limit on how many at once, and a quota that lets requests wait;
///   * a full budget that is smaller than the policy's [cost](Policy::cost);
///   * a [share](Policy::keep_for) of less than one unit, or of a quota that [warms up](Quota::warm_up);
///   * more than four quotas, unless the policy has more of its own;
///   * sliding logs of more than 1,024 entries together, unless the policy's own have more;
///   * an algorithm or a window length beyond the 64 pairs of them that a process keeps for each policy name.
/// * **A change gives no fresh budget.** Another limit, burst or rate of the same algorithm finds the state of the old one, as if a
///   policy were [replaced](crate::Limiter::replace). The quotas stated for an identity and the policy's own also share states, by
///   their position. The bucket of [`Gcra`](crate::Algorithm::Gcra) keeps *how long it takes* until it is full again: an identity
///   that has spent half of 250 a minute has half of 500 a minute left. Windows and logs keep the count. An identity that has spent
///   1,000 a day and now has 10 a second waits until the day's budget would be full again, as `Retry-After` says:
///   [`Limiter::reset`](crate::Limiter::reset) is the remedy.
/// * **Another algorithm, or windows of another length,** have a state of their own: at most one full budget of the new quota the
///   first time, and the old state on return. The log has a warning with both quotas, at most one a minute for each policy.
/// * **A quota that has changed** is told to [`Limiter::forget_quota`](crate::Limiter::forget_quota).
///
/// ```
/// use std::time::Duration;
/// use tollgate::key::Header;
/// use tollgate::{Key, OnUnknown, Policy, Quota, QuotaLookup};
///
/// # struct Row { per_minute: u64 }
/// # async fn select(_: &[u8]) -> Result<Option<Row>, std::io::Error> { Ok(None) }
/// async fn quota_of(customer: Key) -> Result<Option<Quota>, Box<dyn std::error::Error + Send + Sync>> {
///     let Some(row) = select(customer.content()).await? else {
///         return Ok(None);
///     };
///     Ok(Some(Quota::try_new(row.per_minute, Duration::from_secs(60))?))
/// }
///
/// let lookup = QuotaLookup::new(Duration::from_secs(60), quota_of)
///     .deadline(Duration::from_millis(50))
///     .on_unknown(OnUnknown::Deny);
/// let api = Policy::new("api", Quota::per_minute(60)).key(Header::new("x-api-key")).quota_by_async(lookup);
/// ```
#[derive(Clone)]
#[must_use = "a lookup does nothing until a policy has it"]
pub struct QuotaLookup {
    asks: Arc<Lookup<Allowance>>,
    remember_for: Duration,
    deadline: Duration,
    unknown: OnUnknown,
}

/// The quotas that a database states for one identity.
///
/// ```
/// use tollgate::{Allowance, Quota, Quotas};
///
/// let one = Allowance::from(Quota::per_minute(250));
/// let text = Allowance::from("250/min; 10000/day");
/// let closed = Allowance::from(Quotas::none());
/// let nothing_stated = Allowance::from(None::<Quota>);
/// assert!(matches!(nothing_stated, Allowance::OwnQuotas));
/// assert!(matches!(Allowance::from("unlimited"), Allowance::Unlimited));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Allowance {
    /// The policy's own quotas: nothing is stated for the identity.
    OwnQuotas,
    /// These quotas. [`Quotas::none`] refuses every request of the identity.
    Quotas(Quotas),
    /// No limit, as text `"unlimited"`.
    Unlimited,
}

impl<Q: Into<Quotas>> From<Q> for Allowance {
    fn from(quotas: Q) -> Self {
        let quotas = quotas.into();
        if quotas.says_unlimited() {
            return Self::Unlimited;
        }
        Self::Quotas(quotas)
    }
}

impl<Q: Into<Quotas>> From<Option<Q>> for Allowance {
    fn from(quotas: Option<Q>) -> Self {
        quotas.map_or(Self::OwnQuotas, Into::into)
    }
}

impl QuotaLookup {
    /// A lookup by this function, whose answers are remembered for `remember_for`. Zero means that nothing is remembered: every
    /// request waits for an answer.
    pub fn new<F, A, T, E>(remember_for: Duration, quota: F) -> Self
    where
        F: Fn(Key) -> A + Send + Sync + 'static,
        A: Future<Output = Result<T, E>> + Send + 'static,
        T: Into<Allowance>,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let asks = move |key: Key| -> AnswerFuture<Allowance> {
            let quota = quota(key);
            Box::pin(async move { quota.await.map(Into::into).map_err(Into::into) })
        };
        Self {
            asks: Arc::new(asks),
            remember_for,
            deadline: DEADLINE,
            unknown: OnUnknown::OwnQuotas,
        }
    }

    /// The time that a request waits for an answer, 250 ms unless set.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// The rule for an identity whose quota was never known and cannot be asked for: the policy's own quotas unless set.
    pub fn on_unknown(mut self, rule: OnUnknown) -> Self {
        self.unknown = rule;
        self
    }
}

impl fmt::Debug for QuotaLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuotaLookup")
            .field("remember_for", &self.remember_for)
            .field("deadline", &self.deadline)
            .field("unknown", &self.unknown)
            .finish_non_exhaustive()
    }
}

impl Policy {
    /// Gives each identity the quotas that a database states for it, in place of the policy's own: see [`QuotaLookup`]. The
    /// policy's own quotas are those of identities for which nothing is stated, and by default of those that cannot be asked for.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::key::Header;
    /// use tollgate::{Key, Policy, Quota, QuotaLookup};
    ///
    /// # async fn column_of(customer: Key) -> Result<Option<String>, std::io::Error> { Ok(None) }
    /// // The database has a text for some customers: "250/min", "100/s; 50000/day", "none", "unlimited".
    /// let lookup = QuotaLookup::new(Duration::from_secs(60), column_of);
    /// let api = Policy::new("api", Quota::per_minute(60)).key(Header::new("x-api-key")).quota_by_async(lookup);
    /// ```
    ///
    /// Cost, classes, ban and all other rules of the policy hold as they do for its own quotas. The last lookup on a policy counts.
    /// Each limiter remembers for itself, and anew after its policies were [replaced](crate::Limiter::replace).
    ///
    /// The limiter is not built if the policy has [tiers](Self::tiers) as well, or limits on [how many at once](crate::Concurrent),
    /// or quotas under which requests [wait](Quota::wait_up_to): a policy of its own, beside this one, has them.
    #[must_use]
    pub fn quota_by_async(mut self, lookup: QuotaLookup) -> Self {
        self.lookup = Some(Arc::new(lookup));
        self
    }
}

/// The most that stated quotas may be.
#[derive(Clone, Copy, Debug)]
struct Room {
    quotas: usize,
    log_entries: usize,
}

/// The lines of the log.
const WORDS: Words = Words {
    fails: "quotas cannot be asked for: what was known before holds, and for others what `QuotaLookup::on_unknown` says",
    is_back: "quotas can be asked for again",
    is_flawed: "an answer is not a quota that the policy could have: what was known before holds, and for others what \
                `QuotaLookup::on_unknown` says",
    is_fresh: "an identity has a quota of another algorithm or another window than before, and so begins with a full budget of it",
};

impl Policy {
    /// Works out what a limiter needs of it: the quotas of each class, and the memory of quotas that are asked for. Each limiter
    /// has one of its own, because what it keeps is made of the rest of the policy.
    ///
    /// # Errors
    ///
    /// If the ban or the classes make no sense, or what is beside the lookup of quotas.
    #[doc(hidden)]
    pub fn complete(&mut self) -> Result<(), ConfigError> {
        self.check_ban()?;
        self.share_out()?;
        self.may_wait = self.waits();
        self.asked = match &self.lookup {
            None => None,
            Some(lookup) => Some(Arc::new(AnswerCache {
                policy: self.name.to_string(),
                asks: Arc::clone(&lookup.asks),
                remember_for: lookup.remember_for,
                deadline: lookup.deadline,
                unknown: self.rule_for_unknown(lookup)?,
                own: Arc::clone(&self.limits),
                words: WORDS,
                memory: Mutex::default(),
            })),
        };
        Ok(())
    }

    fn rule_for_unknown(
        &self,
        lookup: &QuotaLookup,
    ) -> Result<Result<Entitlement, UnknownEntitlement>, ConfigError> {
        let reason = if self.tiers.is_some() {
            "the policy has tiers as well, and an identity has its quotas from one place: let the answer state those of its tier"
        } else if self.holds() {
            "the policy limits how many at once, which no answer states: give that limit a policy of its own"
        } else if self.waits() {
            "the policy lets requests wait for their turn, which no answer states: give that quota a policy of its own"
        } else if lookup.deadline.is_zero() {
            "a deadline of 0 waits for no answer"
        } else {
            match lookup.unknown {
                OnUnknown::OwnQuotas => return Ok(Ok(Entitlement::OWN)),
                OnUnknown::Deny => return Ok(Err(UnknownEntitlement)),
                OnUnknown::Tier(_) => "`OnUnknown::Tier` names a tier, and the policy has none",
            }
        };
        Err(self.lookup_error(reason))
    }

    fn lookup_error(&self, reason: impl Into<String>) -> ConfigError {
        ConfigError::QuotaLookup {
            policy: self.name.to_string(),
            reason: reason.into(),
        }
    }

    /// True if its own quotas hold for every identity: the usual policy, for which nothing has to be found.
    #[inline]
    pub(crate) fn has_own_quotas_alone(&self) -> bool {
        self.tiers.is_none() && self.asked.is_none()
    }

    /// The quotas that hold for an identity.
    pub(crate) fn entitlement_of(
        self: &Arc<Self>,
        key: &Key,
        request: Option<&RequestView<'_>>,
    ) -> FoundEntitlement {
        match (&self.tiers, &self.asked) {
            (None, None) => FoundEntitlement::Now(Ok(Entitlement::OWN)),
            (Some(tiers), _) => tiers.find(key, request),
            (None, Some(asked)) => asked.find(key, self, stated),
        }
    }

    /// Forgets the tier or the quotas of an identity, if they were asked for.
    pub(crate) fn forget_entitlement(&self, key: &Key) {
        if let Some(tiers) = &self.tiers {
            tiers.forget(key);
        }
        if let Some(asked) = &self.asked {
            asked.forget(key);
        }
    }

    /// True if quotas are asked for.
    pub(crate) fn asks_for_quotas(&self) -> bool {
        self.lookup.is_some()
    }

    /// The scopes in which an identity may have states because of an answer that this process has heard.
    pub(super) fn scopes_of_answers(&self) -> HashSet<Scope> {
        match self.lookup {
            Some(_) => Scope::all_of(&self.name).into_iter().collect(),
            None => HashSet::new(),
        }
    }

    /// The most quotas of an answer, with the ban behind them.
    pub(super) fn most_stated(&self) -> usize {
        let bans = usize::from(self.ban_limit().is_some());
        self.most_stated_quotas() + bans * usize::from(self.lookup.is_some())
    }

    fn most_stated_quotas(&self) -> usize {
        let own = self.limits.iter().filter(|limit| !limit.quota.is_ban());
        match self.lookup {
            Some(_) => own.count().max(MOST_QUOTAS),
            None => 0,
        }
    }

    /// The most entries of sliding logs of an answer.
    pub(super) fn most_stated_log_entries(&self) -> usize {
        match self.lookup {
            Some(_) => log_entries(&self.limits).max(MOST_LOG_ENTRIES),
            None => 0,
        }
    }

    /// The names that the quotas of an answer may have in headers, besides those of the policy's own.
    pub(crate) fn names_of_answers(&self) -> impl Iterator<Item = String> {
        let numbers = 0..self.most_stated_quotas();
        numbers.map(|index| Limit::name(&self.name, index))
    }

    /// True if headers call one of its quotas like this, in whatever tier.
    pub(crate) fn calls_a_quota(&self, name: &str) -> bool {
        let tiers = self.tiers.iter().flat_map(|tiers| tiers.limits());
        let limits = self.limits.iter().chain(tiers.map(|(_, limit)| limit));
        limits.into_iter().any(|limit| limit.label.quota() == name)
            || self.names_of_answers().any(|other| other == name)
    }

    /// The policy with the quotas that a check states for itself. The states are those of the policy, as for an answer.
    ///
    /// # Errors
    ///
    /// If the policy could not have such quotas.
    pub(crate) fn stating(self: &Arc<Self>, quotas: Quotas) -> Result<Arc<Self>, ConfigError> {
        let room = Room {
            quotas: self.limits.len().max(MOST_QUOTAS),
            log_entries: log_entries(&self.limits).max(MOST_LOG_ENTRIES),
        };
        let own = Self {
            tiers: None,
            lookup: None,
            ..Self::clone(self)
        };
        own.with_limits(self.limits_within(room, quotas)?)
            .map(Arc::new)
    }

    /// The policy under other quotas, which hold for every identity.
    fn with_limits(&self, limits: Arc<[Limit]>) -> Result<Self, ConfigError> {
        let mut stated = Self {
            limits,
            // The memory holds this policy, and must not be held by it.
            asked: None,
            ..self.clone()
        };
        stated.place_ban();
        stated.share_out()?;
        stated.check_cost()?;
        Ok(stated)
    }

    /// The limits of an answer.
    fn limits_of_answer(&self, quotas: Quotas) -> Result<Arc<[Limit]>, ConfigError> {
        let room = Room {
            quotas: self.most_stated_quotas(),
            log_entries: self.most_stated_log_entries(),
        };
        self.limits_within(room, quotas)
    }

    fn limits_within(&self, room: Room, quotas: Quotas) -> Result<Arc<[Limit]>, ConfigError> {
        let (given, most) = (quotas.len(), room.quotas);
        if given > most {
            return Err(
                self.lookup_error(format!("{given} quotas are more than the {most} that fit"))
            );
        }
        let limits = quotas.into_limits_in(&self.name, |family, slot, quota| {
            self.check_stated(quota)?;
            Scope::of_few(&self.name, family, slot, quota, MOST_SCOPES).ok_or_else(|| {
                self.lookup_error(format!(
                    "{quota}: the process keeps {MOST_SCOPES} pairs of algorithm and window length for this policy already, and \
                     each takes memory for good"
                ))
            })
        })?;
        let (entries, most) = (log_entries(&limits), room.log_entries);
        if entries > most {
            return Err(self.lookup_error(format!(
                "sliding logs of {entries} entries are more than the {most} that fit; a rolling window takes less"
            )));
        }
        for limit in &*limits {
            let name = limit.label.quota();
            let mut own = self.limits.iter().map(|own| own.label.quota());
            let mut numbered = (0..room.quotas).map(|index| Limit::name(&self.name, index));
            if !own.any(|own| own == name) && !numbered.any(|one| one == name) {
                return Err(self.lookup_error(format!(
                    "headers would call a quota {name:?}, and no quota of the policy has that name: leave the name out"
                )));
            }
        }
        Ok(limits)
    }

    fn check_stated(&self, quota: &Quota) -> Result<(), ConfigError> {
        let reason = if quota.is_held() {
            "limits how many at once"
        } else if quota.waits() {
            "lets requests wait for their turn"
        } else if quota.is_ban() {
            "is a ban"
        } else {
            return Ok(());
        };
        Err(self.lookup_error(format!(
            "{quota}: {reason}, and only the policy itself may: give that a policy of its own"
        )))
    }
}

/// The meaning of an answer.
fn stated(policy: &Arc<Policy>, answer: Allowance) -> Result<Entitlement, ConfigError> {
    let quotas = match answer {
        Allowance::OwnQuotas => return Ok(Entitlement::OWN),
        Allowance::Unlimited => return Ok(Entitlement::Unlimited),
        Allowance::Quotas(quotas) => quotas,
    };
    let stated = policy.with_limits(policy.limits_of_answer(quotas)?)?;
    Ok(Entitlement::Stated(Arc::new(stated)))
}
