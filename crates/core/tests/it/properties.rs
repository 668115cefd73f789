//! Properties of every quota and every history, tried on random ones: see the modules.
//!
//! `TOLLGATE_EFFORT=100 cargo test` tries all that a full run does; `TOLLGATE_SEED=…` repeats a run that failed.

mod bans;
#[cfg(feature = "calendar")]
mod calendars;
mod calls;
mod clock;
mod concurrency;
mod debt;
mod denial;
mod denial_cache;
mod deploys;
mod expiry;
mod extremes;
mod idempotency;
mod leases;
mod numbers;
mod partial_acquire;
mod pitfalls;
mod priorities;
mod queue_order;
mod queueing;
mod refunds;
mod retry_after;
mod tiers;
mod warming;
mod worst_case;
