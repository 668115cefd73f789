//! A policy as plain data.

use serde::{Deserialize, Serialize};

use super::{
    BanConfig, BlockConfig, ClassesConfig, EntryConfig, KeyConfig, LeaseConfig, MessagesConfig,
    OnceConfig, QuotasConfig, TiersConfig, is_default,
};
use crate::{OnFailure, OnMissing};

/// A [`Policy`](crate::Policy) as plain data. A key that is left out has the policy's default.
///
/// ```
/// use tollgate::config::PolicyConfig;
///
/// let policy: PolicyConfig = serde_json::from_str(
///     r#"{ "name": "search", "quotas": "10/s", "key": { "header": "x-api-key" }, "shadow": true }"#,
/// )?;
/// assert!(policy.shadow);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PolicyConfig {
    /// The name: see [`Policy::try_new`](crate::Policy::try_new).
    pub name: String,
    /// The quotas.
    #[serde(default)]
    pub quotas: QuotasConfig,
    /// The [registered lookup](super::Registry::register_quotas) of quotas that a database states: see
    /// [`Policy::quota_by_async`](crate::Policy::quota_by_async).
    #[serde(default, skip_serializing_if = "is_default")]
    pub quotas_by: Option<String>,
    /// The identity whose budget a request spends: the client's address if this is left out.
    /// [`Limiter::check`](crate::Limiter::check) then takes any text. If this says `"client-ip"`, it takes no text.
    #[serde(default, skip_serializing_if = "is_default")]
    pub key: Option<KeyConfig>,
    /// The paths that the policy covers, in axum's syntax; all if empty.
    #[serde(default, skip_serializing_if = "is_default")]
    pub routes: Vec<String>,
    /// The gRPC methods that the policy covers, besides the routes: see [`Policy::grpc`](crate::Policy::grpc).
    #[serde(default, skip_serializing_if = "is_default")]
    pub grpc: Vec<String>,
    /// The paths that the policy does not cover.
    #[serde(default, skip_serializing_if = "is_default")]
    pub exempt_routes: Vec<String>,
    /// The methods that the policy covers, in upper case; all if empty.
    #[serde(default, skip_serializing_if = "is_default")]
    pub methods: Vec<String>,
    /// The methods that the policy does not cover.
    #[serde(default, skip_serializing_if = "is_default")]
    pub exempt_methods: Vec<String>,
    /// The hosts that the policy covers; all if empty.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hosts: Vec<String>,
    /// The networks whose callers the policy does not cover.
    #[serde(default, skip_serializing_if = "is_default")]
    pub exempt_networks: Vec<EntryConfig>,
    /// The [registered conditions](super::Registry::register_condition) that must all hold.
    #[serde(default, skip_serializing_if = "is_default")]
    pub when: Vec<String>,
    /// True if CORS preflights are exempt: see [`Policy::exempt_preflights`](crate::Policy::exempt_preflights).
    #[serde(default, skip_serializing_if = "is_default")]
    pub exempt_preflights: bool,
    /// True if calls to gRPC's health and reflection services are exempt: see
    /// [`Policy::exempt_health_checks`](crate::Policy::exempt_health_checks).
    #[serde(default, skip_serializing_if = "is_default")]
    pub exempt_health_checks: bool,
    /// The cost of a request.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cost: CostConfig,
    /// The [registered outcome](super::Registry::register_count_if) that corrects the charge by the response.
    #[serde(default, skip_serializing_if = "is_default")]
    pub outcome: Option<String>,
    /// The ban of callers that are denied too often: see [`Policy::ban`](crate::Policy::ban).
    #[serde(default, skip_serializing_if = "is_default")]
    pub ban: Option<BanConfig>,
    /// The terms by which requests with an id are charged once: see [`Policy::once_by`](crate::Policy::once_by).
    #[serde(default, skip_serializing_if = "is_default")]
    pub once: Option<OnceConfig>,
    /// The terms by which a process leases blocks of the budgets: see [`Policy::lease`](crate::Policy::lease).
    #[serde(default, skip_serializing_if = "is_default")]
    pub lease: Option<LeaseConfig>,
    /// Other quotas for some identities.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tiers: Option<TiersConfig>,
    /// Classes of requests, for which a share of every budget is kept.
    #[serde(default, skip_serializing_if = "is_default")]
    pub classes: Option<ClassesConfig>,
    /// The identities that the policy does not charge.
    #[serde(default, skip_serializing_if = "is_default")]
    pub exempt_keys: Vec<EntryConfig>,
    /// The identities that the policy refuses.
    #[serde(default, skip_serializing_if = "is_default")]
    pub block_keys: BlockConfig,
    /// The messages of gRPC calls that the policy charges, if it is for messages: see
    /// [`Policy::per_message`](crate::Policy::per_message).
    #[serde(default, skip_serializing_if = "is_default")]
    pub per_message: Option<MessagesConfig>,
    /// The seconds that a refused caller is told to wait if the real time is unknown; none if 0: see
    /// [`Policy::retry_hint`](crate::Policy::retry_hint).
    #[serde(default, skip_serializing_if = "is_default")]
    pub retry_hint: u32,
    /// True if the policy is on trial: decided and reported, never enforced.
    #[serde(default, skip_serializing_if = "is_default")]
    pub shadow: bool,
    /// True if only annotations, routes and checks charge the policy, by its name.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_demand: bool,
    /// The rule for a request without an identity: `"share"`, `"pass"` or `"deny"`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_missing: OnMissing,
    /// The rule while the backend cannot decide: `"allow"`, `"deny"`, `"local"`, or `{ local-one-in = 4 }` for a quarter of each
    /// quota, or `{ local-percent = 30 }`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_failure: OnFailure,
}

/// The cost of a request: `5`, or the name of a [registered cost](super::Registry::register_cost).
///
/// ```
/// use tollgate::config::{CostConfig, PolicyConfig};
///
/// let policy = |cost: &str| toml::from_str::<PolicyConfig>(&format!("name = 'up'\nquotas = '10/s'\ncost = {cost}"));
/// assert_eq!(policy("5")?.cost, CostConfig::Fixed(5));
/// assert_eq!(policy("'length'")?.cost, CostConfig::Registered("length".into()));
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "a cost is a whole number from 0, or the name of a registered cost"
)]
pub enum CostConfig {
    /// A fixed number.
    Fixed(u64),
    /// The cost that a registered function computes.
    Registered(String),
}

impl Default for CostConfig {
    fn default() -> Self {
        Self::Fixed(1)
    }
}
