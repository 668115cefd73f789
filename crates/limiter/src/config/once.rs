//! The ids of a policy, as plain data.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{KeyConfig, Registry, is_default, refused};
use crate::{ConfigError, Once, Policy, QuotaError};

/// The terms by which a policy charges requests with an id once, as plain data: `{ by = { header = "idempotency-key" } }`.
///
/// ```
/// use tollgate::config::{OnceConfig, PolicyConfig};
///
/// let policy: PolicyConfig = toml::from_str(r#"
///     name = "orders"
///     quotas = "10/min"
///     once = { by = { header = "idempotency-key" }, life = 300, replays = 1 }
/// "#)?;
/// let once: Option<OnceConfig> = policy.once;
/// assert!(once.is_some());
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct OnceConfig {
    /// The part of a request that is its id: see [`Policy::once_by`]. Without it only [checks](crate::Check::id) have ids.
    #[serde(skip_serializing_if = "is_default")]
    pub by: Option<KeyConfig>,
    /// The seconds for which an id is remembered after its admission.
    pub life: u64,
    /// The number of replays that pass uncharged.
    pub replays: u64,
}

impl Default for OnceConfig {
    fn default() -> Self {
        let (life_us, replays) = Once::default().figures();
        Self {
            by: None,
            life: life_us / 1_000_000,
            replays: replays.into(),
        }
    }
}

impl OnceConfig {
    pub(super) fn build(&self, policy: Policy, registry: &Registry) -> Result<Policy, ConfigError> {
        let name = policy.name().to_owned();
        let wrong = |field, value: u64, error: QuotaError| {
            refused(&name, field, &value.to_string(), error.to_string())
        };
        let once = Once::try_within(Duration::from_secs(self.life))
            .map_err(|error| wrong("once.life", self.life, error))?;
        let once = once
            .try_replays(self.replays)
            .map_err(|error| wrong("once.replays", self.replays, error))?;
        let policy = policy.once(once);
        Ok(match &self.by {
            Some(by) => policy.with_ids(by.build_id(&name, registry)?),
            None => policy,
        })
    }
}
