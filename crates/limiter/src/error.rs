//! The error of a configuration that cannot be built. It is plain data, so that each module may return it.

use tollgate_core::{Capability, MAX_CHARGES};

/// The reason why a policy or a limiter cannot be built.
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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The text is not a valid name for a policy or quota.
    #[error(
        "policy {name:?}: invalid name; use at most 64 of a-z, 0-9, -, _, . and /, starting with a letter or digit"
    )]
    PolicyName {
        /// The name, shortened if it is long.
        name: String,
    },
    /// The text is not a quota.
    #[error("policy {policy:?}: quota {text:?}: {reason}")]
    Quota {
        /// The policy's name.
        policy: String,
        /// The text, shortened if it is long.
        text: String,
        /// The reason, and a text that would work.
        reason: String,
    },
    /// The policy has no quota.
    #[error("policy {policy:?}: no quota")]
    NoQuota {
        /// The policy's name.
        policy: String,
    },
    /// The text is not a pattern of paths.
    #[error("policy {policy:?}: route {route:?}: {reason}")]
    Route {
        /// The policy's name.
        policy: String,
        /// The given text, shortened if it is long.
        route: String,
        /// The reason.
        reason: String,
    },
    /// The text names no gRPC methods.
    #[error("policy {policy:?}: gRPC method {method:?}: {reason}")]
    GrpcMethod {
        /// The policy's name.
        policy: String,
        /// The given text, shortened if it is long.
        method: String,
        /// The reason.
        reason: &'static str,
    },
    /// An interceptor cannot do what the policy asks for.
    #[error("policy {policy:?}: {reason}; use RateLimitLayer")]
    Interceptor {
        /// The policy's name.
        policy: String,
        /// The part that an interceptor cannot do.
        reason: &'static str,
    },
    /// The policy cannot charge requests once.
    #[error("policy {policy:?}: once: {reason}")]
    Once {
        /// The policy's name.
        policy: String,
        /// The reason.
        reason: &'static str,
    },
    /// The budgets of the policy cannot be leased.
    #[error("policy {policy:?}: lease: {reason}")]
    Lease {
        /// The policy's name.
        policy: String,
        /// The reason.
        reason: String,
    },
    /// The ban of a policy makes no sense, or what belongs to a ban stands on a policy without one.
    #[error("policy {policy:?}: ban: {reason}")]
    Ban {
        /// The policy's name.
        policy: String,
        /// The reason.
        reason: String,
    },
    /// The limiter's backend cannot do what the policy needs.
    #[error("policy {policy:?}: the backend does not support {capability}")]
    Capability {
        /// The policy's name.
        policy: String,
        /// The capability that the backend lacks.
        capability: Capability,
    },
    /// A policy cannot charge messages in this way.
    #[error("policy {policy:?}: {reason}")]
    Messages {
        /// The policy's name.
        policy: String,
        /// The reason.
        reason: &'static str,
    },
    /// The text is not a host.
    #[error("policy {policy:?}: host {host:?}: {reason}")]
    Host {
        /// The policy's name.
        policy: String,
        /// The given text, shortened if it is long.
        host: String,
        /// The reason.
        reason: &'static str,
    },
    /// A list or the tiers of a policy name an identity that no request under it has.
    #[error("policy {policy:?}: {place}: no request can have this identity: {reason}")]
    Identity {
        /// The policy's name.
        policy: String,
        /// The place where it stands: `tiers`, `exempt_keys` or `block_keys`.
        place: &'static str,
        /// The reason, without the identity itself.
        reason: String,
    },
    /// The key of a policy finds no identity in any request.
    #[error("policy {policy:?}: key: {reason}")]
    Key {
        /// The policy's name.
        policy: String,
        /// The place where the key looks, and the reason why nothing is there.
        reason: String,
    },
    /// The source of the tiers makes no sense.
    #[error("policy {policy:?}: tiers: {reason}")]
    Tiers {
        /// The policy's name.
        policy: String,
        /// The reason.
        reason: &'static str,
    },
    /// A tier of a policy is invalid.
    #[error("policy {policy:?}: tier {tier:?}: {reason}")]
    Tier {
        /// The policy's name.
        policy: String,
        /// The tier's name.
        tier: String,
        /// The reason.
        reason: String,
    },
    /// The quotas that are asked for make no sense, or an answer does not.
    #[error("policy {policy:?}: quota_by_async: {reason}")]
    QuotaLookup {
        /// The policy's name.
        policy: String,
        /// The reason.
        reason: String,
    },
    /// The classes of a policy make no sense.
    #[error("policy {policy:?}: classes: {reason}")]
    Classes {
        /// The policy's name.
        policy: String,
        /// The reason.
        reason: String,
    },
    /// A class of a policy is invalid.
    #[error("policy {policy:?}: class {class:?}: {reason}")]
    Class {
        /// The policy's name.
        policy: String,
        /// The class, shortened if its name is long.
        class: String,
        /// The reason.
        reason: String,
    },
    /// The rule for requests under pressure makes no sense.
    #[error("shedding: {reason}")]
    Shedding {
        /// The reason.
        reason: String,
    },
    /// A signal of pressure cannot be measured.
    #[error("pressure: {signal}: {reason}")]
    Pressure {
        /// The signal: `cpu`, `memory` or `lag`.
        signal: &'static str,
        /// The reason.
        reason: String,
    },
    /// A class makes no sense in the rule for requests under pressure.
    #[error("shedding: class {class:?}: {reason}")]
    ShedClass {
        /// The class, shortened if its name is long.
        class: String,
        /// The reason.
        reason: String,
    },
    /// Every request costs more than a full budget of the policy.
    #[error(
        "policy {policy:?}: a cost of {cost} never passes: a full budget of {quota:?} holds {capacity}"
    )]
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
    #[error("policy {policy:?}: covers no request: {reason}")]
    CoversNothing {
        /// The policy's name.
        policy: String,
        /// The reason.
        reason: &'static str,
    },
    /// A value in a field of a policy makes no sense.
    #[cfg(feature = "serde")]
    #[error("policy {policy:?}: {field} {value:?}: {reason}")]
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
    #[error(
        "policy {policy:?}: {field} {name:?}: is not registered; {}",
        registered(known)
    )]
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
    /// The name of the header in which callers say how long they wait is invalid.
    #[cfg(feature = "serde")]
    #[error("deadline_header: {header:?}: invalid header name")]
    DeadlineHeader {
        /// The name.
        header: String,
    },
    /// The text is not the name of a header.
    #[cfg(feature = "serde")]
    #[error("client_address: header {header:?}: invalid header name")]
    ClientHeader {
        /// The given text, shortened if it is long.
        header: String,
    },
    /// The text is not a network.
    #[error("network {network:?}: {reason}")]
    Network {
        /// The given text, shortened if it is long.
        network: String,
        /// The reason.
        reason: &'static str,
    },
    /// IPv6 addresses cannot be grouped by this many bits.
    #[error("IPv6 prefix {bits}: is not between 1 and 128")]
    Ipv6Prefix {
        /// The number of bits.
        bits: u8,
    },
    /// The headers have no form.
    #[error("header forms: the list is empty; use `.without_headers()`")]
    NoHeaderForm,
    /// Two forms write one header.
    #[error("header forms {} and {}: both write {header}", forms[0], forms[1])]
    HeaderForms {
        /// The forms, as they are written.
        forms: [&'static str; 2],
        /// The header.
        header: &'static str,
    },
    /// The limiter has no policy.
    #[error("a limiter without policies limits nothing")]
    NoPolicy,
    /// The limiter has no policy of the expected name.
    #[error("policy {policy:?}: there is no policy of this name")]
    UnknownPolicy {
        /// The name, shortened if it is long.
        policy: String,
    },
    /// Two policies of one limiter have one name.
    #[error("policy {policy:?}: two policies have this name")]
    DuplicatePolicy {
        /// The name.
        policy: String,
    },
    /// Two quotas of one limiter have one name in headers.
    #[error("{}", same_name(quota, policies))]
    DuplicateQuota {
        /// The name in headers: the policy's, with or without the quota's own.
        quota: String,
        /// The policies that they belong to.
        policies: [String; 2],
    },
    /// The policies have larger sliding logs than one call may read.
    #[error(
        "sliding logs of {entries} entries could meet in one request, and at most {most} are read together; a rolling window takes less"
    )]
    TooManyLogEntries {
        /// The number of their entries.
        entries: usize,
        /// The number of entries that one call may read.
        most: usize,
    },
    /// The policies have more quotas than one call may carry.
    #[error(
        "{quotas} quotas could meet in one request, and at most {MAX_CHARGES} are decided together"
    )]
    TooManyQuotas {
        /// The number of their quotas.
        quotas: usize,
    },
}

/// The names that a registry has.
#[cfg(feature = "serde")]
pub(crate) fn registered(known: &[String]) -> String {
    if known.is_empty() {
        return "nothing is".to_owned();
    }
    format!("registered are {}", known.join(", "))
}

fn same_name(quota: &str, [one, other]: &[String; 2]) -> String {
    if one == other {
        return format!("policy {one:?}: headers call two of its quotas {quota:?}");
    }
    format!(
        "policies {one:?} and {other:?}: headers call a quota of both {quota:?}; give one of them another name"
    )
}
