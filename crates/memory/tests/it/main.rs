//! The backend in memory: exact, bounded, and never waiting.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and prints its seed"
)]

mod allocations;
mod bounds;
mod common;
mod concurrency;
mod concurrency_keys;
mod conformance;
mod refunds;
mod threads;
