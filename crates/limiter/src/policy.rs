//! Policies: the requests that they cover, the key, the quotas, and the rules for exceptions.

mod answer_cache;
mod ban;
mod classes;
mod conditions;
mod cost;
mod exemptions;
mod failure;
mod grpc;
mod host;
mod label;
mod lease;
mod limit;
mod lists;
mod lookup;
mod messages;
mod name;
mod once;
mod outcome;
mod portable;
mod switch;
mod tiers;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Capabilities, Capability, Lease};

use self::answer_cache::AnswerCache;
pub(crate) use self::answer_cache::{Entitlement, FoundEntitlement, Tier, UnknownEntitlement};
use self::ban::PolicyBan;
use self::classes::Classes;
use self::conditions::Conditions;
pub use self::conditions::Unmet;
pub(crate) use self::cost::Cost;
use self::exemptions::Exemptions;
pub(crate) use self::exemptions::has_form_of_call;
pub use self::failure::{OnFailure, Share};
pub use self::label::Label;
pub(crate) use self::label::{Rank, Seat};
pub use self::limit::Limit;
pub use self::limit::Quotas;
pub use self::limit::is_none;
#[cfg(feature = "serde")]
pub(crate) use self::limit::why_no_quota;
pub use self::lists::Block;
pub(crate) use self::lists::Listing;
use self::lists::Lists;
pub use self::lookup::{Allowance, QuotaLookup};
pub use self::messages::Messages;
use self::name::check_name;
pub(crate) use self::once::PolicyOnce;
#[cfg_attr(not(feature = "serde"), allow(unused_imports))]
pub(crate) use self::outcome::CountIf;
pub(crate) use self::outcome::Outcome;
pub use self::outcome::ResponseView;
pub use self::portable::PortablePolicy;
pub use self::switch::Switch;
pub use self::tiers::{OnUnknown, PortableTier, Tiers};

use crate::key::{self, AsyncKeyExtractor, KeyExtractor, KeyShape};
use crate::literal::literal;
use crate::{ClientAddress, ConfigError, Key, Mode, RequestView};

/// A named limit: the requests that it covers, the key, the cost, and one or more quotas.
///
/// By default a policy covers every request, counts each as 1, has a budget for each [client address](crate::ClientIp) and one
/// for all requests without an address, is enforced, and lets requests pass while the backend fails.
///
/// ```
/// use tollgate::key::Header;
/// use tollgate::{OnFailure, OnMissing, Policy, Quota};
///
/// let api = Policy::new("api", [Quota::per_second(10).burst(50), Quota::per_day(100_000)])
///     .key(Header::new("x-api-key"))
///     .on_missing(OnMissing::Deny)
///     .on_failure(OnFailure::Deny)
///     .route("/api/{*path}");
/// ```
///
/// Several quotas are decided together, all or nothing, and so are several policies on one request.
#[derive(Clone)]
pub struct Policy {
    pub(crate) name: Arc<str>,
    pub(crate) limits: Arc<[Limit]>,
    pub(crate) key: key::Source,
    /// The kinds of identities that the key finds.
    pub(crate) shape: KeyShape,
    conditions: Option<Arc<Conditions>>,
    pub(crate) exemptions: Exemptions,
    lists: Option<Arc<Lists>>,
    classes: Option<Arc<Classes>>,
    pub(crate) tiers: Option<Arc<tiers::TierTable>>,
    lookup: Option<Arc<QuotaLookup>>,
    /// The quotas that are asked for. Nothing, until the limiter is built.
    asked: Option<Arc<AnswerCache<Allowance>>>,
    pub(crate) cost: Cost,
    pub(crate) outcome: Option<Outcome>,
    /// Boxed: few policies have one, and a remembered identity may have a policy of its own.
    ban: Option<Box<PolicyBan>>,
    answer_banned: Option<Block>,
    pub(crate) once: Option<PolicyOnce>,
    pub(crate) lease: Option<Lease>,
    strike_if: Option<Arc<CountIf>>,
    pub(crate) messages: Option<Messages>,
    /// True if a request under it may wait, in whatever tier it is. Nothing, until the limiter is built: each request asks.
    pub(crate) may_wait: bool,
    pub(crate) shadow: bool,
    /// True if the policy is on trial by itself. Nothing, until the policy was switched.
    stated_shadow: Option<bool>,
    pub(crate) switch: Switch,
    pub(crate) on_demand: bool,
    pub(crate) on_missing: OnMissing,
    pub(crate) on_failure: OnFailure,
    /// The wait that callers are told if the real one is unknown, in milliseconds; 0 if none.
    pub(crate) retry_hint_ms: u32,
}

/// The rule for a request without an identity.
///
/// An identity may be absent, or readers may differ about it: two cookies of one name, a body that is too long to be read. The
/// latter is [ambiguous](crate::key::KeyMissing::ambiguous), and no rule lets such a request pass uncharged.
///
/// ```
/// use tollgate::key::{Cookie, Header};
/// use tollgate::{OnMissing, Policy, Quota};
///
/// // An API that no caller uses without a key.
/// let api = Policy::new("api", Quota::per_second(10)).key(Header::new("x-api-key")).on_missing(OnMissing::Deny);
/// // A limit on carts. A visitor without a session has none.
/// let cart = Policy::new("cart", Quota::per_minute(30)).key(Cookie::new("session")).on_missing(OnMissing::Pass);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "kebab-case")
)]
#[non_exhaustive]
pub enum OnMissing {
    /// All such requests share one budget. If the key has several parts, requests share a budget that agree in all known parts.
    ///
    /// This is the default. With [`Pass`](Self::Pass), leaving the header out would be a way around the limit. With
    /// [`Deny`](Self::Deny), callers that do not know the header would get no answer.
    #[default]
    Share,
    /// The policy does not apply to requests without an identity. It is for limits on something optional, such as a session. An
    /// ambiguous identity is not absent, since the handler may read it: all requests with one share one budget, as with
    /// [`Share`](Self::Share).
    Pass,
    /// The request is refused with 403, since no waiting helps, also if its identity is ambiguous. The status is not 401, which
    /// has to say how to authenticate (`WWW-Authenticate`): `RateLimitLayer::challenge` states that.
    Deny,
}

impl Policy {
    /// A policy of this name, with one [`Quota`](crate::Quota) or several, or limits on [how many at once](crate::Concurrent).
    ///
    /// # Panics
    ///
    /// While it is built, if the name is invalid or there is no quota: see [`try_new`](Self::try_new).
    #[track_caller]
    pub fn new(name: &str, quotas: impl Into<Quotas>) -> Self {
        literal(Self::try_new(name, quotas))
    }

    /// A policy of this name, with one [`Quota`](crate::Quota) or several.
    ///
    /// The name stands in headers, logs and Redis keys. It is at most 64 of `a-z`, `0-9`, `-`, `_`, `.` and `/`, and starts
    /// with a letter or digit.
    ///
    /// ```
    /// use tollgate::Policy;
    ///
    /// # fn read(_: &str) -> String { "10/s burst 50".to_owned() }
    /// // Both stand in a file of the operator's.
    /// let quotas = read("quotas");
    /// let policy = Policy::try_new("api", quotas.as_str())?;
    /// assert_eq!(policy.name(), "api");
    /// assert!(Policy::try_new("api", "ten a second").is_err());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the name is invalid, or there is no quota.
    pub fn try_new(name: &str, quotas: impl Into<Quotas>) -> Result<Self, ConfigError> {
        check_name(name)?;
        let limits = quotas.into().into_limits(name)?;
        Ok(Self {
            name: name.into(),
            limits,
            key: key::Source::ClientIp,
            shape: KeyShape::Unstated,
            conditions: None,
            exemptions: Exemptions::default(),
            lists: None,
            classes: None,
            tiers: None,
            lookup: None,
            asked: None,
            may_wait: false,
            cost: Cost::ONE,
            outcome: None,
            ban: None,
            answer_banned: None,
            once: None,
            lease: None,
            strike_if: None,
            messages: None,
            shadow: false,
            stated_shadow: None,
            switch: Switch::On,
            on_demand: false,
            on_missing: OnMissing::default(),
            on_failure: OnFailure::default(),
            retry_hint_ms: 0,
        })
    }

    /// Sets the key: the identity whose budget a request spends. The default is the client's address.
    #[must_use]
    pub fn key(mut self, key: impl KeyExtractor) -> Self {
        self.key = key::Source::new(key);
        self.shape = self.key.shape();
        self
    }

    /// Sets the cost of a request, which is 1 by default. A cost of 0 makes each request a peek, which always passes. A cost
    /// above a full budget of one of its quotas is an error when the limiter is built.
    ///
    /// ```
    /// use tollgate::{Policy, Quota};
    ///
    /// // A report is as dear as twenty other requests.
    /// let reports = Policy::new("reports", Quota::per_minute(100)).route("/reports/{id}").cost(20);
    /// ```
    #[must_use]
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = Cost::Fixed(cost);
        self
    }

    /// Computes the cost of a request from its head: the length of its body, the size of the page that it asks for. A cost of 0
    /// always passes.
    ///
    /// ```
    /// use http::header::CONTENT_LENGTH;
    /// use tollgate::{Policy, Quota};
    ///
    /// let uploads = Policy::new("uploads", Quota::per_hour(1 << 30)).cost_by(|request| {
    ///     let length = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    ///     let length = length.and_then(|length| length.parse().ok());
    ///     // An empty body costs 1.
    ///     length.map_or(1 << 20, |bytes: u64| bytes.max(1))
    /// });
    /// ```
    #[must_use]
    pub fn cost_by(
        mut self,
        cost: impl Fn(&RequestView<'_>) -> u64 + Send + Sync + 'static,
    ) -> Self {
        self.cost = Cost::By(Arc::new(cost));
        self
    }

    /// Sets the wait that a refused caller is told if the real one is unknown, because others hold what it needs: the
    /// `Retry-After` of a [`Concurrent`](crate::Concurrent) limit, which has none otherwise. It is a hint and no promise; the usual
    /// time that a request takes is a good one. Whole milliseconds, at most 49 days.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Concurrent, Policy};
    ///
    /// let exports = Policy::new("exports", Concurrent::at_most(5)).retry_hint(Duration::from_secs(20));
    /// ```
    #[must_use]
    pub fn retry_hint(mut self, hint: Duration) -> Self {
        self.retry_hint_ms = u32::try_from(hint.as_millis()).unwrap_or(u32::MAX);
        self
    }

    /// Puts the policy on trial: decided and reported, never enforced, and without effect on other policies.
    ///
    /// An [observer](crate::Observer) hears its verdicts also when the quota of another policy refuses the request. If another
    /// one refuses before any quota is asked, by a list or for want of an identity, the observer hears
    /// [`Cause::Unasked`](crate::Cause::Unasked), and the trial is charged nothing. So its figures are those of the enforced
    /// policy that it may become, which would not be asked either.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::from(Policy::new("trial", Quota::per_hour(1)).shadow());
    /// limiter.check("trial", "alice").await?;
    /// let second = limiter.check("trial", "alice").await?;
    /// assert!(second.is_allowed() && second.verdicts()[0].is_denied());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn shadow(mut self) -> Self {
        self.shadow = true;
        self
    }

    /// Sets a key that has to be asked for. A [check](crate::Limiter::check) brings its identity along.
    ///
    /// ```
    /// use tollgate::{ClientIp, Policy, Quota, key};
    ///
    /// # async fn account_of(session: Option<String>) -> Option<u64> { None }
    /// let by_account = key::from_async_fn(|request| {
    ///     let session = request.headers().get("x-session").and_then(|value| value.to_str().ok());
    ///     account_of(session.map(str::to_owned))
    /// });
    /// // Each account from each address. The key that has to be waited for stands last.
    /// let policy = Policy::new("reports", Quota::per_hour(10)).key_async((ClientIp, by_account));
    /// ```
    #[must_use]
    pub fn key_async(mut self, key: impl AsyncKeyExtractor) -> Self {
        self.key = key::Source::Later(Arc::new(key));
        self.shape = self.key.shape();
        self
    }

    /// Makes the policy one that is charged only by name: by an annotation, a route, or [`check`](crate::Limiter::check). The
    /// layer charges no request under it.
    ///
    /// The place where it is named replaces its [routes](Self::route). Its other conditions and its lists still hold.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, Quota};
    ///
    /// # async fn send_mail(user: &str) -> Result<(), Box<dyn std::error::Error>> {
    /// // The layer charges `api` for each request. The code that sends mails asks for `mail`.
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("api", Quota::per_second(10)))
    ///     .policy(Policy::new("mail", Quota::per_hour(20)).on_demand())
    ///     .build()?;
    /// let may_send = limiter.check("mail", user).await?.is_allowed();
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn on_demand(mut self) -> Self {
        self.on_demand = true;
        self
    }

    /// The rule for a request without an identity.
    #[must_use]
    pub fn on_missing(mut self, rule: OnMissing) -> Self {
        self.on_missing = rule;
        self
    }

    /// The rule while the backend cannot decide.
    #[must_use]
    pub fn on_failure(mut self, rule: OnFailure) -> Self {
        self.on_failure = rule;
        self
    }

    /// The kinds of identities that its requests have.
    pub(crate) fn shape(&self) -> &KeyShape {
        &self.shape
    }

    /// Reads the identities of lists and tiers as those of requests are read. Refuses those that no request ever has, which would never
    /// hold.
    pub(crate) fn complete_identities(
        &mut self,
        client: &ClientAddress,
    ) -> Result<(), ConfigError> {
        let shape = self.shape.clone();
        let misfit = |(place, key): (&'static str, &Key)| Some((place, shape.misfit(key, client)?));
        let of_tiers = self.tiers.iter().flat_map(|tiers| tiers.identities());
        let of_tiers = of_tiers.map(|key| ("tiers", key)).find_map(misfit);
        let misfit = of_tiers.or_else(|| self.find_listed(misfit));
        let misfit = misfit.or_else(|| {
            let tiers = Arc::make_mut(self.tiers.as_mut()?);
            Some(("tiers", tiers.respell(&shape)?))
        });
        match misfit {
            None => Ok(()),
            Some((place, reason)) => Err(ConfigError::Identity {
                policy: self.name.to_string(),
                place,
                reason,
            }),
        }
    }

    /// The messages that it charges, if it is for messages.
    #[doc(hidden)]
    #[must_use]
    pub fn messages(&self) -> Option<Messages> {
        self.messages
    }

    /// The quotas of callers without a tier, in their order.
    #[doc(hidden)]
    #[must_use]
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// True if requests have classes.
    pub(crate) fn has_classes(&self) -> bool {
        self.classes.is_some()
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.tiers.is_none()
            && self.lookup.is_none()
            && self.ban.is_none()
            && self.once.is_none()
            && self.lists.is_none()
            && self.key.later().is_none()
            && self.cost.fixed().is_some()
            && !self.exemptions.any()
            && !self.limits.is_empty()
            && !self.is_off()
    }

    /// The name.
    ///
    /// ```
    /// use tollgate::{Policy, Quota};
    ///
    /// assert_eq!(Policy::new("api", Quota::per_second(10)).name(), "api");
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True if it covers no request by itself: it is charged by its name.
    #[doc(hidden)]
    #[must_use]
    pub fn is_on_demand(&self) -> bool {
        self.on_demand
    }

    /// The mode in which its quotas are asked.
    #[doc(hidden)]
    #[inline]
    pub fn mode(&self) -> Mode {
        if self.shadow {
            Mode::Shadow
        } else {
            Mode::Enforce
        }
    }
}

impl Policy {
    /// The capabilities that the backend needs beyond quotas.
    pub(crate) fn needs(&self) -> Capabilities {
        let mut needed = Capabilities::none();
        if self.holds() {
            needed = needed.with(Capability::Held);
        }
        if self.waits_for_turns() {
            needed = needed.with(Capability::Waits);
        }
        if self.ban.is_some() {
            needed = needed.with(Capability::Bans);
        }
        if self.once.is_some() {
            needed = needed.with(Capability::Once);
        }
        if self.lease.is_some() {
            needed = needed.with(Capability::UpTo);
        }
        needed
    }

    /// True if a response under it matters: it may change the cost, or its end gives back what is held.
    pub(crate) fn follows_responses(&self) -> bool {
        self.outcome.is_some() || self.holds()
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("name", &self.name)
            .field(
                "quotas",
                &self
                    .limits
                    .iter()
                    .map(|limit| limit.quota)
                    .collect::<Vec<_>>(),
            )
            .field("conditions", &self.conditions)
            .field("exemptions", &self.exemptions)
            .field("tiers", &self.tiers)
            .field("lookup", &self.lookup)
            .field("classes", &self.classes)
            .field("cost", &self.cost)
            .field("outcome", &self.outcome)
            .field("messages", &self.messages)
            .field("shadow", &self.shadow)
            .field("on_demand", &self.on_demand)
            .field("on_missing", &self.on_missing)
            .field("on_failure", &self.on_failure)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Quota;

    #[test]
    fn a_policy_without_quota_is_refused() {
        let error = Policy::try_new("login", Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), "policy \"login\": no quota");
    }

    #[test]
    fn names_that_headers_and_keys_could_not_carry_are_refused() {
        for name in [
            "",
            "Login",
            "log in",
            "-login",
            "lögin",
            "a\"b",
            &"x".repeat(65),
        ] {
            let error = Policy::try_new(name, Quota::per_second(1))
                .unwrap_err()
                .to_string();
            assert!(error.contains("invalid name"), "{name:?}: {error}");
        }
        for name in ["login", "2fa", "api/v1.search_users-all", &"x".repeat(64)] {
            Policy::try_new(name, Quota::per_second(1)).unwrap();
        }
    }
}
