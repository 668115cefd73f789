//! Policies and limiters as plain data, for whatever serde reads: TOML, YAML, JSON.
//!
//! What is read is a [`LimiterConfig`], which may still be changed or compared. [`LimiterConfig::build`] makes a
//! [`LimiterBuilder`](crate::LimiterBuilder) of it, to which the application adds the backend. Closures cannot be written down:
//! they are registered in a [`Registry`], as are lists that change at run time, and the configuration names them.
//!
//! ```
//! use tollgate::config::{LimiterConfig, Registry};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config: LimiterConfig = toml::from_str(r#"
//!     client_address = { x-forwarded-for = { networks = ["10.0.0.0/8"] } }
//!     ipv6_prefix = 56
//!
//!     [[policies]]
//!     name = "login"
//!     quotas = "5/min"
//!     routes = ["/login"]
//!     methods = ["POST"]
//!     on_failure = "deny"
//!
//!     [[policies]]
//!     name = "api"
//!     quotas = { second = "10/s burst 50", day = "1000/day sliding-window" }
//!     key = [{ header = "x-api-key" }, "matched-route"]
//!     on_missing = "deny"
//!     routes = ["/api/{*path}"]
//!     when = ["is-external"]
//! "#)?;
//!
//! let registry = Registry::new()
//!     .register_condition("is-external", |request| !request.headers().contains_key("x-internal"));
//! let limiter = config.build(&registry)?.build()?;
//! assert_eq!(limiter.policies().len(), 2);
//! # Ok(()) }
//! ```
//!
//! # Errors
//!
//! What has the wrong shape, such as an unknown field, is refused while it is read, by a message of serde's; in a limiter it
//! names the policy and the field, and the format says where the policy stands. What has the right shape and no sense is a
//! [`ConfigError`] that names the policy, the field and the value.

mod build;
mod client;
mod failure;
mod key;
mod limiter;
mod lists;
mod messages;
mod policy;
mod quotas;
mod read;
mod registry;
mod tiers;

pub use self::client::{ClientAddressConfig, ProxiesConfig};
pub use self::key::KeyConfig;
pub use self::limiter::LimiterConfig;
pub use self::lists::{BlockConfig, EntryConfig};
pub use self::messages::{DirectionConfig, MessagesConfig};
pub use self::policy::{CostConfig, PolicyConfig};
pub use self::quotas::QuotasConfig;
pub use self::registry::Registry;
pub use self::tiers::{TierSource, TiersConfig};

use crate::ConfigError;

/// What is written says nothing that would not hold without it.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What was written in a field of a policy is none, for this reason.
fn refused(
    policy: &str,
    field: &'static str,
    value: &str,
    reason: impl Into<String>,
) -> ConfigError {
    ConfigError::Field {
        policy: policy.to_owned(),
        field,
        value: value.chars().take(128).collect(),
        reason: reason.into(),
    }
}
