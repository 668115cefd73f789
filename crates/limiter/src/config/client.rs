//! Where the address of a caller is to be found, as it is written.

use serde::{Deserialize, Serialize};

use crate::{ClientAddress, ConfigError, Hops, Networks, TrustedProxies};

/// Where the address of a caller is to be found: a [`ClientAddress`] as plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum ClientAddressConfig {
    /// The socket's peer: `"peer"`.
    #[default]
    Peer,
    /// What trusted proxies wrote into `X-Forwarded-For`: `{ x-forwarded-for = { networks = ["10.0.0.0/8"] } }`.
    XForwardedFor(ProxiesConfig),
    /// What trusted proxies wrote into `Forwarded`: `{ forwarded = { hops = 2 } }`.
    Forwarded(ProxiesConfig),
    /// The one address in a header: `{ header = { name = "cf-connecting-ip", networks = ["173.245.48.0/20"] } }`.
    // Not `Header`, which the compiler would then spell out as `key::Header` in its errors.
    #[serde(rename = "header")]
    OneHeader {
        /// The header's name.
        name: String,
        /// The networks whose peers are believed.
        networks: Vec<String>,
    },
}

/// Which proxies are believed: [`TrustedProxies`] as plain data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ProxiesConfig {
    /// Those in these networks.
    Networks(Vec<String>),
    /// As many as stated.
    Hops(u8),
}

impl ClientAddressConfig {
    /// Where the address is to be found.
    ///
    /// # Errors
    ///
    /// If a network or the header's name is none.
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
