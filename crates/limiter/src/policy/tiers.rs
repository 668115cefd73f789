//! Quotas that depend on the caller.

mod states;

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate_core::{Algorithm, Unit};

use super::answer_cache::{
    AnswerCache, AnswerFuture, DEADLINE, Entitlement, FoundEntitlement, Lookup, Tier,
    UnknownEntitlement, Words,
};
use super::ban::with_ban;
use super::{Limit, Policy, Quotas};
use crate::key::KeyShape;
use crate::literal::literal;
use crate::{ConfigError, Key, Quota, RequestView, Scope};

/// Other quotas for some identities than a policy's own.
///
/// An identity is in one tier, or has the policy's own quotas. Tiers share the states of the policy's budgets as far as they can,
/// so that an identity that changes tier gets no fresh budget. Windows and logs keep the count of what was spent. The bucket of
/// [`Gcra`](crate::Algorithm::Gcra) keeps *how long it takes* until it is full again: an identity that has spent half of the
/// small budget has half of the large one left.
///
/// Buckets share a state if their full budgets take times to refill that are within a factor of eight: 60 a minute and 100 a
/// minute do, and 60 a minute and 100 a second do not. A tier that is further off has a state of its own, which all tiers
/// share that are within the factor of each other. (Each tier, the closest to the policy's own quota first, joins the first
/// state all of whose quotas are within the factor of its own.) So do quotas of another algorithm, or windows of another
/// length. **An identity that moves to a tier with a state of its own finds there what it left there**: at most one full budget
/// of the new tier the first time, and the old state when it returns.
///
/// ```
/// use tollgate::key::Header;
/// use tollgate::{Policy, Quota, Tiers};
///
/// let api = Policy::new("api", Quota::per_second(10)).key(Header::new("x-api-key")).tiers(
///     Tiers::by_key([("partner-a", "gold"), ("monitoring", "staff")])
///         .tier("gold", Quota::per_second(1_000))
///         .unlimited("staff"),
/// );
/// ```
#[derive(Clone)]
#[must_use = "tiers do nothing until a policy has them"]
pub struct Tiers {
    grants: Vec<(String, Option<Quotas>)>,
    source: Source,
    deadline: Option<Duration>,
    unknown: Option<OnUnknown>,
}

#[derive(Clone)]
enum Source {
    Map(HashMap<Key, String>),
    Now(Arc<TierNamer>),
    Later(Arc<Lookup<Option<String>>>, Duration),
}

type TierNamer = dyn Fn(&Key, Option<&RequestView<'_>>) -> Option<String> + Send + Sync;

/// The rule for an identity whose tier was never known, while it cannot be asked for: see [`Tiers::on_unknown`].
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Key, Quota, Tiers, OnUnknown};
///
/// # async fn plan_of(key: Key) -> Result<Option<&'static str>, std::io::Error> { Ok(None) }
/// // While the database is away, a customer that was never seen gets the trial plan.
/// let tiers = Tiers::by_async(Duration::from_secs(300), plan_of)
///     .tier("trial", Quota::per_second(1))
///     .tier("gold", Quota::per_second(1_000))
///     .on_unknown(OnUnknown::Tier("trial".into()));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnUnknown {
    /// The policy's own quotas. This is the default: the service goes on, and an outage of the database gives no caller more.
    #[default]
    OwnQuotas,
    /// The quotas of this tier.
    Tier(String),
    /// The request is refused with 503, as by [`OnFailure::Deny`](crate::OnFailure::Deny). A policy on trial refuses no request,
    /// and takes its own quotas.
    Deny,
}

impl Tiers {
    /// The tier of each identity by its name.
    pub fn by_key<K: Into<Key>, T: Into<String>>(tiers: impl IntoIterator<Item = (K, T)>) -> Self {
        let tiers = tiers.into_iter();
        Self::of(Source::Map(
            tiers.map(|(key, tier)| (key.into(), tier.into())).collect(),
        ))
    }

    /// The tier that a function names: by the identity, or by what an outer layer has put into the request, which is
    /// missing when a [check](crate::Limiter::check) asks. The identity is as the caller sent it, whatever its length
    /// ([`Key::text`]), and one of several parts has them by position ([`Key::parts`]).
    ///
    /// ```
    /// # use tollgate::{Policy, Quota, Tiers};
    /// #[derive(Clone)]
    /// struct Plan(&'static str);
    ///
    /// let tiers = Tiers::by(|_key, request| Some(request?.extensions().get::<Plan>()?.0))
    ///     .tier("gold", Quota::per_second(1_000));
    /// # let _ = Policy::new("api", Quota::per_second(10)).tiers(tiers);
    /// ```
    pub fn by<F, T>(name: F) -> Self
    where
        F: Fn(&Key, Option<&RequestView<'_>>) -> Option<T> + Send + Sync + 'static,
        T: Into<String>,
    {
        let name =
            move |key: &Key, request: Option<&RequestView<'_>>| name(key, request).map(Into::into);
        Self::of(Source::Now(Arc::new(name)))
    }

    /// The tier that a function names after having asked a database or another service: `Ok(None)` if the identity is in
    /// none, and an error if the function cannot say.
    ///
    /// * **An answer is remembered** for `remember_for`, of at most ten thousand identities. After that the next request is
    ///   served by the old answer, while a task asks again; so is every request until there is a new answer, however long that
    ///   takes. With a `remember_for` of zero nothing is remembered, and every request waits for an answer.
    /// * **Requests that wait for one identity** ask once. A request that leaves ends no question, since a task of Tokio's asks.
    ///   At most 1,024 identities are asked for at a time.
    /// * **A request waits** for the [`deadline`](Self::deadline) at most, which is 250 ms unless set. An answer that comes within
    ///   ten times as long is still remembered.
    /// * **A failure** is an error, a missed deadline, or a panic of the function. It is never remembered as "in no tier". The
    ///   identity is not asked for during the next second. After five failures in a row, and a second without an answer, four
    ///   identities are asked for in each second, and four that were known before, until there is an answer. The log has a warning
    ///   when failures begin, at most one a minute, with the error's own text, and a line when they end.
    /// * **An identity that has never been known** and cannot be asked for has what [`on_unknown`](Self::on_unknown) says: the
    ///   policy's own quotas unless set.
    /// * **A plan that has changed** is told to [`Limiter::forget_tier`](crate::Limiter::forget_tier).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Key, Policy, Quota, Tiers};
    /// # async fn plan_of(account: &[u8]) -> Result<Option<&'static str>, std::io::Error> { Ok(None) }
    /// let tiers = Tiers::by_async(Duration::from_secs(60), async |key: Key| plan_of(key.content()).await)
    ///     .tier("gold", Quota::per_second(1_000));
    /// # let _ = Policy::new("api", Quota::per_second(10)).tiers(tiers);
    /// ```
    pub fn by_async<F, A, T, E>(remember_for: Duration, name: F) -> Self
    where
        F: Fn(Key) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Option<T>, E>> + Send + 'static,
        T: Into<String>,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let asks = move |key: Key| -> AnswerFuture<Option<String>> {
            let name = name(key);
            Box::pin(async move {
                let name = name.await.map_err(Into::into)?;
                Ok(name.map(Into::into))
            })
        };
        Self::of(Source::Later(Arc::new(asks), remember_for))
    }

    /// The time that a request waits for the answer of [`by_async`](Self::by_async). 250 ms unless set: longer than a query takes,
    /// and short enough that the callers of a service whose database hangs are still served.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Key, Quota, Tiers};
    ///
    /// # async fn plan_of(key: Key) -> Result<Option<&'static str>, std::io::Error> { Ok(None) }
    /// let tiers = Tiers::by_async(Duration::from_secs(300), plan_of)
    ///     .tier("gold", Quota::per_second(1_000))
    ///     .deadline(Duration::from_millis(50));
    /// ```
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// The rule for an identity whose tier [`by_async`](Self::by_async) never knew and cannot ask for.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Key, Quota, Tiers, OnUnknown};
    ///
    /// # async fn plan_of(key: Key) -> Result<Option<&'static str>, std::io::Error> { Ok(None) }
    /// let tiers = Tiers::by_async(Duration::from_secs(300), plan_of)
    ///     .tier("gold", Quota::per_second(1_000))
    ///     .on_unknown(OnUnknown::Deny);
    /// ```
    pub fn on_unknown(mut self, rule: OnUnknown) -> Self {
        self.unknown = Some(rule);
        self
    }

    /// A tier, and its quotas. [`Quotas::none`] refuses all that is in it.
    pub fn tier(mut self, name: impl Into<String>, quotas: impl Into<Quotas>) -> Self {
        self.grants.push((name.into(), Some(quotas.into())));
        self
    }

    /// A tier that the policy does not limit.
    pub fn unlimited(mut self, name: impl Into<String>) -> Self {
        self.grants.push((name.into(), None));
        self
    }

    const fn of(source: Source) -> Self {
        Self {
            grants: Vec::new(),
            source,
            deadline: None,
            unknown: None,
        }
    }
}

impl fmt::Debug for Tiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.grants.iter().map(|(name, _)| name);
        f.write_str("Tiers")?;
        f.debug_list().entries(names).finish()
    }
}

impl Policy {
    /// Gives some identities other quotas than those of the policy: see [`Tiers`].
    ///
    /// ```
    /// use tollgate::key::Header;
    /// use tollgate::{Policy, Quota, Tiers};
    ///
    /// let api = Policy::new("api", Quota::per_second(10))
    ///     .key(Header::new("x-api-key"))
    ///     .tiers(Tiers::by_key([("partner-a", "gold")]).tier("gold", Quota::per_second(1_000)));
    /// ```
    ///
    /// # Panics
    ///
    /// While it is built, if the tiers are not sound: see [`try_tiers`](Self::try_tiers).
    #[must_use]
    #[track_caller]
    pub fn tiers(self, tiers: Tiers) -> Self {
        literal(self.try_tiers(tiers))
    }

    /// Gives some identities other quotas than those of the policy: see [`Tiers`].
    ///
    /// ```
    /// use tollgate::key::Header;
    /// use tollgate::{Policy, Quota, Tiers};
    ///
    /// // `partner-a` is in a tier that was forgotten.
    /// let tiers = Tiers::by_key([("partner-a", "gold")]);
    /// let api = Policy::new("api", Quota::per_second(10)).key(Header::new("x-api-key"));
    /// assert!(api.try_tiers(tiers).is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// If two tiers have one name, a tier has no quota, or an identity is in a tier that does not exist.
    pub fn try_tiers(mut self, tiers: Tiers) -> Result<Self, ConfigError> {
        let tiers = TierTable::new(&self.name, &self.limits, tiers)?;
        self.tiers = Some(Arc::new(tiers));
        self.place_ban();
        Ok(self)
    }
}

impl Policy {
    /// All scopes in which an identity can have states, whatever its tier or what is stated for it.
    pub(crate) fn scopes(&self) -> HashSet<Scope> {
        let tiers = self.tiers.iter().flat_map(|tiers| tiers.limits());
        let limits = self.limits.iter().chain(tiers.map(|(_, limit)| limit));
        let stated = limits.map(|limit| limit.scope);
        stated.chain(self.scopes_of_answers()).collect()
    }

    /// True if some identities have other quotas than the policy's own.
    #[doc(hidden)]
    #[must_use]
    pub fn has_tiers(&self) -> bool {
        self.tiers.is_some()
    }

    /// The name of the tier in which a map has an identity. Tiers by a function have none here.
    #[doc(hidden)]
    #[must_use]
    pub fn tier_of(&self, key: &Key) -> Option<&str> {
        let TierTable { grants, source, .. } = &**self.tiers.as_ref()?;
        match &**source {
            Finder::Map(places) => Some(&grants[*places.get(key)?].0),
            Finder::Now(_) | Finder::Later(_) => None,
        }
    }

    /// The scopes in which an identity may have a budget, each with a quota by which it is read: the policy's own, or else that of
    /// a tier. Bans are not among them.
    #[doc(hidden)]
    #[must_use]
    pub fn budgets(&self) -> Vec<(Scope, Quota)> {
        let tiers = self.tiers.iter().flat_map(|tiers| tiers.limits());
        let limits = self.limits.iter().chain(tiers.map(|(_, limit)| limit));
        let mut budgets: Vec<(Scope, Quota)> = Vec::new();
        for limit in limits.filter(|limit| !limit.quota.is_ban()) {
            if !budgets.iter().any(|(scope, _)| *scope == limit.scope) {
                budgets.push((limit.scope, limit.quota));
            }
        }
        budgets
    }

    /// The grant of a tier; `None` for the policy's own quotas.
    pub(crate) fn grant(&self, tier: Tier) -> Option<&Grant> {
        self.tiers.as_ref()?.grant(tier?)
    }

    /// True if a tier has a limit of 0, which lets no request in.
    pub(crate) fn has_none(&self, tier: Tier) -> bool {
        match self.grant(tier) {
            Some(grant) => matches!(grant, Grant::Nothing),
            None => self.limits.is_empty(),
        }
    }

    /// True if no quota of a policy limits a tier.
    pub(crate) fn is_free(&self, tier: Tier) -> bool {
        match self.grant(tier) {
            Some(grant) => grant.limits().is_empty(),
            None => self.limits.is_empty(),
        }
    }

    /// The algorithm of its first quota, for quotas that are stated for it.
    #[doc(hidden)]
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        let first = self.quotas().next();
        first.map(Quota::algorithm).unwrap_or_default()
    }

    /// True if a request under it may hold something until it is over, in whatever tier it is.
    #[doc(hidden)]
    #[must_use]
    pub fn holds(&self) -> bool {
        self.quotas().any(Quota::is_held)
    }

    /// True if a request under it may wait for its turn, in whatever tier it is.
    pub(crate) fn waits(&self) -> bool {
        self.quotas().any(Quota::waits)
    }

    /// True if the backend gives the turns: requests that wait for a place stand in a queue of their process.
    pub(crate) fn waits_for_turns(&self) -> bool {
        let is_turn = |quota: &Quota| quota.waits() && !quota.is_held();
        self.quotas().any(is_turn)
    }

    /// The quotas of all tiers.
    pub(super) fn quotas(&self) -> impl Iterator<Item = &Quota> {
        let tiers = self.tiers.iter().flat_map(|tiers| tiers.limits());
        let limits = self.limits.iter().chain(tiers.map(|(_, limit)| limit));
        limits.map(|limit| &limit.quota)
    }

    /// The most quotas that a request can meet in it.
    #[doc(hidden)]
    pub fn most_limits(&self) -> usize {
        let of_tiers = self.tiers.as_ref().map_or(0, |tiers| tiers.most_limits());
        self.limits.len().max(of_tiers).max(self.most_stated())
    }

    /// The most entries of sliding logs that a request can meet in it.
    #[doc(hidden)]
    pub fn most_log_entries(&self) -> usize {
        let of_tiers = self
            .tiers
            .as_ref()
            .map_or(0, |tiers| tiers.most_log_entries());
        let own = log_entries(&self.limits);
        own.max(of_tiers).max(self.most_stated_log_entries())
    }
}

pub(super) fn log_entries(limits: &[Limit]) -> usize {
    let entries = |limit: &Limit| match limit.quota.unit() {
        Unit::SlidingLog { .. } => usize::try_from(limit.quota.capacity()).unwrap_or(usize::MAX),
        _ => 0,
    };
    limits.iter().map(entries).fold(0, usize::saturating_add)
}

/// The tiers of a policy, ready to be asked.
#[derive(Clone)]
pub(crate) struct TierTable {
    grants: Vec<(String, Grant)>,
    source: Arc<Finder>,
    warned: Arc<AtomicBool>,
}

/// The grant of a tier.
#[derive(Clone, Debug)]
pub(crate) enum Grant {
    Limits(Arc<[Limit]>),
    Unlimited,
    Nothing,
}

impl Grant {
    pub(super) fn limits(&self) -> &[Limit] {
        match self {
            Self::Limits(limits) => limits,
            Self::Unlimited | Self::Nothing => &[],
        }
    }
}

/// The place that an empty name would name.
/// The quotas of identities of one tier.
#[derive(Clone, Debug)]
pub enum PortableTier {
    /// These quotas. The last may be the ban.
    Limits(Vec<Limit>),
    /// No limit.
    Unlimited,
    /// A limit of 0: every request is refused with 403.
    Nothing,
}

impl From<&Grant> for PortableTier {
    fn from(grant: &Grant) -> Self {
        match grant {
            Grant::Limits(limits) => Self::Limits(limits.to_vec()),
            Grant::Unlimited => Self::Unlimited,
            Grant::Nothing => Self::Nothing,
        }
    }
}

const NO_TIER: &str = "a tier needs a name: the policy's own quotas are those of identities that are in no tier; state them in \
                       the policy, and leave the identities out of the tiers";

enum Finder {
    Map(HashMap<Key, usize>),
    Now(Arc<TierNamer>),
    Later(Arc<AnswerCache<Option<String>>>),
}

/// The lines of the log about tiers that are asked for. A name that no tier has means the policy's own quotas.
const WORDS: Words = Words {
    fails: "tiers cannot be asked for: what was known before holds, and for others what `Tiers::on_unknown` says",
    is_back: "tiers can be asked for again",
    is_flawed: "an answer names no tier of the policy",
    // Never told: the quotas of tiers are not compared.
    is_fresh: "",
};

impl TierTable {
    fn new(policy: &str, own: &[Limit], tiers: Tiers) -> Result<Self, ConfigError> {
        let refuse = |tier: &str, reason: &str| {
            Err(ConfigError::Tier {
                policy: policy.to_owned(),
                tier: tier.to_owned(),
                reason: reason.to_owned(),
            })
        };
        let mut grants: Vec<(String, Grant)> = Vec::new();
        for (name, quotas) in tiers.grants {
            if name.is_empty() {
                return refuse(&name, NO_TIER);
            }
            if grants.iter().any(|(other, _)| *other == name) {
                return refuse(&name, "two tiers have this name");
            }
            let grant = match quotas {
                Some(quotas) if quotas.is_none() => Grant::Nothing,
                Some(quotas) => match quotas.into_limits(policy) {
                    Err(ConfigError::NoQuota { .. }) => return refuse(&name, "no quota"),
                    Err(ConfigError::Quota { text, reason, .. }) => {
                        return refuse(&name, &format!("quota {text:?}: {reason}"));
                    }
                    limits => Grant::Limits(limits?),
                },
                None => Grant::Unlimited,
            };
            grants.push((name, grant));
        }
        states::tell_apart(policy, own, &mut grants);
        let asks = matches!(tiers.source, Source::Later(..));
        let reason = match tiers.deadline {
            _ if !asks && (tiers.deadline.is_some() || tiers.unknown.is_some()) => {
                Some("they are not asked for, so a deadline and `unknown` mean nothing")
            }
            Some(Duration::ZERO) => Some("a deadline of 0 waits for no answer"),
            _ => None,
        };
        if let Some(reason) = reason {
            return Err(ConfigError::Tiers {
                policy: policy.to_owned(),
                reason,
            });
        }
        let place = |name: &str| grants.iter().position(|(other, _)| other == name);
        let source = match tiers.source {
            Source::Map(map) => {
                let mut places = HashMap::new();
                for (key, tier) in map {
                    let Some(place) = place(&tier) else {
                        let reason = match &*tier {
                            "" => NO_TIER,
                            _ => "an identity is in it, but there is no tier of this name",
                        };
                        return refuse(&tier, reason);
                    };
                    places.insert(key, place);
                }
                Finder::Map(places)
            }
            Source::Now(name) => Finder::Now(name),
            // Clones may have got other tiers since: what is remembered are places among these.
            Source::Later(asks, remember_for) => Finder::Later(Arc::new(AnswerCache {
                policy: policy.to_owned(),
                asks,
                remember_for,
                deadline: tiers.deadline.unwrap_or(DEADLINE),
                unknown: match tiers.unknown.unwrap_or_default() {
                    OnUnknown::OwnQuotas => Ok(Entitlement::OWN),
                    OnUnknown::Deny => Err(UnknownEntitlement),
                    OnUnknown::Tier(tier) => match place(&tier) {
                        None => {
                            let reason = match &*tier {
                                "" => NO_TIER,
                                _ => {
                                    "identities of no known tier are in it, but there is no tier of this name"
                                }
                            };
                            return refuse(&tier, reason);
                        }
                        place => Ok(Entitlement::Tier(place)),
                    },
                },
                own: Arc::new([]),
                words: WORDS,
                memory: Mutex::default(),
            })),
        };
        Ok(Self {
            grants,
            source: Arc::new(source),
            warned: Arc::default(),
        })
    }

    /// Puts a ban behind the quotas of each tier.
    pub(super) fn place_ban(&mut self, ban: &Limit) {
        for (_, grant) in &mut self.grants {
            if let Grant::Limits(limits) = grant {
                *limits = with_ban(limits, ban);
            }
        }
    }

    /// True if a closure has to be waited for.
    pub(crate) fn is_later(&self) -> bool {
        self.asked().is_some()
    }

    /// The tiers by their names.
    pub(super) fn portable(&self) -> Vec<(String, PortableTier)> {
        let grants = self.grants.iter();
        grants
            .map(|(name, grant)| (name.clone(), grant.into()))
            .collect()
    }

    /// The tier of each identity, if a table says it.
    pub(super) fn places(&self) -> Vec<(Key, String)> {
        match &*self.source {
            Finder::Map(places) => (places.iter())
                .map(|(key, place)| (key.clone(), self.grants[*place].0.clone()))
                .collect(),
            Finder::Now(_) | Finder::Later(_) => Vec::new(),
        }
    }

    fn grant(&self, tier: usize) -> Option<&Grant> {
        self.grants.get(tier).map(|(_, grant)| grant)
    }

    /// True if a tier has a limit of 0.
    pub(super) fn refuse_some(&self) -> bool {
        let mut grants = self.grants.iter();
        grants.any(|(_, grant)| matches!(grant, Grant::Nothing))
    }

    /// The tiers in their order, each with its name and quotas.
    pub(super) fn grants(&self) -> impl Iterator<Item = (Option<&str>, &[Limit])> {
        let grants = self.grants.iter();
        grants.map(|(name, grant)| (Some(name.as_str()), grant.limits()))
    }

    /// The quotas of all tiers, by their tier's name.
    pub(crate) fn limits(&self) -> impl Iterator<Item = (&str, &Limit)> {
        self.grants.iter().flat_map(|(name, grant)| {
            let limits = grant.limits().iter();
            limits.map(|limit| (name.as_str(), limit))
        })
    }

    /// Reads the stated identities as those of requests are read. Returns why that cannot be.
    pub(super) fn respell(&mut self, shape: &KeyShape) -> Option<String> {
        let Finder::Map(places) = &*self.source else {
            return None;
        };
        if places.keys().all(|key| shape.respelled(key).is_none()) {
            return None;
        }
        let mut respelled = HashMap::with_capacity(places.len());
        for (key, place) in places {
            let read = shape.respelled(key);
            let other = respelled.insert(read.unwrap_or_else(|| key.clone()), *place);
            if other.is_some_and(|other| other != *place) {
                return Some(format!(
                    "{} is in another tier too, as the same caller in other words",
                    key.readable()
                ));
            }
        }
        self.source = Arc::new(Finder::Map(respelled));
        None
    }

    /// The identities whose tiers are stated.
    pub(super) fn identities(&self) -> impl Iterator<Item = &Key> {
        let stated = match &*self.source {
            Finder::Map(places) => Some(places.keys()),
            Finder::Now(_) | Finder::Later(_) => None,
        };
        stated.into_iter().flatten()
    }

    /// The most quotas that any tier has.
    fn most_limits(&self) -> usize {
        let lengths = self.grants.iter().map(|(_, grant)| grant.limits().len());
        lengths.max().unwrap_or(0)
    }

    /// The most entries that the sliding logs of any tier have.
    fn most_log_entries(&self) -> usize {
        let grants = self.grants.iter();
        let entries = grants.map(|(_, grant)| log_entries(grant.limits()));
        entries.max().unwrap_or(0)
    }

    /// The tier of an identity.
    pub(super) fn find(
        self: &Arc<Self>,
        key: &Key,
        request: Option<&RequestView<'_>>,
    ) -> FoundEntitlement {
        let tier = match &*self.source {
            Finder::Map(places) => places.get(key).copied(),
            Finder::Now(name) => self.place(name(key, request)),
            Finder::Later(asked) => {
                return asked.find(key, self, |tiers, name| {
                    Ok(Entitlement::Tier(tiers.place(name)))
                });
            }
        };
        FoundEntitlement::Now(Ok(Entitlement::Tier(tier)))
    }

    /// The closure that is asked, if there is one.
    fn asked(&self) -> Option<&AnswerCache<Option<String>>> {
        match &*self.source {
            Finder::Later(asked) => Some(asked),
            Finder::Map(_) | Finder::Now(_) => None,
        }
    }

    /// Forgets which tier an identity is in, if that was asked for.
    pub(super) fn forget(&self, key: &Key) {
        if let Some(asked) = self.asked() {
            asked.forget(key);
        }
    }

    /// A function may name a tier that does not exist. The policy's own quotas then hold, so that no caller gains by it.
    fn place(&self, name: Option<String>) -> Tier {
        let name = name?;
        let place = self.grants.iter().position(|(other, _)| *other == name);
        if place.is_none() && !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                tier = name,
                "there is no such tier: the policy's own quotas hold"
            );
        }
        place
    }
}

impl fmt::Debug for TierTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.grants.iter().map(|(name, grant)| (name, grant)))
            .finish()
    }
}
