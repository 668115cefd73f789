//! The Redis backend on real servers: standalone, Sentinel, Cluster and TLS.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and prints its seed"
)]

mod access_rules;
mod bans;
mod bans_listed;
mod batching;
mod bytes_per_key;
mod calendar;
mod cluster;
mod cluster_topology;
mod common;
mod concurrency;
mod concurrency_clock;
mod concurrency_processes;
mod concurrency_topology;
mod conformance;
mod conformance_cluster;
mod denial_cache;
mod deploys;
mod errors;
mod hostile_server;
mod idle_connections;
mod network;
mod processes;
mod queueing;
mod queueing_permits;
mod queueing_topology;
mod reconnecting;
mod recovery;
mod runtime_shutdown;
mod secrets;
mod sentinel;
mod server_errors;
mod standalone;
mod tls;
mod wrong_server;
