//! The conformance tests find each defect, and pass backends and wrappers without one.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and prints its seed"
)]

mod broken;
mod common;
mod foreign;
mod wrappers;
