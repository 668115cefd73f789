//! The place of the caller's address, as a configuration writes it.

use serde::{Deserialize, Serialize};

use crate::{ClientAddress, ConfigError, Hops, Networks, TrustedProxies};

/// The place of the caller's address: a [`ClientAddress`] as plain data.
///
/// ```
/// use tollgate::config::LimiterConfig;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config: LimiterConfig = toml::from_str("client_address = { forwarded = { hops = 2 } }")?;
/// let address = config.client_address.build()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum ClientAddressConfig {
    /// The socket's peer: `"peer"`.
    #[default]
    Peer,
    /// The entry of `X-Forwarded-For` that trusted proxies wrote: `{ x-forwarded-for = { networks = ["10.0.0.0/8"] } }`.
    XForwardedFor(ProxiesConfig),
    /// The entry of `Forwarded` that trusted proxies wrote: `{ forwarded = { hops = 2 } }`.
    Forwarded(ProxiesConfig),
    /// The one address in a header: `{ header = { name = "cf-connecting-ip", networks = ["173.245.48.0/20"] } }`.
    // The name is not `Header`: the compiler would then spell out `key::Header` in its errors.
    #[serde(rename = "header")]
    OneHeader {
        /// The header's name.
        name: String,
        /// The networks of the trusted peers.
        networks: Vec<String>,
    },
}

/// The proxies that are trusted: [`TrustedProxies`] as plain data.
///
/// ```
/// use tollgate::config::{ClientAddressConfig, LimiterConfig, ProxiesConfig};
///
/// let config: LimiterConfig = toml::from_str("client_address = { x-forwarded-for = { networks = ['10.0.0.0/8'] } }")?;
/// let proxies = ProxiesConfig::Networks(vec!["10.0.0.0/8".into()]);
/// assert_eq!(config.client_address, ClientAddressConfig::XForwardedFor(proxies));
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ProxiesConfig {
    /// Proxies in these networks.
    Networks(Vec<String>),
    /// The stated number of proxies.
    Hops(u8),
}

impl ClientAddressConfig {
    /// Builds the place of the address.
    ///
    /// # Errors
    ///
    /// If a network or the header's name is invalid.
    pub fn build(&self) -> Result<ClientAddress, ConfigError> {
        Ok(match self {
            Self::Peer => ClientAddress::peer(),
            Self::XForwardedFor(proxies) => ClientAddress::x_forwarded_for(proxies.build()?),
            Self::Forwarded(proxies) => ClientAddress::forwarded(proxies.build()?),
            Self::OneHeader { name, networks } => {
                let networks = Networks::try_new(networks)?;
                ClientAddress::try_header(name, networks).map_err(|_| {
                    ConfigError::ClientHeader {
                        header: name.chars().take(128).collect(),
                    }
                })?
            }
        })
    }
}

impl ProxiesConfig {
    fn build(&self) -> Result<TrustedProxies, ConfigError> {
        Ok(match self {
            Self::Networks(networks) => Networks::try_new(networks)?.into(),
            Self::Hops(hops) => Hops(*hops).into(),
        })
    }
}
