//! The error of a configuration that cannot be built. Plain data, so that each module may return it.

use std::error::Error;
use std::fmt;

use tollgate_core::{Capability, MAX_CHARGES};

/// Why a policy or a limiter cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// This is no name for a policy or quota.
    PolicyName {
        /// The name, shortened if it is long.
        name: String,
    },
    /// A text is no quota.
    Quota {
        /// The policy's name.
        policy: String,
        /// The text, shortened if it is long.
        text: String,
        /// What is wrong with it, and what would work.
        reason: String,
    },
    /// The policy has no quota.
    NoQuota {
        /// The policy's name.
        policy: String,
    },
    /// This is no pattern of paths.
    Route {
        /// The policy's name.
        policy: String,
        /// What was given, shortened if it is long.
        route: String,
        /// What is wrong with it.
        reason: String,
    },
    /// This names no gRPC methods.
    GrpcMethod {
        /// The policy's name.
        policy: String,
        /// What was given, shortened if it is long.
        method: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An interceptor cannot do what the policy asks for.
    Interceptor {
        /// The policy's name.
        policy: String,
        /// What it cannot do.
        reason: &'static str,
    },
    /// The limiter's backend cannot do what the policy needs.
    Capability {
        /// The policy's name.
        policy: String,
        /// What it needs, and the backend lacks.
        capability: Capability,
    },
    /// A policy cannot charge messages in this way.
    Messages {
        /// The policy's name.
        policy: String,
        /// Why not.
        reason: &'static str,
    },
    /// This is no host.
    Host {
        /// The policy's name.
        policy: String,
        /// What was given, shortened if it is long.
        host: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A list or the tiers of a policy name an identity that no request under it has.
    Identity {
        /// The policy's name.
        policy: String,
        /// Where it stands: `tiers`, `exempt_keys` or `block_keys`.
        place: &'static str,
        /// What is wrong with it, without the identity itself.
        reason: String,
    },
    /// The key of a policy finds no identity in any request.
    Key {
        /// The policy's name.
        policy: String,
        /// What the key looks for, and why that is nowhere.
        reason: String,
    },
    /// How tiers are found makes no sense.
    Tiers {
        /// The policy's name.
        policy: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// A policy's tiers are not sound.
    Tier {
        /// The policy's name.
        policy: String,
        /// The tier's name.
        tier: String,
        /// What is wrong with it.
        reason: String,
    },
    /// What every request costs is more than a quota of the policy ever holds.
    Cost {
        /// The policy's name.
        policy: String,
        /// The quota's name.
        quota: String,
        /// What a request costs.
        cost: u64,
        /// What a full budget holds.
        capacity: u64,
    },
    /// The policy covers no request, whatever it is.
    CoversNothing {
        /// The policy's name.
        policy: String,
        /// Why.
        reason: &'static str,
    },
    /// What a configuration says in a field of a policy makes no sense.
    #[cfg(feature = "serde")]
    Field {
        /// The policy's name.
        policy: String,
        /// The field's name.
        field: &'static str,
        /// What was given, shortened if it is long.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A configuration names something that is not registered.
    #[cfg(feature = "serde")]
    NotRegistered {
        /// The policy's name.
        policy: String,
        /// The field's name.
        field: &'static str,
        /// What was named, shortened if it is long.
        name: String,
        /// What is registered for this field.
        known: Vec<String>,
    },
    /// This is no name of a header to find the client's address in.
    #[cfg(feature = "serde")]
    ClientHeader {
        /// What was given, shortened if it is long.
        header: String,
    },
    /// This is no network.
    Network {
        /// What was given, shortened if it is long.
        network: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// IPv6 addresses cannot be grouped by this many bits.
    Ipv6Prefix {
        /// How many.
        bits: u8,
    },
    /// Headers in no form at all.
    NoHeaderForm,
    /// Two forms of headers write the same header.
    HeaderForms {
        /// The forms, as they are written.
        forms: [&'static str; 2],
        /// The header.
        header: &'static str,
    },
    /// The limiter has no policy.
    NoPolicy,
    /// The limiter has no policy of this name, which somebody expects.
    UnknownPolicy {
        /// The name, shortened if it is long.
        policy: String,
    },
    /// Two policies of one limiter have one name.
    DuplicatePolicy {
        /// The name.
        policy: String,
    },
    /// Two quotas of one limiter have one name in headers.
    DuplicateQuota {
        /// The name there: the policy's, or that and the quota's own.
        quota: String,
        /// The policies that they belong to.
        policies: [String; 2],
    },
    /// The policies have larger sliding logs than one call may read.
    TooManyLogEntries {
        /// How many entries they have.
        entries: usize,
        /// How many one call may read.
        most: usize,
    },
    /// The policies have more quotas than one call may carry.
    TooManyQuotas {
        /// How many they have.
        quotas: usize,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PolicyName { name } => write!(
                f,
                "policy {name:?}: is no name; use at most 64 of a-z, 0-9, -, _, . and /, starting with a letter or digit"
            ),
            Self::Quota {
                policy,
                text,
                reason,
            } => write!(f, "policy {policy:?}: quota {text:?}: {reason}"),
            Self::NoQuota { policy } => write!(f, "policy {policy:?}: no quota"),
            Self::Route {
                policy,
                route,
                reason,
            } => write!(f, "policy {policy:?}: route {route:?}: {reason}"),
            Self::GrpcMethod {
                policy,
                method,
                reason,
            } => write!(f, "policy {policy:?}: gRPC method {method:?}: {reason}"),
            Self::Interceptor { policy, reason } => {
                write!(f, "policy {policy:?}: {reason}; use RateLimitLayer")
            }
            Self::Capability { policy, capability } => {
                write!(
                    f,
                    "policy {policy:?}: the backend does not support {capability}"
                )
            }
            Self::Messages { policy, reason } => write!(f, "policy {policy:?}: {reason}"),
            Self::Host {
                policy,
                host,
                reason,
            } => write!(f, "policy {policy:?}: host {host:?}: {reason}"),
            Self::Tier {
                policy,
                tier,
                reason,
            } => write!(f, "policy {policy:?}: tier {tier:?}: {reason}"),
            Self::Identity {
                policy,
                place,
                reason,
            } => write!(
                f,
                "policy {policy:?}: {place}: an identity in it never comes: {reason}"
            ),
            Self::Key { policy, reason } => write!(f, "policy {policy:?}: key: {reason}"),
            Self::Tiers { policy, reason } => write!(f, "policy {policy:?}: tiers: {reason}"),
            Self::Cost {
                policy,
                quota,
                cost,
                capacity,
            } => write!(
                f,
                "policy {policy:?}: a cost of {cost} never passes: a full budget of {quota:?} holds {capacity}"
            ),
            Self::CoversNothing { policy, reason } => {
                write!(f, "policy {policy:?}: covers no request: {reason}")
            }
            #[cfg(feature = "serde")]
            Self::Field {
                policy,
                field,
                value,
                reason,
            } => write!(f, "policy {policy:?}: {field} {value:?}: {reason}"),
            #[cfg(feature = "serde")]
            Self::NotRegistered {
                policy,
                field,
                name,
                known,
            } => {
                write!(
                    f,
                    "policy {policy:?}: {field} {name:?}: is not registered; "
                )?;
                if known.is_empty() {
                    f.write_str("nothing is")
                } else {
                    write!(f, "registered are {}", known.join(", "))
                }
            }
            #[cfg(feature = "serde")]
            Self::ClientHeader { header } => {
                write!(f, "client_address: header {header:?}: is no header name")
            }
            Self::Network { network, reason } => write!(f, "network {network:?}: {reason}"),
            Self::Ipv6Prefix { bits } => {
                write!(f, "IPv6 prefix {bits}: is not between 1 and 128")
            }
            Self::NoHeaderForm => f.write_str("header forms: none, so no headers"),
            Self::HeaderForms {
                forms: [one, other],
                header,
            } => write!(f, "header forms {one} and {other}: both write {header}"),
            Self::NoPolicy => f.write_str("a limiter without policies limits nothing"),
            Self::UnknownPolicy { policy } => {
                write!(f, "policy {policy:?}: there is none of this name")
            }
            Self::DuplicatePolicy { policy } => {
                write!(f, "policy {policy:?}: there are two of this name")
            }
            Self::DuplicateQuota {
                quota,
                policies: [one, other],
            } if one == other => {
                write!(
                    f,
                    "policy {one:?}: headers call two of its quotas {quota:?}"
                )
            }
            Self::DuplicateQuota {
                quota,
                policies: [one, other],
            } => {
                write!(
                    f,
                    "policies {one:?} and {other:?}: headers call a quota of both {quota:?}; give one of them another name"
                )
            }
            Self::TooManyLogEntries { entries, most } => write!(
                f,
                "sliding logs of {entries} entries could meet in one request, and at most {most} are read together; \
                 a rolling window takes less"
            ),
            Self::TooManyQuotas { quotas } => write!(
                f,
                "{quotas} quotas could meet in one request, and at most {MAX_CHARGES} are decided together"
            ),
        }
    }
}

impl Error for ConfigError {}
