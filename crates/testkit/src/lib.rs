//! Real servers for tests, and with the feature `grpc` a service for them to serve.
//!
//! Redis: alone, behind TLS, watched by Sentinels or in a cluster, and failing networks between them. Each has its own free
//! port, socket and folder, and is gone when it is dropped. So are nginx, Caddy, Envoy and a browser.
//!
//! `TOLLGATE_REDIS_SERVER` names another server binary, so that the same tests run on other versions and on Valkey.

#![expect(
    clippy::panic,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test that cannot have its server has failed"
)]

mod alone;
mod binary;
mod browser;
mod caddy;
mod certificates;
mod clock;
mod cluster;
mod counts;
mod effort;
mod envoy;
mod log;
#[cfg(feature = "models")]
pub mod models;
mod network;
mod nginx;
mod pool;
mod proxy;
mod sentinel;
#[cfg(feature = "grpc")]
pub mod shop;
mod standalone;
mod tls;
mod web_server;

pub use alone::is_alone;
pub use binary::server_binary;
pub use browser::{Browser, Element, keys};
pub use caddy::Caddy;
pub use certificates::{Authority, Identity};
pub use clock::shift_clock;
pub use cluster::Cluster;
pub use effort::{cases, seed};
pub use envoy::Envoy;
pub use log::Log;
pub use network::{Network, Weather};
pub use nginx::Nginx;
pub use pool::{Pool, PoolGuard};
pub use proxy::{Fault, Proxy};
pub use sentinel::Sentinels;
pub use standalone::Standalone;
pub use tls::Tls;
