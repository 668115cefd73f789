//! Properties of every quota and every history, tried on random ones: see the modules.
//!
//! `PROOF_EFFORT=20 cargo test` tries twenty times as much; `PROOF_SEED=…` repeats a run that failed.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod bans;
#[cfg(feature = "calendar")]
mod calendars;
mod calls;
mod clock;
mod credit;
mod debt;
mod denial;
mod deploys;
mod expiry;
mod extremes;
mod grants;
mod ids;
mod known;
mod leases;
mod numbers;
mod pitfalls;
mod places;
mod retry_after;
mod shares;
#[path = "../support/mod.rs"]
mod support;
mod tiers;
mod turns;
mod waiting;
mod warming;
mod worst_case;
