//! A policy as plain data.

use serde::{Deserialize, Serialize};

use super::{
    BlockConfig, EntryConfig, KeyConfig, MessagesConfig, QuotasConfig, TiersConfig, is_default,
};
use crate::{OnFailure, OnMissing};

/// A [`Policy`](crate::Policy) as plain data. What is left out is as a policy comes.
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
    /// Whose budget a request spends: that of the client's address if this is left out. [`Limiter::check`](crate::Limiter::check)
    /// may be given any text then, and none where this says `"client-ip"`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub key: Option<KeyConfig>,
    /// The paths that it covers, in axum's syntax; all if there is none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub routes: Vec<String>,
    /// The methods of gRPC that it covers, beside the routes: see [`Policy::grpc`](crate::Policy::grpc).
    #[serde(default, skip_serializing_if = "is_default")]
    pub grpc: Vec<String>,
    /// The paths that it does not cover.
    #[serde(default, skip_serializing_if = "is_default")]
    pub exempt_routes: Vec<String>,
    /// The methods that it covers, in upper case; all if there is none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub methods: Vec<String>,
    /// The methods that it does not cover.
    #[serde(default, skip_serializing_if = "is_default")]
    pub exempt_methods: Vec<String>,
    /// The hosts that it covers; all if there is none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hosts: Vec<String>,
    /// The networks whose callers it does not cover.
    #[serde(default, skip_serializing_if = "is_default")]
    pub exempt_networks: Vec<EntryConfig>,
    /// The [registered conditions](super::Registry::register_condition) that must all hold.
    #[serde(default, skip_serializing_if = "is_default")]
    pub when: Vec<String>,
    /// Whether CORS preflights are exempt: see [`Policy::exempt_preflights`](crate::Policy::exempt_preflights).
    #[serde(default, skip_serializing_if = "is_default")]
    pub exempt_preflights: bool,
    /// Whether calls to gRPC's health and reflection services are exempt: see
    /// [`Policy::exempt_health_checks`](crate::Policy::exempt_health_checks).
    #[serde(default, skip_serializing_if = "is_default")]
    pub exempt_health_checks: bool,
    /// What a request costs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cost: CostConfig,
    /// The [registered outcome](super::Registry::register_count_if) that says what a request has really cost.
    #[serde(default, skip_serializing_if = "is_default")]
    pub outcome: Option<String>,
    /// Who has other quotas.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tiers: Option<TiersConfig>,
    /// The identities that it does not apply to.
    #[serde(default, skip_serializing_if = "is_default")]
    pub exempt_keys: Vec<EntryConfig>,
    /// The identities that it refuses.
    #[serde(default, skip_serializing_if = "is_default")]
    pub block_keys: BlockConfig,
    /// Which messages of gRPC calls it charges, if it is for messages: see [`Policy::per_message`](crate::Policy::per_message).
    #[serde(default, skip_serializing_if = "is_default")]
    pub per_message: Option<MessagesConfig>,
    /// Whether it is on trial: decided and reported, never enforced.
    #[serde(default, skip_serializing_if = "is_default")]
    pub shadow: bool,
    /// Whether it is charged only where it is asked for by name.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_demand: bool,
    /// What it means that a request does not say whose budget it spends: `"share"`, `"pass"` or `"deny"`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_missing: OnMissing,
    /// What happens while the backend cannot decide: `"allow"`, `"deny"`, `"local"`, or `{ local-one-in = 4 }` for the
    /// fourth part of each quota.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_failure: OnFailure,
}

/// What a request costs: `5`, or the name of a [registered cost](super::Registry::register_cost).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "a cost is a whole number from 0, or the name of a registered one"
)]
pub enum CostConfig {
    /// The same for every request.
    Fixed(u64),
    /// What a function makes of the request.
    Registered(String),
}

impl Default for CostConfig {
    fn default() -> Self {
        Self::Fixed(1)
    }
}
