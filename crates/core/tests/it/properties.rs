//! Properties of every quota and every history, tried on random ones: see the modules.
//!
//! `TOLLGATE_EFFORT=100 cargo test` tries all that a full run does; `TOLLGATE_SEED=…` repeats a run that failed.

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
mod tiers;
mod turns;
mod waiting;
mod warming;
mod worst_case;
