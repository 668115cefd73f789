//! The error of a configuration that cannot be built. It is plain data, so that each module may return it.

use std::error::Error;
use std::fmt;

use tollgate_core::{Capability, MAX_CHARGES};

/// Why a policy or a limiter cannot be built.
///
/// The message names the policy and the value:
///
/// ```
/// use tollgate::{ConfigError, Limiter, Policy, Quota};
///
/// let refused = Policy::try_new("Log In", Quota::per_minute(5)).unwrap_err();
/// assert!(matches!(refused, ConfigError::PolicyName { .. }));
/// assert!(refused.to_string().contains("Log In"));
///
/// let login = || Policy::new("login", Quota::per_minute(5));
/// let twice = Limiter::builder().policy(login()).policy(login()).build();
/// assert!(matches!(twice, Err(ConfigError::DuplicatePolicy { .. })));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// The text is not a valid name for a policy or quota.
    PolicyName {
        /// The name, shortened if it is long.
        name: String,
    },
    /// The text is not a quota.
    Quota {
        /// The policy's name.
        policy: String,
        /// The text, shortened if it is long.
        text: String,
        /// The reason, and a text that would work.
        reason: String,
    },
    /// The policy has no quota.
    NoQuota {
        /// The policy's name.
        policy: String,
    },
    /// The text is not a pattern of paths.
    Route {
        /// The policy's name.
        policy: String,
        /// The given text, shortened if it is long.
        route: String,
        /// The reason.
        reason: String,
    },
    /// The text names no gRPC methods.
    GrpcMethod {
        /// The policy's name.
        policy: String,
        /// The given text, shortened if it is long.
        method: String,
        /// The reason.
        reason: &'static str,
    },
    /// An interceptor cannot do what the policy asks for.
    Interceptor {
        /// The policy's name.
        policy: String,
        /// The part that an interceptor cannot do.
        reason: &'static str,
    },
    /// The limiter's backend cannot do what the policy needs.
    Capability {
        /// The policy's name.
        policy: String,
        /// The capability that the backend lacks.
        capability: Capability,
    },
    /// A policy cannot charge messages in this way.
    Messages {
        /// The policy's name.
        policy: String,
        /// The reason.
        reason: &'static str,
    },
    /// The text is not a host.
    Host {
        /// The policy's name.
        policy: String,
        /// The given text, shortened if it is long.
        host: String,
        /// The reason.
        reason: &'static str,
    },
    /// A list or the tiers of a policy name an identity that no request under it has.
    Identity {
        /// The policy's name.
        policy: String,
        /// Where it stands: `tiers`, `exempt_keys` or `block_keys`.
        place: &'static str,
        /// The reason, without the identity itself.
        reason: String,
    },
    /// The key of a policy finds no identity in any request.
    Key {
        /// The policy's name.
        policy: String,
        /// The place where the key looks, and the reason why nothing is there.
        reason: String,
    },
    /// The source of the tiers makes no sense.
    Tiers {
        /// The policy's name.
        policy: String,
        /// The reason.
        reason: &'static str,
    },
    /// A tier of a policy is invalid.
    Tier {
        /// The policy's name.
        policy: String,
        /// The tier's name.
        tier: String,
        /// The reason.
        reason: String,
    },
    /// Every request costs more than a full budget of the policy.
    Cost {
        /// The policy's name.
        policy: String,
        /// The quota's name.
        quota: String,
        /// The cost of a request.
        cost: u64,
        /// The capacity of a full budget.
        capacity: u64,
    },
    /// The policy covers no request, whatever it is.
    CoversNothing {
        /// The policy's name.
        policy: String,
        /// The reason.
        reason: &'static str,
    },
    /// A value in a field of a policy makes no sense.
    #[cfg(feature = "serde")]
    Field {
        /// The policy's name.
        policy: String,
        /// The field's name.
        field: &'static str,
        /// The given text, shortened if it is long.
        value: String,
        /// The reason.
        reason: String,
    },
    /// A configuration names something that is not registered.
    #[cfg(feature = "serde")]
    NotRegistered {
        /// The policy's name.
        policy: String,
        /// The field's name.
        field: &'static str,
        /// The name, shortened if it is long.
        name: String,
        /// The names that are registered for this field.
        known: Vec<String>,
    },
    /// The text is not the name of a header.
    #[cfg(feature = "serde")]
    ClientHeader {
        /// The given text, shortened if it is long.
        header: String,
    },
    /// The text is not a network.
    Network {
        /// The given text, shortened if it is long.
        network: String,
        /// The reason.
        reason: &'static str,
    },
    /// IPv6 addresses cannot be grouped by this many bits.
    Ipv6Prefix {
        /// The number of bits.
        bits: u8,
    },
    /// The headers have no form.
    NoHeaderForm,
    /// Two forms write one header.
    HeaderForms {
        /// The forms, as they are written.
        forms: [&'static str; 2],
        /// The header.
        header: &'static str,
    },
    /// The limiter has no policy.
    NoPolicy,
    /// The limiter has no policy of the expected name.
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
        /// The name in headers: the policy's, with or without the quota's own.
        quota: String,
        /// The policies that they belong to.
        policies: [String; 2],
    },
    /// The policies have larger sliding logs than one call may read.
    TooManyLogEntries {
        /// The number of their entries.
        entries: usize,
        /// The number of entries that one call may read.
        most: usize,
    },
    /// The policies have more quotas than one call may carry.
    TooManyQuotas {
        /// The number of their quotas.
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
