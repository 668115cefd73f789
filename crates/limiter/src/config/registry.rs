//! The closures and lists that a configuration cannot write down, by name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::refused;
use crate::key::{AsyncKeyExtractor, KeyExtractor, KeyList, Source};
use crate::policy::{Cost, CountIf, Outcome};
use crate::{ConfigError, NetworkList, Pressure, QuotaLookup, RequestView, ResponseView, Tiers};

/// The closures and the lists that a configuration names. Each kind has names of its own. The last of two with one name counts.
///
/// ```
/// use http::header::CONTENT_LENGTH;
/// use tollgate::config::Registry;
/// use tollgate::{Tiers, key};
///
/// let registry = Registry::new()
///     .register_condition("is-external", |request| !request.headers().contains_key("x-internal"))
///     .register_key("host-of-target", key::from_fn(|request| request.uri().host().map(str::to_owned)))
///     .register_cost("length", |request| {
///         let length = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
///         let length = length.and_then(|length| length.parse().ok());
///         length.map_or(1 << 20, |bytes: u64| bytes.max(1))
///     })
///     .register_tiers("staff", Tiers::by(|key, _| (key.content() == b"root").then_some("staff")))
///     .register_count_if("failed-login", |response| response.status() == 401);
/// ```
#[derive(Clone, Default)]
#[must_use = "a registry does nothing until a configuration is built with it"]
pub struct Registry {
    conditions: BTreeMap<String, Arc<Condition>>,
    keys: BTreeMap<String, Source>,
    costs: BTreeMap<String, Cost>,
    tiers: BTreeMap<String, Tiers>,
    quotas: BTreeMap<String, QuotaLookup>,
    outcomes: BTreeMap<String, Outcome>,
    key_lists: BTreeMap<String, KeyList>,
    network_lists: BTreeMap<String, NetworkList>,
    pressures: BTreeMap<String, Pressure>,
    is_unmeasured: bool,
}

type Condition = dyn Fn(&RequestView<'_>) -> bool + Send + Sync;

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// A condition for `when`: see [`Policy::when`](crate::Policy::when).
    pub fn register_condition(
        mut self,
        name: &str,
        condition: impl Fn(&RequestView<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.conditions.insert(name.into(), Arc::new(condition));
        self
    }

    /// A key for `{ registered = .. }`: see [`Policy::key`](crate::Policy::key).
    pub fn register_key(mut self, name: &str, key: impl KeyExtractor) -> Self {
        self.keys.insert(name.into(), Source::new(key));
        self
    }

    /// A key that has to be waited for, for `{ registered = .. }`: see [`Policy::key_async`](crate::Policy::key_async).
    ///
    /// ```
    /// use tollgate::config::Registry;
    /// use tollgate::key;
    ///
    /// let registry = Registry::new().register_key_async("account", key::from_async_fn(|_request| async { Some(7_u64) }));
    /// ```
    pub fn register_key_async(mut self, name: &str, key: impl AsyncKeyExtractor) -> Self {
        self.keys.insert(name.into(), Source::Later(Arc::new(key)));
        self
    }

    /// A cost: see [`Policy::cost_by`](crate::Policy::cost_by).
    pub fn register_cost(
        mut self,
        name: &str,
        cost: impl Fn(&RequestView<'_>) -> u64 + Send + Sync + 'static,
    ) -> Self {
        self.costs.insert(name.into(), Cost::By(Arc::new(cost)));
        self
    }

    /// A source of tiers, whose quotas the configuration adds: see [`Tiers::by`] and [`Tiers::by_async`].
    pub fn register_tiers(mut self, name: &str, tiers: Tiers) -> Self {
        self.tiers.insert(name.into(), tiers);
        self
    }

    /// A lookup of the quotas that a database states, for `quotas_by`: see
    /// [`Policy::quota_by_async`](crate::Policy::quota_by_async).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::config::Registry;
    /// use tollgate::{Key, Quota, QuotaLookup};
    ///
    /// # async fn quota_of(customer: Key) -> Result<Option<Quota>, std::io::Error> { Ok(None) }
    /// let registry = Registry::new().register_quotas("customers", QuotaLookup::new(Duration::from_secs(60), quota_of));
    /// ```
    pub fn register_quotas(mut self, name: &str, lookup: QuotaLookup) -> Self {
        self.quotas.insert(name.into(), lookup);
        self
    }

    /// An outcome: see [`Policy::count_if`](crate::Policy::count_if).
    pub fn register_count_if(
        self,
        name: &str,
        counts: impl Fn(&ResponseView<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.register_outcome(name, Outcome::CountIf(Arc::new(counts)))
    }

    /// An outcome: see [`Policy::free_if`](crate::Policy::free_if).
    ///
    /// ```
    /// use tollgate::config::Registry;
    ///
    /// let registry = Registry::new().register_free_if("own-errors", |response| response.status().is_server_error());
    /// ```
    pub fn register_free_if(
        self,
        name: &str,
        free: impl Fn(&ResponseView<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.register_count_if(name, move |response| !free(response))
    }

    /// An outcome: see [`Policy::settle_by`](crate::Policy::settle_by).
    ///
    /// ```
    /// use tollgate::config::Registry;
    ///
    /// let registry = Registry::new().register_settle_by("tokens", |response| {
    ///     response.headers().get("x-tokens-used")?.to_str().ok()?.parse().ok()
    /// });
    /// ```
    pub fn register_settle_by(
        self,
        name: &str,
        cost: impl Fn(&ResponseView<'_>) -> Option<u64> + Send + Sync + 'static,
    ) -> Self {
        self.register_outcome(name, Outcome::Cost(Arc::new(cost)))
    }

    /// An outcome: see [`Policy::settle_by_bytes`](crate::Policy::settle_by_bytes).
    ///
    /// ```
    /// use tollgate::config::Registry;
    ///
    /// let registry = Registry::new().register_settle_by_bytes("kilobytes", |bytes| bytes.div_ceil(1024));
    /// ```
    pub fn register_settle_by_bytes(
        self,
        name: &str,
        cost: impl Fn(u64) -> u64 + Send + Sync + 'static,
    ) -> Self {
        self.register_outcome(name, Outcome::Sent(Arc::new(cost)))
    }

    /// Identities that can be added and removed while they are in use, for the lists of policies: see
    /// [`Policy::exempt_keys`](crate::Policy::exempt_keys) and [`Policy::block_keys`](crate::Policy::block_keys).
    ///
    /// ```
    /// use tollgate::config::Registry;
    /// use tollgate::key::KeyList;
    ///
    /// let partners = KeyList::new();
    /// let registry = Registry::new().register_key_list("partners", &partners);
    /// ```
    pub fn register_key_list(mut self, name: &str, list: impl Into<KeyList>) -> Self {
        self.key_lists.insert(name.into(), list.into());
        self
    }

    /// Networks that can be replaced while they are in use: see [`Policy::exempt_networks`](crate::Policy::exempt_networks).
    ///
    /// ```
    /// use tollgate::config::Registry;
    /// use tollgate::{NetworkList, Networks};
    ///
    /// let offices = NetworkList::from(Networks::new(["192.0.2.0/24"]));
    /// let registry = Registry::new().register_network_list("offices", &offices);
    /// ```
    pub fn register_network_list(mut self, name: &str, list: impl Into<NetworkList>) -> Self {
        self.network_lists.insert(name.into(), list.into());
        self
    }

    /// A signal of pressure for `{ registered = .. }` in `[shed]`: see [`LimiterBuilder::shed`](crate::LimiterBuilder::shed).
    ///
    /// ```
    /// use tollgate::PressureGauge;
    /// use tollgate::config::Registry;
    ///
    /// let queue = PressureGauge::new();
    /// let registry = Registry::new().register_pressure("queue", &queue);
    /// ```
    pub fn register_pressure(mut self, name: &str, pressure: impl Into<Pressure>) -> Self {
        self.pressures.insert(name.into(), pressure.into());
        self
    }

    /// Measures nothing: the level of each signal that a configuration names is 0, unless it is registered. A program that looks
    /// at a configuration and serves no requests needs no control group and no runtime.
    ///
    /// ```
    /// use tollgate::config::{LimiterConfig, Registry};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let config: LimiterConfig = toml::from_str(r#"
    ///     shed = { classes = ["user", "batch"], by = { header = "x-class" }, signals = ["cpu"], at = ["batch 70%"] }
    /// "#)?;
    /// let limiter = config.build(&Registry::new().without_measuring())?.build()?;
    /// assert!(!limiter.is_shedding());
    /// # Ok(()) }
    /// ```
    pub fn without_measuring(mut self) -> Self {
        self.is_unmeasured = true;
        self
    }

    fn register_outcome(mut self, name: &str, outcome: Outcome) -> Self {
        self.outcomes.insert(name.into(), outcome);
        self
    }

    pub(super) fn condition(
        &self,
        policy: &str,
        name: &str,
    ) -> Result<&Arc<Condition>, ConfigError> {
        find(&self.conditions, policy, "when", name)
    }

    pub(super) fn key(&self, policy: &str, name: &str) -> Result<Source, ConfigError> {
        find(&self.keys, policy, "key", name).cloned()
    }

    pub(super) fn cost(&self, policy: &str, name: &str) -> Result<Cost, ConfigError> {
        find(&self.costs, policy, "cost", name).cloned()
    }

    pub(super) fn tiers(&self, policy: &str, name: &str) -> Result<Tiers, ConfigError> {
        find(&self.tiers, policy, "tiers", name).cloned()
    }

    pub(super) fn quotas(&self, policy: &str, name: &str) -> Result<QuotaLookup, ConfigError> {
        find(&self.quotas, policy, "quotas_by", name).cloned()
    }

    pub(super) fn outcome(&self, policy: &str, name: &str) -> Result<Outcome, ConfigError> {
        find(&self.outcomes, policy, "outcome", name).cloned()
    }

    /// The condition of responses of this name, for strikes.
    pub(super) fn strike_if(&self, policy: &str, name: &str) -> Result<Arc<CountIf>, ConfigError> {
        match find(&self.outcomes, policy, "strike_if", name)? {
            Outcome::CountIf(counts) => Ok(Arc::clone(counts)),
            _ => Err(refused(
                policy,
                "strike_if",
                name,
                "the outcome of this name sets a cost: a strike is one of `register_count_if`",
            )),
        }
    }

    pub(super) fn key_list(
        &self,
        policy: &str,
        field: &'static str,
        name: &str,
    ) -> Result<&KeyList, ConfigError> {
        find(&self.key_lists, policy, field, name)
    }

    pub(super) fn network_list(
        &self,
        policy: &str,
        name: &str,
    ) -> Result<&NetworkList, ConfigError> {
        find(&self.network_lists, policy, "exempt_networks", name)
    }

    pub(super) fn pressure(&self, name: &str) -> Result<&Pressure, ConfigError> {
        find(&self.pressures, "", "signals", name)
    }

    pub(super) const fn measures(&self) -> bool {
        !self.is_unmeasured
    }
}

fn find<'a, T>(
    known: &'a BTreeMap<String, T>,
    policy: &str,
    field: &'static str,
    name: &str,
) -> Result<&'a T, ConfigError> {
    known.get(name).ok_or_else(|| ConfigError::NotRegistered {
        policy: policy.to_owned(),
        field,
        name: name.chars().take(128).collect(),
        known: known.keys().cloned().collect(),
    })
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("conditions", &self.conditions.keys())
            .field("keys", &self.keys.keys())
            .field("costs", &self.costs.keys())
            .field("tiers", &self.tiers.keys())
            .field("quotas", &self.quotas.keys())
            .field("outcomes", &self.outcomes.keys())
            .field("key_lists", &self.key_lists.keys())
            .field("network_lists", &self.network_lists.keys())
            .field("pressures", &self.pressures.keys())
            .field("is_unmeasured", &self.is_unmeasured)
            .finish()
    }
}
