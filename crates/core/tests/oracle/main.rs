//! Every verdict against a second opinion: the six algorithms once more, naively, in exact rational numbers, and what is
//! held in whole ones.
//!
//! `PROOF_EFFORT=20 cargo test` tries twenty times as much; `PROOF_SEED=…` repeats a run that failed.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod call;
mod long_runs;
mod model;
mod random_calls;
#[path = "../support/mod.rs"]
mod support;
