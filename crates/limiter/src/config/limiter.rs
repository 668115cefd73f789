//! A limiter as plain data.

use http::HeaderName;
use serde::{Deserialize, Serialize};

use super::read::policies_by_name;
use super::{ClientAddressConfig, PolicyConfig, Registry, ShedConfig, is_default};
use crate::{ConfigError, Limiter, LimiterBuilder};

/// A [`Limiter`] as plain data, but for its backend, which the application gives to the builder. A key that is left out has the
/// limiter's default.
///
/// ```
/// use tollgate::config::{LimiterConfig, Registry};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config: LimiterConfig = toml::from_str(r#"
///     ipv6_prefix = 56
///     policies = [{ name = "api", quotas = "10/s" }]
/// "#)?;
/// let limiter = config.build(&Registry::new())?.build()?;
/// assert!(limiter.policy("api").is_some());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct LimiterConfig {
    /// The place of the caller's address.
    #[serde(default, skip_serializing_if = "is_default")]
    pub client_address: ClientAddressConfig,
    /// The number of bits by which IPv6 addresses are grouped.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ipv6_prefix: Option<u8>,
    /// True if `/Login` counts as `/login`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ignore_path_case: bool,
    /// True if CORS preflights are exempt from every policy: see [`Policy::exempt_preflights`](crate::Policy::exempt_preflights).
    #[serde(default, skip_serializing_if = "is_default")]
    pub exempt_preflights: bool,
    /// True if calls to gRPC's health and reflection services are exempt from every policy: see
    /// [`Policy::exempt_health_checks`](crate::Policy::exempt_health_checks).
    #[serde(default, skip_serializing_if = "is_default")]
    pub exempt_health_checks: bool,
    /// The most requests that wait at one time: see [`LimiterBuilder::max_waiting`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub max_waiting: Option<usize>,
    /// The most of these with one key under one policy: see [`LimiterBuilder::max_waiting_per_key`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub max_waiting_per_key: Option<usize>,
    /// The header in which callers say how long they wait: see [`LimiterBuilder::deadline_header`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub deadline_header: Option<String>,
    /// The classes that are refused under pressure: see [`LimiterBuilder::shed`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub shed: Option<ShedConfig>,
    /// True if a limiter may have no policies.
    #[serde(default, skip_serializing_if = "is_default")]
    pub allow_no_policies: bool,
    /// The policies.
    #[serde(default, deserialize_with = "policies_by_name")]
    pub policies: Vec<PolicyConfig>,
}

impl LimiterConfig {
    /// Makes a builder that holds all this.
    ///
    /// # Errors
    ///
    /// If a field makes no sense, or names something that is not registered. Conflicts between policies are found when the
    /// [limiter is built](LimiterBuilder::build).
    pub fn build(&self, registry: &Registry) -> Result<LimiterBuilder, ConfigError> {
        let mut client = self.client_address.build()?;
        if let Some(bits) = self.ipv6_prefix {
            client = client.try_ipv6_prefix(bits)?;
        }
        let mut builder = Limiter::builder();
        for policy in &self.policies {
            builder = builder.policy(policy.build(registry, &client)?);
        }
        if self.ignore_path_case {
            builder = builder.ignore_path_case();
        }
        if self.exempt_preflights {
            builder = builder.exempt_preflights();
        }
        if self.exempt_health_checks {
            builder = builder.exempt_health_checks();
        }
        if let Some(requests) = self.max_waiting {
            builder = builder.max_waiting(requests);
        }
        if let Some(requests) = self.max_waiting_per_key {
            builder = builder.max_waiting_per_key(requests);
        }
        if let Some(name) = &self.deadline_header {
            let header = HeaderName::from_bytes(name.as_bytes());
            let invalid = |_| ConfigError::DeadlineHeader {
                header: name.clone(),
            };
            builder = builder.deadline_header(header.map_err(invalid)?);
        }
        if let Some(shed) = &self.shed {
            builder = shed.build(builder, registry)?;
        }
        if self.allow_no_policies {
            builder = builder.allow_no_policies();
        }
        Ok(builder.client_address(client))
    }
}
