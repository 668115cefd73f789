//! The memory of many keys, counted by an allocator over all threads: each test in a process of its own.

mod bytes_per_key;
#[path = "../it/common/mod.rs"]
mod common;
mod flood;

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;
