//! Policies and limiters as plain data, for whatever serde reads: TOML, YAML, JSON.
//!
//! Reading gives a [`LimiterConfig`], which may still be changed or compared. [`LimiterConfig::build`] makes a
//! [`LimiterBuilder`](crate::LimiterBuilder) of it, and the application adds the backend. The configuration names closures and
//! lists that change at run time; the application registers them in a [`Registry`]. The [reference] lists every key with its
//! type, its default and a line of TOML.
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
//! [reference]: https://github.com/tollgate-rs/tollgate/blob/main/docs/configuration.md
//!
//! # Errors
//!
//! A value of the wrong shape, such as an unknown field, is refused while it is read. The message is serde's; in a limiter it
//! also names the policy and the field. A value of the right shape that makes no sense is a [`ConfigError`], which names the
//! policy, the field and the value.

mod ban;
mod build;
mod classes;
mod client;
mod failure;
mod key;
mod lease;
mod limiter;
mod lists;
mod messages;
mod once;
mod policy;
mod quotas;
mod read;
mod registry;
mod reload_error;
mod shed;
mod tiers;
mod watch;
mod words;

pub use self::ban::BanConfig;
pub use self::classes::ClassesConfig;
pub use self::client::{ClientAddressConfig, ProxiesConfig};
pub use self::key::KeyConfig;
pub use self::lease::LeaseConfig;
pub use self::limiter::LimiterConfig;
pub use self::lists::{BlockConfig, EntryConfig};
pub use self::messages::{DirectionConfig, MessagesConfig};
pub use self::once::OnceConfig;
pub use self::policy::{CostConfig, PolicyConfig};
pub use self::quotas::QuotasConfig;
pub use self::registry::Registry;
pub use self::reload_error::ReloadError;
pub use self::shed::{ShedConfig, SignalConfig};
pub use self::tiers::{TierSource, TiersConfig};
pub use self::watch::{ConfigFile, Watch, watch};

use crate::ConfigError;

/// True if leaving the value out would change nothing.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The error for an invalid value in a field of a policy.
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
