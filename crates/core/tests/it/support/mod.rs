//! Helpers of this crate's proofs: a runner that prints its seed, quotas of every kind, and one budget to play on.

#![allow(
    dead_code,
    reason = "each test binary includes this file and uses its own part of it"
)]

pub(crate) mod budget;
pub(crate) mod history;
pub(crate) mod quotas;
pub(crate) mod runner;
pub(crate) mod steps;
