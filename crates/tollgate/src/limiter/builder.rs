//! How a limiter is built, and what is refused then.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use tollgate_core::{Backend, MAX_CHARGES};
use tollgate_memory::MemoryBackend;

use super::{Limiter, Parts, matcher};
use crate::{ClientAddress, HeaderForm, Policy};

/// Collects what a [`Limiter`] is made of.
#[derive(Debug, Default)]
#[must_use = "a builder does nothing until it is built"]
pub struct LimiterBuilder {
    policies: Vec<Policy>,
    client: ClientAddress,
    ignores_path_case: bool,
    charges_preflights: bool,
    charges_health: bool,
    may_be_empty: bool,
    backend: Option<Arc<dyn Backend>>,
}

impl LimiterBuilder {
    /// Adds a policy. A request is charged by every policy that covers it, all or nothing.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policies.push(policy);
        self
    }

    /// Adds policies.
    pub fn policies(mut self, policies: impl IntoIterator<Item = Policy>) -> Self {
        self.policies.extend(policies);
        self
    }

    /// Where the address of a caller is to be found. Without this it is the socket's peer, and no header counts.
    pub fn client_address(mut self, address: ClientAddress) -> Self {
        self.client = address;
        self
    }

    /// Whether `/Login` is `/login` for the policies' [routes](Policy::route), and for keys made of what stands in paths.
    /// Say so if it is one to what stands behind. Letters outside of ASCII keep their case.
    pub fn ignore_path_case(mut self) -> Self {
        self.ignores_path_case = true;
        self
    }

    /// Charges CORS preflights under every policy: see [`Policy::charge_preflights`].
    pub fn charge_preflights(mut self) -> Self {
        self.charges_preflights = true;
        self
    }

    /// Charges calls to gRPC's health and reflection services under every policy: see [`Policy::charge_health_checks`].
    pub fn charge_health_checks(mut self) -> Self {
        self.charges_health = true;
        self
    }

    /// Takes it for no mistake if there is no policy: all limits stand at handlers and routes.
    ///
    /// ```
    /// use tollgate::{Limiter, RateLimitLayer};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let layer = RateLimitLayer::new(Limiter::builder().allow_no_policies().build()?);
    /// # Ok(()) }
    /// ```
    pub fn allow_no_policies(mut self) -> Self {
        self.may_be_empty = true;
        self
    }

    /// Who decides. Without this a [`MemoryBackend`] of this limiter's own does.
    pub fn backend(mut self, backend: impl Backend) -> Self {
        self.backend = Some(Arc::new(backend));
        self
    }

    /// The limiter.
    ///
    /// # Errors
    ///
    /// If there is no policy, if two have one name, if two quotas have one name, or if policies that could cover one path
    /// have more than [`MAX_CHARGES`] quotas between them.
    pub fn build(mut self) -> Result<Limiter, ConfigError> {
        if self.policies.is_empty() && !self.may_be_empty {
            return Err(ConfigError::NoPolicy);
        }
        let mut names = HashMap::new();
        for policy in &self.policies {
            if names.insert(policy.name(), ()).is_some() {
                return Err(ConfigError::DuplicatePolicy {
                    policy: policy.name().into(),
                });
            }
        }
        let mut labels = HashMap::new();
        for policy in &self.policies {
            for limit in policy.limits.iter() {
                if let Some(other) = labels.insert(&limit.labels.quota, policy.name()) {
                    return Err(ConfigError::DuplicateQuota {
                        quota: limit.labels.quota.clone(),
                        policies: [other.into(), policy.name().into()],
                    });
                }
            }
        }
        for policy in &mut self.policies {
            if self.ignores_path_case {
                policy.ignore_path_case();
            }
            policy.charges_preflights |= self.charges_preflights;
            policy.charges_health |= self.charges_health;
        }
        let matcher = matcher(&self.policies);
        let (on_demand, matched): (Vec<_>, Vec<_>) =
            self.policies.iter().partition(|policy| policy.on_demand);
        let quotas = |policy: usize| matched[policy].most_limits();
        let together = match &matcher {
            Some(matcher) => matcher.heaviest(quotas),
            None => (0..matched.len()).map(quotas).sum(),
        };
        let alone = on_demand.iter().map(|policy| policy.most_limits());
        let quotas = alone.fold(together, usize::max);
        if quotas > MAX_CHARGES {
            return Err(ConfigError::TooManyQuotas { quotas });
        }
        let backend = self
            .backend
            .unwrap_or_else(|| Arc::new(MemoryBackend::new()));
        Ok(Limiter::new(Parts {
            policies: self.policies.into(),
            client: self.client,
            matcher,
            ignores_path_case: self.ignores_path_case,
            backend,
        }))
    }
}

/// Why a policy or a limiter cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// This is no name for a policy or quota.
    PolicyName {
        /// The name, shortened if it is long.
        name: String,
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
    /// This is no host.
    Host {
        /// The policy's name.
        policy: String,
        /// What was given, shortened if it is long.
        host: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A policy's tiers are not sound.
    Tier {
        /// The policy's name.
        policy: String,
        /// The tier's name.
        tier: String,
        /// What is wrong with it.
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
        /// The forms.
        forms: [HeaderForm; 2],
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
    /// Two quotas of one limiter have one name.
    DuplicateQuota {
        /// The name.
        quota: String,
        /// The policies that they belong to.
        policies: [String; 2],
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
            } => write!(
                f,
                "header forms {one} and {other}: both write {}",
                one.names()[0]
            ),
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
                write!(f, "policy {one:?}: two quotas are named {quota:?}")
            }
            Self::DuplicateQuota {
                quota,
                policies: [one, other],
            } => {
                write!(
                    f,
                    "policies {one:?} and {other:?}: both have a quota named {quota:?}"
                )
            }
            Self::TooManyQuotas { quotas } => write!(
                f,
                "{quotas} quotas could meet in one request, and at most {MAX_CHARGES} are decided together"
            ),
        }
    }
}

impl Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Quota;

    const QUOTA: Quota = Quota::per_second(1);

    fn refusal(policies: impl IntoIterator<Item = Policy>) -> String {
        Limiter::builder()
            .policies(policies)
            .build()
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn a_limiter_without_policies_is_refused() {
        assert_eq!(refusal([]), "a limiter without policies limits nothing");
    }

    #[test]
    fn two_policies_of_one_name_are_refused() {
        let policies = [
            Policy::new("login", QUOTA),
            Policy::new("login", Quota::per_day(9)),
        ];
        assert_eq!(
            refusal(policies),
            "policy \"login\": there are two of this name"
        );
    }

    #[test]
    fn two_quotas_of_one_name_are_refused() {
        let clash = [
            Policy::new("api", [QUOTA, QUOTA]),
            Policy::new("api-2", QUOTA),
        ];
        assert_eq!(
            refusal(clash),
            "policies \"api\" and \"api-2\": both have a quota named \"api-2\""
        );
        let twice = [Policy::new("api", [("day", QUOTA), ("day", QUOTA)])];
        assert_eq!(
            refusal(twice),
            "policy \"api\": two quotas are named \"day\""
        );
    }

    #[test]
    fn more_quotas_than_a_call_may_carry_are_refused() {
        let policies = (0..=MAX_CHARGES).map(|n| Policy::new(&format!("p{n}"), QUOTA));
        assert_eq!(
            refusal(policies),
            "33 quotas could meet in one request, and at most 32 are decided together"
        );
    }
    #[test]
    fn policies_on_demand_do_not_meet_unless_they_are_asked_for_together() {
        let policies = (0..=MAX_CHARGES).map(|n| Policy::new(&format!("p{n}"), QUOTA).on_demand());
        assert!(Limiter::builder().policies(policies).build().is_ok());

        let alone = Policy::new("big", vec![QUOTA; MAX_CHARGES + 1]).on_demand();
        assert!(refusal([alone]).starts_with("33 quotas could meet"));
    }

    #[test]
    fn a_limiter_without_policies_can_be_meant() {
        let limiter = Limiter::builder().allow_no_policies().build().unwrap();
        assert_eq!(limiter.policies().count(), 0);
    }
}
