//! Core's rules: properties of every algorithm, and a second opinion on each verdict.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and prints its seed"
)]

mod calendar;
mod oracle;
mod properties;
mod support;
