//! The whole of Tollgate, used as its users do: real axum and tonic servers, real sockets, a real Redis.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and prints its seed"
)]

mod annotations;
mod annotations_misused;
mod annotations_under_layer;
mod answers;
mod answers_bodies;
mod answers_cors;
mod answers_headers;
mod answers_jitter;
mod answers_parsed;
mod any_body;
mod axum_layers;
mod bans;
mod bans_abandoned;
mod bans_combined;
mod bans_listed;
mod bans_redis;
mod body_keys;
mod calendar;
mod check;
mod check_all;
mod client_address;
mod common;
mod concurrency;
mod concurrency_allocations;
mod concurrency_nested;
mod concurrency_outages;
mod concurrency_policies;
mod config;
mod config_bans;
mod config_errors;
mod config_forms;
mod config_idempotency;
mod config_reference;
mod config_roundtrip;
mod config_shedding;
mod failure;
mod failure_redis;
mod grpc;
mod handles;
mod hostile_clients;
mod idempotency;
mod idempotency_refunds;
mod idempotency_served;
mod interval_refill;
mod keys;
mod leases;
mod lists;
mod load_signals;
mod look_alikes;
mod matching;
mod message_limits_redis;
mod message_rates;
mod metrics;
mod metrics_allocations;
mod metrics_documented;
mod nested_layers;
mod observer;
mod observer_causes;
mod observer_panics;
mod observer_transports;
mod offenders;
mod operating_pages;
mod outcomes;
mod outcomes_busy_keys;
mod partial_acquire;
mod policies;
mod priorities;
mod proto;
mod queueing;
mod queueing_allocations;
mod queueing_changes;
mod queueing_combined;
mod queueing_edges;
mod queueing_peers;
mod queueing_served;
mod queueing_timers;
mod quota_lookups;
mod quota_lookups_failing;
mod quota_lookups_redis;
mod readers;
mod replacement_effects;
mod routes;
mod secrecy;
mod settle;
mod settle_concurrently;
mod shedding;
mod spans;
mod spellings;
mod switches;
mod tiers;
mod tiers_failing;
mod tiers_redis;
mod tower_contract;
mod trusted_proxies;
mod truth;
mod warm_up;
mod warnings;
mod watch;
