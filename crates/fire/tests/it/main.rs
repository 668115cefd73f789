//! The checker: histories of a limiter that keeps its promises pass, and each way to break one is caught.

mod banned;
mod bans;
mod bans_by_operators;
mod campaign_short;
mod checker;
mod denial_cache;
mod envoy;
mod idempotency;
mod lease_bound;
mod leases;
mod partial_acquire;
mod priorities;
mod queue_of_limiter;
mod queueing;
mod regressions;
mod replacement;
mod simulated;
