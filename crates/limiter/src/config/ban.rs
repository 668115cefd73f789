//! The ban of a policy, as plain data.

use serde::{Deserialize, Serialize};

use super::{Registry, is_default};
use crate::{Ban, Block, ConfigError, Policy};

/// The ban of a policy as plain data: `{ after = "5 in 10min for 15min" }`.
///
/// ```
/// use tollgate::config::{BanConfig, PolicyConfig};
///
/// let policy: PolicyConfig = toml::from_str(r#"
///     name = "login"
///     quotas = "10/min"
///     ban = { after = "5 in 10min for 15min doubling to 1day", answer = "forbidden" }
/// "#)?;
/// let ban: Option<BanConfig> = policy.ban;
/// assert!(ban.is_some());
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BanConfig {
    /// The strikes, their time, and the length of the ban: see [`Ban`].
    pub after: Ban,
    /// The answer to the banned: see [`Policy::answer_banned`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub answer: Block,
    /// The [registered condition of responses](Registry::register_count_if) that makes one a strike: see [`Policy::strike_if`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub strike_if: Option<String>,
}

impl BanConfig {
    pub(super) fn build(&self, policy: Policy, registry: &Registry) -> Result<Policy, ConfigError> {
        let policy = policy.ban(self.after).answer_banned(self.answer);
        match &self.strike_if {
            Some(name) => {
                let strikes = registry.strike_if(policy.name(), name)?;
                Ok(policy.striking(strikes))
            }
            None => Ok(policy),
        }
    }
}
