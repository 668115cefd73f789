//! Identities that a policy refuses.

use serde::{Deserialize, Serialize};

use super::is_default;

/// The identities that a policy refuses, by how.
///
/// An identity is written as the policy's key finds it: the API key, the name of the user, the address of the client, which
/// stands for its whole network where IPv6 is [grouped](super::LimiterConfig::ipv6_prefix). Of a registered key it is taken as
/// text. Keys of several parts cannot be written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct BlockConfig {
    /// With 403.
    #[serde(default, skip_serializing_if = "is_default")]
    pub forbidden: Vec<String>,
    /// With 429, without `Retry-After`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub too_many_requests: Vec<String>,
}
