//! Lists of identities and networks that a policy exempts or refuses.

use serde::{Deserialize, Serialize};

use super::is_default;

/// An entry in a list of identities or networks: one of them, or a registered list, which may change while it is in use.
///
/// ```
/// use tollgate::config::{EntryConfig, PolicyConfig, Registry};
/// use tollgate::key::KeyList;
/// use tollgate::{ClientAddress, NetworkList};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let policy: PolicyConfig = toml::from_str(r#"
///     name = "api"
///     quotas = "10/s"
///     key = { header = "x-api-key" }
///     exempt_keys = ["our-own", { registered = "partners" }]
///     exempt_networks = [{ registered = "offices" }]
/// "#)?;
/// assert_eq!(policy.exempt_keys[0], EntryConfig::Written("our-own".into()));
///
/// let (partners, offices) = (KeyList::new(), NetworkList::default());
/// let registry = Registry::new()
///     .register_key_list("partners", &partners)
///     .register_network_list("offices", &offices);
/// let policy = policy.build(&registry, &ClientAddress::peer())?;
///
/// // Later, from anywhere.
/// partners.insert("key-4711");
/// # Ok(()) }
/// ```
///
/// An identity is written as the policy's key finds it: the API key, the name of the user, the address of the client. An IPv6
/// address stands for its whole [group](super::LimiterConfig::ipv6_prefix). The identity of a registered key is taken as text.
/// Keys of several parts cannot be written; a registered list can hold them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "a list holds texts, and registered lists by their names, such as { registered = \"partners\" }"
)]
#[non_exhaustive]
pub enum EntryConfig {
    /// This identity or network.
    Written(String),
    /// All entries of the [list of identities](super::Registry::register_key_list) or [of
    /// networks](super::Registry::register_network_list) of this name.
    Registered {
        /// The name.
        registered: String,
    },
}

impl From<&str> for EntryConfig {
    fn from(text: &str) -> Self {
        Self::Written(text.to_owned())
    }
}

/// The written entries, and the names of the registered lists.
pub(super) fn apart(entries: &[EntryConfig]) -> (Vec<&str>, Vec<&str>) {
    let (mut written, mut registered) = (Vec::new(), Vec::new());
    for entry in entries {
        match entry {
            EntryConfig::Written(text) => written.push(text.as_str()),
            EntryConfig::Registered { registered: name } => registered.push(name.as_str()),
        }
    }
    (written, registered)
}

/// The identities that a policy refuses, by status.
///
/// ```
/// use tollgate::config::{BlockConfig, PolicyConfig};
///
/// let policy: PolicyConfig = toml::from_str(r#"
///     name = "api"
///     quotas = "10/s"
///     key = { header = "x-api-key" }
///     block_keys = { forbidden = ["key-4711"], too_many_requests = [{ registered = "crawlers" }] }
/// "#)?;
/// let blocked: BlockConfig = policy.block_keys;
/// assert_eq!(blocked.forbidden.len(), 1);
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct BlockConfig {
    /// With 403.
    #[serde(default, skip_serializing_if = "is_default")]
    pub forbidden: Vec<EntryConfig>,
    /// With 429, without `Retry-After`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub too_many_requests: Vec<EntryConfig>,
}
