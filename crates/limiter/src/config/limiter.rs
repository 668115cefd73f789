//! A limiter as plain data.

use serde::{Deserialize, Serialize};

use super::read::policies_by_name;
use super::{ClientAddressConfig, PolicyConfig, Registry, is_default};
use crate::{ConfigError, Limiter, LimiterBuilder};

/// A [`Limiter`] as plain data, but for its backend, which the application gives to the builder. What is left out is as a
/// limiter comes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct LimiterConfig {
    /// Where the address of a caller is to be found.
    #[serde(default, skip_serializing_if = "is_default")]
    pub client_address: ClientAddressConfig,
    /// How many bits of an IPv6 address tell callers apart.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ipv6_prefix: Option<u8>,
    /// Whether `/Login` is `/login`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ignore_path_case: bool,
    /// Whether CORS preflights are exempt from every policy: see [`Policy::exempt_preflights`](crate::Policy::exempt_preflights).
    #[serde(default, skip_serializing_if = "is_default")]
    pub exempt_preflights: bool,
    /// Whether calls to gRPC's health and reflection services are exempt from every policy: see
    /// [`Policy::exempt_health_checks`](crate::Policy::exempt_health_checks).
    #[serde(default, skip_serializing_if = "is_default")]
    pub exempt_health_checks: bool,
    /// Whether it is no mistake if there is no policy.
    #[serde(default, skip_serializing_if = "is_default")]
    pub allow_no_policies: bool,
    /// The policies.
    #[serde(default, deserialize_with = "policies_by_name")]
    pub policies: Vec<PolicyConfig>,
}

impl LimiterConfig {
    /// A builder that holds all this.
    ///
    /// # Errors
    ///
    /// If a field makes no sense, or names something that is not registered. What policies can be to each other is found out
    /// when the [limiter is built](LimiterBuilder::build).
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
        if self.allow_no_policies {
            builder = builder.allow_no_policies();
        }
        Ok(builder.client_address(client))
    }
}
