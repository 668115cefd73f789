//! What several tests of the program need.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

pub(crate) mod patient;
pub(crate) mod program;
pub(crate) mod state;
pub(crate) mod traffic;
