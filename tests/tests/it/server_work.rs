//! The work of the server in instructions, which valgrind counts and no other load changes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod banned;
mod calls;
#[path = "../../../crates/redis/tests/it/common/mod.rs"]
mod common;
mod permits;
mod strikes;
