//! Tiers as they are written.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::{KeyConfig, QuotasConfig, Registry, refused};
use crate::policy::Quotas;
use crate::{ClientAddress, ConfigError, Key, Tiers};

/// What is written for the quotas of a tier that has none.
const UNLIMITED: &str = "unlimited";

/// Who has other quotas than the policy's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TiersConfig {
    /// Who is in which tier.
    pub by: TierSource,
    /// The quotas of each tier by its name, or `"unlimited"`.
    #[serde(default)]
    pub quotas: BTreeMap<String, QuotasConfig>,
}

/// Who is in which tier: the name of [registered tiers](Registry::register_tiers), or a map of identities, written as in
/// [`EntryConfig`](super::EntryConfig), to the names of tiers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "tiers are by a registered name, or by a map of identities to names of tiers"
)]
pub enum TierSource {
    /// As these registered tiers say.
    Registered(String),
    /// As written here.
    Keys(BTreeMap<String, String>),
}

impl TiersConfig {
    pub(super) fn build(
        &self,
        policy: &str,
        key: &KeyConfig,
        registry: &Registry,
        client: &ClientAddress,
    ) -> Result<Tiers, ConfigError> {
        let mut tiers = match &self.by {
            TierSource::Registered(name) => registry.tiers(policy, name)?,
            TierSource::Keys(keys) => {
                let mut known: HashMap<Key, &str> = HashMap::new();
                for (text, tier) in keys {
                    let identity = key.identity(policy, "tiers", text, client)?;
                    let other = known.insert(identity, tier);
                    if other.is_some_and(|other| other != tier) {
                        let reason = "is in another tier too, as the same caller in other words";
                        return Err(refused(policy, "tiers", text, reason));
                    }
                }
                Tiers::by_key(known)
            }
        };
        for (name, quotas) in &self.quotas {
            tiers = match quotas {
                QuotasConfig::One(text) if text == UNLIMITED => tiers.unlimited(name),
                quotas => tiers.tier(name, read(quotas, policy, name)?),
            };
        }
        Ok(tiers)
    }
}

/// The quotas of a tier. What is wrong with them is said of the tier.
fn read(quotas: &QuotasConfig, policy: &str, tier: &str) -> Result<Quotas, ConfigError> {
    quotas.read(policy, "quota").map_err(|error| match error {
        ConfigError::Field {
            policy,
            field,
            value,
            reason,
        } => ConfigError::Tier {
            policy,
            tier: tier.to_owned(),
            reason: format!("{field} {value:?}: {reason}"),
        },
        error => error,
    })
}
