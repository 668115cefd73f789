//! Rate limits for gateways: services behind Envoy, nginx, Caddy or Traefik spend the budgets of Rust services.
//!
//! A gateway asks over the network, and the limiter of the library decides, in the same way and from the same budgets as a layer in
//! a service does. The file says which policies there are and which descriptors of Envoy charge them:
//!
//! ```toml
//! [[policies]]
//! name = "login"
//! quotas = "5/min"
//! on_demand = true
//!
//! [[envoy]]
//! domain = "shop"
//! descriptor = [{ key = "generic_key", value = "login" }, { key = "remote_address" }]
//! policy = "login"
//! ```
//!
//! A descriptor ("generic_key", "login"), ("remote_address", "203.0.113.7") charges the policy `login`, and the identity is the
//! address: the values that the rule leaves open. All descriptors of one request are one decision: all of their budgets are
//! charged, or none is.
//!
//! `tollgate serve` is [`Gateway`] with arguments. The [guide] has configurations of gateways that work.
//!
//! [guide]: https://github.com/tollgate-rs/tollgate/blob/main/docs/gateways.md

mod admin;
#[doc(hidden)]
pub mod caller;
mod config;
mod counts;
mod envoy;
mod forward;
mod gateway;
mod http_server;
mod identity;
mod listener;
mod live;
mod original;
mod period;
#[doc(hidden)]
pub mod proto;
mod rules;
mod status;
mod tls;

pub use self::admin::{Admin, AdminToken, AdminTokenError};
pub use self::counts::Counts;
pub use self::gateway::Gateway;
pub use self::listener::Listener;
pub use self::tls::{Tls, TlsError, TlsFiles};
