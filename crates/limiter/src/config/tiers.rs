//! Tiers as they are written.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::{KeyConfig, QuotasConfig, Registry, refused};
use crate::policy::Quotas;
use crate::{ClientAddress, ConfigError, Key, Tiers};

/// The text for a tier without quotas.
const UNLIMITED: &str = "unlimited";

/// Other quotas than the policy's own for some identities.
///
/// ```
/// use tollgate::config::{PolicyConfig, TiersConfig};
///
/// let policy: PolicyConfig = toml::from_str(r#"
///     name = "api"
///     quotas = "10/s"
///     key = { header = "x-api-key" }
///
///     [tiers]
///     by = { partner-a = "gold", monitoring = "staff" }
///     quotas = { gold = "1000/s", staff = "unlimited" }
/// "#)?;
/// let tiers: Option<TiersConfig> = policy.tiers;
/// assert_eq!(tiers.map(|tiers| tiers.quotas.len()), Some(2));
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TiersConfig {
    /// The tier of each identity.
    pub by: TierSource,
    /// The quotas of each tier by its name, or `"unlimited"`.
    #[serde(default)]
    pub quotas: BTreeMap<String, QuotasConfig>,
}

/// The tier of each identity: the name of [registered tiers](Registry::register_tiers), or a map of identities, written as in
/// [`EntryConfig`](super::EntryConfig), to the names of tiers.
///
/// ```
/// use tollgate::config::{TierSource, TiersConfig};
///
/// let tiers: TiersConfig = toml::from_str(r#"
///     by = "plans"
///     quotas = { gold = "1000/s" }
/// "#)?;
/// assert_eq!(tiers.by, TierSource::Registered("plans".into()));
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "tiers are by a registered name, or by a map of identities to names of tiers"
)]
pub enum TierSource {
    /// Registered tiers of this name.
    Registered(String),
    /// A map that stands here.
    Keys(BTreeMap<String, String>),
}

impl TiersConfig {
    /// The identities that the file names and refuses.
    pub(super) fn refused(&self) -> impl Iterator<Item = &str> {
        let keys = match &self.by {
            TierSource::Registered(_) => None,
            TierSource::Keys(keys) => Some(keys),
        };
        let is_none = |tier: &String| {
            let quotas = self.quotas.get(tier);
            matches!(quotas, Some(QuotasConfig::One(text)) if text.trim() == "none")
        };
        let refused = keys.into_iter().flatten();
        let refused = refused.filter(move |(_, tier)| is_none(tier));
        refused.map(|(key, _)| key.as_str())
    }

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

/// The quotas of a tier. An error in them names the tier.
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
